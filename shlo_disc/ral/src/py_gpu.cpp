// Calls of programs for GPUs from Python: with NumPy's arrays, and with jax.Arrays of the device.
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "gpu_bridge.h"
#include "gpu_call_memory.h"
#include "gpu_memory.h"
#include "py_executable.h"
#include "tensor_bridge.h"

namespace shlo_disc {
namespace {

constexpr uintptr_t kAlignment = 16;  // kernels read so many bytes at once

// From here on JAX is asked to drop dead buffers before new ones are taken.
constexpr int64_t kWorthCollecting = 1 << 20;

// Results of a call on memory of the host.
class HostResults : public CallMemory {
 public:
  explicit HostResults(size_t count) : blocks_(count) {}
  bool result(size_t i, const int64_t*, int64_t bytes, void** data) override {
    blocks_[i] = ScopedBlock(pool_acquire(static_cast<size_t>(bytes), Hold::kResult));
    *data = blocks_[i].data();
    return *data != nullptr;
  }
  ScopedBlock take(size_t i) { return std::move(blocks_[i]); }

 private:
  std::vector<ScopedBlock> blocks_;
};

// Has JAX and Python drop what is dead; called without the GIL.
bool collect_all(JaxBridge& bridge) {
  const WithGil gil;
  const bool done = PyGC_Collect() >= 0 && bridge.collect_garbage();
  if (!done) PyErr_Clear();
  return done;
}

// Of a call on arrays of the device: gives the work to the stream.
class EnqueuedCall : public DeviceMemory {
 public:
  EnqueuedCall(Call& call, GpuBridge& bridge)
      : DeviceMemory(call, bridge.place(), [&bridge] { return collect_all(bridge); }),
        results_(call.executable.spec().results.size()) {}

  // The result is written to the memory of a donated argument, if nobody else has that.
  void reuse(size_t result, GpuMemory& donated) {
    if (!results_[result] && donated.is_alone()) results_[result] = std::move(donated);
  }

  bool result(size_t i, const int64_t*, int64_t bytes, void** data) override {
    if (!results_[i]) {
      ScopedGpuBlock block(take(bytes, Hold::kResult, "result " + std::to_string(i)));
      if (block.get() == nullptr) return false;
      results_[i] = GpuMemory(std::move(block));
    }
    *data = results_[i].data();
    return true;
  }

  GpuMemory take_result(size_t i) { return std::move(results_[i]); }

