#include "py_executable.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ffi_handler.h"
#include "gpu_bridge.h"
#include "call.h"
#include "py_arguments.h"
#include "small_vector.h"

namespace shlo_disc {
namespace {

// From here on JAX is asked to drop dead buffers before new ones are taken: a recycled block saves
// page faults (0.25 µs for each 4 KiB), asking costs 0.1 µs.
constexpr int64_t kWorthCollecting = 64 << 10;

// Blocks of the results, given back unless they are taken; but for those over donated arguments.
class ResultBlocks : public CallMemory {
 public:
  explicit ResultBlocks(size_t count) : over_(count), blocks_(count) {
    std::fill_n(over_.data(), count, nullptr);
    std::fill_n(blocks_.data(), count, nullptr);
  }
  ~ResultBlocks() override {
    for (Block* block : blocks_) pool_release(block);
  }

  void put_over(size_t i, void* data) { over_[i] = data; }

  bool result(size_t i, const int64_t*, int64_t bytes, void** data) override {
    *data = over_[i];
    if (*data != nullptr) return true;
    blocks_[i] = pool_acquire(static_cast<size_t>(bytes), Hold::kResult);
    if (blocks_[i] == nullptr) return false;
    *data = blocks_[i]->data;
    return true;
  }
  ScopedBlock take(size_t i) { return ScopedBlock(std::exchange(blocks_[i], nullptr)); }

 private:
  SmallVector<void*, 16> over_;
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
  Call call(*executable_);
  call.host = host;
  call.marks = marks;
  CallArguments arguments(call, argument_descrs_, memory_, bridge, weights);
  if (!arguments.read(leaves)) return nullptr;
  const size_t count = results_.size();
  if (bridge != nullptr && call.total_bytes() >= kWorthCollecting && !bridge->collect_garbage()) {
    return nullptr;
  }

  ResultBlocks blocks(count);
  std::vector<PyRef> reused;  // by result: the owner of a donated argument's memory; or empty
  if (spec.donates) {
    if (!arguments.take_donated() || (over != nullptr && !arguments.are_donated_apart())) return nullptr;
    reused.resize(count);
    for (const auto& [argument, result] : spec.reuses) {
      if (reused[result]) continue;
      reused[result] = over == nullptr ? arguments.owner_of_donated(argument)
                                       : PyRef::borrow(arguments.donated_tensor(argument));
      if (reused[result]) blocks.put_over(result, call.arguments()[argument]);
    }
  }
  const Executable::Packing packing = executable_->packing();
  WaitingPacks waiting{arguments.may_wait(), packing == Executable::kFirst, {}};
  if (packing != Executable::kNow && marks == nullptr) call.waiting = &waiting;
  bool done = false;
  {
    const WithoutGil without_gil;
    done = call.run(blocks);
  }
  if (!done) return raise_failure(call);
  if (!arguments.have_kept_memory()) return nullptr;
  if (!waiting.packs.empty() && !have_packed(arguments, std::move(waiting.packs))) return nullptr;
  if (spec.donates && !arguments.forget_foreign()) return nullptr;

  return result_list(call, [&](size_t i, const ResultSpec& result, const int64_t* sizes) -> PyObject* {
    if (i == flag) return number_at(call.results()[i], result.dtype);
    const bool is_over = !reused.empty() && reused[i];
    if (tensors != nullptr) {
      return is_over ? tensor_over(over, reused[i].get(), result.rank, sizes)
                     : tensors->wrap(blocks.take(i), result.dtype, result.rank, sizes);
    }
    auto* const descr = reinterpret_cast<PyArray_Descr*>(results_[i].descr.get());
    PyRef owner = is_over ? std::move(reused[i]) : owner_of(blocks.take(i));
    return bridge == nullptr ? array_over(std::move(owner), descr, result.rank, sizes)
                             : bridge->wrap(std::move(owner), descr, result.dtype,
                                            results_[i].weak_type, result.rank, sizes,
                                            arguments.device());
  });
}

void PyExecutable::register_ffi(int64_t fingerprint) const {
  ffi_register(fingerprint, executable_);
}

}  // namespace shlo_disc
