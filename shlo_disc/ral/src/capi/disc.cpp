// The C API of artifacts (disc.h).
#include "disc.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "artifact.h"
#include "buffer_pool.h"
#include "call.h"
#include "dlpack_result.h"
#include "foreign_api.h"
#include "foreign_call.h"
#include "gpu_call_memory.h"
#include "object_code.h"
#include "pack_cache.h"
#include "parts.h"
#include "small_vector.h"
#include "strided_copy.h"
#include "thread_pool.h"

using namespace shlo_disc;  // NOLINT

struct disc_error {
  disc_code code = DISC_OK;
  std::string message;
  int64_t argument = -1;
  int64_t result = -1;
};

struct disc_weight {
  PackOwner owner;
};

namespace {

static_assert(DISC_DTYPES == static_cast<int>(kDTypeCount) && DISC_UINT4 == static_cast<int>(DType::kUInt4) &&
                  DISC_FLOAT32 == static_cast<int>(DType::kFloat32),
              "the two lists are the same");

constexpr uintptr_t kAlignment = 64;
constexpr uintptr_t kAlignmentOnGpu = 16;  // kernels read so many bytes at once
// Where arrays without elements lie.
alignas(kAlignment) constexpr char kNothing[2 * kAlignment] = {};

// What a caller did wrong, or why it cannot be done.
struct Refusal {
  disc_error error;
};

[[noreturn]] void refuse(disc_code code, std::string message) {
  throw Refusal{{code, std::move(message), -1, -1}};
}

void require(bool holds, const char* message) {
  if (!holds) refuse(DISC_MISUSE, message);
}

disc_error* out_of_memory() {
  static disc_error instance{DISC_OUT_OF_MEMORY, "out of memory", -1, -1};  // never freed
  return &instance;
}

disc_error* made(disc_error error) noexcept {
  auto* const out = new (std::nothrow) disc_error(std::move(error));
  return out == nullptr ? out_of_memory() : out;
}

// Nothing may be thrown into C.
template <typename Body>
disc_error* guarded(const Body& body) noexcept {
  try {
    body();
    return nullptr;
  } catch (Refusal& refusal) {
    return made(std::move(refusal.error));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const ArtifactError& error) {
    static constexpr disc_code kCodes[] = {DISC_FILE, DISC_DAMAGED, DISC_NEWER, DISC_NO_TARGET, DISC_NO_HANDLER};
    return made({kCodes[error.kind], error.what(), -1, -1});
  } catch (const std::exception& error) {
    return made({DISC_INTERNAL, error.what(), -1, -1});
  }
}

// Of a structure whose size the caller tells; what the caller does not know is zero here.
template <typename Struct>
Struct copied(const Struct& from) {
  Struct out{};
  const size_t bytes = from.struct_size;
  require(bytes >= sizeof(size_t), "struct_size is not set");
  std::memcpy(&out, &from, std::min(bytes, sizeof(Struct)));
  const char* const rest = reinterpret_cast<const char*>(&from);
  for (size_t i = sizeof(Struct); i < bytes; ++i) {
    require(rest[i] == 0, "a structure has fields of a later disc.h: this libdisc_ral.so is older");
  }
  return out;
}

template <typename Struct>
void copy_to(const Struct& from, Struct* to) {
  const size_t bytes = to->struct_size;
  require(bytes >= sizeof(size_t), "struct_size is not set");
  std::memcpy(reinterpret_cast<char*>(to) + sizeof(size_t),
              reinterpret_cast<const char*>(&from) + sizeof(size_t),
              std::min(bytes, sizeof(Struct)) - sizeof(size_t));
}

std::vector<const char*> pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> out;
  for (const std::string& text : texts) out.push_back(text.c_str());
  return out;
}

// "float32[batch,8]"
std::string text_of(DType dtype, const std::vector<std::string>& sizes) {
  std::string text = std::string(dtype_name(dtype)) + "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ",") + sizes[i];
  return text + "]";
}

// Memory of the user's allocator, with this in front.
struct Allocated {
  void (*release)(void* context, void* memory, size_t bytes);
  void* context;
  size_t bytes;
};
static_assert(sizeof(Allocated) <= kAlignment);

// `disc_memory` is a block of the pool; an Allocated, with the lowest bit set; or with the next one a GpuBlock.
constexpr uintptr_t kIsAllocated = 1, kIsOnGpu = 2;
disc_memory* handle_of(Allocated* memory) {
  return reinterpret_cast<disc_memory*>(reinterpret_cast<uintptr_t>(memory) | kIsAllocated);
}
disc_memory* handle_of(GpuBlock* block) {
  return reinterpret_cast<disc_memory*>(reinterpret_cast<uintptr_t>(block) | kIsOnGpu);
}
static_assert(alignof(Block) > kIsOnGpu && alignof(GpuBlock) > kIsOnGpu);

}  // namespace

