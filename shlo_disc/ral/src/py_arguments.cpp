#include "py_arguments.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <memory>
#include <string>
#include <utility>

#include "dlpack_result.h"
#include "gpu_bridge.h"

namespace shlo_disc {
namespace {

// A Python scalar stands for an array of rank 0 of the type JAX would give it.
bool scalar_fits(PyObject* leaf, DType dtype) {
  if (PyBool_Check(leaf)) return dtype == DType::kBool;
  if (PyLong_Check(leaf)) return dtype >= DType::kInt8 && dtype <= DType::kUInt64;
  if (PyFloat_Check(leaf)) return dtype >= DType::kFloat16 && dtype <= DType::kFloat64;
  return dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

// The elements of a big-endian array are swapped while it is copied.
bool are_same_but_for_byte_order(PyArray_Descr* have, PyArray_Descr* want) {
  if (PyArray_EquivTypes(have, want)) return true;
  if (PyArray_ISNBO(have->byteorder)) return false;
  const PyRef native(
      reinterpret_cast<PyObject*>(PyArray_DescrNewByteorder(have, NPY_NATIVE)));
  return native && PyArray_EquivTypes(reinterpret_cast<PyArray_Descr*>(native.get()), want);
}

// A program reads 8 bytes of an element at most at once.
bool is_aligned(const void* data, int64_t item) {
  return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(std::min<int64_t>(item, 8)) == 0;
}

// Where tensors without elements lie: frameworks have no address for them.
alignas(64) constexpr char kNothing[128] = {};

// Copies of so many bytes are made without the GIL.
constexpr int64_t kWorthReleasing = 64 << 10;

// Whether another thread has run Python code in this interpreter, and not ended.
bool others_may_run() {
  PyThreadState* const first = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
  return first != nullptr && PyThreadState_Next(first) != nullptr;
}

// Whether the memory at `data` is that of the array: it is read again.
bool has_memory(PyObject* array, const void* data) {
  if (PyArray_Check(array)) return PyArray_DATA(reinterpret_cast<PyArrayObject*>(array)) == data;
  const dlpack::ExchangeApi* api = nullptr;
  if (exchange_api(Py_TYPE(array), &api) != Exchange::kFound) return false;
  BorrowedTensor now;
  if (!now.read(*api, array)) return false;
  const bool is_same = static_cast<char*>(now.tensor.data) + now.tensor.byte_offset == data;
  now.release();
  return is_same;
}

// 1: a numpy.ma.MaskedArray. -1: a Python error.
int is_masked(PyObject* array) {
  const PyRef module(PyImport_ImportModule("numpy.ma"));
  if (!module) return -1;
  const PyRef type(PyObject_GetAttrString(module.get(), "MaskedArray"));
  return type ? PyObject_IsInstance(array, type.get()) : -1;
}

}  // namespace

CallArguments::CallArguments(Call& call, const std::vector<PyRef>& descrs, CallRecord& record,
                             JaxBridge* bridge, const WeightVersions* weights)
    : call_(call),
      specs_(call.executable.spec().arguments),
      descrs_(descrs),
      record_(record),
      bridge_(bridge),
      weights_(weights),
      owners_(descrs.size()),
      may_wait_(descrs.size()),
      leaves_(descrs.size()),
      memory_(descrs.size()),
      borrowed_(descrs.size()),
      scalars_(descrs.size()) {}

CallArguments::~CallArguments() {
  for (dlpack::ManagedTensorVersioned* const tensor : managed_) {
    if (tensor->deleter != nullptr) tensor->deleter(tensor);
  }
  for (size_t i = 0; i < held_; ++i) {
    Py_DECREF(leaves_[i]);
    Py_XDECREF(memory_[i]);
  }
}

bool CallArguments::read(PyObject* leaves) {
  const PyRef sequence(PySequence_Fast(leaves, "the arguments of a call must be a sequence"));
  if (!sequence) return false;
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.get()));
  if (count != leaves_.size()) {
    return raise_argument_error(-1, "count", "the program takes " + std::to_string(leaves_.size()) +
                                                 " arguments, the call has " +
                                                 std::to_string(count));
  }
  others_ran_ = others_may_run();
  for (size_t i = 0; i < count; ++i) {
    // Waiting for an array releases the GIL, and then the caller's list may change.
    if (PySequence_Fast_GET_SIZE(sequence.get()) != static_cast<Py_ssize_t>(count)) {
      PyErr_SetString(PyExc_RuntimeError, "the arguments changed during the call");
      return false;
    }
    leaves_[i] = Py_NewRef(PySequence_Fast_GET_ITEM(sequence.get(), static_cast<Py_ssize_t>(i)));
    memory_[i] = nullptr;
    borrowed_[i] = nullptr;
    ++held_;
    owners_[i] = nullptr;
    may_wait_[i] = 0;
    if (!read_one(i, leaves_[i])) return false;
  }
  drop_changed_weights();
  if (!read_size_elements()) return false;
  // Only now: an array that is passed twice in its first call has not been seen before.
  for (ArrayRecord* record : first_seen_) {
    if (record->owner == nullptr) record->owner = std::make_unique<PackOwner>();
  }
  if (any_owner_) call_.owners = owners_.data();
  if (call_.prepare()) return true;
  return call_.failure.kind == Failure::Kind::kGuard ? raise_guard_error()
                                                     : raise_failure(call_) != nullptr;
}

