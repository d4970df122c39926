#include "ffi_gpu.h"

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ffi_call.h"
#include "gpu_call.h"
#include "gpu_device.h"

namespace shlo_disc {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

namespace {

constexpr size_t kScratchAlignment = 16;  // the most that XLA takes
constexpr size_t kAlignment = 256;        // of arenas

Error* gpu_error(const CallFrame* frame, const Executable& executable, const GpuFailure& failure) {
  const ErrorCode code = failure.kind == GpuFailure::Kind::kOutOfMemory
                             ? ErrorCode::kResourceExhausted
                             : ErrorCode::kInternal;
  return ffi_error(frame, code, "shlo_disc: " + executable.spec().name + ": " + failure.message);
}

// Memory of XLA for one call, given back in the order of the stream.
class Scratch {
 public:
  explicit Scratch(const CallFrame* frame) : frame_(frame) {}
  ~Scratch() {
    if (data_ == nullptr) return;
    MemoryFreeArgs args{size_up_to(&MemoryFreeArgs::data), nullptr, frame_->context, bytes_, data_};
    if (Error* const failed = frame_->api->free_memory(&args)) {
      ErrorDestroyArgs destroy{size_up_to(&ErrorDestroyArgs::error), nullptr, failed};
      frame_->api->destroy_error(&destroy);
    }
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Error* allocate(int64_t bytes) {
    if (bytes == 0) return nullptr;
    bytes_ = static_cast<size_t>(bytes) + kAlignment;
    MemoryAllocateArgs args{size_up_to(&MemoryAllocateArgs::data), nullptr, frame_->context,
                            bytes_, kScratchAlignment, nullptr};
    if (Error* const failed = frame_->api->allocate_memory(&args)) return failed;
    data_ = args.data;
    return nullptr;
  }

  void* aligned() const {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(data_) + kAlignment - 1) /
                                   kAlignment * kAlignment);
  }

 private:
  const CallFrame* const frame_;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

Error* ordinal_of(const CallFrame* frame, int* ordinal) {
  DeviceOrdinalArgs args{size_up_to(&DeviceOrdinalArgs::device_ordinal), nullptr, frame->context,
                         0};
  Error* const failed = frame->api->get_device_ordinal(&args);
  *ordinal = args.device_ordinal;
  return failed;
}

Error* stream_of(const CallFrame* frame, void** stream) {
  StreamGetArgs args{size_up_to(&StreamGetArgs::stream), nullptr, frame->context, nullptr};
  Error* const failed = frame->api->get_stream(&args);
  *stream = args.stream;
  return failed;
}

struct LearnedStreams {
  std::mutex mutex;
  std::map<int, void*> by_ordinal;

