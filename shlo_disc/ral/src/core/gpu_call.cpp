#include "gpu_call.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "call.h"
#include "fp_env.h"
#include "gpu_maps.h"
#include "gpu_program.h"
#include "small_vector.h"

namespace shlo_disc {
namespace {

// Along x AMD counts threads in 32 bits; a block has at most 1024. The kernels know this number.
constexpr int64_t kMostBlocksX = int64_t{1} << 21;
constexpr int64_t kMostBlocksY = 65535;

// Events of a stream that tell the time of each mark once the work before them is done.
class TimedMarks {
 public:
  TimedMarks(const GpuPlace& place, Marks* marks)
      : place_(place), marks_(marks), begin_(recorded()) {}
  ~TimedMarks() {
    for (const Event& event : events_) destroy(event.event);
    destroy(begin_);
    destroy(end_);
  }
  TimedMarks(const TimedMarks&) = delete;
  TimedMarks& operator=(const TimedMarks&) = delete;

  void mark(int64_t site, int64_t end) {
    void* const event = events_.size() < kMost ? recorded() : nullptr;
    try {
      if (event != nullptr) events_.push_back({site, end, event});
      else ++marks_->dropped;
    } catch (const std::bad_alloc&) {  // generated code cannot be unwound
      destroy(event);
      ++marks_->dropped;
    }
  }

  // The last mark is set.
  void finish() { end_ = recorded(); }

  // After the stream is waited for: nanoseconds since the run began.
  void read() {
    marks_->begin = 0;
    marks_->end = since_begin(end_);
    for (const Event& event : events_) {
      marks_->marks.push_back({event.site, event.end, since_begin(event.event)});
    }
  }

 private:
  struct Event {
    int64_t site;
    int64_t end;
    void* event;
  };
  static constexpr size_t kMost = size_t{1} << 16;

  void* recorded() {
    const DriverFunctions& driver = place_.device->call();
    void* event = nullptr;
    if (driver.create_event(&event, 0) != kGpuSuccess) return nullptr;
    driver.record_event(event, place_.stream);
    return event;
  }

  void destroy(void* event) {
    if (event != nullptr) place_.device->call().destroy_event(event);
  }

