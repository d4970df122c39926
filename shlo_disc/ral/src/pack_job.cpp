#include "pack_job.h"

#include <utility>

#include "array_table.h"
#include "dlpack_abi.h"

namespace shlo_disc {
namespace {

constexpr char kJobCapsule[] = "shlo_disc.pack_job";

// What keeps the memory of a live array where it is: JAX may be told to delete the array. Empty if it
// has been, or if the array has other memory than `data`.
PyRef hold_of(PyObject* array, const void* data) {
  PyRef capsule(PyObject_CallMethod(array, "__dlpack__", nullptr));
  if (!capsule || PyCapsule_IsValid(capsule.get(), dlpack::kCapsuleName) == 0) {
    PyErr_Clear();
    return PyRef();
  }
  const auto* const managed = static_cast<const dlpack::ManagedTensor*>(
      PyCapsule_GetPointer(capsule.get(), dlpack::kCapsuleName));
  const dlpack::Tensor& tensor = managed->tensor;
  return static_cast<const char*>(tensor.data) + tensor.byte_offset == data ? std::move(capsule)
                                                                           : PyRef();
}

}  // namespace

PackJob::~PackJob() {
  if (const auto executable = executable_.lock()) executable->pack_now();
}

bool PackJob::step() {
  const auto executable = executable_.lock();
  if (parts_.empty() || executable == nullptr) return false;
  const Part part = std::move(parts_.front());
  parts_.pop_front();
  const std::shared_ptr<KeptWeight> weight = part.weight.lock();
  PyRef array, hold;
  PackOwner* owner = nullptr;
  if (part.pack.argument < 0) {
    owner = &executable->owner_of_constant(-1 - part.pack.argument);
  } else if (weight != nullptr) {
    owner = &weight->packs;
  } else if (part.array) {
    PyObject* const found = PyWeakref_GetObject(part.array.get());
    if (found == Py_None) return true;
    array = PyRef::borrow(found);
    hold = hold_of(found, part.pack.source);
    if (ArrayRecord* const record = hold ? array_record(found) : nullptr) owner = record->owner.get();
  }
  if (owner == nullptr) return true;
  const WithoutGil without_gil;
  return executable->fill(part.pack, *owner);
}

PyRef PackJob::as_function(std::unique_ptr<PackJob> job) {
  static PyMethodDef method = {
      "pack",
      [](PyObject* capsule, PyObject*) -> PyObject* {
        auto* const self = static_cast<PackJob*>(PyCapsule_GetPointer(capsule, kJobCapsule));
        return PyBool_FromLong(self->step());
      },
      METH_NOARGS, nullptr};
  const PyRef capsule(PyCapsule_New(job.get(), kJobCapsule, [](PyObject* self) {
    delete static_cast<PackJob*>(PyCapsule_GetPointer(self, kJobCapsule));
  }));
  if (!capsule) return PyRef();
  job.release();
  return PyRef(PyCFunction_New(&method, capsule.get()));
}

}  // namespace shlo_disc