bool CallArguments::read_size_elements() {
  GpuBridge* const gpu = bridge_ == nullptr ? nullptr : bridge_->as_gpu();
  if (gpu == nullptr) {
    call_.read_size_elements(call_.arguments());
    return true;
  }
  std::vector<void*> on_host(call_.arguments(), call_.arguments() + specs_.size());
  for (const size_t i : call_.executable.spec().size_arguments) {
    if (!is_jax(i)) continue;
    PyRef copy = gpu->to_host(leaves_[i]);
    if (!copy) return false;
    on_host[i] = PyArray_DATA(reinterpret_cast<PyArrayObject*>(copy.get()));
    temporaries_.push_back(std::move(copy));
  }
  call_.read_size_elements(on_host.data());
  return true;
}

bool CallArguments::are_donated_once() {
  std::unordered_map<const void*, size_t> first;
  const int64_t* size = call_.sizes();
  for (size_t i = 0; i < specs_.size(); ++i) {
    const int64_t* const begin = std::exchange(size, size + specs_[i].sizes.size());
    if (std::find(begin, size, 0) != size) continue;  // empty arrays may share an address
    const auto [found, is_new] = first.emplace(call_.arguments()[i], i);
    if (is_new) continue;
    const size_t other = found->second;
    if (!specs_[i].donated && !specs_[other].donated) continue;
    return raise_argument_error(static_cast<Py_ssize_t>(specs_[i].donated ? i : other), "donated",
                                "is donated and is argument " +
                                    std::to_string(specs_[i].donated ? other : i) +
                                    ", too; pass a copy");
  }
  return true;
}

bool CallArguments::take_donated() {
  if (bridge_ == nullptr) return true;
  if (!are_donated_once()) return false;
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].donated || !bridge_->is_array(leaves_[i])) continue;
    (memory_[i] != nullptr ? donated_ : foreign_).push_back(i);
  }
  // Before the call: another thread must not read what is being overwritten.
  if (donated_.empty()) return true;
  return bridge_->forget(leaves_.data(), donated_) && bridge_->collect_garbage();
}

PyRef CallArguments::owner_of_donated(size_t argument) {
  if (std::find(donated_.begin(), donated_.end(), argument) == donated_.end()) return PyRef();
  // One reference is ours; any other is a view of numpy or DLPack, or a call of another thread that
  // reads it: the contents must stay.
  PyObject* const owner = memory_[argument];
  return Py_REFCNT(owner) == 1 ? PyRef::borrow(owner) : PyRef();
}

bool CallArguments::forget_foreign() {
  return foreign_.empty() || bridge_->forget(leaves_.data(), foreign_);
}

