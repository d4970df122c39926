#include "tensor_bridge.h"

#include <utility>
#include <vector>

#include "dlpack_capsule.h"

namespace shlo_disc {
namespace {

constexpr size_t kMaxTypes = 64;  // remembered; a program has one or two
constexpr int kMaxVersions = 64;  // of a table, older ones behind newer ones

struct KnownType {
  PyTypeObject* type;  // owned: the address may not become another type's
  const dlpack::ExchangeApi* api;
};

std::vector<KnownType>& known_types() {
  static auto* const instance = new std::vector<KnownType>;  // outlives the interpreter
  return *instance;
}

// The newest table whose layout is known here; null: none.
const dlpack::ExchangeApi* usable(const dlpack::ExchangeHeader* header) {
  for (int i = 0; header != nullptr && i < kMaxVersions; ++i, header = header->previous) {
    if (header->version.major == dlpack::kVersion.major) {
      return reinterpret_cast<const dlpack::ExchangeApi*>(header);
    }
  }
  return nullptr;
}

}  // namespace

namespace dlpack {

void delete_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kCapsuleName)) return;
  auto* const managed =
      static_cast<ManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsuleName));
  managed->deleter(managed);
}

}  // namespace dlpack

Exchange exchange_api(PyTypeObject* type, const dlpack::ExchangeApi** out) {
  std::vector<KnownType>& known = known_types();
  for (const KnownType& row : known) {
    if (row.type == type) {
      *out = row.api;
      return Exchange::kFound;
    }
  }
  static PyObject* const name = PyUnicode_InternFromString(dlpack::kExchangeAttribute);
  const PyRef capsule(PyObject_GetAttr(reinterpret_cast<PyObject*>(type), name));
  if (!capsule) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return Exchange::kError;
    PyErr_Clear();
    return Exchange::kNone;
  }
  if (!PyCapsule_IsValid(capsule.get(), dlpack::kExchangeCapsule)) {
    PyErr_Format(PyExc_TypeError, "%s.%s is not a capsule named \"%s\"", type->tp_name,
                 dlpack::kExchangeAttribute, dlpack::kExchangeCapsule);
    return Exchange::kError;
  }
  const dlpack::ExchangeApi* const api = usable(static_cast<const dlpack::ExchangeHeader*>(
      PyCapsule_GetPointer(capsule.get(), dlpack::kExchangeCapsule)));
  if (api == nullptr) return Exchange::kNone;
  if (api->managed_from_object == nullptr || api->object_from_managed == nullptr) {
    PyErr_Format(PyExc_TypeError, "the table of %s.%s lacks functions that DLPack %u.%u requires",
                 type->tp_name, dlpack::kExchangeAttribute, dlpack::kVersion.major,
                 dlpack::kVersion.minor);
    return Exchange::kError;
  }
  if (known.size() >= kMaxTypes) {
    const std::vector<KnownType> old = std::exchange(known, {});
    for (const KnownType& row : old) Py_DECREF(row.type);
  }
  Py_INCREF(type);
  known.push_back({type, api});
  *out = api;
  return Exchange::kFound;
}

bool BorrowedTensor::read(const dlpack::ExchangeApi& api, PyObject* object) {
  if (api.tensor_from_object != nullptr) return api.tensor_from_object(object, &tensor) == 0;
  if (api.managed_from_object(object, &managed) != 0) {
    managed = nullptr;
    return false;
  }
  if (managed->version.major != dlpack::kVersion.major) {
    const unsigned major = managed->version.major;
    release();
    PyErr_Format(PyExc_BufferError, "a tensor of DLPack version %u, not %u", major,
                 dlpack::kVersion.major);
    return false;
  }
  tensor = managed->tensor;
  return true;
}

void BorrowedTensor::release() {
  if (managed != nullptr && managed->deleter != nullptr) managed->deleter(managed);
  managed = nullptr;
}

namespace {

// A read-only array over the memory of `tensor`, which `owner` keeps; the owner where it cannot be one.
PyObject* view_over(const dlpack::Tensor& tensor, PyObject* owner, PyArray_Descr* descr) {
  if (tensor.device.type != dlpack::kCpu || dtype_of(tensor.dtype) != dtype_of(descr) ||
      tensor.rank > NPY_MAXDIMS) {
    return Py_NewRef(owner);
  }
  npy_intp strides[NPY_MAXDIMS];
  npy_intp stride = PyDataType_ELSIZE(descr);
  for (int32_t i = tensor.rank - 1; i >= 0; --i) {
    strides[i] = tensor.strides == nullptr ? stride
                                           : tensor.strides[i] * PyDataType_ELSIZE(descr);
    stride *= tensor.sizes[i];
  }
  static char nothing[8];
  char* const data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  Py_INCREF(descr);  // stolen by the next call
  PyRef array(PyArray_NewFromDescr(&PyArray_Type, descr, tensor.rank,
                                   reinterpret_cast<const npy_intp*>(tensor.sizes), strides,
                                   data == nullptr ? nothing : data, 0, nullptr));
  if (!array) return nullptr;
  auto* const made = reinterpret_cast<PyArrayObject*>(array.get());
  PyArray_UpdateFlags(made, NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_F_CONTIGUOUS | NPY_ARRAY_ALIGNED);
  return PyArray_SetBaseObject(made, Py_NewRef(owner)) < 0 ? nullptr : array.release();
}

}  // namespace

PyObject* numpy_view(PyObject* object, PyArray_Descr* descr) {
  if (PyCapsule_IsValid(object, dlpack::kCapsuleName)) {
    const auto* const managed = static_cast<const dlpack::ManagedTensor*>(
        PyCapsule_GetPointer(object, dlpack::kCapsuleName));
    return view_over(managed->tensor, object, descr);
  }
  const dlpack::ExchangeApi* api = nullptr;
  BorrowedTensor borrowed;
  if (PyArray_Check(object) || exchange_api(Py_TYPE(object), &api) != Exchange::kFound ||
      !borrowed.read(*api, object)) {
    PyErr_Clear();  // the program that is called with it tells what is wrong
    return Py_NewRef(object);
  }
  PyObject* const view = view_over(borrowed.tensor, object, descr);
  borrowed.release();
  return view;
}

bool TensorBridge::can_wrap(DType dtype) { return dlpack::code_of(dtype).has_value(); }

PyObject* TensorBridge::wrap(ScopedBlock block, DType dtype, int64_t rank,
                             const int64_t* sizes) const {
  constexpr dlpack::Device kHost = {dlpack::kCpu, 0};
  if (api_ == nullptr) {
    return dlpack::capsule_over(std::move(block), kHost, dtype, rank, sizes);
  }
  using Versioned = dlpack::Result<dlpack::ManagedTensorVersioned, ScopedBlock>;
  Versioned* const result = Versioned::make(std::move(block), kHost, dtype, rank, sizes);
  if (result == nullptr) return PyErr_NoMemory();
  result->managed.version = dlpack::kVersion;
  void* object = nullptr;
  if (api_->object_from_managed(&result->managed, &object) != 0) {
    // The tensor is still ours: what failed has taken nothing.
    Versioned::destroy(&result->managed);
    return nullptr;
  }
  return static_cast<PyObject*>(object);
}

}  // namespace shlo_disc