struct disc_program {
  std::unique_ptr<Artifact> artifact;
  disc_options options{};
  OwnThreads threads{};
  std::vector<std::vector<const char*>> argument_texts, result_texts;
  std::vector<std::vector<int64_t>> result_sizes;  // -1: computed
  std::vector<int64_t> donated_to;                 // by argument

  const Manifest& manifest() const { return artifact->manifest; }
  // The one that gives the results. Its first arguments are those of the call; of parts it has others behind.
  const Executable& executable() const { return artifact->parts().last(artifact->parts().whole()); }
  dlpack::Device device() const {
    if (artifact->device == nullptr) return {dlpack::kCpu, 0};
    const bool is_cuda = artifact->device->driver().platform == GpuPlatform::kCuda;
    return {is_cuda ? dlpack::kCuda : dlpack::kRocm, artifact->device->info().ordinal};
  }
};

namespace {

// An argument as a message names it, with what was given and what is taken.
std::string named(const disc_program& program, size_t index, const disc_array& given) {
  const Manifest::Argument& want = program.manifest().arguments[index];
  const auto dtype = static_cast<size_t>(given.dtype) < kDTypeCount ? static_cast<DType>(given.dtype)
                                                                     : DType::kOther;
  const bool is_known = given.rank >= 0 && (given.sizes != nullptr || given.rank == 0);
  return "argument " + std::to_string(index) + " ('" + want.name + "', " +
         (is_known ? array_text(dtype, given.rank, given.sizes) : "without sizes") + " given, " +
         text_of(want.dtype, want.texts) + " taken): ";
}

[[noreturn]] void refuse_argument(const disc_program& program, size_t index, const disc_array& given,
                                  disc_code code, const std::string& why) {
  throw Refusal{{code, named(program, index, given) + why, static_cast<int64_t>(index), -1}};
}

[[noreturn]] void refuse_result(const disc_program& program, Call& call, size_t index, disc_code code,
                                const std::string& why) {
  const int64_t* sizes = call.result_sizes();
  const auto& results = program.executable().spec().results;
  for (size_t i = 0; i < index; ++i) sizes += results[i].rank;
  throw Refusal{{code,
                 "result " + std::to_string(index) + " (" +
                     array_text(results[index].dtype, results[index].rank, sizes) + "): " + why,
                 -1, static_cast<int64_t>(index)}};
}

disc_code code_of(const Failure& failure) {
  switch (failure.kind) {
    case Failure::Kind::kArgument:
      return failure.mismatch == Mismatch::kDType  ? DISC_DTYPE
             : failure.mismatch == Mismatch::kRank ? DISC_RANK
                                                   : DISC_SIZE;
    case Failure::Kind::kGuard: return DISC_CONSTRAINT;
    case Failure::Kind::kOutOfMemory: return DISC_OUT_OF_MEMORY;
    case Failure::Kind::kDevice: return DISC_DEVICE;
    case Failure::Kind::kForeign: return DISC_HANDLER;
    default: return DISC_INTERNAL;
  }
}

// The sizes of all arguments with several of them, where they do not fit together.
[[noreturn]] void refuse_call(const disc_program& program, const Call& call, const disc_array* arguments) {
  std::string message = call.failure.text(program.manifest().name);
  if (call.failure.kind == Failure::Kind::kGuard) {
    message += "; the arguments are";
    const auto& wanted = program.manifest().arguments;
    for (size_t i = 0; i < wanted.size(); ++i) {
      message += (i == 0 ? " '" : ", '") + wanted[i].name + "' " +
                 array_text(wanted[i].dtype, arguments[i].rank, arguments[i].sizes);
    }
  }
  refuse(code_of(call.failure), std::move(message));
}

// Computes the sizes of results, with all arguments given. `place`: where these are; null: on the CPU. False with the
// failure of the call set.
bool prepare(Call& call, const GpuPlace* place = nullptr) {
  if (place == nullptr) {
    call.read_size_elements(call.arguments());
  } else if (!read_size_elements(call, *place)) {
    return false;
  }
  return call.prepare();
}

// Gives the call its arguments. `runs`: their memory is needed, too. `place`: where they are; null: on the CPU.
void take(const disc_program& program, Call& call, const disc_array* arguments, size_t count, bool runs,
          PackOwner** owners, const GpuPlace* place = nullptr) {
  const ProgramSpec& spec = program.executable().spec();
  require(count == program.manifest().arguments.size(), "the number of arguments is not that of the program");
  require(arguments != nullptr || count == 0, "the arguments are a null pointer");
  for (size_t i = 0; i < count; ++i) {
    const disc_array& given = arguments[i];
    const auto refuse_it = [&](disc_code code, const std::string& why) {
      refuse_argument(program, i, given, code, why);
    };
    if (given.rank < 0 || (given.sizes == nullptr && given.rank > 0)) refuse_it(DISC_MISUSE, "it has no sizes");
    const auto dtype = static_cast<size_t>(given.dtype) < kDTypeCount ? static_cast<DType>(given.dtype)
                                                                       : DType::kOther;
    auto* const data = static_cast<char*>(const_cast<void*>(given.data));
    if (!call.take(data, dtype, given.rank, given.sizes)) {
      refuse_it(code_of(call.failure), call.failure.message);
    }
    const int64_t bytes = array_bytes(dtype, given.rank, given.sizes);
    if (bytes < 0) refuse_it(DISC_SIZE, "a size is negative, or all are too large");
    if (bytes == 0) {
      call.arguments()[i] = place == nullptr ? const_cast<char*>(kNothing) : nullptr;
      continue;
    }
    const int64_t item = dtype_bytes(dtype);
    if (given.strides != nullptr && !is_dense({data, given.rank, given.sizes, given.strides, item})) {
      std::string strides;
      for (int32_t k = 0; k < given.rank; ++k) strides += (k == 0 ? "" : ",") + std::to_string(given.strides[k]);
      refuse_it(DISC_STRIDES, "its strides are [" + strides + "], and it must be dense and row-major");
    }
    const bool is_read = (runs && !spec.arguments[i].unread) ||
                         std::find(spec.size_arguments.begin(), spec.size_arguments.end(), i) !=
                             spec.size_arguments.end();
    if (is_read && data == nullptr) refuse_it(DISC_NULL, "its memory is a null pointer");
    const auto alignment = place != nullptr ? kAlignmentOnGpu : static_cast<uintptr_t>(std::min<int64_t>(item, 8));
    if (is_read && reinterpret_cast<uintptr_t>(data) % alignment != 0) {
      refuse_it(DISC_ALIGNMENT, "its memory begins at no multiple of " + std::to_string(alignment));
    }
    if (owners != nullptr) {
      const bool has_copies = given.weight != nullptr && spec.arguments[i].packable;
      owners[i] = has_copies ? &given.weight->owner : nullptr;
      if (has_copies) call.owners = owners;
    }
  }
}

// Memory of the pool, or of the user's allocator.
bool allocate(const disc_options& options, int64_t bytes, Hold hold, disc_memory** memory, void** data) {
  if (options.allocate == nullptr) {
    Block* const block = pool_acquire(static_cast<size_t>(bytes), hold);
    if (block == nullptr) return false;
    *memory = reinterpret_cast<disc_memory*>(block);
    *data = block->data;
    return true;
  }
  // In front there is room for what releases it, behind for what masked code reads.
  const size_t all = static_cast<size_t>(bytes) + 2 * kAlignment;
  void* const found = options.allocate(options.context, all, kAlignment);
  if (found == nullptr) return false;
  if (reinterpret_cast<uintptr_t>(found) % kAlignment != 0) {
    options.release(options.context, found, all);
    refuse(DISC_MISUSE, "options.allocate returned an address that is no multiple of its alignment");
  }
  *memory = handle_of(new (found) Allocated{options.release, options.context, all});
  *data = static_cast<char*>(found) + kAlignment;
  return true;
}

// Caller's memory for results, memory of the pool, and memory of the user's allocator.
class Memory : public CallMemory {
 public:
  Memory(const disc_program& program, const Executable& executable, disc_buffer* results, size_t count)
      : program_(program), spec_(executable.spec()), results_(results), count_(count), made_(count), data_(count) {
    std::fill_n(made_.data(), count, nullptr);
  }
  ~Memory() override {
    disc_memory_release(arena_);
    for (disc_memory* memory : made_) disc_memory_release(memory);
  }

