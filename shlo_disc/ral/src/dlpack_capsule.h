// Results as capsules of DLPack, for Python.
#ifndef SHLO_DISC_RAL_DLPACK_CAPSULE_H_
#define SHLO_DISC_RAL_DLPACK_CAPSULE_H_

#include <utility>

#include "dlpack_result.h"
#include "py_support.h"

namespace shlo_disc::dlpack {

// Of a capsule that no framework has taken: one that has, renames it.
void delete_capsule(PyObject* capsule);

// A capsule named "dltensor"; null with a Python error set. Needs the GIL.
template <typename Owner>
PyObject* capsule_over(Owner owner, Device device, DType dtype, int64_t rank,
                       const int64_t* sizes) {
  using Unversioned = Result<ManagedTensor, Owner>;
  Unversioned* const result =
      Unversioned::make(std::move(owner), device, dtype, rank, sizes);
  if (result == nullptr) return PyErr_NoMemory();
  PyObject* const capsule = PyCapsule_New(&result->managed, kCapsuleName, &delete_capsule);
  if (capsule == nullptr) Unversioned::destroy(&result->managed);
  return capsule;
}

}  // namespace shlo_disc::dlpack

#endif  // SHLO_DISC_RAL_DLPACK_CAPSULE_H_