bool CallArguments::are_donated_apart() {
  struct Range {
    const char* begin;
    const char* end;
  };
  SmallVector<Range, 64> ranges(specs_.size());
  const int64_t* size = call_.sizes();
  for (size_t i = 0; i < specs_.size(); ++i) {
    const auto rank = static_cast<int64_t>(specs_[i].sizes.size());
    const auto* const begin = static_cast<const char*>(call_.arguments()[i]);
    ranges[i] = {begin, begin + array_bytes(specs_[i].dtype, rank, size)};
    size += rank;
  }
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!specs_[i].donated || !is_read_in_place(i)) continue;
    for (size_t other = 0; other < specs_.size(); ++other) {
      if (other == i || ranges[i].begin >= ranges[other].end ||
          ranges[other].begin >= ranges[i].end) {
        continue;
      }
      return raise_argument_error(static_cast<Py_ssize_t>(i), "overlap",
                                  "is donated and shares memory with argument " +
                                      std::to_string(other) + " ('" + specs_[other].name +
                                      "'); pass a copy");
    }
  }
  return true;
}

PyObject* CallArguments::donated_tensor(size_t argument) {
  if (is_read_in_place(argument)) return leaves_[argument];
  ++record_.unused_donations[argument];
  return nullptr;
}

bool CallArguments::is_read_in_place(size_t argument) {
  return borrowed_[argument] != nullptr && borrowed_[argument] == call_.arguments()[argument];
}

bool CallArguments::read_one(size_t index, PyObject* leaf) {
  if (bridge_ != nullptr && bridge_->is_array(leaf)) return read_jax(index, leaf);
  if (PyArray_Check(leaf)) return read_numpy(index, reinterpret_cast<PyArrayObject*>(leaf));
  if (PyBool_Check(leaf) || PyLong_Check(leaf) || PyFloat_CheckExact(leaf) ||
      PyComplex_CheckExact(leaf)) {
    return read_scalar(index, leaf);
  }
  if (PyArray_CheckScalar(leaf)) {
    PyRef array(PyArray_FromScalar(leaf, nullptr));
    if (!array) return false;
    auto* const zero_rank = reinterpret_cast<PyArrayObject*>(array.get());
    temporaries_.push_back(std::move(array));
    return read_numpy(index, zero_rank);
  }
  const dlpack::ExchangeApi* api = nullptr;
  switch (exchange_api(Py_TYPE(leaf), &api)) {
    case Exchange::kFound: return read_exchanged(index, leaf, *api);
    case Exchange::kNone: return read_dlpack(index, leaf);
    default: break;
  }
  const std::string what = take_error_text();
  return raise_argument_error(static_cast<Py_ssize_t>(index), "type", "cannot be read: " + what);
}

bool CallArguments::have_kept_memory() {
  if (!any_borrowed_ || !(others_ran_ || others_may_run())) return true;
  for (size_t i = 0; i < held_; ++i) {
    if (borrowed_[i] != nullptr && !has_memory(leaves_[i], borrowed_[i])) return raise_changed(i);
  }
  return true;
}

bool CallArguments::raise_changed(size_t index) {
  PyErr_Clear();
  return raise_argument_error(static_cast<Py_ssize_t>(index), "changed",
                              "was given other memory by another thread during the call, which read "
                              "the memory it had before");
}

bool CallArguments::is_weight(size_t index) const {
  return weights_ != nullptr && weights_->versions[index] != WeightVersions::kNoWeight &&
         specs_[index].packable;
}

bool CallArguments::take_weight(size_t index, PyObject* leaf, const WeightState& state) {
  if (kept_weights_.empty()) kept_weights_.reserve(leaves_.size());
  std::shared_ptr<KeptWeight> kept;
  if (!weights_->weights->find(leaf, state, &has_memory, &kept)) {
    if (PyErr_Occurred() == nullptr) return raise_changed(index);
    return PyErr_ExceptionMatches(PyExc_TypeError) &&
           raise_argument_error(static_cast<Py_ssize_t>(index), "type",
                                "is a weight, but cannot be referenced weakly or kept");
  }
  if (kept == nullptr) return true;
  owners_[index] = &kept->packs;
  may_wait_[index] = 1;
  any_owner_ = true;
  kept_weights_.emplace_back(index, std::move(kept));
  return true;
}

void CallArguments::drop_changed_weights() {
  for (const auto& [index, kept] : kept_weights_) {
    // A copy of an array with strides ends with the call.
    may_wait_[index] = call_.arguments()[index] == kept->data;
    if (kept->is_like_sample()) continue;
    owners_[index] = nullptr;
    weights_->weights->forget(leaves_[index], *kept);
  }
}