  // Checks the caller's memory, with the call prepared.
  void check(Call& call) const {
    for (size_t i = 0; i < count_; ++i) {
      const auto refuse_it = [&](disc_code code, const std::string& why) {
        refuse_result(program_, call, i, code, why);
      };
      const disc_buffer& result = results_[i];
      const auto bytes = static_cast<size_t>(call.bytes(i));
      if (is_allocated(result, bytes) || bytes == 0) continue;
      if (result.bytes < bytes) {
        refuse_it(DISC_TOO_SMALL, "it takes " + std::to_string(bytes) + " bytes, and its memory has " +
                                      std::to_string(result.bytes));
      }
      if (reinterpret_cast<uintptr_t>(result.data) % kAlignment != 0) {
        refuse_it(DISC_ALIGNMENT, "its memory begins at no multiple of " + std::to_string(kAlignment));
      }
      const int64_t* sizes = call.sizes();
      for (size_t k = 0; k < spec_.arguments.size(); ++k) {
        const ArgumentSpec& argument = spec_.arguments[k];
        const auto rank = static_cast<int64_t>(argument.sizes.size());
        const int64_t length = array_bytes(argument.dtype, rank, sizes);
        sizes += rank;
        const void* const data = call.arguments()[k];
        if (argument.unread || !meet(data, static_cast<size_t>(length), result.data, bytes)) continue;
        const auto& reuses = spec_.reuses;
        const bool is_reused = data == result.data && std::count(reuses.begin(), reuses.end(), std::pair(k, i)) != 0;
        if (!is_reused) {
          refuse_it(DISC_OVERLAP, "its memory overlaps that of argument " + std::to_string(k) + " ('" +
                                      argument.name + "', " + array_text(argument.dtype, rank, sizes - rank) + ")");
        }
      }
      for (size_t k = 0; k < i; ++k) {
        if (!is_allocated(results_[k], static_cast<size_t>(call.bytes(k))) &&
            meet(results_[k].data, static_cast<size_t>(call.bytes(k)), result.data, bytes)) {
          refuse_it(DISC_OVERLAP, "its memory overlaps that of result " + std::to_string(k));
        }
      }
    }
  }

