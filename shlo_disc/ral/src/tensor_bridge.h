// Reads tensors of any framework and makes them, through the C table of DLPack: no copy, and for an
// argument no memory.
#ifndef SHLO_DISC_RAL_TENSOR_BRIDGE_H_
#define SHLO_DISC_RAL_TENSOR_BRIDGE_H_

#include <cstdint>
#include <utility>

#include "buffer_pool.h"
#include "dlpack_abi.h"
#include "executable.h"
#include "py_support.h"

namespace shlo_disc {


// Whether a type of tensors has a table of C functions.
enum class Exchange {
  kFound,
  kNone,   // no table, or none of a version that is known here
  kError,  // a Python error is set: the table is malformed, or its attribute cannot be read
};

// The table of a type, looked up once. Needs the GIL.
Exchange exchange_api(PyTypeObject* type, const dlpack::ExchangeApi** out);

// A tensor as its framework describes it. What it points to is the framework's: it is valid while the
// GIL is held and no other code runs, or as long as `managed`.
struct BorrowedTensor {
  dlpack::Tensor tensor;
  dlpack::ManagedTensorVersioned* managed = nullptr;  // null where the table can borrow; owned

  // False with a Python error set.
  bool read(const dlpack::ExchangeApi& api, PyObject* object);
  void release();  // needs the GIL
};

// A read-only numpy array over the memory of a tensor of a type with a table, or of a capsule named
// "dltensor", on the CPU and of this
// dtype; any other object is given back. Null with a Python error set. Needs the GIL.
PyObject* numpy_view(PyObject* object, PyArray_Descr* descr);

// Makes tensors of one type, or capsules of DLPack, from which any framework makes its own.
class TensorBridge {
 public:
  TensorBridge() = default;  // of capsules named "dltensor"
  TensorBridge(PyRef type, const dlpack::ExchangeApi* api) : type_(std::move(type)), api_(api) {}
  TensorBridge(const TensorBridge&) = delete;
  TensorBridge& operator=(const TensorBridge&) = delete;

  // True if DLPack has a code for the elements.
  static bool can_wrap(DType dtype);

  // A dense row-major tensor over a block, which goes back to the pool with the tensor. Null with a
  // Python error set; the block is given back then. Needs the GIL.
  PyObject* wrap(ScopedBlock block, DType dtype, int64_t rank, const int64_t* sizes) const;

 private:
  const PyRef type_;  // the table lives as long as the process, the type may not
  const dlpack::ExchangeApi* const api_ = nullptr;  // null: of capsules
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_TENSOR_BRIDGE_H_
