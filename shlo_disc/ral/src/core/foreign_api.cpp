#include "foreign_api.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "foreign_memory.h"
#include "foreign_threads.h"
#include "thread_pool.h"

namespace shlo_disc {
namespace {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

// XLA aligns every buffer and every scratch allocation so.
constexpr size_t kAlignment = 64;
// Functions that XLA may append to its tables: a handler that was built against newer headers
// gets an error, not a jump to nowhere.
constexpr size_t kSpare = 32;

ForeignContext& context_of(Context* context) {
  return *reinterpret_cast<ForeignContext*>(context);
}

Error* error(ErrorCode code, std::string message) {
  return reinterpret_cast<Error*>(
      new ForeignError{static_cast<int>(code), "shlo_disc: " + std::move(message)});
}

Error* refused(void*) {
  return error(ErrorCode::kUnimplemented,
               "this handler asks for something that only XLA's own runtime has; keep the call "
               "outside shlo_disc.jit, or have XLA run it: on_unsupported='xla'");
}

// ---- errors -------------------------------------------------------------------------------------

Error* create_error(ErrorCreateArgs* args) {
  return reinterpret_cast<Error*>(
      new ForeignError{static_cast<int>(args->code), args->message == nullptr ? "" : args->message});
}

void error_details(ErrorDetailsArgs* args) {
  const auto* const error = reinterpret_cast<const ForeignError*>(args->error);
  args->message = error->message.c_str();
  if (args->struct_size >= size_up_to(&ErrorDetailsArgs::code)) {
    args->code = static_cast<ErrorCode>(error->code);
  }
}

void destroy_error(ErrorDestroyArgs* args) {
  delete reinterpret_cast<ForeignError*>(args->error);
}

// ---- states -------------------------------------------------------------------------------------

struct Deleters {
  std::mutex mutex;
  std::unordered_map<int64_t, void (*)(void*)> of_type[2];  // by `is_on_device`
};

Deleters& deleters() {
  static Deleters* const instance = new Deleters();  // handlers may call during exit
  return *instance;
}

// XLA numbers the types, and a handler keeps the number: ours would be wrong in XLA's programs.
template <bool is_on_device>
Error* register_type(TypeRegisterArgs* args) {
  if (args->type_id->type_id == 0) {
    return error(ErrorCode::kUnimplemented,
                 "register the type of a handler's state with jax.ffi.register_ffi_type; who opens an "
                 "artifact in C gives it in disc_handler");
  }
  if (args->type_info != nullptr) know_state_type(*args->type_id, *args->type_info, is_on_device);
  return nullptr;
}

ForeignState* state_of(Context* context, Stage stage) {
  const int number = static_cast<int>(stage);
  if (number < 0 || number >= kStages) return nullptr;
  return &context_of(context).states[number];
}

Error* set_state(StateSetArgs* args) {
  ForeignState* const state = state_of(args->context, args->stage);
  if (state == nullptr) return error(ErrorCode::kInvalidArgument, "there is no such stage");
  if (state->data != nullptr) return error(ErrorCode::kAlreadyExists, "the stage has a state");
  *state = {args->state, args->type_id->type_id};
  return nullptr;
}

Error* get_state(StateGetArgs* args) {
  const ForeignState* const state = state_of(args->context, args->stage);
  if (state == nullptr || state->data == nullptr) {
    return error(ErrorCode::kNotFound,
                 "the handler has left no state. If it has an instantiate stage: import jax and "
                 "shlo_disc before its target is registered, or have XLA run it: on_unsupported='xla'");
  }
  if (state->type_id != args->type_id->type_id) {
    return error(ErrorCode::kInvalidArgument, "the state is of another type");
  }
  args->state = state->data;
  return nullptr;
}

Error* get_context(ContextGetArgs*) {
  return error(ErrorCode::kNotFound, "there is no user data: a program of shlo_disc runs");
}

// ---- memory -------------------------------------------------------------------------------------

Error* allocate_memory(MemoryAllocateArgs* args) {
  args->data = nullptr;
  if (args->size == 0) return nullptr;
  const size_t alignment = std::max(args->alignment, kAlignment);
  if ((alignment & (alignment - 1)) != 0) {
    return error(ErrorCode::kInvalidArgument, "an alignment must be a power of two");
  }
  if (const GpuPlace* const place = context_of(args->context).place) {
    Failure failure;
    args->data = allocate_for_handler(*place, args->size, alignment, &failure);
    return args->data != nullptr
               ? nullptr
               : error(failure.kind == Failure::Kind::kOutOfMemory ? ErrorCode::kResourceExhausted
                                                                     : ErrorCode::kInternal,
                       std::move(failure.message));
  }
  if (args->size <= SIZE_MAX - alignment) {
    const size_t size = (args->size + alignment - 1) & ~(alignment - 1);
    args->data = std::aligned_alloc(alignment, size);
  }
  if (args->data != nullptr) return nullptr;
  return error(ErrorCode::kResourceExhausted,
               std::to_string(args->size) + " bytes of scratch memory cannot be allocated");
}

Error* free_memory(MemoryFreeArgs* args) {
  if (context_of(args->context).place == nullptr) {
    std::free(args->data);
    return nullptr;
  }
  if (args->data == nullptr || free_of_handler(args->data)) return nullptr;
  return error(ErrorCode::kInvalidArgument, "memory is freed that was not allocated here");
}

// ---- threads ------------------------------------------------------------------------------------

Error* schedule(ScheduleArgs* args) {
  return schedule_task(args->task, args->data)
             ? nullptr
             : error(ErrorCode::kResourceExhausted, "no thread can be started");
}

Error* get_num_threads(NumThreadsArgs* args) {
  *args->num_threads = num_threads();
  return nullptr;
}

struct Promise {
  std::mutex mutex;
  std::condition_variable done;
  bool is_done = false;
  Error* error = nullptr;
};

Error* create_future(FutureCreateArgs* args) {
  args->future = reinterpret_cast<Future*>(new Promise());
  return nullptr;
}

Error* finish(Future* future, Error* error) {
  Promise& promise = *reinterpret_cast<Promise*>(future);
  // Notified under the lock: the waiting thread deletes the promise.
  const std::lock_guard<std::mutex> lock(promise.mutex);
  promise.error = error;
  promise.is_done = true;
  promise.done.notify_all();
  return nullptr;
}

Error* set_future_available(FutureSetAvailableArgs* args) { return finish(args->future, nullptr); }

Error* set_future_error(FutureSetErrorArgs* args) { return finish(args->future, args->error); }

// ---- the execution ------------------------------------------------------------------------------

Error* get_run_id(RunIdArgs* args) {
  args->run_id = context_of(args->context).run_id;
  return nullptr;
}

Error* get_device_ordinal(DeviceOrdinalArgs* args) {
  const GpuPlace* const place = context_of(args->context).place;
  args->device_ordinal = place == nullptr ? 0 : place->device->info().ordinal;
  return nullptr;
}

template <bool is_on_device>
Error* get_stream(StreamGetArgs* args) {
  const GpuPlace* const place = context_of(args->context).place;
  if (place == nullptr && is_on_device) {
    return error(ErrorCode::kNotFound, "there is no stream before the program runs");
  }
  if (place == nullptr) return refused(args);
  args->stream = place->stream;
  return nullptr;
}

Error* find_extension(FindExtensionArgs* args) {
  args->extension = nullptr;
  return nullptr;
}

Error* get_custom_options(CustomOptionsArgs* args) {
  static const Attributes none{size_up_to(&Attributes::values), nullptr, 0, nullptr, nullptr, nullptr};
  args->options = &none;
  return nullptr;
}

struct Table {
  Api api;
  std::array<Refused*, kSpare> spare;
  std::array<Refused*, kSpare> internal;
};

Table make_table(bool is_on_device) {
  Table table{};
  table.spare.fill(&refused);
  table.internal.fill(&refused);
  Api& api = table.api;
  api.struct_size = sizeof(Api);
  api.api_version = {size_up_to(&Version::minor_version), nullptr, kMajor, kLatestMinor};
  api.create_error = &create_error;
  api.error_details = &error_details;
  api.destroy_error = &destroy_error;
  api.register_handler = &refused;
  api.get_stream = is_on_device ? &get_stream<true> : &get_stream<false>;
  api.register_type = is_on_device ? &register_type<true> : &register_type<false>;
  api.get_context = &get_context;
  api.set_state = &set_state;
  api.get_state = &get_state;
  api.allocate_memory = &allocate_memory;
  api.free_memory = &free_memory;
  api.schedule = &schedule;
  api.num_threads = &get_num_threads;
  api.create_future = &create_future;
  api.set_future_available = &set_future_available;
  api.set_future_error = &set_future_error;
  api.get_run_id = &get_run_id;
  api.get_device_ordinal = &get_device_ordinal;
  api.find_extension = &find_extension;
  api.get_custom_options = &get_custom_options;
  return table;
}

}  // namespace

const Api* foreign_api(bool is_on_device) {
  const auto make = [](bool of_device) {
    auto* const made = new Table(make_table(of_device));  // handlers may call during exit
    made->api.internal_api = made->internal.data();
    return made;
  };
  static const Table* const tables[] = {make(false), make(true)};
  return &tables[is_on_device]->api;
}

ForeignError take_error(Error* error) {
  const std::unique_ptr<ForeignError> owned(reinterpret_cast<ForeignError*>(error));
  return std::move(*owned);
}

Error* wait_for(Future* future) {
  const std::unique_ptr<Promise> promise(reinterpret_cast<Promise*>(future));
  std::unique_lock<std::mutex> lock(promise->mutex);
  promise->done.wait(lock, [&] { return promise->is_done; });
  return promise->error;
}

void know_state_type(const TypeId& id, const TypeInfo& info, bool is_on_device) {
  if (id.type_id == 0 || info.deleter == nullptr) return;
  const std::lock_guard<std::mutex> lock(deleters().mutex);
  deleters().of_type[is_on_device][id.type_id] = info.deleter;
}

void number_state_type(TypeId* id, const TypeInfo& info) {
  static std::mutex mutex;
  static int64_t last = int64_t{1} << 62;  // XLA counts from 1
  {
    const std::lock_guard<std::mutex> lock(mutex);
    if (id->type_id == 0) id->type_id = ++last;
  }
  for (const bool is_on_device : {false, true}) know_state_type(*id, info, is_on_device);
}

void delete_state(const ForeignState& state, bool is_on_device) {
  if (state.data == nullptr) return;
  void (*deleter)(void*) = nullptr;
  {
    const std::lock_guard<std::mutex> lock(deleters().mutex);
    const auto& known = deleters().of_type[is_on_device];
    const auto found = known.find(state.type_id);
    if (found != known.end()) deleter = found->second;
  }
  if (deleter != nullptr) deleter(state.data);
}

}  // namespace shlo_disc
