#include "py_executable.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ffi_handler.h"
#include "gpu_bridge.h"
#include "prepared_call.h"
#include "py_arguments.h"
#include "small_vector.h"

namespace shlo_disc {
namespace {

// From here on JAX is asked to drop dead buffers before new ones are taken: a recycled block saves
// page faults (0.25 µs for each 4 KiB), asking costs 0.1 µs.
constexpr int64_t kWorthCollecting = 64 << 10;

// Blocks of the results, given back unless they are taken.
class ResultBlocks {
 public:
  explicit ResultBlocks(size_t count) : blocks_(count) {
    for (Block*& block : blocks_) block = nullptr;
  }
  ~ResultBlocks() {
    for (Block* block : blocks_) pool_release(block);
  }
  ResultBlocks(const ResultBlocks&) = delete;
  ResultBlocks& operator=(const ResultBlocks&) = delete;

  bool acquire(size_t i, int64_t bytes) {
    blocks_[i] = pool_acquire(static_cast<size_t>(bytes), Hold::kResult);
    return blocks_[i] != nullptr;
  }
  void* data(size_t i) { return blocks_[i]->data; }
  ScopedBlock take(size_t i) { return ScopedBlock(std::exchange(blocks_[i], nullptr)); }

 private:
  SmallVector<Block*, 16> blocks_;
};

// What `over` makes of a donated tensor for a result of these sizes. Null with a Python error set.
PyObject* tensor_over(PyObject* over, PyObject* tensor, int64_t rank, const int64_t* sizes) {
  const PyRef shape(PyTuple_New(static_cast<Py_ssize_t>(rank)));
  if (!shape) return nullptr;
  for (int64_t i = 0; i < rank; ++i) {
    PyObject* const size = PyLong_FromLongLong(sizes[i]);
    if (size == nullptr) return nullptr;
    PyTuple_SET_ITEM(shape.get(), static_cast<Py_ssize_t>(i), size);
  }
  return PyObject_CallFunctionObjArgs(over, tensor, shape.get(), nullptr);
}

}  // namespace

PyObject* raise_told(const Executable& executable, const RunFailure& failure) {
  const std::string where = executable.describe(failure);
  const PyRef message(PyUnicode_DecodeUTF8(failure.message.data(),
                                           static_cast<Py_ssize_t>(failure.message.size()),
                                           "backslashreplace"));
  if (!message) return nullptr;
  if (failure.foreign < 0) {
    return PyErr_Format(errors().internal, "%s: %U", where.c_str(), message.get());
  }
  const PyRef args(Py_BuildValue("(s#Oi)", where.data(), static_cast<Py_ssize_t>(where.size()),
                                 message.get(), failure.code));
  if (args) PyErr_SetObject(errors().foreign, args.get());
  return nullptr;
}

namespace {

// A scalar of 32-bit integers or truth values as a Python integer.
PyObject* number_at(const void* data, DType dtype) {
  if (dtype == DType::kBool) return PyLong_FromLong(*static_cast<const uint8_t*>(data));
  int32_t value;
  std::memcpy(&value, data, sizeof value);
  return PyLong_FromLong(value);
}

}  // namespace

bool PyExecutable::have_packed(CallArguments& arguments, std::vector<WaitingPack> packs) const {
  if (!executable_->begin_packing()) return true;  // another call has
  auto job = std::make_unique<PackJob>(executable_);
  for (WaitingPack& pack : packs) {
    if (pack.argument < 0) {
      job->add(std::move(pack));
    } else if (!arguments.keep_for(*job, std::move(pack))) {
      return false;
    }
  }
  const PyRef function = PackJob::as_function(std::move(job));
  return function && PyRef(PyObject_CallOneArg(pack_later_.get(), function.get()));
}

PyObject* PyExecutable::call(disc_run host, Marks* marks, JaxBridge* bridge, PyObject* leaves,
                             const TensorBridge* tensors, const WeightVersions* weights,
                             PyObject* over, size_t flag) const {
  const ProgramSpec& spec = executable_->spec();
  GpuBridge* const gpu = bridge == nullptr ? nullptr : bridge->as_gpu();
  if (spec.gpu != nullptr && bridge == nullptr && tensors == nullptr) {
    return run_gpu(host, marks, 0, leaves);
  }
  if (spec.gpu != nullptr && gpu != nullptr) return call_gpu(host, marks, *gpu, leaves);
  if (spec.gpu != nullptr || gpu != nullptr) {
    return PyErr_Format(errors().device, "%s is compiled for %s, and was called on %s",
                        spec.name.c_str(), spec.gpu != nullptr ? "a GPU" : "the CPU",
                        spec.gpu != nullptr ? "the CPU" : "a GPU");
  }
  CallArguments arguments(*executable_, argument_descrs_, memory_, bridge, weights);
  if (!arguments.read(leaves)) return nullptr;

  PreparedCall prepared(*executable_);
  if (!prepared.prepare(arguments)) return nullptr;
  const size_t count = results_.size();
  if (bridge != nullptr && prepared.total_bytes() >= kWorthCollecting && !bridge->collect_garbage()) {
    return nullptr;
  }

  std::vector<PyRef> reused;  // by result: the owner of a donated argument's memory; or empty
  if (spec.donates) {
    if (!arguments.take_donated()) return nullptr;
    reused.resize(count);
    for (const auto& [argument, result] : spec.reuses) {
      if (!reused[result]) reused[result] = arguments.owner_of_donated(argument);
    }
  }
  if (spec.donates && over != nullptr) {
    if (!arguments.are_donated_apart()) return nullptr;
    for (const auto& [argument, result] : spec.reuses) {
      if (PyObject* const tensor = arguments.donated_tensor(argument)) {
        reused[result] = PyRef::borrow(tensor);
      }
    }
  }
  ResultBlocks blocks(count);
  SmallVector<void*, 16> pointers(count);
  for (size_t i = 0; i < count; ++i) pointers[i] = nullptr;
  for (const auto& [argument, result] : spec.reuses) {
    if (reused[result]) pointers[result] = arguments.pointers()[argument];
  }
  const Executable::Packing packing = executable_->packing();
  WaitingPacks waiting{arguments.may_wait(), packing == Executable::kFirst, {}};
  const bool waits = packing != Executable::kNow && marks == nullptr;
  bool done = true, has_arena = false;
  RunFailure failure;
  size_t refused = count;  // the result there is no memory for
  {
    const WithoutGil without_gil;
    for (size_t i = 0; done && i < count; ++i) {
      if (pointers[i] != nullptr) continue;
      done = blocks.acquire(i, prepared.bytes(i));
      if (done) pointers[i] = blocks.data(i);
      else refused = i;
    }
    const ScopedBlock arena(
        done ? pool_acquire(static_cast<size_t>(prepared.arena_bytes()), Hold::kCall) : nullptr);
    has_arena = arena.get() != nullptr;
    done = has_arena &&
           executable_->run(host, marks, arguments.pointers(), pointers.data(), prepared.symbols(),
                            arena.get()->data, arguments.owners(), waits ? &waiting : nullptr,
                            &failure);
  }
  if (refused != count) return prepared.raise_no_memory_for_result(refused);
  if (failure.is_told()) return raise_told(*executable_, failure);
  if (!done) {
    return has_arena ? PyErr_Format(PyExc_MemoryError,
                                    "%s: the working memory of a kernel cannot be allocated",
                                    spec.name.c_str())
                     : PyErr_Format(PyExc_MemoryError,
                                    "%s: temporary values take %lld bytes, which cannot be "
                                    "allocated; call with smaller arrays",
                                    spec.name.c_str(), static_cast<long long>(prepared.arena_bytes()));
  }
  if (!arguments.have_kept_memory()) return nullptr;
  if (!waiting.packs.empty() && !have_packed(arguments, std::move(waiting.packs))) return nullptr;
  if (spec.donates && !arguments.forget_foreign()) return nullptr;

  PyRef list(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!list) return nullptr;
  const int64_t* next_shape = prepared.sizes(0);
  for (size_t i = 0; i < count; ++i) {
    const ResultSpec& result = spec.results[i];
    const int64_t* const shape = std::exchange(next_shape, next_shape + result.rank);
    if (i == flag) {
      PyObject* const number = number_at(blocks.data(i), result.dtype);
      if (number == nullptr) return nullptr;
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), number);
      continue;
    }
    if (tensors != nullptr) {
      PyObject* const tensor =
          !reused.empty() && reused[i]
              ? tensor_over(over, reused[i].get(), result.rank, shape)
              : tensors->wrap(blocks.take(i), result.dtype, result.rank, shape);
      if (tensor == nullptr) return nullptr;
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), tensor);
      continue;
    }
    auto* const descr = reinterpret_cast<PyArray_Descr*>(results_[i].descr.get());
    PyRef owner = !reused.empty() && reused[i] ? std::move(reused[i]) : owner_of(blocks.take(i));
    PyObject* const array =
        bridge == nullptr
            ? array_over(std::move(owner), descr, result.rank, shape)
            : bridge->wrap(std::move(owner), descr, result.dtype, results_[i].weak_type,
                           result.rank, shape, arguments.device());
    if (array == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), array);
  }
  return list.release();
}

void PyExecutable::register_ffi(int64_t fingerprint) const {
  ffi_register(fingerprint, executable_);
}

}  // namespace shlo_disc
