#include "py_gpu.h"

#include <string>
#include <utility>
#include <vector>

#include "gpu_bridge.h"
#include "gpu_call.h"
#include "gpu_memory.h"
#include "prepared_call.h"
#include "py_executable.h"
#include "tensor_bridge.h"

namespace shlo_disc {
namespace {

// Arguments and results of one call on a device, between the host's memory and the device's. Needs no
// GIL.
class CopiedCall {
 public:
  CopiedCall(const Executable& executable, GpuDevice& device, RunFailure* failure)
      : executable_(executable), device_(device), failure_(failure), scope_(device) {}

  // Work may still read or write what the caller frees next.
  ~CopiedCall() {
    if (!is_done_) device_.call().wait_stream(device_.stream());
  }

  bool run(disc_run host, Marks* marks, void* const* arguments, const int64_t* argument_sizes,
           PreparedCall& prepared) {
    const ProgramSpec& spec = executable_.spec();
    std::vector<void*> given, made;
    for (size_t i = 0; i < spec.arguments.size(); ++i) {
      const auto rank = static_cast<int64_t>(spec.arguments[i].sizes.size());
      const int64_t bytes = array_bytes(spec.arguments[i].dtype, rank, argument_sizes);
      argument_sizes += rank;
      given.push_back(nullptr);
      if (spec.arguments[i].unread) continue;
      given.back() = acquire(bytes, Hold::kCall, "argument " + std::to_string(i));
      if (given.back() == nullptr || !copy_in(given.back(), arguments[i], bytes)) return false;
    }
    for (size_t i = 0; i < spec.results.size(); ++i) {
      made.push_back(acquire(prepared.bytes(i), Hold::kCall, "result " + std::to_string(i)));
      if (made.back() == nullptr) return false;
    }
    void* const arena = acquire(prepared.arena_bytes(), Hold::kCall, "temporary memory");
    ++executable_.gpu_calls().direct;
    if (arena == nullptr ||
        !run_on_gpu(executable_, {&device_, device_.stream()}, host, marks, given.data(),
                    made.data(), prepared.symbols(), arena, failure_)) {
      return false;
    }
    for (size_t i = 0; i < spec.results.size(); ++i) {
      results_.emplace_back(pool_acquire(static_cast<size_t>(prepared.bytes(i)), Hold::kResult));
      if (results_.back().get() == nullptr) {
        failure_->out_of_memory = true;
        return false;
      }
      if (!copy_out(results_.back().get()->data, made[i], prepared.bytes(i))) return false;
    }
    is_done_ = device_.wait(device_.stream(), "at the end of the call", &failure_->gpu);
    return is_done_;
  }

  ScopedBlock take(size_t result) { return std::move(results_[result]); }

 private:
  void* acquire(int64_t bytes, Hold hold, const std::string& what) {
    blocks_.emplace_back(
        device_.acquire(bytes, hold, device_.stream(), nullptr, what, &failure_->gpu));
    return blocks_.back().data();
  }

  bool copy_in(void* to, const void* from, int64_t bytes) {
    return bytes == 0 ||
           device_.driver().check(device_.call().copy_to_device(
                                      to, from, static_cast<size_t>(bytes), device_.stream()),
                                  "an argument cannot be copied to " + device_.title(),
                                  &failure_->gpu);
  }

  bool copy_out(void* to, const void* from, int64_t bytes) {
    return bytes == 0 ||
           device_.driver().check(device_.call().copy_to_host(
                                      to, from, static_cast<size_t>(bytes), device_.stream()),
                                  "a result cannot be copied from " + device_.title(),
                                  &failure_->gpu);
  }

  const Executable& executable_;
  GpuDevice& device_;
  RunFailure* const failure_;
  std::vector<ScopedGpuBlock> blocks_;
  std::vector<ScopedBlock> results_;
  const GpuScope scope_;
  bool is_done_ = false;
};

}  // namespace

PyObject* raise_gpu_failure(const std::string& program, const GpuFailure& failure) {
  const std::string text = program.empty() ? failure.message : program + ": " + failure.message;
  PyObject* const type =
      failure.kind == GpuFailure::Kind::kOutOfMemory ? PyExc_MemoryError : errors().device;
  const PyRef message(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()),
                                           "backslashreplace"));
  if (message) PyErr_SetObject(type, message.get());
  return nullptr;
}

