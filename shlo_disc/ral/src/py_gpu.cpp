#include "py_gpu.h"

#include <string>
#include <utility>
#include <vector>

#include "gpu_call.h"
#include "prepared_call.h"
#include "py_executable.h"

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
  if (!done) return PyErr_NoMemory();
  PyRef list(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!list) return nullptr;
  for (size_t i = 0; i < count; ++i) {
    PyObject* const array =
        array_over(owner_of(std::move(results[i])),
                   reinterpret_cast<PyArray_Descr*>(results_[i].descr.get()),
                   spec.results[i].rank, prepared.sizes(i));
    if (array == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), array);
  }
  return list.release();
}

}  // namespace shlo_disc
