#include "executable.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "call.h"
#include "fft.h"
#include "fp_env.h"
#include "thread_pool.h"

namespace shlo_disc {
namespace {

struct DTypeRow {
  const char* name;
  int64_t bytes;
};

constexpr DTypeRow kDTypes[] = {
    {"bool", 1},    {"int8", 1},    {"int16", 2},    {"int32", 4},   {"int64", 8},
    {"uint8", 1},   {"uint16", 2},  {"uint32", 4},   {"uint64", 8},  {"float16", 2},
    {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"complex64", 8}, {"complex128", 16},
    {"float4_e2m1fn", 1}, {"float6_e2m3fn", 1}, {"float6_e3m2fn", 1}, {"float8_e3m4", 1},
    {"float8_e4m3", 1}, {"float8_e4m3b11fnuz", 1}, {"float8_e4m3fn", 1}, {"float8_e4m3fnuz", 1},
    {"float8_e5m2", 1}, {"float8_e5m2fnuz", 1}, {"float8_e8m0fnu", 1},
    {"int2", 1}, {"int4", 1}, {"uint2", 1}, {"uint4", 1},
};
static_assert(sizeof(kDTypes) / sizeof(kDTypes[0]) == kDTypeCount, "one row per DType");

// A packed copy of what nobody keeps copies of (numpy's memory, an array seen for the first time),
// for the rest of one call.
struct CallPack {
  int64_t argument;
  int64_t slot;
  int64_t uses;
  ScopedBlock block;
};

// How often a call uses an operand without a copy before it makes one: a copy for one use costs more
// than the use, and a recurrent layer of numpy's weights has hundreds.
constexpr int64_t kUsesWithoutCopy = 2;

// What generated code sees, and behind it what the runtime needs to answer it.
struct CallContext {
  disc_context base;
  Call* call;
  const uint32_t* pack_keys;
  const std::unique_ptr<PackOwner>* constant_owners;
  WaitingPack* told;  // whose launch comes next
  // The first copies take nothing of the heap.
  static constexpr size_t kFewPacks = 8;
  alignas(CallPack) std::byte room[kFewPacks * sizeof(CallPack)];
  std::pmr::monotonic_buffer_resource memory{room, sizeof room};
  std::pmr::vector<CallPack> packs{&memory};
};

int64_t now_nanoseconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

CallContext& context_of(disc_context* context) { return *reinterpret_cast<CallContext*>(context); }

PackOwner* owner_of(const CallContext& call, int64_t argument) {
  if (argument < 0) return call.constant_owners[-1 - argument].get();
  return call.call->owners == nullptr ? nullptr : call.call->owners[argument];
}

const void* memory_of(const CallContext& call, int64_t argument) {
  return argument < 0 ? call.base.constants[-1 - argument] : call.call->arguments()[argument];
}

void fail_for_memory(CallContext& call) {
  call.call->failure.set_out_of_memory();
  call.base.failed = 1;
}

void context_parallel_for(disc_context* context, disc_kernel kernel, void* const* args,
                          const int64_t* params, int64_t extent, int64_t grain,
                          int64_t scratch_bytes) {
  CallContext& call = context_of(context);
  if (WaitingPack* const pack = call.told) {
    // What is packed beside an argument but computed from it does not outlive the call.
    if (args[0] != memory_of(call, pack->argument)) return;
    if (pack->kernel < 0) pack->code = kernel;
    std::copy_n(params, pack->params.size(), pack->params.begin());
    pack->extent = extent;
    pack->scratch_bytes = scratch_bytes;
    pack->source = args[0];
    return;
  }
  if (!parallel_for(kernel, args, params, extent, grain, scratch_bytes)) {
    fail_for_memory(call);
  }
}

// As PackOwner::find_or_begin, for copies that live as long as the call.
int32_t find_or_begin_in_call(CallContext& call, int64_t argument, int64_t slot, int64_t bytes,
                              int64_t uses_without_copy, void** out) {
  auto found = std::find_if(call.packs.begin(), call.packs.end(), [&](const CallPack& pack) {
    return pack.argument == argument && pack.slot == slot;
  });
  if (found == call.packs.end()) {
    try {
      if (call.packs.empty()) call.packs.reserve(CallContext::kFewPacks);
      found = call.packs.insert(call.packs.end(), {argument, slot, 0, ScopedBlock()});
    } catch (const std::bad_alloc&) {  // generated code cannot be unwound
      return 0;
    }
  }
  if (found->block.get() != nullptr) {
    *out = found->block.get()->data;
    return 1;
  }
  if (found->uses++ != uses_without_copy) return 0;
  if (bytes < 0 || bytes > pack_stats().limit_bytes) return 0;
  found->block = ScopedBlock(pool_acquire(static_cast<size_t>(bytes), Hold::kCall));
  if (found->block.get() == nullptr) return 0;
  *out = found->block.get()->data;
  return 2;
}

int32_t context_packed(disc_context* context, int64_t argument, int64_t slot, int64_t bytes,
                       int64_t params, void** out) {
  CallContext& call = context_of(context);
  if (context->failed != 0) return 0;  // nothing is begun that may stay incomplete
  PackOwner* const owner = owner_of(call, argument);
  const uint32_t key = call.pack_keys[slot];
  WaitingPacks* const waiting = call.call->waiting;
  const bool waits = owner != nullptr && waiting != nullptr && params >= 0 &&
                     (argument < 0 || waiting->may_wait[argument]);
  if (!waits) {
    const int32_t kept = owner == nullptr ? 0 : owner->find_or_begin(key, bytes, out);
    const int64_t without = params == -2 ? 0 : kUsesWithoutCopy;
    return kept != 0 ? kept : find_or_begin_in_call(call, argument, slot, bytes, without, out);
  }
  if (void* const ready = owner->ready(key)) {
    *out = ready;
    return 1;
  }
  const size_t before = call.packs.size();
  const int32_t in_call =
      find_or_begin_in_call(call, argument, slot, bytes, kUsesWithoutCopy, out);
  const bool is_first_use = call.packs.size() != before;
  if (!is_first_use || !waiting->are_told) return in_call;
  try {
    auto& packs = waiting->packs;
    packs.push_back({argument, slot, bytes, std::vector<int64_t>(static_cast<size_t>(params)), nullptr, -1,
                     nullptr, 0, 0});
    call.told = &packs.back();
  } catch (const std::bad_alloc&) {  // generated code cannot be unwound
    return 0;
  }
  return 3;
}

void context_packed_done(disc_context* context, int64_t argument, int64_t slot, void* filled) {
  CallContext& call = context_of(context);
  if (std::exchange(call.told, nullptr) != nullptr) return;
  for (const CallPack& pack : call.packs) {
    if (pack.block.get() != nullptr && pack.block.get()->data == filled) return;
  }
  // A pack that may be incomplete is never published; the call fails anyway.
  if (context->failed == 0) owner_of(call, argument)->publish(call.pack_keys[slot]);
}

void context_mark(disc_context* context, int64_t site, int64_t end) {
  Marks* const marks = context_of(context).call->marks;
  if (marks == nullptr) return;
  if (marks->marks.size() >= Marks::kMost) {
    ++marks->dropped;
    return;
  }
  try {
    marks->marks.push_back({site, end, now_nanoseconds()});
  } catch (const std::bad_alloc&) {
    ++marks->dropped;  // generated code cannot be unwound
  }
}

void context_foreign(disc_context* context, int64_t number, void* const* buffers,
                     const int64_t* sizes) {
  CallContext& call = context_of(context);
  const ForeignCode& foreign = *call.call->executable.spec().foreign[static_cast<size_t>(number)];
  if (context->failed == 0) {
    try {
      if (foreign.run(buffers, sizes, &call.call->failure)) return;
    } catch (const std::bad_alloc&) {  // generated code cannot be unwound
      call.call->failure.set_out_of_memory();
    }
    context->failed = 1;
  }
  // What follows in the program reads them.
  foreign.clear_results(buffers, sizes);
}

void context_fft(disc_context* context, int64_t options, int64_t batch, int64_t length,
                 int64_t inner, void* const* buffers) {
  if (context->failed != 0) return;
  if (fft_transform(options, batch, length, inner, buffers) == FftResult::kDone) return;
  fail_for_memory(context_of(context));
}

void no_kernel(void* const*, const int64_t*, int64_t, int64_t, void*) {}

disc_kernel context_kernel(disc_context* context, int64_t index) {
  if (context->failed != 0) return &no_kernel;
  CallContext& call = context_of(context);
  if (call.told != nullptr) {
    call.told->kernel = index;
    return &no_kernel;
  }
  Failure& failure = call.call->failure;
  try {
    std::string message;
    const Executable& executable = call.call->executable;
    if (const disc_kernel found = executable.kernel(index, call.call->symbols(), &message)) return found;
    failure.set(Failure::Kind::kInternal, "kernel " + std::to_string(index) + ": " + message);
  } catch (const std::bad_alloc&) {  // generated code cannot be unwound
    failure.set_out_of_memory();
  }
  context->failed = 1;
  return &no_kernel;
}

}  // namespace

DType dtype_from_name(const std::string& name) {
  for (size_t i = 0; i < kDTypeCount; ++i) {
    if (name == kDTypes[i].name) return static_cast<DType>(i);
  }
  return DType::kOther;
}

const char* dtype_name(DType dtype) {
  return dtype == DType::kOther ? "an unsupported type" : kDTypes[static_cast<int>(dtype)].name;
}

int64_t dtype_bytes(DType dtype) {
  return dtype == DType::kOther ? 0 : kDTypes[static_cast<int>(dtype)].bytes;
}

int packed_bits(DType dtype) {
  switch (dtype) {
    case DType::kInt2:
    case DType::kUInt2: return 2;
    case DType::kInt4:
    case DType::kUInt4:
    case DType::kFloat4E2M1FN: return 4;
    default: return 0;
  }
}

namespace {

// The compiler makes vectors of these loops: the numbers of bits are constants.
template <int kBits>
void unpack(const uint8_t* packed, int64_t count, uint8_t* elements) {
  constexpr int64_t kInByte = 8 / kBits;
  constexpr uint8_t kMask = (1 << kBits) - 1;
  const int64_t whole = count / kInByte;
  for (int64_t i = 0; i < whole; ++i) {
    for (int k = 0; k < kInByte; ++k) {
      elements[i * kInByte + k] = (packed[i] >> (k * kBits)) & kMask;
    }
  }
  for (int64_t i = whole * kInByte; i < count; ++i) {
    elements[i] = (packed[whole] >> (i % kInByte * kBits)) & kMask;
  }
}

template <int kBits>
void pack(const uint8_t* elements, int64_t count, uint8_t* packed) {
  constexpr int64_t kInByte = 8 / kBits;
  constexpr unsigned kMask = (1 << kBits) - 1;
  const auto byte_of = [](const uint8_t* from, int64_t n) {
    unsigned byte = 0;
    for (int64_t k = 0; k < n; ++k) byte |= (from[k] & kMask) << (k * kBits);
    return static_cast<uint8_t>(byte);
  };
  const int64_t whole = count / kInByte;
  for (int64_t i = 0; i < whole; ++i) packed[i] = byte_of(elements + i * kInByte, kInByte);
  const int64_t rest = count - whole * kInByte;
  if (rest != 0) packed[whole] = byte_of(elements + whole * kInByte, rest);
}

}  // namespace

void unpack_elements(int bits, const void* packed, int64_t count, void* elements) {
  const auto function = bits == 2 ? &unpack<2> : &unpack<4>;
  function(static_cast<const uint8_t*>(packed), count, static_cast<uint8_t*>(elements));
}

void pack_elements(int bits, const void* elements, int64_t count, void* packed) {
  const auto function = bits == 2 ? &pack<2> : &pack<4>;
  function(static_cast<const uint8_t*>(elements), count, static_cast<uint8_t*>(packed));
}

int64_t array_bytes(DType dtype, int64_t rank, const int64_t* sizes) {
  int64_t bytes = dtype_bytes(dtype);
  for (int64_t i = 0; i < rank; ++i) {
    if (sizes[i] < 0 || __builtin_mul_overflow(bytes, sizes[i], &bytes)) return -1;
  }
  return bytes;
}

std::string array_text(DType dtype, int64_t rank, const int64_t* sizes) {
  std::string text = std::string(dtype_name(dtype)) + "[";
  for (int64_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ",") + std::to_string(sizes[i]);
  return text + "]";
}

namespace {

int64_t element_count(const ArgumentSpec& argument) {
  int64_t count = 1;
  for (const int64_t size : argument.sizes) count *= size;
  return count;
}

template <typename T>
int64_t* widen(const void* from, int64_t count, int64_t* to) {
  const T* const elements = static_cast<const T*>(from);
  for (int64_t i = 0; i < count; ++i) *to++ = static_cast<int64_t>(elements[i]);
  return to;
}

}  // namespace

void Executable::read_size_elements(void* const* arguments, int64_t* out) const {
  for (const size_t i : spec_.size_arguments) {
    const int64_t count = element_count(spec_.arguments[i]);
    switch (spec_.arguments[i].dtype) {
      case DType::kInt8: out = widen<int8_t>(arguments[i], count, out); break;
      case DType::kInt16: out = widen<int16_t>(arguments[i], count, out); break;
      case DType::kInt32: out = widen<int32_t>(arguments[i], count, out); break;
      case DType::kInt64: out = widen<int64_t>(arguments[i], count, out); break;
      case DType::kUInt8: out = widen<uint8_t>(arguments[i], count, out); break;
      case DType::kUInt16: out = widen<uint16_t>(arguments[i], count, out); break;
      case DType::kUInt32: out = widen<uint32_t>(arguments[i], count, out); break;
      case DType::kUInt64: out = widen<uint64_t>(arguments[i], count, out); break;
      default: break;  // refused when the program was made
    }
  }
}

Executable::Executable(ProgramSpec spec)
    : spec_(std::move(spec)), packing_(spec_.packs_later ? kFirst : kNow) {
  for (const ArgumentSpec& argument : spec_.arguments) {
    argument_ranks_ += static_cast<int64_t>(argument.sizes.size());
  }
  for (const size_t i : spec_.size_arguments) size_elements_ += element_count(spec_.arguments[i]);
  for (const ResultSpec& result : spec_.results) result_ranks_ += result.rank;
  first_symbols_.resize(static_cast<size_t>(spec_.symbols));
  for (const std::string& layout : spec_.pack_layouts) pack_keys_.push_back(pack_key(layout));
  if (spec_.gpu != nullptr) loaded_ = std::make_unique<LoadedPrograms>(*spec_.gpu);
}

const LoadedProgram* Executable::loaded_on(GpuDevice& device, Failure* failure) const {
  std::vector<std::pair<const void*, size_t>> constants;
  for (size_t i = 0; i < constants_.size(); ++i) {
    constants.emplace_back(constants_[i], constant_bytes_[i]);
  }
  return loaded_->on(device, constants, failure);
}

constexpr uintptr_t kConstantAlignment = 64;  // kernels rely on it

bool Executable::add_constant(const void* data, size_t bytes, std::shared_ptr<const void> owner,
                              Memory memory) {
  auto packs = std::make_unique<PackOwner>();
  const bool is_aligned = reinterpret_cast<uintptr_t>(data) % kConstantAlignment == 0;
  if (memory != Memory::kPassing && is_aligned && bytes != 0) {
    constants_.push_back(data);
    constant_holders_.push_back(std::move(owner));
    if (memory == Memory::kMappedFile) packs->lies_in_file(data, bytes);
  } else {
    ScopedBlock block(pool_acquire(bytes, Hold::kResult));
    if (block.get() == nullptr) return false;
    if (bytes != 0) std::memcpy(block.get()->data, data, bytes);
    constants_.push_back(block.get()->data);
    constant_blocks_.push_back(std::move(block));
  }
  constant_bytes_.push_back(bytes);
  constant_owners_.push_back(std::move(packs));
  return true;
}

disc_kernel Executable::kernel(int64_t index, const int64_t* symbols, std::string* message) const {
  const KernelCell& cell = *spec_.kernels[static_cast<size_t>(index)];
  if (const disc_kernel known = cell.load(std::memory_order_acquire)) return known;
  const bool at_other_sizes =
      first_call_.load(std::memory_order_acquire) == kNoted &&
      !std::equal(first_symbols_.begin(), first_symbols_.end(), symbols);
  const bool made = spec_.make_kernel(index, at_other_sizes, message);
  return made ? cell.load(std::memory_order_acquire) : nullptr;
}

void Executable::note_first(const int64_t* symbols) const {
  FirstCall none = kNone;
  if (!first_call_.compare_exchange_strong(none, kBeingNoted)) return;
  std::copy_n(symbols, first_symbols_.size(), first_symbols_.begin());
  first_call_.store(kNoted, std::memory_order_release);
}

bool Executable::fill(const WaitingPack& pack, PackOwner& owner) const {
  const uint32_t key = pack_keys_[static_cast<size_t>(pack.slot)];
  if (pack.source == nullptr || owner.ready(key) != nullptr) return true;
  disc_kernel kernel = pack.code;
  if (pack.kernel >= 0) {
    const KernelCell& cell = *spec_.kernels[static_cast<size_t>(pack.kernel)];
    std::string message;
    if (cell.load(std::memory_order_acquire) == nullptr &&
        !spec_.make_kernel(pack.kernel, false, &message)) {
      return false;  // a call that needs the copy tells why
    }
    kernel = cell.load(std::memory_order_acquire);
  }
  const ScopedBlock scratch(pool_acquire(static_cast<size_t>(pack.scratch_bytes), Hold::kCall));
  if (scratch.get() == nullptr) return true;
  const DefaultFpEnv fp_env;
  const std::shared_lock<std::shared_mutex> reading(pack_readers());
  void* copy = nullptr;
  if (owner.find_or_begin(key, pack.bytes, &copy) != 2) return true;
  void* const args[] = {const_cast<void*>(pack.source), copy};
  kernel(args, pack.params.data(), 0, pack.extent, scratch.get()->data);
  owner.publish(key);
  return true;
}

bool Executable::run(Call& call, void* arena) const {
  const DefaultFpEnv fp_env;
  CallContext context{{sizeof(disc_context), &context_parallel_for, &context_packed,
                       &context_packed_done, reinterpret_cast<const void* const*>(spec_.kernels.data()),
                       constants_.data(), &context_mark, &context_foreign, 0, &context_fft, nullptr,
                       nullptr, nullptr, nullptr, nullptr, &context_kernel},
                      &call, pack_keys_.data(), constant_owners_.data(), nullptr, {}};
  if (first_call_.load(std::memory_order_relaxed) == kNone) note_first(call.symbols());
  std::shared_lock<std::shared_mutex> reading(pack_readers(), std::defer_lock);
  if (!pack_keys_.empty()) reading.lock();
  if (call.marks != nullptr) call.marks->begin = now_nanoseconds();
  call.host(&context.base, call.arguments(), call.results(), call.symbols(), arena);
  if (call.marks != nullptr) call.marks->end = now_nanoseconds();
  return !call.failure.failed();
}

}  // namespace shlo_disc