  static LearnedStreams& instance() {
    static auto* const all = new LearnedStreams;  // XLA may call during exit
    return *all;
  }
};

Error* device_of(const CallFrame* frame, const Executable& executable, GpuDevice** device) {
  int ordinal = 0;
  if (Error* const failed = ordinal_of(frame, &ordinal)) return failed;
  GpuFailure failure;
  *device = GpuDevice::get(executable.spec().gpu->platform, ordinal, &failure);
  return *device == nullptr ? gpu_error(frame, executable, failure) : nullptr;
}

// The elements of size arguments, which are needed before anything runs: waits for them.
Error* read_size_elements(FfiCall& call, const CallFrame* frame, const Executable& executable,
                          const GpuPlace& place) {
  const ProgramSpec& spec = executable.spec();
  if (spec.size_arguments.empty()) return nullptr;
  const GpuScope scope(*place.device);
  std::vector<std::vector<char>> copies;
  std::vector<void*> pointers(spec.arguments.size());
  GpuFailure failure;
  bool done = true;
  for (const size_t i : spec.size_arguments) {
    const ArgumentSpec& argument = spec.arguments[i];
    const int64_t bytes = array_bytes(argument.dtype, static_cast<int64_t>(argument.sizes.size()),
                                      argument.sizes.data());
    copies.emplace_back(static_cast<size_t>(bytes));
    pointers[i] = copies.back().data();
    if (bytes == 0 || !done) continue;
    done = place.device->driver().check(
        place.device->call().copy_to_host(pointers[i], call.arguments()[i],
                                          static_cast<size_t>(bytes), place.stream),
        "a size cannot be copied from " + place.device->title(), &failure);
  }
  const bool is_read = place.device->wait(place.stream, "when sizes are read", &failure);
  if (!done || !is_read) return gpu_error(frame, executable, failure);
  call.read_size_elements(pointers.data());
  return nullptr;
}

// Arguments and results are checked; `arena` gives memory for `bytes`.
template <typename Arena>
Error* run(CallFrame* frame, const Executable& executable, const GpuPlace& place,
           const Arena& arena) {
  FfiCall call(frame, executable);
  if (Error* const failed = call.read(false)) return failed;
  if (Error* const failed = read_size_elements(call, frame, executable, place)) return failed;
  if (Error* const failed = call.prepare()) return failed;
  void* memory = nullptr;
  if (Error* const failed = arena(call.arena_bytes(), &memory)) return failed;
  ++executable.gpu_calls().enqueued;
  RunFailure failure;
  if (run_on_gpu(executable, place, executable.spec().run(), nullptr, call.arguments(),
                 call.results(), call.symbols(), memory, &failure)) {
    return nullptr;
  }
  if (failure.gpu.failed()) return gpu_error(frame, executable, failure.gpu);
  if (failure.is_told()) return told_error(frame, executable, failure);
  return ffi_error(frame, ErrorCode::kResourceExhausted, "shlo_disc: out of memory");
}

}  // namespace

Error* execute_on_gpu(CallFrame* frame, const Executable& executable) {
  if (executable.spec().gpu == nullptr) {
    return ffi_invalid(frame, executable.spec().name +
                                  " is compiled for the CPU, the call runs on a GPU");
  }
  GpuDevice* device = nullptr;
  if (Error* const failed = device_of(frame, executable, &device)) return failed;
  void* stream = nullptr;
  if (Error* const failed = stream_of(frame, &stream)) return failed;
  Scratch scratch(frame);
  return run(frame, executable, {device, stream}, [&](int64_t bytes, void** memory) {
    Error* const failed = scratch.allocate(bytes);
    *memory = scratch.aligned();
    return failed;
  });
}

Error* execute_gpu_on_host(CallFrame* frame, const Executable& executable) {
  if (!gpu_memory_is_the_hosts()) {
    return ffi_invalid(frame, executable.spec().name + " is compiled for " +
                                  executable.spec().gpu->architecture +
                                  ", the call runs on the CPU");
  }
  GpuDevice* device = nullptr;
  if (Error* const failed = device_of(frame, executable, &device)) return failed;
  const GpuScope scope(*device);
  ScopedGpuBlock arena;
  GpuFailure failure;
  Error* const failed = run(
      frame, executable, {device, device->stream()}, [&](int64_t bytes, void** memory) -> Error* {
        arena = ScopedGpuBlock(device->acquire(bytes, Hold::kCall, device->stream(), nullptr,
                                               "temporary memory", &failure));
        *memory = arena.data();
        return *memory == nullptr ? gpu_error(frame, executable, failure) : nullptr;
      });
  // XLA reads and frees its buffers as soon as this returns.
  if (!device->wait(device->stream(), "at the end of the call", &failure) && failed == nullptr) {
    return gpu_error(frame, executable, failure);
  }
  return failed;
}

Error* learn_stream(CallFrame* frame) {
  int ordinal = 0;
  void* stream = nullptr;
  if (Error* const failed = ordinal_of(frame, &ordinal)) return failed;
  if (Error* const failed = stream_of(frame, &stream)) return failed;
  LearnedStreams& all = LearnedStreams::instance();
  const std::lock_guard<std::mutex> lock(all.mutex);
  all.by_ordinal[ordinal] = stream;
  return nullptr;
}

bool learned_stream(int ordinal, void** stream) {
  LearnedStreams& all = LearnedStreams::instance();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_ordinal.find(ordinal);
  if (found == all.by_ordinal.end()) return false;
  *stream = found->second;
  return true;
}

}  // namespace shlo_disc
