#include "jax_bridge.h"

#include <algorithm>
#include <mutex>
#include <utility>

namespace shlo_disc {
namespace {

constexpr size_t kMaxCached = 4096;  // avals; a new one costs 1.5 µs, so forgetting all is fine

struct Names {
  PyObject* aval = PyUnicode_InternFromString("aval");
  PyObject* block_until_ready = PyUnicode_InternFromString("block_until_ready");
  PyObject* delete_ = PyUnicode_InternFromString("delete");
  PyObject* devices = PyUnicode_InternFromString("devices");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* is_deleted = PyUnicode_InternFromString("is_deleted");
  PyObject* is_ready = PyUnicode_InternFromString("is_ready");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* sharding = PyUnicode_InternFromString("sharding");
  PyObject* unsafe_buffer_pointer = PyUnicode_InternFromString("unsafe_buffer_pointer");
};

const Names& names() {
  static const Names instance;
  return instance;
}

// Held while JAX looks into an array's buffers or deletes them. JAX makes the parts of an array when
// it first needs them and runs Python code meanwhile, so another thread would see them half made, or
// delete them (crash of jaxlib 0.10). That code may call us again, hence recursive.
class BuffersLock {
 public:
  BuffersLock() {
    if (mutex().try_lock()) return;
    Py_BEGIN_ALLOW_THREADS;  // the owner may wait for the GIL
    mutex().lock();
    Py_END_ALLOW_THREADS;
  }
  ~BuffersLock() { mutex().unlock(); }
  BuffersLock(const BuffersLock&) = delete;
  BuffersLock& operator=(const BuffersLock&) = delete;

 private:
  static std::recursive_mutex& mutex() {
    static auto* const instance = new std::recursive_mutex;  // threads may outlive main
    return *instance;
  }
};

PyRef call_method(PyObject* object, PyObject* name) {
  return PyRef(PyObject_VectorcallMethod(name, &object, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                         nullptr));
}

bool raise_deleted(Py_ssize_t index) {
  return raise_argument_error(index, "deleted", "has been deleted or donated");
}

}  // namespace

JaxBridge::~JaxBridge() {
  for (auto& [aval, type] : types_) Py_DECREF(aval);
}

std::shared_ptr<const ArrayType> JaxBridge::type_of(Py_ssize_t index, PyRef aval) {
  if (!aval) return nullptr;
  const auto found = types_.find(aval.get());
  if (found != types_.end()) return found->second;

  const PyRef shape(PyObject_GetAttr(aval.get(), names().shape));
  const PyRef dtype(PyObject_GetAttr(aval.get(), names().dtype));
  if (!shape || !dtype) return nullptr;
  auto type = std::make_shared<ArrayType>();
  if (PyArray_DescrCheck(dtype.get())) {
    type->dtype = dtype_of(reinterpret_cast<PyArray_Descr*>(dtype.get()));
  } else {
    type->dtype = DType::kOther;  // an extended dtype, e.g. a typed PRNG key
  }
  if (type->dtype == DType::kOther) {
    raise_argument_error(index, "dtype", "dtype " + text_of(dtype.get()) + " is not supported");
    return nullptr;
  }
  const Py_ssize_t rank = PyTuple_Check(shape.get()) ? PyTuple_GET_SIZE(shape.get()) : -1;
  for (Py_ssize_t i = 0; i < rank; ++i) {
    const int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(shape.get(), i));
    if (size == -1 && PyErr_Occurred()) return nullptr;
    type->sizes.push_back(size);
  }
  if (types_.size() >= kMaxCached) {
    const auto old = std::exchange(types_, {});
    for (const auto& [forgotten, unused] : old) Py_DECREF(forgotten);
  }
  if (types_.emplace(aval.get(), type).second) aval.release();
  return type;
}

const JaxBridge::Device* JaxBridge::known_device(PyObject* device) {
  for (const Device& known : devices_) {
    if (known.device.get() == device) return known.sharding ? &known : nullptr;
  }
  PyRef sharding(PyObject_CallOneArg(hooks_.sharding.get(), device));
  if (!sharding) return nullptr;
  if (sharding.get() == Py_None) sharding = PyRef();
  PyRef tuple(PyTuple_Pack(1, device));
  if (!tuple) return nullptr;
  // A process has a handful of devices, and they live as long as it does.
  devices_.push_back({PyRef::borrow(device), std::move(sharding), std::move(tuple)});
  return devices_.back().sharding ? &devices_.back() : nullptr;
}

