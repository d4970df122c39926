// The packed copies that the first call of an executable did without, to be made after it.
#ifndef SHLO_DISC_RAL_PACK_JOB_H_
#define SHLO_DISC_RAL_PACK_JOB_H_

#include <deque>
#include <memory>

#include "executable.h"
#include "py_support.h"
#include "weights.h"

namespace shlo_disc {

// It keeps neither the executable nor the arrays alive: copies of what is gone are not made. When it
// goes, calls make the copies that are still missing. Needs the GIL.
class PackJob {
 public:
  explicit PackJob(std::weak_ptr<const Executable> executable)
      : executable_(std::move(executable)) {}
  ~PackJob();
  PackJob(const PackJob&) = delete;
  PackJob& operator=(const PackJob&) = delete;

  void add(WaitingPack pack) { parts_.push_back({std::move(pack), PyRef(), {}}); }  // of a constant
  void add(WaitingPack pack, PyRef array) {  // a weak reference to a jax.Array
    parts_.push_back({std::move(pack), std::move(array), {}});
  }
  void add(WaitingPack pack, std::weak_ptr<KeptWeight> weight) {
    parts_.push_back({std::move(pack), PyRef(), std::move(weight)});
  }

  // Makes one copy, without the GIL. False: none is left.
  bool step();

  // A Python function that calls step() and owns the job. Null with a Python error set.
  static PyRef as_function(std::unique_ptr<PackJob> job);

 private:
  struct Part {
    WaitingPack pack;
    PyRef array;
    std::weak_ptr<KeptWeight> weight;
  };

  const std::weak_ptr<const Executable> executable_;
  std::deque<Part> parts_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PACK_JOB_H_
