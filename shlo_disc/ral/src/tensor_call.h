// A program as frameworks of tensors call it: tensors in, tensors out, and what they say of weights.
#ifndef SHLO_DISC_RAL_TENSOR_CALL_H_
#define SHLO_DISC_RAL_TENSOR_CALL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "py_executable.h"
#include "tensor_bridge.h"
#include "weights.h"

namespace shlo_disc {

class TensorCall {
 public:
  // How an argument is packed: by a version that calls give, once, or anew in every call.
  static constexpr int64_t kUnversioned = -1, kFrozen = -2;

  // `executable`, `bridge` and `weights` are owned by the two objects. `places`: by argument its number
  // in the versions of a call, or one of the above. `over`, `flag`: see PyExecutable::call_tensors.
  TensorCall(PyRef executable_object, const PyExecutable* executable, PyRef bridge_object,
             const TensorBridge* bridge, PyRef weights_object, Weights* weights,
             std::vector<int64_t> places, size_t versioned, PyRef over, size_t flag);
  TensorCall(const TensorCall&) = delete;
  TensorCall& operator=(const TensorCall&) = delete;

  // `versions`: a sequence of integers from 0, one for each versioned argument. A new list of tensors;
  // null with a Python error set.
  PyObject* call(PyObject* leaves, PyObject* versions) const;

  PyObject* executable_object() const { return executable_object_.get(); }
  PyObject* bridge_object() const { return bridge_object_.get(); }
  PyObject* weights_object() const { return weights_object_.get(); }
  PyObject* over() const { return over_.get(); }

 private:
  const PyRef executable_object_, bridge_object_, weights_object_, over_;
  const PyExecutable* const executable_;
  const TensorBridge* const bridge_;
  Weights* const weights_;
  const std::vector<int64_t> places_;
  const size_t versioned_, flag_;
  bool any_weight_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_TENSOR_CALL_H_