const JaxBridge::Device* JaxBridge::device_of(Py_ssize_t index, PyObject* array) {
  const PyRef sharding(PyObject_GetAttr(array, names().sharding));
  if (!sharding) return nullptr;
  PyRef device(PyObject_GetAttr(sharding.get(), hooks_.device_name.get()));
  if (!device) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    PyErr_Clear();  // another kind of sharding, perhaps still over one device
    const PyRef devices = call_method(array, names().devices);
    if (!devices) return nullptr;
    const Py_ssize_t count = PyObject_Length(devices.get());
    if (count != 1) {
      if (count >= 0) {
        raise_argument_error(index, "device", "is spread over " + std::to_string(count) +
                                                  " devices; call it under jax.shard_map");
      }
      return nullptr;
    }
    const PyRef iterator(PyObject_GetIter(devices.get()));
    if (!iterator) return nullptr;
    device = PyRef(PyIter_Next(iterator.get()));
    if (!device) return nullptr;
  }
  const Device* const known = known_device(device.get());
  if (known == nullptr && !PyErr_Occurred()) {
    raise_argument_error(index, "device",
                         "is on " + text_of(device.get()) + ", the program runs on " + hooks_.where);
  }
  return known;
}

bool JaxBridge::committed(PyObject* array, bool* out) {
  const PyRef value(PyObject_GetAttr(array, hooks_.committed_name.get()));
  if (!value) return false;
  const int truth = PyObject_IsTrue(value.get());
  *out = truth == 1;
  return truth >= 0;
}

bool JaxBridge::is_alive(Py_ssize_t index, PyObject* array) {
  const PyRef deleted = call_method(array, names().is_deleted);
  if (!deleted) return false;
  return deleted.get() != Py_True || raise_deleted(index);
}

bool JaxBridge::ask_ready(Py_ssize_t index, PyObject* array, bool* ready) {
  const BuffersLock lock;
  if (!is_alive(index, array)) return false;  // `is_ready` would crash
  const PyRef answer = call_method(array, names().is_ready);
  *ready = answer.get() == Py_True;
  return static_cast<bool>(answer);
}

bool JaxBridge::wait(Py_ssize_t index, PyObject* array) {
  bool ready = false;
  if (!ask_ready(index, array, &ready)) return false;
  // Not under the lock: what is waited for may call us.
  return ready || static_cast<bool>(call_method(array, names().block_until_ready));
}

// `unsafe_buffer_pointer` does not wait, hence wait() before it; it fails on a deleted array.
bool JaxBridge::pointer(Py_ssize_t index, PyObject* array, void** out) {
  const BuffersLock lock;
  const PyRef address = call_method(array, names().unsafe_buffer_pointer);
  if (address) {
    *out = PyLong_AsVoidPtr(address.get());
    return !PyErr_Occurred();
  }
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  const PyRef deleted = call_method(array, names().is_deleted);
  if (deleted && deleted.get() == Py_True) {
    PyErr_Restore(type, value, trace);
    return raise_deleted(index);
  }
  PyErr_Clear();
  PyErr_Restore(type, value, trace);
  return false;
}

bool JaxBridge::read(Py_ssize_t index, PyObject* array, bool want_record, JaxArgument* out) {
  if (ArrayRecord* known = array_record(array)) {
    *out = {known->data, known->type, known->device, known};
    return known->data != nullptr ? is_alive(index, array) : pointer(index, array, &out->data);
  }
  return wait(index, array) && describe(index, array, want_record, out) &&
         pointer(index, array, &out->data);
}

bool JaxBridge::look(Py_ssize_t index, PyObject* array, JaxArgument* out) {
  ArrayRecord* const known = array_record(array);
  *out = {nullptr,
          known != nullptr ? known->type
                           : type_of(index, PyRef(PyObject_GetAttr(array, names().aval))),
          nullptr, nullptr};
  return out->type != nullptr;
}

bool JaxBridge::describe(Py_ssize_t index, PyObject* array, bool want_record, JaxArgument* out) {
  bool is_committed = false;
  const Device* const device = device_of(index, array);
  if (device == nullptr || !committed(array, &is_committed)) return false;
  *out = {nullptr, type_of(index, PyRef(PyObject_GetAttr(array, names().aval))),
          is_committed ? device->device.get() : nullptr, nullptr};
  if (out->type == nullptr) return false;
  if (want_record) {
    out->record = new_array_record(array, out->type, out->device);
    if (out->record == nullptr) return false;
  }
  return true;
}

