#include "tensor_call.h"

#include <algorithm>
#include <string>
#include <utility>

#include "small_vector.h"

namespace shlo_disc {

TensorCall::TensorCall(PyRef executable_object, const PyExecutable* executable, PyRef bridge_object,
                       const TensorBridge* bridge, PyRef weights_object, Weights* weights,
                       std::vector<int64_t> places, size_t versioned, PyRef over, size_t flag)
    : executable_object_(std::move(executable_object)),
      bridge_object_(std::move(bridge_object)),
      weights_object_(std::move(weights_object)),
      over_(std::move(over)),
      executable_(executable),
      bridge_(bridge),
      weights_(weights),
      places_(std::move(places)),
      versioned_(versioned),
      flag_(flag),
      any_weight_(std::any_of(places_.begin(), places_.end(),
                              [](int64_t place) { return place != kUnversioned; })) {}

PyObject* TensorCall::call(PyObject* leaves, PyObject* versions) const {
  const PyRef sequence(PySequence_Fast(versions, "versions must be a sequence of integers"));
  if (!sequence) return nullptr;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.get());
  if (static_cast<size_t>(count) != versioned_) {
    PyErr_Format(PyExc_ValueError, "%zd versions were given for %zu versioned arguments", count,
                 versioned_);
    return nullptr;
  }
  if (!any_weight_) return executable_->call_tensors(*bridge_, leaves, nullptr, over(), flag_);
  SmallVector<int64_t, 256> stated(places_.size());
  PyObject** const items = PySequence_Fast_ITEMS(sequence.get());
  for (size_t i = 0; i < places_.size(); ++i) {
    if (places_[i] < 0) {
      stated[i] = places_[i] == kFrozen ? Weights::kFrozen : WeightVersions::kNoWeight;
      continue;
    }
    stated[i] = PyLong_AsLongLong(items[places_[i]]);
    if (stated[i] >= 0) continue;
    if (!PyErr_Occurred()) {
      PyErr_Format(PyExc_ValueError, "the version of argument %zu is %lld; versions count from 0", i,
                   static_cast<long long>(stated[i]));
    }
    return nullptr;
  }
  const WeightVersions weights{weights_, stated.data()};
  return executable_->call_tensors(*bridge_, leaves, &weights, over(), flag_);
}

}  // namespace shlo_disc