  bool result(size_t i, const int64_t*, int64_t bytes, void** data) override {
    if (!needs(i, bytes)) {
      *data = results_[i].data;
    } else if (!allocate(bytes, Hold::kResult, &made_[i], data)) {
      return false;
    }
    data_[i] = *data;
    return true;
  }

  // Whether the library gives the memory of a result.
  bool needs(size_t i, int64_t bytes) const { return is_allocated(results_[i], static_cast<size_t>(bytes)); }
  void give(size_t i, disc_memory* memory, void* data) {
    made_[i] = memory;
    data_[i] = data;
  }
  void* given(size_t i) const { return results_[i].data; }

  bool arena(int64_t bytes, void** data) override { return allocate(bytes, Hold::kCall, &arena_, data); }

  // After the run: tells the caller where results are.
  void keep(Call& call) {
    const int64_t* sizes = call.result_sizes();
    for (size_t i = 0; i < count_; ++i) {
      if (made_[i] != nullptr) {
        disc_memory_release(std::exchange(results_[i].memory, std::exchange(made_[i], nullptr)));
        results_[i].data = data_[i];
      }
      const int64_t rank = spec_.results[i].rank;
      results_[i].bytes = static_cast<size_t>(call.bytes(i));
      if (results_[i].sizes != nullptr) std::copy_n(sizes, rank, results_[i].sizes);
      sizes += rank;
    }
  }

 private:
  // True if the library gives the memory: the caller gives none, or some of an earlier call that is too small.
  static bool is_allocated(const disc_buffer& result, size_t bytes) {
    return result.data == nullptr || (result.memory != nullptr && result.bytes < bytes);
  }

  static bool meet(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
    const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
    return first < second + b_bytes && second < first + a_bytes;
  }

  bool allocate(int64_t bytes, Hold hold, disc_memory** memory, void** data) const {
    return ::allocate(program_.options, bytes, hold, memory, data);
  }

  const disc_program& program_;
  const ProgramSpec& spec_;
  disc_buffer* const results_;
  const size_t count_;
  SmallVector<disc_memory*, 16> made_;  // for results
  SmallVector<void*, 16> data_;         // of results
  disc_memory* arena_ = nullptr;
};

// Who works on what this thread starts, as the options say.
class Threads {
 public:
  explicit Threads(const disc_program& program) : is_set_(program.options.threads != 0 || program.threads.count != 0) {
    if (!is_set_) return;
    limit_ = limit_threads(program.options.threads);
    own_ = use_threads(program.threads.count != 0 ? &program.threads : nullptr);
  }
  ~Threads() {
    if (!is_set_) return;
    limit_threads(limit_);
    use_threads(own_);
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  const bool is_set_;
  int limit_ = 0;
  const OwnThreads* own_ = nullptr;
};

// Memory for arrays between programs.
class BetweenParts : public PartMemory {
 public:
  explicit BetweenParts(const disc_options& options) : options_(options) {}

  std::shared_ptr<void> take(int64_t bytes, void** data) override {
    disc_memory* memory = nullptr;
    if (!allocate(options_, bytes, Hold::kCall, &memory, data)) return nullptr;
    return {memory, disc_memory_release};
  }

 private:
  const disc_options& options_;
};

// Between programs on a GPU.
class BetweenPartsOnGpu : public PartMemory {
 public:
  explicit BetweenPartsOnGpu(const GpuPlace& place) : place_(place) {}

  std::shared_ptr<void> take(int64_t bytes, void** data) override {
    GpuBlock* const block = place_.device->acquire(bytes, Hold::kCall, place_.stream, nullptr, "a value", &unsaid_);
    if (block == nullptr) return nullptr;
    *data = block->data;
    return {block, gpu_release};
  }
  const GpuPlace* place() const override { return &place_; }

 private:
  const GpuPlace place_;
  Failure unsaid_;  // the program tells what it has no memory for
};

// Of a call whose memory is a device's: results are where `memory` says, or in the device's pool.
class MemoryOnGpu : public DeviceMemory {
 public:
  MemoryOnGpu(Call& call, const GpuPlace& place, Memory& memory) : DeviceMemory(call, place, nullptr), memory_(memory) {}

  bool result(size_t i, const int64_t*, int64_t bytes, void** data) override {
    if (!memory_.needs(i, bytes)) {
      *data = memory_.given(i);
      return true;
    }
    GpuBlock* const block = take(bytes, Hold::kResult, "result " + std::to_string(i));
    if (block == nullptr) return false;
    *data = block->data;
    memory_.give(i, handle_of(block), block->data);
    return true;
  }

