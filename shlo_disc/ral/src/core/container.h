// The container of an artifact: the ZIP files that shlo_disc/artifacts/container.py writes, and no others.
#ifndef SHLO_DISC_RAL_CONTAINER_H_
#define SHLO_DISC_RAL_CONTAINER_H_

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "blake2b.h"

namespace shlo_disc {

// Why an artifact is not loaded.
class ArtifactError : public std::runtime_error {
 public:
  enum Kind {
    kFile,      // it cannot be opened or read, or everyone may write to it
    kDamaged,   // the bytes are not what was written
    kNewer,     // a later version of shlo_disc made it
    kNoTarget,  // it has no code for this processor
    kNoHandler,  // it calls code that was not given, or that cannot be called
  };
  ArtifactError(Kind what, const std::string& message) : std::runtime_error(message), kind(what) {}

  const Kind kind;
};

// The artifact in a file that is one, or that is a shared library (shlo_disc/artifacts/shared_library.py), nothing of
// which is run. Throws ArtifactError.
std::string_view artifact_in(std::string_view file);

// Every byte of the artifact is in a member, in a header that names it, or in the directory at its end.
// Refers to the bytes it was made from.
class Container {
 public:
  struct Member {
    std::string_view name;
    std::string_view data;
  };

  // Checks all but the digests of members. Throws ArtifactError.
  explicit Container(std::string_view whole);

  std::string_view manifest() const { return manifest_; }
  const std::vector<Member>& members() const { return members_; }  // the manifest is not among them

 private:
  std::string_view manifest_;
  std::vector<Member> members_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_CONTAINER_H_
