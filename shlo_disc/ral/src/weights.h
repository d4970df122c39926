// Packed copies of arrays that may change between calls. A caller vouches for what it says: an array at
// one version has the same elements in every call.
#ifndef SHLO_DISC_RAL_WEIGHTS_H_
#define SHLO_DISC_RAL_WEIGHTS_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "pack_cache.h"
#include "py_support.h"

namespace shlo_disc {

// One state of a weight: its packs, and what keeps its memory from becoming another array's. Goes with
// the last call that uses it, under the GIL.
struct KeptWeight {
  PackOwner packs;
  PyRef memory;
  const void* data = nullptr;

  // Some of its elements, which tell most changes that the version does not: PyTorch counts no writes
  // through `.data`. Null: of a frozen weight.
  const char* sample = nullptr;
  size_t sample_bytes = 0;
  char sampled[64];

  bool is_like_sample() const {
    return sample == nullptr || std::memcmp(sample, sampled, sample_bytes) == 0;
  }
};

// What identifies the elements of a weight, besides its object.
struct WeightState {
  const void* data;
  int64_t version;
  int64_t rank;
  const int64_t* sizes;    // not owned
  const int64_t* strides;  // not owned
  int64_t item;            // bytes of an element
};

// All functions need the GIL.
class Weights {
 public:
  static constexpr int64_t kFrozen = -1;  // the version of weights that never change

  // `keep(array)` gives an object that owns the memory the array has now.
  explicit Weights(PyRef keep);
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  // The packs of `array` in `state`; null: it changed since the last call, and packing it again is not
  // worth while before it comes a second time. Runs Python code; `is_current` tells afterwards whether
  // the memory is still the array's. False: it is not, or a Python error is set.
  bool find(PyObject* array, const WeightState& state, bool (*is_current)(PyObject*, const void*),
            std::shared_ptr<KeptWeight>* out);

  // `array` has other elements than `kept` was made of: it is packed again when it comes next.
  void forget(PyObject* array, const KeptWeight& kept);

  int64_t count() const;  // of arrays it has packs of
  void clear();
  int traverse(visitproc visit, void* arg) const;  // for the garbage collector

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_WEIGHTS_H_