 private:
  Memory& memory_;
};

// A run of all programs of an artifact.
struct Run {
  const disc_program& program;
  const disc_array* arguments;
  size_t argument_count;
  disc_buffer* results;
  size_t result_count;
  const GpuPlace* device = nullptr;  // that the programs run on; null: the CPU
  bool are_there = false;            // the caller's memory is on the device
  bool is_waited = true;             // for the work, where it is

  // `call`: of the last program of all, which has the arguments.
  void all(Call& call, PartMemory& memory) {
    const Parts parts = program.artifact->parts();
    size_t sequence = parts.whole();
    if (parts.is_one(sequence) && last(sequence, call, are_there)) return;
    std::vector<PartArray> values = given(call, memory);
    const auto run_first = [&](Call& of) {
      const size_t before = values.size();
      if (!parts.run_first(sequence, values, argument_count, call.owners, memory, of.failure) ||
          !take_values(of, values, &of == &call ? before : 0)) {
        refuse_call(program, of, arguments);
      }
      for (size_t i = 0; i < argument_count; ++i) of.arguments()[i] = values[i].data;
    };
    if (!parts.is_one(sequence)) {
      run_first(call);
      if (last(sequence, call, device != nullptr)) return;
    }
    // Only a sequence without a choice is in place of another.
    sequence = *parts.apart(sequence, call.failure);
    Call other(parts.last(sequence));
    run_first(other);
    last(sequence, other, device != nullptr);
  }

 private:
  // The results of the last program of a sequence, in the caller's buffers. False: it failed, and another sequence
  // gives them; otherwise a failure is the caller's error. `has_there`: its arguments are on the device.
  bool last(size_t sequence, Call& call, bool has_there) {
    Memory memory(program, call.executable, results, result_count);
    bool done = prepare(call, has_there ? device : nullptr);
    if (done) {
      memory.check(call);
      done = runs(call, memory, has_there);
    }
    if (done) {
      memory.keep(call);
    } else if (!program.artifact->parts().apart(sequence, call.failure)) {
      refuse_call(program, call, arguments);
    }
    return done;
  }

  bool runs(Call& call, Memory& memory, bool has_there) {
    if (device == nullptr) return call.run(memory);
    if (!are_there) return CopiedCall(call, *device, memory, has_there).run();
    MemoryOnGpu there(call, *device, memory);
    ++call.executable.gpu_calls().enqueued;
    return call.run(there) &&
           (!is_waited || device->device->wait(device->stream, "at the end of the call", &call.failure));
  }

  // The arguments as values, where the programs run.
  std::vector<PartArray> given(Call& call, PartMemory& memory) {
    std::vector<PartArray> out;
    for (size_t i = 0; i < argument_count; ++i) {
      const ArgumentSpec& spec = program.executable().spec().arguments[i];
      const int64_t* const sizes = arguments[i].sizes;
      const int32_t rank = arguments[i].rank;
      out.push_back({call.arguments()[i], spec.dtype, std::vector(sizes, sizes + rank), nullptr});
      if (device == nullptr || are_there) continue;
      PartArray& value = out.back();
      const int64_t bytes = spec.unread ? 0 : array_bytes(spec.dtype, rank, sizes);
      value.memory = memory.take(bytes, &value.data);
      if (value.memory == nullptr) {
        refuse_argument(program, i, arguments[i], DISC_OUT_OF_MEMORY, "there is no memory for it on the device");
      }
      const GpuScope scope(*device->device);
      const int error = bytes == 0 ? kGpuSuccess
                                   : device->device->call().copy_to_device(value.data, arguments[i].data,
                                                                           static_cast<size_t>(bytes), device->stream);
      if (!device->device->driver().check(error, "an argument cannot be copied to the device", &call.failure)) {
        refuse_call(program, call, arguments);
      }
    }
    return out;
  }