bool CallArguments::keep_for(PackJob& job, WaitingPack pack) {
  const auto index = static_cast<size_t>(pack.argument);
  for (const auto& [weight, kept] : kept_weights_) {
    if (weight != index) continue;
    job.add(std::move(pack), kept);
    return true;
  }
  PyRef reference(PyWeakref_NewRef(leaves_[index], nullptr));
  if (!reference) return false;
  job.add(std::move(pack), std::move(reference));
  return true;
}

// Null with a Python error set.
char* CallArguments::densely_copied(size_t index, const StridedArray& array, int64_t bytes) {
  ScopedBlock copy(pool_acquire(static_cast<size_t>(bytes), Hold::kCall));
  if (copy.get() == nullptr) {
    PyErr_Format(PyExc_MemoryError,
                 "argument %zu has strides; a dense copy takes %lld bytes, which cannot be allocated",
                 index, static_cast<long long>(bytes));
    return nullptr;
  }
  auto* const to = static_cast<char*>(copy.get()->data);
  copies_.push_back(std::move(copy));
  ++record_.copies.calls[index];
  record_.copies.bytes += bytes;
  if (bytes < kWorthReleasing) {
    copy_dense(array, to);
  } else {
    Py_BEGIN_ALLOW_THREADS;
    copy_dense(array, to);
    Py_END_ALLOW_THREADS;
  }
  return to;
}

bool CallArguments::read_jax(size_t index, PyObject* leaf) {
  const bool packable = specs_[index].packable;
  // A record makes later reads of the same array four times cheaper but costs as much as two, so
  // only arrays that come again get one. A dead array's address may come again, too: then the
  // record is a waste, not a mistake.
  const PyObject* const before = std::exchange(record_.last_seen[index], leaf);
  const bool again = before == leaf;
  JaxArgument argument;
  const auto position = static_cast<Py_ssize_t>(index);
  if (specs_[index].unread) {
    if (!bridge_->look(position, leaf, &argument)) return false;
  } else {
    if (!bridge_->read(position, leaf, packable || again, &argument)) return false;
    // Another thread may delete the array; its memory stays as long as the call.
    memory_[index] = owner_at(argument.data).release();
  }
  if (memory_[index] != nullptr || bridge_->owns(argument.data)) {
    bridge_->came_back(argument.record != nullptr && argument.record->data != nullptr);
  }
  if (argument.device != nullptr && argument.device != device_) {
    if (device_ != nullptr) {
      return raise_argument_error(
          static_cast<Py_ssize_t>(index), "device",
          "is committed to " + text_of(argument.device) + ", argument " +
              std::to_string(device_index_) + " to " + text_of(device_));
    }
    device_ = argument.device;
    device_index_ = index;
  }
  if (packable && argument.record != nullptr) {
    // What the first call of an executable is given is taken for weights: packing them is part of
    // getting ready. Later arrays have to come twice.
    if (before == nullptr && argument.record->owner == nullptr) {
      argument.record->owner = std::make_unique<PackOwner>();
    }
    if (argument.record->owner != nullptr) {
      owners_[index] = argument.record->owner.get();
      may_wait_[index] = 1;
      any_owner_ = true;
    } else {
      first_seen_.push_back(argument.record);
    }
  }
  const ArrayType& type = *argument.type;
  if (packed_bits(type.dtype) != 0 && !unpack(index, type, &argument.data)) return false;
  return accept(argument.data, type.dtype, static_cast<int64_t>(type.sizes.size()),
                type.sizes.data());
}