  int64_t since_begin(void* event) {
    float milliseconds = 0;
    if (begin_ == nullptr || event == nullptr) return 0;
    place_.device->call().event_time(&milliseconds, begin_, event);
    return static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

  const GpuPlace& place_;
  Marks* const marks_;
  void* const begin_;
  void* end_ = nullptr;
  std::vector<Event> events_;
};

// What generated code sees, and behind it what the runtime needs to answer it.
struct GpuCall {
  disc_context base;
  const GpuPlace* place;
  TimedMarks* marks;  // null: the run is not profiled
  Failure* failure;
  RunTrace* trace;
  bool is_recorded;  // nothing runs: there is nothing to read or to wait for
  const std::shared_ptr<const ForeignCode>* foreign;
};

GpuCall& call_of(disc_context* context) { return *reinterpret_cast<GpuCall*>(context); }

const DriverFunctions& driver_of(const GpuCall& call) { return call.place->device->call(); }

// From now on the host program runs to its end without work.
void fail(GpuCall& call, Failure::Kind kind, std::string message) {
  call.base.failed = 1;
  call.failure->set(kind, std::move(message));
}

void check(GpuCall& call, int error, const char* what) {
  if (error == kGpuSuccess) return;
  const GpuDevice& device = *call.place->device;
  fail(call, Failure::Kind::kDevice,
       std::string(what) + " on " + device.title() + ": " + device.driver().describe(error));
}

// Packed copies are of the CPU's kernels.
int32_t no_packed(disc_context*, int64_t, int64_t, int64_t, int64_t, void**) { return 0; }

void mark(disc_context* context, int64_t site, int64_t end) {
  TimedMarks* const marks = call_of(context).marks;
  if (marks != nullptr) marks->mark(site, end);
}

std::string launch_text(const GpuKernel& kernel, int64_t x, int64_t y) {
  return "kernel " + kernel.name + (kernel.source.empty() ? "" : " (" + kernel.source + ")") +
         ", grid " + std::to_string(x) + "x" + std::to_string(y) + " of blocks of " +
         std::to_string(kernel.threads) + " threads with " + std::to_string(kernel.shared_bytes) +
         " bytes of dynamic shared memory";
}

// In a recording each kernel is behind all work in front of it, whatever that is.
int start(const DriverFunctions& driver, const LoadedKernel& kernel, bool is_recorded, unsigned x,
          unsigned y, void* stream, void** params) {
  const auto threads = static_cast<unsigned>(kernel.kernel->threads);
  const auto shared_bytes = static_cast<unsigned>(kernel.kernel->shared_bytes);
  if (!kernel.may_start_early || is_recorded) {
    return driver.launch(kernel.function, x, y, 1, threads, 1, 1, shared_bytes, stream, params,
                         nullptr);
  }
  const LaunchAttribute early{kMayStartEarly, 0, 1, {}};
  const LaunchConfig config{{x, y, 1}, {threads, 1, 1}, shared_bytes, stream, &early, 1};
  return driver.launch_with(&config, kernel.function, params, nullptr);
}

void gpu_launch(disc_context* context, const void* loaded, void* const* args,
                const int64_t* params, int64_t tasks) {
  GpuCall& call = call_of(context);
  if (context->failed != 0 || tasks <= 0) return;
  ++call.trace->operations;
  const auto& entry = *static_cast<const LoadedKernel*>(loaded);
  const GpuKernel& kernel = *entry.kernel;
  const GpuDevice& device = *call.place->device;
  const int64_t blocks = (tasks - 1) / kernel.tasks_per_block + 1;
  const int64_t x = blocks < kMostBlocksX ? blocks : kMostBlocksX;
  const int64_t y = (blocks - 1) / kMostBlocksX + 1;
  if (y > kMostBlocksY) {
    fail(call, Failure::Kind::kDevice,
         launch_text(kernel, x, y) + ": a grid has at most " + std::to_string(kMostBlocksY) +
             " rows; call with smaller arrays");
    return;
  }
  const auto args_count = static_cast<size_t>(kernel.args);
  const auto params_count = static_cast<size_t>(kernel.params);
  int error = kGpuSuccess;
  try {
    // By value: the driver reads the scalar. Else it reads the pointer.
    SmallVector<void*, 96> places(args_count + params_count + 1);
    for (size_t i = 0; i < args_count; ++i) {
      places[i] = entry.by_value[i] ? args[i] : const_cast<void**>(&args[i]);
    }
    for (size_t i = 0; i < params_count; ++i) {
      places[args_count + i] = const_cast<int64_t*>(&params[i]);
    }
    places[args_count + params_count] = &tasks;
    SmallVector<EncodedMap, 4> maps(kernel.maps.size());
    for (size_t i = 0; i < kernel.maps.size(); ++i) {
      const TensorMap& map = kernel.maps[i];
      error = encode_tensor_map(device.call(), map, args[map.argument], params, &maps[i]);
      if (error != kGpuSuccess) {
        fail(call, Failure::Kind::kDevice,
             device.title() + " refuses a tensor map of " + launch_text(kernel, x, y) + ": " +
                 device.driver().describe(error));
        return;
      }
      places[map.argument] = &maps[i];
    }
    error = start(device.call(), entry, call.is_recorded, static_cast<unsigned>(x),
                  static_cast<unsigned>(y), call.place->stream, places.data());
  } catch (const std::bad_alloc&) {  // generated code cannot be unwound
    call.failure->set_out_of_memory();
    context->failed = 1;
    return;
  }
  if (error != kGpuSuccess) {
    fail(call, Failure::Kind::kDevice,
         device.title() + " refuses " + launch_text(kernel, x, y) + ": " +
             device.driver().describe(error));
    return;
  }
  if (!gpu_waits_for_launches() || call.is_recorded) return;
  error = device.call().wait_stream(call.place->stream);
  if (error != kGpuSuccess) {
    fail(call, Failure::Kind::kDevice,
         launch_text(kernel, x, y) + " has failed on " + device.title() + ": " +
             device.driver().describe(error));
  }
}

void gpu_copy(disc_context* context, void* destination, const void* source, int64_t bytes) {
  GpuCall& call = call_of(context);
  if (context->failed != 0 || bytes <= 0 || destination == source) return;
  ++call.trace->operations;
  check(call,
        driver_of(call).copy_on_device(destination, source, static_cast<size_t>(bytes),
                                       call.place->stream),
        "a copy is refused");
}

void gpu_zero(disc_context* context, void* address, int64_t bytes) {
  GpuCall& call = call_of(context);
  if (context->failed != 0 || bytes <= 0) return;
  ++call.trace->operations;
  check(call,
        driver_of(call).fill8(address, 0, static_cast<size_t>(bytes), call.place->stream),
        "zeroing memory is refused");
}

int64_t gpu_read(disc_context* context, const void* address, int64_t bytes) {
  GpuCall& call = call_of(context);
  if (context->failed != 0) return 0;
  call.trace->has_read = true;
  if (call.is_recorded) {
    context->failed = 1;
    return 0;
  }
  GpuDevice& device = *call.place->device;
  int64_t own = 0;
  int64_t* const slot = device.take_slot();
  int64_t* const to = slot != nullptr ? slot : &own;
  *to = 0;
  check(call,
        device.call().copy_to_host(to, address, static_cast<size_t>(bytes), call.place->stream),
        "a read is refused");
  if (context->failed == 0 && !device.wait(call.place->stream, "when the host program reads memory",
                                           call.failure)) {
    context->failed = 1;
  }
  const int64_t value = context->failed != 0 ? 0 : *to;
  if (slot != nullptr) device.give_slot(slot);
  return value;
}

void gpu_write(disc_context* context, void* address, int64_t value, int64_t bytes) {
  GpuCall& call = call_of(context);
  if (context->failed != 0) return;
  ++call.trace->operations;
  const DriverFunctions& driver = driver_of(call);
  void* const stream = call.place->stream;
  int error = kGpuSuccess;
  switch (bytes) {
    case 1: error = driver.fill8(address, static_cast<unsigned char>(value), 1, stream); break;
    case 2: error = driver.fill16(address, static_cast<unsigned short>(value), 1, stream); break;
    default: error = driver.fill32(address, static_cast<int>(value), 1, stream); break;
  }
  if (error == kGpuSuccess && bytes == 8) {
    error = driver.fill32(static_cast<char*>(address) + 4, static_cast<int>(value >> 32), 1, stream);
  }
  check(call, error, "a write is refused");
}

void gpu_foreign(disc_context* context, int64_t number, void* const* buffers,
                 const int64_t* sizes) {
  GpuCall& call = call_of(context);
  if (context->failed != 0) return;
  call.trace->has_read = true;
  if (call.is_recorded) {
    context->failed = 1;
    return;
  }
  try {
    if (call.foreign[number]->run_on(*call.place, buffers, sizes, call.failure)) return;
  } catch (const std::bad_alloc&) {  // generated code cannot be unwound
    call.failure->set_out_of_memory();
  }
  context->failed = 1;
}

}  // namespace

bool run_on_gpu(Call& of, const GpuPlace& place, void* arena) {
  const ProgramSpec& spec = of.executable.spec();
  const LoadedProgram* const loaded = of.executable.loaded_on(*place.device, &of.failure);
  if (loaded == nullptr) return false;
  const DefaultFpEnv fp_env;
  const GpuScope scope(*place.device);
  // On the stream of `where`. False: it has failed.
  const auto run = [&](const GpuPlace& where, TimedMarks* timed, bool is_recorded, RunTrace* trace,
                       Failure* failed) {
    GpuCall call{};
    disc_context& base = call.base;
    base.struct_size = sizeof(disc_context);
    base.packed = &no_packed;
    base.mark = &mark;
    base.kernels = loaded->kernels();
    base.constants = loaded->constants();
    base.foreign = &gpu_foreign;
    base.gpu_launch = &gpu_launch;
    base.gpu_copy = &gpu_copy;
    base.gpu_zero = &gpu_zero;
    base.gpu_read = &gpu_read;
    base.gpu_write = &gpu_write;
    call.place = &where;
    call.marks = timed;
    call.failure = failed;
    call.trace = trace;
    call.is_recorded = is_recorded;
    call.foreign = spec.foreign.data();
    of.host(&base, of.arguments(), of.results(), of.symbols(), arena);
    return base.failed == 0;
  };
  RunTrace trace;
  if (of.marks != nullptr) {
    TimedMarks timed(place, of.marks);
    const bool is_given = run(place, &timed, false, &trace, &of.failure);
    timed.finish();
    const bool done = is_given && place.device->wait(place.stream, "at the end of a profiled call",
                                                     &of.failure);
    if (done) timed.read();
    return done;
  }
  GpuGraphs& graphs = loaded->graphs();
  if (of.host != spec.run() || !graphs.is_usable()) {
    return run(place, nullptr, false, &trace, &of.failure);
  }
  GpuGraphs::Key key;
  key.reserve(spec.arguments.size() + spec.results.size() + static_cast<size_t>(spec.symbols) + 1);
  const auto address = [](const void* data) { return reinterpret_cast<uint64_t>(data); };
  std::transform(of.arguments(), of.arguments() + spec.arguments.size(), std::back_inserter(key), address);
  std::transform(of.results(), of.results() + spec.results.size(), std::back_inserter(key), address);
  key.insert(key.end(), of.symbols(), of.symbols() + spec.symbols);
  key.push_back(address(arena));
  bool has_run = false;
  const auto again = [&](void* stream, bool is_recorded, RunTrace* done) {
    Failure unsaid;  // a call that cannot be recorded runs
    has_run = has_run || !is_recorded;
    return run({place.device, stream}, nullptr, is_recorded, done, is_recorded ? &unsaid : &of.failure);
  };
  const bool is_given = graphs.call(std::move(key), place.stream, again, &of.failure);
  if (is_given && !has_run) ++of.executable.gpu_calls().graphs;
  return is_given;
}

}  // namespace shlo_disc