  // Gives a call the arrays of `values` from `first` on.
  static bool take_values(Call& call, const std::vector<PartArray>& values, size_t first) {
    return std::all_of(values.begin() + static_cast<ptrdiff_t>(first), values.end(), [&](const PartArray& value) {
      return call.take(value.data, value.dtype, static_cast<int64_t>(value.sizes.size()), value.sizes.data());
    });
  }
};

void check_results(const disc_program& program, const disc_buffer* results, size_t count) {
  require(count == program.executable().spec().results.size(), "the number of results is not that of the program");
  require(results != nullptr || count == 0, "the results are a null pointer");
}

// All memory is on the device of `place`; without a stream there its own is waited for.
void enqueue(const disc_program& program, void* stream, const disc_array* arguments, size_t argument_count,
             disc_buffer* results, size_t result_count) {
  GpuDevice* const device = program.artifact->device;
  if (device == nullptr) refuse(DISC_DEVICE, program.manifest().name + " runs on the CPU, and has no stream");
  check_results(program, results, result_count);
  const GpuPlace place = {device, stream != nullptr ? stream : device->stream()};
  Call call(program.executable());
  take(program, call, arguments, argument_count, true, nullptr, &place);
  BetweenPartsOnGpu memory(place);
  Run{program, arguments, argument_count, results, result_count, &place, true, stream == nullptr}.all(call, memory);
}

void run(const disc_program& program, const disc_array* arguments, size_t argument_count, disc_buffer* results,
         size_t result_count) {
  check_results(program, results, result_count);
  Call call(program.executable());
  SmallVector<PackOwner*, 64> owners(program.executable().spec().arguments.size());
  take(program, call, arguments, argument_count, true, owners.data());
  std::fill(owners.begin() + argument_count, owners.end(), nullptr);
  const Threads threads(program);
  Run run{program, arguments, argument_count, results, result_count};
  GpuDevice* const device = program.artifact->device;
  if (device == nullptr) {
    BetweenParts memory(program.options);
    return run.all(call, memory);
  }
  const GpuPlace place = {device, device->stream()};
  BetweenPartsOnGpu memory(place);
  run.device = &place;
  run.all(call, memory);
}

// The handlers of the caller, by target.
std::map<std::string, ForeignHandlers> handlers_of(const disc_options& options) {
  std::map<std::string, ForeignHandlers> out;
  require(options.handlers != nullptr || options.handler_count == 0, "options.handlers is a null pointer");
  for (size_t i = 0; i < options.handler_count; ++i) {
    const disc_handler& one = options.handlers[i];
    require(one.target != nullptr, "a handler has no target");
    require((one.state_type_id == nullptr) == (one.state_type_info == nullptr),
            "a handler's state_type_id and state_type_info come together");
    if (one.state_type_id != nullptr) {
      number_state_type(static_cast<xla_ffi::TypeId*>(one.state_type_id),
                        *static_cast<const xla_ffi::TypeInfo*>(one.state_type_info));
    }
    ForeignHandlers& stages = out[one.target];
    void* const addresses[] = {one.instantiate, one.prepare, one.initialize, one.execute};
    for (size_t k = 0; k < stages.size(); ++k) stages[k] = reinterpret_cast<xla_ffi::Handler*>(addresses[k]);
  }
  return out;
}

void open(const disc_options* given, disc_program** out,
          const std::function<std::unique_ptr<Artifact>(const ArtifactOptions&)>& artifact) {
  require(out != nullptr, "the place of the program is a null pointer");
  *out = nullptr;
  auto program = std::make_unique<disc_program>();
  if (given != nullptr) program->options = copied(*given);
  const disc_options& options = program->options;
  require((options.flags & ~DISC_TRUST_CONSTANTS) == 0, "options.flags has an unknown flag");
  require(options.threads >= 0, "options.threads is negative");
  require(options.reserved == 0, "options.reserved is not zero");
  require((options.allocate == nullptr) == (options.release == nullptr),
          "options.allocate and options.release come together");
  if (options.parallel_for != nullptr) {
    const int threads = options.threads != 0 ? options.threads : num_threads();
    program->threads = {options.context, options.parallel_for, threads};
  }
  ArtifactOptions how;
  if (options.target != nullptr) how.target = options.target;
  how.device = options.device;
  how.handlers = handlers_of(options);
  if (options.lapack != nullptr) how.lapack = options.lapack;
  how.trusts_constants = (options.flags & DISC_TRUST_CONSTANTS) != 0;
  if (options.log != nullptr) {
    how.log = [&options](const std::string& message) { options.log(options.context, message.c_str()); };
  }
  {
    const Threads threads(*program);
    program->artifact = artifact(how);
  }
  program->options.target = program->options.lapack = nullptr;  // the caller's
  program->options.handlers = nullptr;
  const Manifest& manifest = program->manifest();
  for (const auto& argument : manifest.arguments) program->argument_texts.push_back(pointers(argument.texts));
  for (const auto& result : manifest.results) {
    program->result_texts.push_back(pointers(result.texts));
    auto& sizes = program->result_sizes.emplace_back();
    for (const std::string& text : result.texts) {
      const bool is_number = !text.empty() && text.size() < 19 && text.find_first_not_of("0123456789") == text.npos;
      sizes.push_back(is_number ? std::stoll(text) : -1);
    }
  }
  program->donated_to.assign(manifest.arguments.size(), -1);
  for (const auto& [argument, result] : program->artifact->target->reuses) {
    program->donated_to[argument] = static_cast<int64_t>(result);
  }
  *out = program.release();
}

struct OwnedMemory {
  explicit OwnedMemory(disc_memory* of, void* at) : memory(of), address(at) {}
  OwnedMemory(OwnedMemory&& other) noexcept
      : memory(std::exchange(other.memory, nullptr)), address(other.address) {}
  ~OwnedMemory() { disc_memory_release(memory); }
  void* data() const { return address; }