// JAX holds several elements in a byte, programs one.
bool CallArguments::unpack(size_t index, const ArrayType& type, void** data) {
  if (*data == nullptr) return true;  // unread, or empty
  if (bridge_->as_gpu() != nullptr) {
    return raise_argument_error(static_cast<Py_ssize_t>(index), "dtype",
                                std::string("has elements of type ") + dtype_name(type.dtype) +
                                    ", which are packed on a GPU; convert it to int8");
  }
  const int64_t count =
      array_bytes(type.dtype, static_cast<int64_t>(type.sizes.size()), type.sizes.data());
  ScopedBlock copy(pool_acquire(static_cast<size_t>(count), Hold::kCall));
  if (copy.get() == nullptr) {
    PyErr_Format(PyExc_MemoryError, "argument %zu takes %lld bytes, which cannot be allocated",
                 index, static_cast<long long>(count));
    return false;
  }
  unpack_elements(packed_bits(type.dtype), *data, count, copy.get()->data);
  *data = copy.get()->data;
  copies_.push_back(std::move(copy));
  may_wait_[index] = 0;
  // No result may be written where the array was: it is smaller.
  Py_CLEAR(memory_[index]);
  return true;
}

bool CallArguments::read_numpy(size_t index, PyArrayObject* array) {
  const auto position = static_cast<Py_ssize_t>(index);
  auto* const want = reinterpret_cast<PyArray_Descr*>(descrs_[index].get());
  PyArray_Descr* const have = PyArray_DESCR(array);
  if (!PyArray_CheckExact(array)) {
    const int masked = is_masked(reinterpret_cast<PyObject*>(array));
    if (masked < 0) return false;
    if (masked > 0) {
      return raise_argument_error(position, "type",
                                  "is a numpy.ma.MaskedArray, whose mask would be lost; pass "
                                  "filled() or the data and the mask");
    }
  }
  if (have != want && !are_same_but_for_byte_order(have, want)) {
    if (PyErr_Occurred()) return false;
    return raise_argument_error(position, "dtype",
                                "dtype is " + text_of(reinterpret_cast<PyObject*>(have)) +
                                    ", the program takes " + text_of(descrs_[index].get()));
  }
  const DType dtype = specs_[index].dtype;
  const int64_t rank = PyArray_NDIM(array);
  char* const data = PyArray_BYTES(array);
  const int64_t item = dtype_bytes(dtype);
  constexpr int kUsable = NPY_ARRAY_C_CONTIGUOUS | NPY_ARRAY_ALIGNED;
  const bool is_usable = PyArray_CHKFLAGS(array, kUsable) && PyArray_ISNBO(have->byteorder);
  const int64_t* const sizes = call_.next_sizes();
  if (!accept(data, dtype, rank, reinterpret_cast<const int64_t*>(PyArray_DIMS(array)))) {
    return false;
  }
  const bool is_kept = is_weight(index) && PyArray_SIZE(array) != 0 &&
                       leaves_[index] == reinterpret_cast<PyObject*>(array);
  if (is_usable && !is_kept) return true;
  // Copied, for the array may be changed where Python code runs.
  SmallVector<int64_t, 16> strides(static_cast<size_t>(rank));
  bool are_whole = PyArray_ISNBO(have->byteorder);
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t bytes = PyArray_STRIDES(array)[i];
    are_whole = are_whole && bytes % item == 0;
    strides[static_cast<size_t>(i)] = bytes / item;
  }
  if (is_kept && are_whole && !take_weight(index, leaves_[index],
                              {data, weights_->versions[index], rank, sizes, strides.data(), item})) {
    return false;
  }
  if (is_usable) return true;
  if (are_whole) {
    const StridedArray strided{data, rank, sizes, strides.data(), item};
    call_.arguments()[index] = densely_copied(index, strided, array_bytes(dtype, rank, sizes));
    return call_.arguments()[index] != nullptr;
  }
  Py_INCREF(want);
  PyRef copy(PyArray_FromArray(array, want, kUsable | NPY_ARRAY_NOTSWAPPED));
  if (!copy) return false;
  ++record_.copies.calls[index];
  record_.copies.bytes += PyArray_NBYTES(array);
  call_.arguments()[index] = PyArray_DATA(reinterpret_cast<PyArrayObject*>(copy.get()));
  temporaries_.push_back(std::move(copy));
  return true;
}

