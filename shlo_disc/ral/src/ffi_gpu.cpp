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

// The buffers of a call on a device, and memory of XLA, which is given back in the order of the stream.
class PlacedFrame : public FrameMemory {
 public:
  using FrameMemory::FrameMemory;
  ~PlacedFrame() override {
    if (scratch_ == nullptr) return;
    MemoryFreeArgs args{size_up_to(&MemoryFreeArgs::data), nullptr, frame_->context, bytes_, scratch_};
    if (Error* const failed = frame_->api->free_memory(&args)) {
      ErrorDestroyArgs destroy{size_up_to(&ErrorDestroyArgs::error), nullptr, failed};
      frame_->api->destroy_error(&destroy);
    }
  }

  bool arena(int64_t bytes, void** data) override {
    if (bytes == 0) return true;
    bytes_ = static_cast<size_t>(bytes) + kAlignment;
    MemoryAllocateArgs args{size_up_to(&MemoryAllocateArgs::data), nullptr, frame_->context,
                            bytes_, kScratchAlignment, nullptr};
    refused = frame_->api->allocate_memory(&args);
    if (refused != nullptr) return false;
    scratch_ = args.data;
    *data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch_) + kAlignment - 1) /
                                    kAlignment * kAlignment);
    return true;
  }

  Error* refused = nullptr;  // what XLA says where it has no memory

 private:
  void* scratch_ = nullptr;
  size_t bytes_ = 0;
};

// The same where the host's memory is the device's.
class HostFrame : public FrameMemory {
 public:
  HostFrame(const CallFrame* frame, Call& call, const GpuPlace* place)
      : FrameMemory(frame, call, place), scope_(*place->device) {}

  bool arena(int64_t bytes, void** data) override {
    arena_ = ScopedGpuBlock(place_->device->acquire(bytes, Hold::kCall, place_->stream, nullptr,
                                                    "temporary memory", &call_.failure));
    *data = arena_.data();
    return *data != nullptr;
  }

 private:
  const GpuScope scope_;
  ScopedGpuBlock arena_;
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
  Failure failure;
  *device = GpuDevice::get(executable.spec().gpu->platform, ordinal, &failure);
  return *device == nullptr ? ffi_failed(frame, executable, failure) : nullptr;
}

// The elements of size arguments, which are needed before anything runs: waits for them.
bool read_size_elements(Call& call, const GpuPlace& place) {
  const ProgramSpec& spec = call.executable.spec();
  if (spec.size_arguments.empty()) return true;
  const GpuScope scope(*place.device);
  std::vector<std::vector<char>> copies;
  std::vector<void*> pointers(spec.arguments.size());
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
        "a size cannot be copied from " + place.device->title(), &call.failure);
  }
  if (!place.device->wait(place.stream, "when sizes are read", &call.failure) || !done) return false;
  call.read_size_elements(pointers.data());
  return true;
}

bool run(Call& call, FrameMemory& memory) {
  if (!memory.read() || !read_size_elements(call, *memory.place()) || !call.prepare()) return false;
  ++call.executable.gpu_calls().enqueued;
  return call.run(memory);
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
  Call call(executable);
  const GpuPlace place{device, stream};
  PlacedFrame memory(frame, call, &place);
  if (run(call, memory)) return nullptr;
  return memory.refused != nullptr ? memory.refused : ffi_failed(frame, executable, call.failure);
}

Error* execute_gpu_on_host(CallFrame* frame, const Executable& executable) {
  if (!gpu_memory_is_the_hosts()) {
    return ffi_invalid(frame, executable.spec().name + " is compiled for " +
                                  executable.spec().gpu->architecture +
                                  ", the call runs on the CPU");
  }
  GpuDevice* device = nullptr;
  if (Error* const failed = device_of(frame, executable, &device)) return failed;
  Call call(executable);
  const GpuPlace place{device, device->stream()};
  HostFrame memory(frame, call, &place);
  const bool is_given = run(call, memory);
  // XLA reads and frees its buffers as soon as this returns.
  const bool is_done = device->wait(device->stream(), "at the end of the call", &call.failure);
  return is_given && is_done ? nullptr : ffi_failed(frame, executable, call.failure);
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