  disc_memory* memory;
  void* address;
};

}  // namespace

int32_t disc_version() { return DISC_VERSION; }

disc_code disc_error_code(const disc_error* error) { return error == nullptr ? DISC_OK : error->code; }
const char* disc_error_message(const disc_error* error) { return error == nullptr ? "" : error->message.c_str(); }
int64_t disc_error_argument(const disc_error* error) { return error == nullptr ? -1 : error->argument; }
int64_t disc_error_result(const disc_error* error) { return error == nullptr ? -1 : error->result; }
void disc_error_free(disc_error* error) {
  if (error != out_of_memory()) delete error;
}

const char* disc_dtype_name(int32_t dtype) {
  return static_cast<size_t>(dtype) < kDTypeCount ? dtype_name(static_cast<DType>(dtype)) : nullptr;
}
int64_t disc_dtype_bytes(int32_t dtype) {
  return static_cast<size_t>(dtype) < kDTypeCount ? dtype_bytes(static_cast<DType>(dtype)) : 0;
}

disc_error* disc_program_open(const char* path, const disc_options* options, disc_program** program) {
  return guarded([&] {
    require(path != nullptr, "the path is a null pointer");
    open(options, program, [&](const ArtifactOptions& how) { return open_artifact(path, how); });
  });
}

disc_error* disc_program_open_memory(const void* data, size_t bytes, const disc_options* options,
                                     disc_program** program) {
  return guarded([&] {
    require(data != nullptr, "the artifact is a null pointer");
    open(options, program, [&](const ArtifactOptions& how) {
      return open_artifact_in({static_cast<const char*>(data), bytes}, how);
    });
  });
}

void disc_program_close(disc_program* program) { delete program; }

const char* disc_program_name(const disc_program* program) { return program->manifest().name.c_str(); }
const char* disc_program_compiler(const disc_program* program) { return program->manifest().compiler.c_str(); }
const char* disc_program_target(const disc_program* program) { return program->artifact->target->name.c_str(); }
void disc_program_device(const disc_program* program, int32_t* type, int32_t* number) {
  const dlpack::Device device = program->device();
  *type = device.type;
  *number = device.id;
}
size_t disc_program_arguments(const disc_program* program) { return program->manifest().arguments.size(); }
size_t disc_program_results(const disc_program* program) { return program->manifest().results.size(); }

disc_error* disc_program_argument(const disc_program* program, size_t index, disc_spec* spec) {
  return guarded([&] {
    require(program != nullptr && spec != nullptr, "the program or the specification is a null pointer");
    require(index < program->manifest().arguments.size(), "there is no such argument");
    const ArgumentSpec& argument = program->executable().spec().arguments[index];
    const auto& texts = program->argument_texts[index];
    const disc_spec out = {0, argument.name.c_str(), static_cast<int32_t>(argument.dtype),
                           static_cast<int32_t>(texts.size()), argument.sizes.data(), texts.data(),
                           argument.donated, argument.packable, program->donated_to[index]};
    copy_to(out, spec);
  });
}

disc_error* disc_program_result(const disc_program* program, size_t index, disc_spec* spec) {
  return guarded([&] {
    require(program != nullptr && spec != nullptr, "the program or the specification is a null pointer");
    require(index < program->manifest().results.size(), "there is no such result");
    const Manifest::Result& result = program->manifest().results[index];
    const auto& texts = program->result_texts[index];
    const disc_spec out = {0, result.name.c_str(), static_cast<int32_t>(result.dtype),
                           static_cast<int32_t>(texts.size()), program->result_sizes[index].data(), texts.data(),
                           0, 0, -1};
    copy_to(out, spec);
  });
}

disc_error* disc_program_measure(const disc_program* program, const disc_array* arguments, size_t argument_count,
                                 int64_t* result_sizes, disc_needs* needs) {
  return guarded([&] {
    require(program != nullptr, "the program is a null pointer");
    const Parts parts = program->artifact->parts();
    const auto refuse_it = [program] {
      refuse(DISC_DATA_SIZED, program->manifest().name + " has sizes that come from data: they are known after the run");
    };
    if (!parts.is_one(parts.whole())) refuse_it();
    Call call(program->executable());
    take(*program, call, arguments, argument_count, false, nullptr);
    if (!prepare(call)) {
      if (parts.apart(parts.whole(), call.failure)) refuse_it();
      refuse_call(*program, call, arguments);
    }
    if (result_sizes != nullptr) {
      std::copy_n(call.result_sizes(), program->executable().result_ranks(), result_sizes);
    }
    if (needs == nullptr) return;
    const auto allocated = [program](int64_t bytes) {
      const auto least = static_cast<size_t>(bytes);
      const int in_class = class_of(least);
      return static_cast<int64_t>(program->options.allocate != nullptr || in_class >= kClasses
                                      ? least + 2 * kAlignment
                                      : bytes_of(in_class) + kAlignment);
    };
    disc_needs out = {0, call.total_bytes(), call.arena_bytes(), allocated(call.arena_bytes())};
    for (size_t i = 0; i < program->executable().spec().results.size(); ++i) {
      out.peak_bytes += allocated(call.bytes(i));
    }
    copy_to(out, needs);
  });
}

disc_error* disc_program_run(const disc_program* program, const disc_array* arguments, size_t argument_count,
                             disc_buffer* results, size_t result_count) {
  return guarded([&] {
    require(program != nullptr, "the program is a null pointer");
    run(*program, arguments, argument_count, results, result_count);
  });
}

disc_error* disc_program_enqueue(const disc_program* program, void* stream, const disc_array* arguments,
                                 size_t argument_count, disc_buffer* results, size_t result_count) {
  return guarded([&] {
    require(program != nullptr, "the program is a null pointer");
    enqueue(*program, stream, arguments, argument_count, results, result_count);
  });
}

void disc_memory_release(disc_memory* memory) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  if ((address & kIsOnGpu) != 0) return gpu_release(reinterpret_cast<GpuBlock*>(address - kIsOnGpu));
  if ((address & kIsAllocated) == 0) return pool_release(reinterpret_cast<Block*>(memory));
  auto* const allocated = reinterpret_cast<Allocated*>(address - kIsAllocated);
  const Allocated copy = *allocated;
  copy.release(copy.context, allocated, copy.bytes);
}