bool CallArguments::read_scalar(size_t index, PyObject* leaf) {
  const auto position = static_cast<Py_ssize_t>(index);
  if (specs_[index].dtype == DType::kInt64 && PyLong_CheckExact(leaf)) {
    int overflow = 0;
    scalars_[index] = PyLong_AsLongLongAndOverflow(leaf, &overflow);
    if (overflow == 0) return accept(&scalars_[index], DType::kInt64, 0, nullptr);
  }
  if (!scalar_fits(leaf, specs_[index].dtype)) {
    return raise_argument_error(position, "dtype",
                                std::string("is a Python ") + Py_TYPE(leaf)->tp_name +
                                    ", the program takes " + text_of(descrs_[index].get()));
  }
  Py_INCREF(descrs_[index].get());
  PyRef array(PyArray_FromAny(leaf, reinterpret_cast<PyArray_Descr*>(descrs_[index].get()), 0, 0,
                              NPY_ARRAY_CARRAY_RO, nullptr));
  if (!array) {
    const std::string what = take_error_text();
    return raise_argument_error(position, "value", what);
  }
  auto* const zero_rank = reinterpret_cast<PyArrayObject*>(array.get());
  temporaries_.push_back(std::move(array));
  return read_numpy(index, zero_rank);
}

bool CallArguments::read_dlpack(size_t index, PyObject* leaf) {
  const auto position = static_cast<Py_ssize_t>(index);
  // A class has the methods of its instances.
  PyRef device(PyType_Check(leaf) ? nullptr
                                  : PyObject_CallMethod(leaf, "__dlpack_device__", nullptr));
  if (!device) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
    PyErr_Clear();
    return raise_argument_error(position, "type",
                                std::string("is a ") + Py_TYPE(leaf)->tp_name +
                                    ", not an array (jax.Array, numpy or __dlpack__)");
  }
  int type = 0, id = 0;
  if (!PyTuple_Check(device.get()) || !PyArg_ParseTuple(device.get(), "ii", &type, &id)) {
    PyErr_Clear();
    return raise_argument_error(position, "type",
                                std::string("is a ") + Py_TYPE(leaf)->tp_name +
                                    " whose __dlpack_device__ gives " + text_of(device.get()) +
                                    ", not a device type and a number");
  }
  if (type != dlpack::kCpu) {
    return raise_argument_error(position, "device",
                                "is in the memory of DLPack device (" + std::to_string(type) +
                                    ", " + std::to_string(id) +
                                    "), the program runs on the CPU");
  }
  PyRef capsule(PyObject_CallMethod(leaf, "__dlpack__", nullptr));
  if (!capsule) return false;
  if (PyCapsule_IsValid(capsule.get(), dlpack::kCapsuleName) == 0) {
    return raise_argument_error(position, "type",
                                std::string("is a ") + Py_TYPE(leaf)->tp_name +
                                    " whose __dlpack__ gives no capsule that is new");
  }
  const auto* const managed = static_cast<const dlpack::ManagedTensor*>(
      PyCapsule_GetPointer(capsule.get(), dlpack::kCapsuleName));
  temporaries_.push_back(std::move(capsule));  // frees the tensor when it goes

  return read_tensor(index, leaf, managed->tensor, false);
}

bool CallArguments::read_exchanged(size_t index, PyObject* leaf, const dlpack::ExchangeApi& api) {
  BorrowedTensor borrowed;
  if (!borrowed.read(api, leaf)) {
    std::string what = take_error_text();
    what.resize(std::min(what.size(), what.find('\n')));  // frameworks add their C++ stack
    return raise_argument_error(static_cast<Py_ssize_t>(index), "type", "cannot be read: " + what);
  }
  if (borrowed.managed != nullptr) managed_.push_back(borrowed.managed);
  return read_tensor(index, leaf, borrowed.tensor, true);
}

