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

#include "buffer_pool.h"
#include "small_vector.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {
namespace {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

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

Error* error(const CallFrame* frame, ErrorCode code, const std::string& message) {
  ErrorCreateArgs args{size_up_to(&ErrorCreateArgs::code), nullptr, message.c_str(), code};
  return frame->api->create_error(&args);
}

Error* invalid(const CallFrame* frame, const std::string& message) {
  return error(frame, ErrorCode::kInvalidArgument, "shlo_disc: " + message);
}

// XLA asks once, when the target is registered, which API the handler was built for; without an
// answer the whole CPU backend may fail to start.
bool answer_metadata(CallFrame* frame) {
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

const void* attribute(const CallFrame* frame, std::string_view name,
                      AttributeType type) {
  for (int64_t i = 0; i < frame->attrs.size; ++i) {
    const ByteSpan* const span = frame->attrs.names[i];
    if (std::string_view(span->ptr, span->len) != name) continue;
    return frame->attrs.types[i] == type ? frame->attrs.values[i] : nullptr;
  }
  return nullptr;
}

DType dtype_of(DataType type) {
  switch (type) {
    case DataType::kPred: return DType::kBool;
    case DataType::kS8: return DType::kInt8;
    case DataType::kS16: return DType::kInt16;
    case DataType::kS32: return DType::kInt32;
    case DataType::kS64: return DType::kInt64;
    case DataType::kU8: return DType::kUInt8;
    case DataType::kU16: return DType::kUInt16;
    case DataType::kU32: return DType::kUInt32;
    case DataType::kU64: return DType::kUInt64;
    case DataType::kF16: return DType::kFloat16;
    case DataType::kBF16: return DType::kBFloat16;
    case DataType::kF32: return DType::kFloat32;
    case DataType::kF64: return DType::kFloat64;
    case DataType::kC64: return DType::kComplex64;
    case DataType::kF8E3M4: return DType::kFloat8E3M4;
    case DataType::kF8E4M3: return DType::kFloat8E4M3;
    case DataType::kF8E4M3B11FNUZ: return DType::kFloat8E4M3B11FNUZ;
    case DataType::kF8E4M3FN: return DType::kFloat8E4M3FN;
    case DataType::kF8E4M3FNUZ: return DType::kFloat8E4M3FNUZ;
    case DataType::kF8E5M2: return DType::kFloat8E5M2;
    case DataType::kF8E5M2FNUZ: return DType::kFloat8E5M2FNUZ;
    case DataType::kF8E8M0FNU: return DType::kFloat8E8M0FNU;
    case DataType::kC128: return DType::kComplex128;
    case DataType::kS2: return DType::kInt2;
    case DataType::kS4: return DType::kInt4;
    case DataType::kU2: return DType::kUInt2;
    case DataType::kU4: return DType::kUInt4;
    case DataType::kF4E2M1FN: return DType::kFloat4E2M1FN;
    default: return DType::kOther;
  }
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

// An XLA executable is being made: it gets its program, to keep.
Error* instantiate(CallFrame* frame) {
  const auto* const which = static_cast<const Scalar*>(
      attribute(frame, "executable", AttributeType::kScalar));
  if (which == nullptr || which->dtype != DataType::kS64) {
    return invalid(frame, "the custom call has no i64 attribute 'executable'");
  }
  int64_t fingerprint;
  std::memcpy(&fingerprint, which->value, sizeof(fingerprint));
  Held executable = find_executable(fingerprint);
  if (executable == nullptr) {
    return error(frame, ErrorCode::kNotFound,
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

std::string sizes_text(int64_t rank, const int64_t* sizes) {
  std::string text = "(";
  for (int64_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + ")";
}

Error* execute(CallFrame* frame) {
  StateGetArgs state{size_up_to(&StateGetArgs::state), nullptr, frame->context,
                     Stage::kInstantiate, &held_type(), nullptr};
  if (Error* const failed = frame->api->get_state(&state)) return failed;
  const Executable* const executable = static_cast<const Held*>(state.state)->get();
  const ProgramSpec& spec = executable->spec();

  const auto* const carrier = static_cast<const Array*>(
      attribute(frame, "sizes", AttributeType::kArray));
  const size_t given = static_cast<size_t>(frame->args.size) + (carrier != nullptr ? 1 : 0);
  if (given != spec.arguments.size() ||
      static_cast<size_t>(frame->rets.size) != spec.results.size()) {
    return invalid(frame, spec.name + " takes " + std::to_string(spec.arguments.size()) +
                              " arguments and has " + std::to_string(spec.results.size()) +
                              " results, the custom call has " + std::to_string(given) + " and " +
                              std::to_string(frame->rets.size));
  }

  std::vector<ScopedBlock> unpacked;  // copies of what XLA packs
  const auto new_copy = [&unpacked](int64_t bytes) {
    unpacked.emplace_back(pool_acquire(static_cast<size_t>(bytes), Hold::kCall));
    if (unpacked.back().get() == nullptr) throw std::bad_alloc();
    return unpacked.back().get()->data;
  };
  SmallVector<void*, 64> pointers(given);
  SmallVector<int64_t, 128> sizes(static_cast<size_t>(executable->prepared_numbers()));
  int64_t* next = sizes.data();
  for (size_t i = 0; i < given; ++i) {
    const int64_t* dims = nullptr;
    int64_t rank = 0;
    DType dtype = spec.arguments[i].dtype;
    if (i < static_cast<size_t>(frame->args.size)) {
      const auto* const buffer = static_cast<const Buffer*>(frame->args.values[i]);
      dims = buffer->dims;
      rank = buffer->rank;
      dtype = dtype_of(buffer->dtype);
      pointers[i] = buffer->data;
      if (const int bits = packed_bits(dtype); bits != 0) {
        const int64_t count = array_bytes(dtype, rank, dims);
        pointers[i] = new_copy(count);
        unpack_elements(bits, buffer->data, count, pointers[i]);
      }
    } else {
      if (carrier->dtype != DataType::kS64) {
        return invalid(frame, "the attribute 'sizes' is not an array of i64");
      }
      dims = static_cast<const int64_t*>(carrier->data);
      rank = static_cast<int64_t>(carrier->size);
      pointers[i] = nullptr;
    }
    const Mismatch mismatch = executable->check(i, dtype, rank, dims);
    if (mismatch != Mismatch::kNone) {
      return invalid(frame, executable->describe(mismatch, i, dtype, rank, dims, true));
    }
    next = std::copy_n(dims, rank, next);
  }
  executable->read_size_elements(pointers.data(), next);

  SmallVector<int64_t, 64> symbols(static_cast<size_t>(spec.symbols));
  SmallVector<int64_t, 64> result_sizes(static_cast<size_t>(executable->result_ranks()));
  int64_t arena_bytes = 0;
  const int64_t status =
      executable->prepare(sizes.data(), symbols.data(), result_sizes.data(), &arena_bytes);
  if (status != 0) return invalid(frame, executable->describe_guard(status - 1));

  SmallVector<void*, 16> results(spec.results.size());
  const int64_t* want = result_sizes.data();
  for (size_t i = 0; i < spec.results.size(); ++i) {
    const auto* const buffer = static_cast<const Buffer*>(frame->rets.values[i]);
    const ResultSpec& result = spec.results[i];
    if (dtype_of(buffer->dtype) != result.dtype || buffer->rank != result.rank ||
        !std::equal(want, want + result.rank, buffer->dims)) {
      return invalid(frame, "result " + std::to_string(i) + " is " + dtype_name(result.dtype) +
                                sizes_text(result.rank, want) + ", the custom call says " +
                                dtype_name(dtype_of(buffer->dtype)) +
                                sizes_text(buffer->rank, buffer->dims));
    }
    results[i] = packed_bits(result.dtype) == 0
                     ? buffer->data
                     : new_copy(array_bytes(result.dtype, result.rank, want));
    want += result.rank;
  }

  const ScopedBlock arena(pool_acquire(static_cast<size_t>(arena_bytes), Hold::kCall));
  RunFailure failure;
  if (arena.get() == nullptr || !executable->run(pointers.data(), results.data(), symbols.data(),
                                                 arena.get()->data, nullptr, &failure)) {
    if (failure.foreign >= 0) {
      return error(frame, static_cast<ErrorCode>(failure.code),
                   executable->describe_foreign(failure.foreign) + ": " + failure.message);
    }
    return error(frame, ErrorCode::kResourceExhausted,
                 "shlo_disc: out of memory (" + std::to_string(arena_bytes) +
                     " bytes of temporaries)");
  }
  for (size_t i = 0; i < spec.results.size(); ++i) {
    const auto* const buffer = static_cast<const Buffer*>(frame->rets.values[i]);
    if (const int bits = packed_bits(spec.results[i].dtype); bits != 0) {
      const int64_t count = array_bytes(spec.results[i].dtype, buffer->rank, buffer->dims);
      pack_elements(bits, results[i], count, buffer->data);
    }
  }
  return nullptr;
}

template <Error* (*Body)(CallFrame*)>
Error* handler(CallFrame* frame) {
  if (answer_metadata(frame)) return nullptr;
  try {
    return Body(frame);
  } catch (const std::bad_alloc&) {
    return error(frame, ErrorCode::kResourceExhausted, "shlo_disc: out of memory");
  } catch (const std::exception& e) {
    return error(frame, ErrorCode::kInternal, std::string("shlo_disc: ") + e.what());
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

void* ffi_execute_address() { return reinterpret_cast<void*>(&handler<&execute>); }

}  // namespace shlo_disc
