// Artifacts: files with programs that other processes compiled. Nothing of one is used before it is checked.
#ifndef SHLO_DISC_RAL_ARTIFACT_H_
#define SHLO_DISC_RAL_ARTIFACT_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "container.h"
#include "executable.h"
#include "manifest.h"
#include "parts.h"

namespace shlo_disc {

struct ArtifactOptions {
  std::string target;            // the one to load; empty: the first that this processor can run
  int device = 0;                // the GPU that a target with kernels of one runs on
  std::map<std::string, ForeignHandlers> handlers;  // of FFI, by the names of their targets
  std::string lapack;            // the library that functions of LAPACK are of; empty: see use_lapack
  bool trusts_constants = false;  // their digests are not checked
  std::function<void(const std::string&)> log;  // may be empty
};

struct Artifact {
  Manifest manifest;
  const Manifest::Target* target;  // the row of the last program
  GpuDevice* device = nullptr;     // null: the processor
  // Those of the parts. They read constants where they are in the file or in memory. Of the arguments of the call the
  // last program tells what holds for all: whether one is packable, and whether none reads one.
  std::vector<std::unique_ptr<Executable>> programs;

  Parts parts() const { return {manifest.steps, programs}; }
};

// Both throw ArtifactError, std::bad_alloc, and std::system_error where the system gives no executable memory.
std::unique_ptr<Artifact> open_artifact(const std::string& path, const ArtifactOptions& options);
// `file` stays as it is until the artifact is gone.
std::unique_ptr<Artifact> open_artifact_in(std::string_view file, const ArtifactOptions& options);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_ARTIFACT_H_