// `tensor` may go as soon as Python code runs.
bool CallArguments::read_tensor(size_t index, PyObject* leaf, const dlpack::Tensor& tensor,
                                bool is_exchanged) {
  const auto position = static_cast<Py_ssize_t>(index);
  if (tensor.device.type != dlpack::kCpu) {
    return raise_argument_error(position, "device",
                                "is in the memory of DLPack device (" +
                                    std::to_string(tensor.device.type) + ", " +
                                    std::to_string(tensor.device.id) +
                                    "), the program runs on the CPU");
  }
  const DType dtype = dtype_of(tensor.dtype);
  if (dtype == DType::kOther) {
    const auto& [code, bits, lanes] = tensor.dtype;
    return raise_argument_error(
        position, "dtype",
        "its DLPack type has code " + std::to_string(code) + ", " + std::to_string(bits) +
            " bits and " + std::to_string(lanes) + " lanes, the program takes " +
            text_of(descrs_[index].get()) +
            (bits < 8 ? "; elements below 8 bits may be packed: pass a numpy array" : ""));
  }
  const int64_t* const sizes = call_.next_sizes();
  char* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  if (!accept(data, dtype, tensor.rank, tensor.sizes)) return false;
  const int64_t bytes = array_bytes(dtype, tensor.rank, sizes);
  if (bytes == 0) {
    call_.arguments()[index] = const_cast<char*>(kNothing);  // nothing is read of it, nor written
    return true;
  }
  if (tensor.data == nullptr) {
    return raise_argument_error(position, "type",
                                std::string("is a ") + Py_TYPE(leaf)->tp_name +
                                    " without memory, such as stands for a tensor in a trace");
  }
  if (is_exchanged) {
    borrowed_[index] = data;
    any_borrowed_ = true;
  }
  const StridedArray strided{data, tensor.rank, sizes, tensor.strides, dtype_bytes(dtype)};
  if (is_dense(strided) && is_aligned(data, strided.item) && !is_weight(index)) return true;
  SmallVector<int64_t, 16> strides(static_cast<size_t>(tensor.rank));
  int64_t expected = 1;
  for (int64_t i = tensor.rank - 1; i >= 0; --i) {
    strides[static_cast<size_t>(i)] = tensor.strides == nullptr ? expected : tensor.strides[i];
    expected *= sizes[i];
  }
  if (is_weight(index)) {
    if (!is_exchanged) {
      return raise_argument_error(position, "type",
                                  std::string("is a ") + Py_TYPE(leaf)->tp_name +
                                      "; weights are numpy arrays and tensors whose type has DLPack's "
                                      "table of C functions");
    }
    // The sizes are ours by now, and Python code may run.
    const WeightState state{data, weights_->versions[index],
                            static_cast<int64_t>(strides.size()), sizes, strides.data(),
                            strided.item};
    if (!take_weight(index, leaf, state)) return false;
  }
  const StridedArray own{data, static_cast<int64_t>(strides.size()), sizes, strides.data(),
                         strided.item};
  if (is_dense(own) && is_aligned(data, own.item)) return true;
  call_.arguments()[index] = densely_copied(index, own, bytes);
  return call_.arguments()[index] != nullptr;
}

bool CallArguments::accept(void* data, DType dtype, int64_t rank,
                           const int64_t* sizes) {
  return call_.take(data, dtype, rank, sizes) || raise_failure(call_) != nullptr;
}

bool CallArguments::raise_guard_error() {
  const int64_t* next = call_.sizes();
  const auto take = [&next](size_t count) {
    PyRef numbers(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (size_t i = 0; numbers && i < count; ++i) {
      PyObject* const number = PyLong_FromLongLong(*next++);
      if (number == nullptr) return PyRef();
      PyTuple_SET_ITEM(numbers.get(), static_cast<Py_ssize_t>(i), number);
    }
    return numbers;
  };
  const PyRef shapes(PyTuple_New(static_cast<Py_ssize_t>(specs_.size())));
  for (size_t i = 0; shapes && i < specs_.size(); ++i) {
    PyRef shape = take(specs_[i].sizes.size());
    if (!shape) return false;
    PyTuple_SET_ITEM(shapes.get(), static_cast<Py_ssize_t>(i), shape.release());
  }
  const auto elements = static_cast<size_t>(call_.executable.size_elements());
  const PyRef more = elements == 0 ? PyRef(PyTuple_New(0)) : take(elements);
  const std::string& what = call_.failure.message;
  const PyRef args(shapes && more ? Py_BuildValue(elements == 0 ? "(Ls#O)" : "(Ls#OO)",
                                                  static_cast<long long>(call_.failure.index),
                                                  what.data(), static_cast<Py_ssize_t>(what.size()),
                                                  shapes.get(), more.get())
                                  : nullptr);
  if (args) PyErr_SetObject(errors().guard, args.get());
  return false;
}

}  // namespace shlo_disc
