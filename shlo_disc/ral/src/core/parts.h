// Programs of several parts: sizes come from data, so executables run in turn, and the arrays that one gives are
// arguments of the next. `Step` of shlo_disc/artifacts/manifest.py says what each step does.
#ifndef SHLO_DISC_RAL_PARTS_H_
#define SHLO_DISC_RAL_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "executable.h"
#include "failure.h"
#include "gpu_device.h"
#include "manifest.h"

namespace shlo_disc {

// Checks the steps of a manifest and the types of all arrays between them. Throws ArtifactError.
void check_steps(const Manifest& manifest);

// An array between programs.
struct PartArray {
  void* data;
  DType dtype;
  std::vector<int64_t> sizes;
  std::shared_ptr<void> memory;  // that it is in; null: the caller's
};

// Gives the memory that programs work in.
class PartMemory {
 public:
  virtual ~PartMemory() = default;
  // As CallMemory::result. Null: there is no memory.
  virtual std::shared_ptr<void> take(int64_t bytes, void** data) = 0;
  // As CallMemory::place: where all values are.
  virtual const GpuPlace* place() const { return nullptr; }
};

// The steps of an artifact. Immutable: any number of threads may run them at once.
//
// A sequence is run in three: all but its last program, by run_first(); that one, by the caller, who has its results
// written where it wants them; and where that fails, perhaps the sequence of apart() in place of it.
class Parts {
 public:
  // `steps` are checked, and those of `programs`; both live as long.
  Parts(const std::vector<Manifest::Step>& steps, const std::vector<std::unique_ptr<Executable>>& programs)
      : steps_(steps), programs_(programs) {}

  size_t whole() const { return steps_.size() - 1; }  // the sequence that is the artifact
  bool is_one(size_t sequence) const { return steps_[sequence].steps.size() == 1; }

  // Runs all but the last program. `values` are those that the sequence takes, and get what these programs give.
  // `owners`: of packed copies, one for each of the `arguments` in front; may be null. False with `failure` set.
  bool run_first(size_t sequence, std::vector<PartArray>& values, size_t arguments, PackOwner* const* owners,
                 PartMemory& memory, Failure& failure) const;
  const Executable& last(size_t sequence) const;
  // The sequence that gives the results of a last program that failed; none: the failure is that of the call.
  std::optional<size_t> apart(size_t sequence, const Failure& failure) const;

 private:
  struct Run;

  const Manifest::Step& program_of(const Manifest::Step& step) const;
  bool runs_apart(const Manifest::Step& step, const Failure& failure) const;

  const std::vector<Manifest::Step>& steps_;
  const std::vector<std::unique_ptr<Executable>>& programs_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PARTS_H_
