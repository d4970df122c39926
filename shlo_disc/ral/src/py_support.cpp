#include "py_support.h"

#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

namespace shlo_disc {
namespace {

constexpr char kBlockCapsule[] = "shlo_disc.block";

// The capsules that own the memory of our arrays, by address (not owned); under the GIL.
std::unordered_map<void*, PyObject*>& owners() {
  static auto* const instance = new std::unordered_map<void*, PyObject*>;  // arrays outlive main
  return *instance;
}

void release_block(PyObject* capsule) {
  auto* const block = static_cast<Block*>(PyCapsule_GetPointer(capsule, kBlockCapsule));
  owners().erase(block->data);
  pool_release(block);
}

// References given up by threads without the GIL.
struct Waiting {
  std::mutex mutex;
  std::vector<PyObject*> objects;
};

Waiting& waiting() {
  static auto* const instance = new Waiting;  // XLA may call during exit
  return *instance;
}

void give_up(const void* owned) noexcept {
  auto* const object = static_cast<PyObject*>(const_cast<void*>(owned));
  if (!Py_IsInitialized()) return;  // the process ends, and its memory with it
  if (PyGILState_Check()) {
    Py_DECREF(object);
    return;
  }
  try {
    const std::lock_guard<std::mutex> lock(waiting().mutex);
    waiting().objects.push_back(object);
  } catch (const std::bad_alloc&) {
    return;  // the object stays
  }
  // Waiting for the GIL here could stop a thread that its holder waits for. A full queue refuses:
  // then the next executable takes it along.
  Py_AddPendingCall(
      [](void*) {
        drop_waiting_references();
        return 0;
      },
      nullptr);
}

}  // namespace

std::shared_ptr<const void> shared_reference(PyObject* object) {
  Py_INCREF(object);
  return std::shared_ptr<const void>(static_cast<const void*>(object), &give_up);
}

void drop_waiting_references() {
  std::vector<PyObject*> objects;
  {
    const std::lock_guard<std::mutex> lock(waiting().mutex);
    objects.swap(waiting().objects);
  }
  for (PyObject* const object : objects) Py_DECREF(object);
}

Errors& errors() {
  static Errors instance{};
  return instance;
}

bool raise_argument_error(Py_ssize_t index, const char* kind, const std::string& what) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  if (type != nullptr) PyErr_NormalizeException(&type, &value, &trace);
  const PyRef args(Py_BuildValue("(nss#)", index, kind, what.data(),
                                 static_cast<Py_ssize_t>(what.size())));
  if (args) {
    PyRef error(PyObject_CallObject(errors().argument, args.get()));
    if (error) {
      if (value != nullptr) PyException_SetCause(error.get(), std::exchange(value, nullptr));
      PyErr_SetObject(errors().argument, error.get());
    }
  }
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return false;
}

PyObject* raise_failure(const std::string& program, const Failure& failure) {
  if (failure.kind == Failure::Kind::kArgument) {
    static constexpr const char* kKinds[] = {"", "dtype", "rank", "size"};
    raise_argument_error(static_cast<Py_ssize_t>(failure.index),
                         kKinds[static_cast<int>(failure.mismatch)], failure.message);
    return nullptr;
  }
  const bool is_foreign = failure.kind == Failure::Kind::kForeign;
  const std::string text =
      is_foreign || program.empty() ? failure.message : failure.text(program);
  const PyRef message(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                           "backslashreplace"));
  if (!message) return nullptr;
  if (is_foreign) {
    const PyRef args(Py_BuildValue("(s#Oi)", failure.where.data(),
                                   static_cast<Py_ssize_t>(failure.where.size()), message.get(),
                                   failure.code));
    if (args) PyErr_SetObject(errors().foreign, args.get());
    return nullptr;
  }
  PyErr_SetObject(failure.kind == Failure::Kind::kOutOfMemory ? PyExc_MemoryError
                  : failure.kind == Failure::Kind::kDevice    ? errors().device
                                                              : errors().internal,
                  message.get());
  return nullptr;
}

std::string text_of(PyObject* object) {
  const PyRef text(PyObject_Str(object));
  const char* const utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (utf8 != nullptr) return utf8;
  PyErr_Clear();
  return "?";
}

std::string take_error_text() {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  std::string text = value != nullptr ? text_of(value) : "?";
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(trace);
  return text;
}

DType dtype_of(PyArray_Descr* descr) {
  if (!PyArray_ISNBO(descr->byteorder)) return DType::kOther;
  switch (descr->type_num) {
    case NPY_BOOL: return DType::kBool;
    case NPY_FLOAT: return DType::kFloat32;
    case NPY_DOUBLE: return DType::kFloat64;
    case NPY_INT: return DType::kInt32;
    case NPY_LONG: return DType::kInt64;
    default: break;
  }
  const PyRef name(PyObject_GetAttrString(reinterpret_cast<PyObject*>(descr), "name"));
  if (!name) {
    PyErr_Clear();
    return DType::kOther;
  }
  return dtype_from_name(text_of(name.get()));
}

PyRef owner_of(ScopedBlock block) {
  void* const data = block.get()->data;
  PyRef owner(PyCapsule_New(block.get(), kBlockCapsule, &release_block));
  if (!owner) return owner;
  block.take();
  owners()[data] = owner.get();
  return owner;
}

PyRef owner_at(void* data) {
  const auto found = owners().find(data);
  return found == owners().end() ? PyRef() : PyRef::borrow(found->second);
}

PyObject* array_over(PyRef owner, PyArray_Descr* descr, int64_t rank, const int64_t* sizes) {
  static_assert(sizeof(npy_intp) == sizeof(int64_t), "64-bit only");
  if (!owner) return nullptr;
  void* const data =
      static_cast<Block*>(PyCapsule_GetPointer(owner.get(), kBlockCapsule))->data;
  Py_INCREF(descr);  // stolen by the next call
  PyRef array(PyArray_NewFromDescr(&PyArray_Type, descr, static_cast<int>(rank),
                                   reinterpret_cast<const npy_intp*>(sizes), nullptr, data,
                                   NPY_ARRAY_CARRAY, nullptr));
  if (!array) return nullptr;
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.get()), owner.release()) < 0) {
    return nullptr;
  }
  return array.release();
}

}  // namespace shlo_disc