namespace {

constexpr uintptr_t kAlignment = 16;  // kernels read so many bytes at once

// From here on JAX is asked to drop dead buffers before new ones are taken.
constexpr int64_t kWorthCollecting = 1 << 20;

// Has JAX and Python drop what is dead; called without the GIL.
bool collect_all(JaxBridge& bridge) {
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool done = PyGC_Collect() >= 0 && bridge.collect_garbage();
  if (!done) PyErr_Clear();
  PyGILState_Release(state);
  return done;
}

// A call on arrays of the device: gives the work to the stream. Needs no GIL.
class EnqueuedCall {
 public:
  EnqueuedCall(const Executable& executable, GpuBridge& bridge, RunFailure* failure)
      : executable_(executable),
        bridge_(bridge),
        device_(*bridge.place().device),
        stream_(bridge.place().stream),
        failure_(failure),
        results_(executable.spec().results.size()),
        scope_(device_) {}

  // The result is written to the memory of a donated argument, if nobody else has that.
  void reuse(size_t result, GpuMemory& donated) {
    if (!results_[result] && donated.is_alone()) results_[result] = std::move(donated);
  }

  // `is_copied`: arguments of the host's, or misaligned ones. The bytes of each are in `bytes`.
  bool run(disc_run host, Marks* marks, std::vector<void*> pointers,
           const std::vector<bool>& is_jax, const std::vector<bool>& is_copied,
           const std::vector<int64_t>& bytes, PreparedCall& prepared) {
    const ProgramSpec& spec = executable_.spec();
    for (size_t i = 0; i < pointers.size(); ++i) {
      if (!is_copied[i]) continue;
      void* const to = acquire(bytes[i], Hold::kCall, "argument " + std::to_string(i));
      if (to == nullptr || !copy(to, pointers[i], bytes[i], is_jax[i])) return false;
      pointers[i] = to;
    }
    std::vector<void*> made;
    for (size_t i = 0; i < spec.results.size(); ++i) {
      if (!results_[i]) {
        ScopedGpuBlock block(take(prepared.bytes(i), Hold::kResult, "result " + std::to_string(i)));
        if (block.get() == nullptr) return false;
        results_[i] = GpuMemory(std::move(block));
      }
      made.push_back(results_[i].data());
    }
    void* const arena = acquire(prepared.arena_bytes(), Hold::kCall, "temporary memory");
    ++executable_.gpu_calls().direct;
    return arena != nullptr &&
           run_on_gpu(executable_, bridge_.place(), host, marks, pointers.data(), made.data(),
                      prepared.symbols(), arena, failure_) &&
           (!bridge_.waits() || device_.wait(stream_, "at the end of the call", &failure_->gpu));
  }

  GpuMemory result(size_t i) { return std::move(results_[i]); }

 private:
  GpuBlock* take(int64_t bytes, Hold hold, const std::string& what) {
    return device_.acquire(bytes, hold, stream_, [this] { return collect_all(bridge_); }, what,
                           &failure_->gpu);
  }

  void* acquire(int64_t bytes, Hold hold, const std::string& what) {
    blocks_.emplace_back(take(bytes, hold, what));
    return blocks_.back().data();
  }

  bool copy(void* to, const void* from, int64_t bytes, bool is_on_device) {
    if (bytes == 0) return true;
    const auto size = static_cast<size_t>(bytes);
    const DriverFunctions& driver = device_.call();
    const int error = is_on_device ? driver.copy_on_device(to, from, size, stream_)
                                   : driver.copy_to_device(to, from, size, stream_);
    return device_.driver().check(error, "an argument cannot be copied to " + device_.title(),
                                  &failure_->gpu);
  }

  const Executable& executable_;
  GpuBridge& bridge_;
  GpuDevice& device_;
  void* const stream_;
  RunFailure* const failure_;
  std::vector<GpuMemory> results_;
  std::vector<ScopedGpuBlock> blocks_;  // used again by later work of the stream
  const GpuScope scope_;
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
  CallArguments arguments(*executable_, argument_descrs_, memory_, &bridge, nullptr);
  if (!arguments.read(leaves)) return nullptr;
  PreparedCall prepared(*executable_);
  if (!prepared.prepare(arguments)) return nullptr;
  if (prepared.total_bytes() >= kWorthCollecting && !bridge.collect_garbage()) return nullptr;