PyObject* JaxBridge::result_aval(PyArray_Descr* descr, DType dtype, bool weak_type, int64_t rank,
                                 const int64_t* sizes) {
  std::string key;
  key.reserve(2 + static_cast<size_t>(rank) * sizeof(int64_t));
  key.push_back(static_cast<char>(dtype));
  key.push_back(weak_type ? 1 : 0);
  key.append(reinterpret_cast<const char*>(sizes), static_cast<size_t>(rank) * sizeof(int64_t));
  const auto found = avals_.find(key);
  if (found != avals_.end()) return found->second.get();

  const PyRef shape(PyTuple_New(rank));
  if (!shape) return nullptr;
  for (int64_t i = 0; i < rank; ++i) {
    PyObject* const size = PyLong_FromLongLong(sizes[i]);
    if (size == nullptr) return nullptr;
    PyTuple_SET_ITEM(shape.get(), i, size);
  }
  PyRef aval(PyObject_CallFunctionObjArgs(hooks_.shaped_array.get(), shape.get(), descr,
                                          weak_type ? Py_True : Py_False, nullptr));
  if (!aval) return nullptr;
  if (avals_.size() >= kMaxCached) const auto old = std::exchange(avals_, {});
  return avals_.emplace(std::move(key), std::move(aval)).first->second.get();
}

PyObject* JaxBridge::wrap(PyRef owner, PyArray_Descr* descr, DType dtype, bool weak_type,
                          int64_t rank, const int64_t* sizes, PyObject* device) {
  const PyRef array(array_over(std::move(owner), descr, rank, sizes));
  if (!array) return nullptr;
  const PyRef aval =
      PyRef::borrow(result_aval(descr, dtype, weak_type, rank, sizes));
  const Device* const place = known_device(device != nullptr ? device : hooks_.device.get());
  if (!aval || place == nullptr) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_RuntimeError, "the default device's memory is not the host's");
    }
    return nullptr;
  }
  auto* const memory = reinterpret_cast<PyArrayObject*>(array.get());
  const PyRef arrays(PyTuple_Pack(1, array.get()));
  if (!arrays) return nullptr;
  PyObject* const args[] = {aval.get(), place->sharding.get(), arrays.get(), place->tuple.get(),
                            device != nullptr ? Py_True : Py_False};
  PyRef result(PyObject_Vectorcall(hooks_.batched_device_put.get(), args, 5, nullptr));
  if (!result && hooks_.unguarded_device_put.get() != Py_None) {
    PyErr_Clear();  // perhaps a transfer guard: nothing is transferred
    result = PyRef(PyObject_Vectorcall(hooks_.unguarded_device_put.get(), args, 5, nullptr));
  }
  const bool known =
      result && (PyArray_SIZE(memory) == 0 ||
                 remember(result.get(), PyArray_DATA(memory), dtype, aval.get(), device));
  return known ? result.release() : nullptr;
}

void JaxBridge::came_back(bool was_remembered) {
  worth_remembering_ = std::min(worth_remembering_ + (was_remembered ? 2 : 64), 4096);
}

// A result is often the next call's argument; asking JAX for its address would cost microseconds.
// Remembering costs one, so it is done as long as every second result that is comes back.
bool JaxBridge::remember(PyObject* array, void* data, DType dtype, PyObject* aval,
                         PyObject* device) {
  if (worth_remembering_ == 0) return true;
  --worth_remembering_;
  std::optional<bool>& zero_copy = zero_copy_[static_cast<size_t>(dtype)];
  if (!zero_copy) {
    void* where = nullptr;
    if (!pointer(-1, array, &where)) return false;
    zero_copy = where == data;
  }
  if (!*zero_copy) return true;
  std::shared_ptr<const ArrayType> type = type_of(-1, PyRef::borrow(aval));
  if (!type) return false;
  ArrayRecord* const record = new_array_record(array, std::move(type), device);
  if (record == nullptr) return false;
  record->data = data;
  return true;
}

bool JaxBridge::forget(PyObject* const* arrays, const std::vector<size_t>& which) {
  const BuffersLock lock;
  for (const size_t i : which) {
    if (!is_alive(static_cast<Py_ssize_t>(i), arrays[i])) return false;
  }
  for (const size_t i : which) {
    if (!call_method(arrays[i], names().delete_)) return false;
  }
  return true;
}

bool JaxBridge::collect_garbage() {
  if (hooks_.collect_garbage.get() == Py_None) return true;
  return static_cast<bool>(PyRef(PyObject_CallNoArgs(hooks_.collect_garbage.get())));
}

}  // namespace shlo_disc