 private:
  std::vector<GpuMemory> results_;
};

// Whether DLPack, and so JAX, takes the results.
bool check_results(const ProgramSpec& spec) {
  for (size_t i = 0; i < spec.results.size(); ++i) {
    if (TensorBridge::can_wrap(spec.results[i].dtype)) continue;
    PyErr_Format(PyExc_TypeError, "%s: result %zu has elements of type %s, which JAX packs on a GPU; "
                 "convert it to int8", spec.name.c_str(), i, dtype_name(spec.results[i].dtype));
    return false;
  }
  return true;
}

}  // namespace

PyObject* PyExecutable::call_gpu(disc_run host, Marks* marks, GpuBridge& bridge,
                                 PyObject* leaves) const {
  const ProgramSpec& spec = executable_->spec();
  if (bridge.place().device->driver().platform != spec.gpu->platform) {
    return PyErr_Format(errors().device, "%s is compiled for %s, and was called on %s",
                        spec.name.c_str(), spec.gpu->architecture.c_str(),
                        bridge.place().device->title().c_str());
  }
  if (!check_results(spec)) return nullptr;
  Call call(*executable_);
  call.host = host;
  call.marks = marks;
  CallArguments arguments(call, argument_descrs_, memory_, &bridge, nullptr);
  if (!arguments.read(leaves)) return nullptr;
  if (call.total_bytes() >= kWorthCollecting && !bridge.collect_garbage()) return nullptr;

  const size_t given = spec.arguments.size();
  std::vector<bool> is_jax(given), is_copied(given);
  std::vector<int64_t> bytes(given);
  const int64_t* sizes = call.sizes();
  for (size_t i = 0; i < given; ++i) {
    const auto rank = static_cast<int64_t>(spec.arguments[i].sizes.size());
    bytes[i] = array_bytes(spec.arguments[i].dtype, rank, sizes);
    sizes += rank;
    is_jax[i] = arguments.is_jax(i);
    const bool is_misaligned = reinterpret_cast<uintptr_t>(call.arguments()[i]) % kAlignment != 0;
    is_copied[i] = !spec.arguments[i].unread && bytes[i] != 0 && (!is_jax[i] || is_misaligned);
    if (is_copied[i] && is_jax[i]) arguments.count_copy(i, bytes[i]);
    if (bytes[i] == 0) call.arguments()[i] = nullptr;
  }

  // Memory of ours outlives its array: these are deleted first, and tell whether somebody else has it.
  std::vector<GpuMemory> donated(given);
  std::vector<size_t> ours, theirs;
  if (spec.donates) {
    if (!arguments.are_donated_once()) return nullptr;
    for (size_t i = 0; i < given; ++i) {
      if (!spec.arguments[i].donated || !is_jax[i]) continue;
      donated[i] = GpuMemory::at(call.arguments()[i]);
      (donated[i] ? ours : theirs).push_back(i);
    }
    if (!ours.empty() && !(arguments.forget(ours) && bridge.collect_garbage())) return nullptr;
  }

  bool done = true;
  std::vector<GpuMemory> results;
  {
    const WithoutGil without_gil;
    EnqueuedCall memory(call, bridge);
    for (const auto& [argument, result] : spec.reuses) {
      if (!is_copied[argument]) memory.reuse(result, donated[argument]);
    }
    for (size_t i = 0; done && i < given; ++i) {
      if (is_copied[i]) done = memory.copy_argument(i, bytes[i], is_jax[i]);
    }
    if (done) {
      ++executable_->gpu_calls().direct;
      done = call.run(memory);
    }
    const GpuPlace& place = bridge.place();
    if (done && bridge.waits()) {
      done = place.device->wait(place.stream, "at the end of the call", &call.failure);
    }
    for (size_t i = 0; done && i < results_.size(); ++i) results.push_back(memory.take_result(i));
  }
  if (!done) return raise_failure(call);
  if (!theirs.empty() && !arguments.forget(theirs)) return nullptr;
  return result_list(call, [&](size_t i, const ResultSpec& result, const int64_t* shape) {
    return bridge.adopt(std::move(results[i]),
                        reinterpret_cast<PyArray_Descr*>(results_[i].descr.get()), result.dtype,
                        results_[i].weak_type, result.rank, shape, arguments.device() != nullptr);
  });
}

PyObject* PyExecutable::run_gpu(disc_run host, Marks* marks, int ordinal, PyObject* leaves) const {
  const ProgramSpec& spec = executable_->spec();
  if (spec.gpu == nullptr) {
    return PyErr_Format(PyExc_TypeError, "%s is compiled for the CPU", spec.name.c_str());
  }
  Call call(*executable_);
  call.host = host;
  call.marks = marks;
  CallArguments arguments(call, argument_descrs_, memory_, nullptr, nullptr);
  if (!arguments.read(leaves)) return nullptr;
  bool done = false;
  HostResults results(results_.size());
  {
    const WithoutGil without_gil;
    GpuDevice* const device = GpuDevice::get(spec.gpu->platform, ordinal, &call.failure);
    done = device != nullptr && CopiedCall(call, {device, device->stream()}, results).run();
  }
  if (!done) return raise_failure(call);
  return result_list(call, [&](size_t i, const ResultSpec& result, const int64_t* shape) {
    return array_over(owner_of(results.take(i)),
                      reinterpret_cast<PyArray_Descr*>(results_[i].descr.get()), result.rank, shape);
  });
}

}  // namespace shlo_disc