disc_error* disc_program_run_dlpack(const disc_program* program, const void* const* arguments,
                                    size_t argument_count, DLManagedTensorVersioned** results,
                                    size_t result_count) {
  using Managed = dlpack::Result<dlpack::ManagedTensorVersioned, OwnedMemory>;
  return guarded([&] {
    require(program != nullptr, "the program is a null pointer");
    const auto& spec = program->executable().spec();
    require(argument_count == program->manifest().arguments.size(),
            "the number of arguments is not that of the program");
    require(result_count == spec.results.size(), "the number of results is not that of the program");
    require((arguments != nullptr || argument_count == 0) && (results != nullptr || result_count == 0),
            "the arguments or the results are a null pointer");
    for (size_t i = 0; i < result_count; ++i) {
      results[i] = nullptr;
      if (!dlpack::code_of(spec.results[i].dtype)) {
        refuse(DISC_DTYPE, "result " + std::to_string(i) + " is " + dtype_name(spec.results[i].dtype) +
                               ", which DLPack has not");
      }
    }
    std::vector<disc_array> arrays;
    const dlpack::Device own = program->device();
    bool on_gpu = false;
    for (size_t i = 0; i < argument_count; ++i) {
      require(arguments[i] != nullptr, "a tensor is a null pointer");
      const auto& tensor = *static_cast<const dlpack::Tensor*>(arguments[i]);
      const char* const data = static_cast<const char*>(tensor.data);
      arrays.push_back({data == nullptr ? nullptr : data + tensor.byte_offset, tensor.sizes, tensor.strides,
                        static_cast<int32_t>(dtype_of(tensor.dtype)), tensor.rank, nullptr});
      const bool is_on_gpu = tensor.device.type != dlpack::kCpu;
      if (is_on_gpu && (tensor.device.type != own.type || tensor.device.id != own.id)) {
        refuse_argument(*program, i, arrays.back(), DISC_DEVICE,
                        own.type == dlpack::kCpu ? "it is not in memory of the CPU"
                                                 : "it is neither on the CPU nor on " + program->artifact->device->title());
      }
      if (i != 0 && is_on_gpu != on_gpu) {
        refuse_argument(*program, i, arrays.back(), DISC_DEVICE, "it is on another device than argument 0");
      }
      on_gpu = is_on_gpu;
    }
    std::vector<std::vector<int64_t>> sizes(result_count);
    std::vector<disc_buffer> buffers;
    for (size_t i = 0; i < result_count; ++i) {
      sizes[i].resize(static_cast<size_t>(spec.results[i].rank));
      buffers.push_back({nullptr, 0, sizes[i].data(), nullptr});
    }
    if (on_gpu) {
      enqueue(*program, nullptr, arrays.data(), argument_count, buffers.data(), result_count);
    } else {
      run(*program, arrays.data(), argument_count, buffers.data(), result_count);
    }
    bool done = true;
    for (size_t i = 0; i < result_count; ++i) {
      const disc_buffer& buffer = buffers[i];
      auto* const made = Managed::make(OwnedMemory(buffer.memory, buffer.data),
                                       on_gpu ? own : dlpack::Device{dlpack::kCpu, 0},
                                       spec.results[i].dtype, spec.results[i].rank, buffer.sizes);
      done = done && made != nullptr;
      if (made == nullptr) continue;
      made->managed.version = dlpack::kVersion;
      results[i] = reinterpret_cast<DLManagedTensorVersioned*>(&made->managed);
    }
    if (done) return;
    for (size_t i = 0; i < result_count; ++i) {
      if (results[i] != nullptr) Managed::destroy(reinterpret_cast<dlpack::ManagedTensorVersioned*>(results[i]));
      results[i] = nullptr;
    }
    throw std::bad_alloc();
  });
}

disc_error* disc_weight_create(disc_weight** weight) {
  return guarded([&] {
    require(weight != nullptr, "the place of the weight is a null pointer");
    *weight = new disc_weight;
  });
}

void disc_weight_free(disc_weight* weight) { delete weight; }