  const size_t given = spec.arguments.size(), count = results_.size();
  std::vector<void*> pointers(arguments.pointers(), arguments.pointers() + given);
  std::vector<bool> is_jax(given), is_copied(given);
  std::vector<int64_t> bytes(given);
  const int64_t* sizes = arguments.sizes();
  for (size_t i = 0; i < given; ++i) {
    const auto rank = static_cast<int64_t>(spec.arguments[i].sizes.size());
    bytes[i] = array_bytes(spec.arguments[i].dtype, rank, sizes);
    sizes += rank;
    is_jax[i] = arguments.is_jax(i);
    const bool is_misaligned = reinterpret_cast<uintptr_t>(pointers[i]) % kAlignment != 0;
    is_copied[i] = !spec.arguments[i].unread && bytes[i] != 0 && (!is_jax[i] || is_misaligned);
    if (is_copied[i] && is_jax[i]) arguments.count_copy(i, bytes[i]);
    if (bytes[i] == 0) pointers[i] = nullptr;
  }

  // Memory of ours outlives its array: these are deleted first, and tell whether somebody else has it.
  std::vector<GpuMemory> donated(given);
  std::vector<size_t> ours, theirs;
  if (spec.donates) {
    if (!arguments.are_donated_once()) return nullptr;
    for (size_t i = 0; i < given; ++i) {
      if (!spec.arguments[i].donated || !is_jax[i]) continue;
      donated[i] = GpuMemory::at(pointers[i]);
      (donated[i] ? ours : theirs).push_back(i);
    }
    if (!ours.empty() && !(arguments.forget(ours) && bridge.collect_garbage())) return nullptr;
  }

  RunFailure failure;
  bool done = false;
  std::vector<GpuMemory> results;
  {
    const WithoutGil without_gil;
    EnqueuedCall call(*executable_, bridge, &failure);
    for (const auto& [argument, result] : spec.reuses) {
      if (!is_copied[argument]) call.reuse(result, donated[argument]);
    }
    done = call.run(host, marks, std::move(pointers), is_jax, is_copied, bytes, prepared);
    for (size_t i = 0; done && i < count; ++i) results.push_back(call.result(i));
  }
  if (failure.gpu.failed()) return raise_gpu_failure(spec.name, failure.gpu);
  if (failure.is_told()) return raise_told(*executable_, failure);
  if (!done) return PyErr_NoMemory();
  if (!theirs.empty() && !arguments.forget(theirs)) return nullptr;
  PyRef list(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!list) return nullptr;
  const int64_t* shape = prepared.sizes(0);
  for (size_t i = 0; i < count; ++i) {
    const ResultSpec& result = spec.results[i];
    PyObject* const array = bridge.adopt(
        std::move(results[i]), reinterpret_cast<PyArray_Descr*>(results_[i].descr.get()),
        result.dtype, results_[i].weak_type, result.rank, shape, arguments.device() != nullptr);
    if (array == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), array);
    shape += result.rank;
  }
  return list.release();
}

PyObject* PyExecutable::run_gpu(disc_run host, Marks* marks, int ordinal, PyObject* leaves) const {
  const ProgramSpec& spec = executable_->spec();
  if (spec.gpu == nullptr) {
    return PyErr_Format(PyExc_TypeError, "%s is compiled for the CPU", spec.name.c_str());
  }
  CallArguments arguments(*executable_, argument_descrs_, memory_, nullptr, nullptr);
  if (!arguments.read(leaves)) return nullptr;
  PreparedCall prepared(*executable_);
  if (!prepared.prepare(arguments)) return nullptr;

  const size_t count = results_.size();
  RunFailure failure;
  bool done = false;
  std::vector<ScopedBlock> results;
  {
    const WithoutGil without_gil;
    GpuDevice* const device = GpuDevice::get(spec.gpu->platform, ordinal, &failure.gpu);
    if (device != nullptr) {
      CopiedCall call(*executable_, *device, &failure);
      done = call.run(host, marks, arguments.pointers(), arguments.sizes(), prepared);
      for (size_t i = 0; done && i < count; ++i) results.push_back(call.take(i));
    }
  }
  if (failure.gpu.failed()) return raise_gpu_failure(spec.name, failure.gpu);
  if (failure.is_told()) return raise_told(*executable_, failure);
  if (!done) return PyErr_NoMemory();
  PyRef list(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!list) return nullptr;
  const int64_t* shape = prepared.sizes(0);
  for (size_t i = 0; i < count; ++i) {
    PyObject* const array =
        array_over(owner_of(std::move(results[i])),
                   reinterpret_cast<PyArray_Descr*>(results_[i].descr.get()),
                   spec.results[i].rank, shape);
    shape += spec.results[i].rank;
    if (array == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), array);
  }
  return list.release();
}

}  // namespace shlo_disc
