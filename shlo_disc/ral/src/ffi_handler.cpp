#include "ffi_handler.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ffi_call.h"
#include "ffi_gpu.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

// XLA asks once, when the target is registered, which API the handler was built for; without an
// answer the whole CPU backend may fail to start.
bool ffi_answers_metadata(CallFrame* frame) {
  for (Extension* e = frame->extension_start; e != nullptr; e = e->next) {
    if (e->type != kMetadataExtension) continue;
    Metadata* const metadata = reinterpret_cast<MetadataExtension*>(e)->metadata;
    metadata->api_version.major_version = kMajor;
    metadata->api_version.minor_version = kMinor;
    metadata->traits = 0;
    return true;
  }
  return false;
}

namespace {

constexpr size_t kFewExecutables = 64;

struct Registry {
  std::mutex mutex;
  std::unordered_multimap<int64_t, std::weak_ptr<const Executable>> executables;
  size_t worth_cleaning = kFewExecutables;  // so many entries, and the dead ones are erased
};

Registry& registry() {
  static Registry* const instance = new Registry();  // XLA may call during exit
  return *instance;
}

std::shared_ptr<const Executable> find_executable(int64_t fingerprint) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto [first, last] = all.executables.equal_range(fingerprint);
  for (auto entry = first; entry != last; ++entry) {
    if (std::shared_ptr<const Executable> found = entry->second.lock()) return found;
  }
  return nullptr;
}

// ---- the program of an XLA executable -----------------------------------------------------------

using Held = std::shared_ptr<const Executable>;

void delete_held(void* held) { delete static_cast<Held*>(held); }

TypeId& held_type() {
  static TypeId id{0};
  return id;
}

// Names the type of our state to XLA, once; XLA gives it a number.
Error* register_held_type(const Api* api) {
  static std::mutex mutex;
  static const TypeInfo info{size_up_to(&TypeInfo::deleter), nullptr, &delete_held};
  constexpr std::string_view kName = "shlo_disc.program";
  std::lock_guard<std::mutex> lock(mutex);
  if (held_type().type_id != 0) return nullptr;
  TypeId id{0};
  TypeRegisterArgs args{size_up_to(&TypeRegisterArgs::type_info), nullptr,
                        {kName.data(), kName.size()}, &id, &info};
  Error* const failed = api->register_type(&args);
  if (failed == nullptr) held_type() = id;
  return failed;
}

// The program that an XLA executable was given when it was made.
Error* held_program(CallFrame* frame, const Executable** executable) {
  StateGetArgs state{size_up_to(&StateGetArgs::state), nullptr, frame->context,
                     Stage::kInstantiate, &held_type(), nullptr};
  if (Error* const failed = frame->api->get_state(&state)) return failed;
  *executable = static_cast<const Held*>(state.state)->get();
  return nullptr;
}

// An XLA executable is being made: it gets its program, to keep.
Error* instantiate(CallFrame* frame) {
  const auto* const which = static_cast<const Scalar*>(
      ffi_attribute(frame, "executable", AttributeType::kScalar));
  if (which == nullptr || which->dtype != DataType::kS64) {
    return ffi_invalid(frame, "the custom call has no i64 attribute 'executable'");
  }
  int64_t fingerprint;
  std::memcpy(&fingerprint, which->value, sizeof(fingerprint));
  Held executable = find_executable(fingerprint);
  if (executable == nullptr) {
    return ffi_error(frame, ErrorCode::kNotFound,
                 "shlo_disc: program " + std::to_string(fingerprint) +
                     " was not compiled in this process, or its function is gone; trace the "
                     "function again");
  }
  if (Error* const failed = register_held_type(frame->api)) return failed;
  auto held = std::make_unique<Held>(std::move(executable));
  StateSetArgs args{size_up_to(&StateSetArgs::state), nullptr, frame->context, Stage::kInstantiate,
                    &held_type(), held.get()};
  Error* const failed = frame->api->set_state(&args);
  if (failed == nullptr) held.release();
  return failed;
}

Error* execute(CallFrame* frame) {
  const Executable* executable = nullptr;
  if (Error* const failed = held_program(frame, &executable)) return failed;
  return executable->spec().gpu != nullptr ? execute_gpu_on_host(frame, *executable)
                                           : execute_on_cpu(frame, *executable);
}

Error* execute_for_gpu(CallFrame* frame) {
  const Executable* executable = nullptr;
  if (Error* const failed = held_program(frame, &executable)) return failed;
  return execute_on_gpu(frame, *executable);
}

template <Error* (*Body)(CallFrame*)>
Error* handler(CallFrame* frame) {
  if (ffi_answers_metadata(frame)) return nullptr;
  try {
    return Body(frame);
  } catch (const std::bad_alloc&) {
    return ffi_error(frame, ErrorCode::kResourceExhausted, "shlo_disc: out of memory");
  } catch (const std::exception& e) {
    return ffi_error(frame, ErrorCode::kInternal, std::string("shlo_disc: ") + e.what());
  }
}

// Entries of executables that are gone; their number is bounded by that of the living.
void forget_dead(Registry& all) {
  for (auto entry = all.executables.begin(); entry != all.executables.end();) {
    entry = entry->second.expired() ? all.executables.erase(entry) : std::next(entry);
  }
}

}  // namespace

void ffi_register(int64_t fingerprint, const std::shared_ptr<const Executable>& executable) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  if (all.executables.size() >= all.worth_cleaning) {
    forget_dead(all);
    all.worth_cleaning = std::max(kFewExecutables, 2 * all.executables.size());
  }
  all.executables.emplace(fingerprint, executable);
}

int64_t ffi_registered() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  forget_dead(all);
  return static_cast<int64_t>(all.executables.size());
}

void* ffi_instantiate_address() { return reinterpret_cast<void*>(&handler<&instantiate>); }

void* ffi_execute_address(bool on_gpu) {
  return on_gpu ? reinterpret_cast<void*>(&handler<&execute_for_gpu>)
                : reinterpret_cast<void*>(&handler<&execute>);
}

void* ffi_learn_stream_address() { return reinterpret_cast<void*>(&handler<&learn_stream>); }

}  // namespace shlo_disc
