// A compiled program ready to run: generated entry points plus the types of its arguments and
// results. Immutable after construction, so any number of threads may run it at once.
#ifndef SHLO_DISC_RAL_EXECUTABLE_H_
#define SHLO_DISC_RAL_EXECUTABLE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "disc_ral.h"
#include "gpu_program.h"
#include "pack_cache.h"

namespace shlo_disc {

class ForeignCall;

// Element types, as they lie in memory (booleans are one byte, 0 or 1).
enum class DType : uint8_t {
  kBool, kInt8, kInt16, kInt32, kInt64, kUInt8, kUInt16, kUInt32, kUInt64,
  kFloat16, kBFloat16, kFloat32, kFloat64, kComplex64, kComplex128,
  kFloat4E2M1FN, kFloat6E2M3FN, kFloat6E3M2FN, kFloat8E3M4, kFloat8E4M3, kFloat8E4M3B11FNUZ,
  kFloat8E4M3FN, kFloat8E4M3FNUZ, kFloat8E5M2, kFloat8E5M2FNUZ, kFloat8E8M0FNU,
  kInt2, kInt4, kUInt2, kUInt4,  // a byte each, as float4; XLA packs them
  kOther,  // anything else: never accepted
};
constexpr size_t kDTypeCount = static_cast<size_t>(DType::kOther);

DType dtype_from_name(const std::string& name);  // NumPy's names
const char* dtype_name(DType dtype);
int64_t dtype_bytes(DType dtype);  // 0 for kOther

// Bits of an element where XLA holds several in a byte, the first in the lowest bits; else 0. Its
// arrays have such elements one after the other, across rows, too.
int packed_bits(DType dtype);
// `count` elements out of XLA's bytes, a byte each with zeros in front; and back.
void unpack_elements(int bits, const void* packed, int64_t count, void* elements);
void pack_elements(int bits, const void* elements, int64_t count, void* packed);

struct ArgumentSpec {
  DType dtype;
  std::vector<int64_t> sizes;  // -1: any size
  std::string name;            // the argument's path, for messages
  bool packable = false;
  bool donated = false;
  bool unread = false;  // no code looks at its memory: it may be anywhere, or deleted
};

struct ResultSpec {
  DType dtype;
  int64_t rank;
};

// Where the code of a kernel is; programs share it. Any thread may change it, for code of equal bits.
using KernelCell = std::atomic<disc_kernel>;
static_assert(sizeof(KernelCell) == sizeof(disc_kernel), "generated code reads it");

// The same for a function of the host program: a call reads it when it begins.
using HostCell = KernelCell;

template <typename Function>
Function code_of(const HostCell& cell) {
  const auto code = reinterpret_cast<void (*)()>(cell.load(std::memory_order_acquire));
  return reinterpret_cast<Function>(code);
}

// Has kernel `index` compiled, into its cell; a message if that fails. Any thread may call it.
// `at_other_sizes`: the call that needs it has other sizes than the first one had.
using MakeKernel = std::function<bool(int64_t index, bool at_other_sizes, std::string* message)>;

struct ProgramSpec {
  disc_prepare prepare() const { return code_of<disc_prepare>(*host_prepare); }
  disc_run run() const { return code_of<disc_run>(*host_run); }

  std::string name;
  const HostCell* host_prepare = nullptr;  // `code` owns both
  const HostCell* host_run = nullptr;
  std::vector<KernelCell*> kernels;  // empty ones: `make_kernel` fills them when they are first needed
  MakeKernel make_kernel;
  bool packs_later = false;  // see Executable::packing()
  std::shared_ptr<const void> code;  // owns the machine code; any thread may drop it
  std::vector<ArgumentSpec> arguments;
  std::vector<ResultSpec> results;
  int64_t symbols = 0;
  // Integer arguments whose elements the program reads as sizes.
  std::vector<size_t> size_arguments;
  // (argument, result): the result may be written where the donated argument is.
  std::vector<std::pair<size_t, size_t>> reuses;
  bool donates = false;                   // is any argument donated
  std::vector<std::string> pack_layouts;  // by slot
  std::vector<std::string> guards;        // what each guard asks, for messages
  std::vector<std::shared_ptr<const ForeignCall>> foreign;  // calls of XLA FFI handlers
  std::shared_ptr<const GpuProgram> gpu;  // null: the program runs on the CPU
};

// Why a run ended early.
struct RunFailure {
  bool out_of_memory = false;
  int64_t foreign = -1;  // the FFI call that failed
  int64_t kernel = -1;   // the kernel that could not be compiled
  int code = 0;          // XLA_FFI_Error_Code of its error
  std::string message;   // of the error

  bool is_told() const { return foreign >= 0 || kernel >= 0; }
  GpuFailure gpu;        // of a program for a GPU
};

// A packed copy that a call did without: the launch that fills it.
struct WaitingPack {
  int64_t argument;  // or constant, as of disc_context::packed
  int64_t slot;
  int64_t bytes;
  std::vector<int64_t> params;
  const void* source = nullptr;  // null: there was no launch
  int64_t kernel = -1;           // in the table; -1: it is `code`
  disc_kernel code = nullptr;
  int64_t extent = 0;
  int64_t scratch_bytes = 0;
};

// The packed copies that a call does without.
struct WaitingPacks {
  const uint8_t* may_wait;  // by argument
  bool are_told;         // false: those of an earlier call are made
  std::vector<WaitingPack> packs;
};

// What a run of a host program made for profiling tells: its marks in order.
struct Marks {
  struct Mark {
    int64_t site;
    int64_t end;          // 0: the site begins, 1: it is done
    int64_t nanoseconds;  // since an arbitrary point, monotonic
  };
  static constexpr size_t kMost = size_t{1} << 22;  // 100 MB

  std::vector<Mark> marks;
  int64_t begin = 0;    // of the run
  int64_t end = 0;
  int64_t dropped = 0;  // beyond kMost, or no memory for more
};

// Calls of a program for GPUs since it was made. Any thread may count.
struct GpuCalls {
  std::atomic<int64_t> direct{0};    // by Python, which waits for the kernels
  std::atomic<int64_t> enqueued{0};  // custom calls, by XLA
  std::atomic<int64_t> graphs{0};    // of both: launched as a graph of the driver
};

// Why an argument does not fit.
enum class Mismatch { kNone, kDType, kRank, kSize };

class Executable {
 public:
  explicit Executable(ProgramSpec spec);

  // Adds a constant; to be called once per constant, in order, before the first run. Aligned memory
  // is read where it is, and `owner` lives as long as the program; other memory is copied. False:
  // out of memory.
  bool add_constant(const void* data, size_t bytes, std::shared_ptr<const void> owner);

  const ProgramSpec& spec() const { return spec_; }
  // Numbers `prepare` takes: the sizes of all arguments, then the elements of size arguments.
  int64_t prepared_numbers() const { return argument_ranks_ + size_elements_; }
  int64_t argument_ranks() const { return argument_ranks_; }
  int64_t size_elements() const { return size_elements_; }
  // Writes the elements of the size arguments; arguments have passed check(). A ui64 from 2^63 on
  // comes out negative, as no size is.
  void read_size_elements(void* const* arguments, int64_t* out) const;
  int64_t result_ranks() const { return result_ranks_; }

  // Checks one argument; sizes: `rank` entries.
  Mismatch check(size_t argument, DType dtype, int64_t rank, const int64_t* sizes) const;
  // "argument 1 ('ids'): dimension 0 is 7, the program takes 8"; the part after the colon when
  // `with_argument` is false.
  std::string describe(Mismatch mismatch, size_t argument, DType dtype, int64_t rank,
                       const int64_t* sizes, bool with_argument) const;
  std::string describe_guard(int64_t guard) const;

  // All of the following: see disc_prepare and disc_run.
  int64_t prepare(const int64_t* argument_sizes, int64_t* symbols, int64_t* result_sizes,
                  int64_t* arena_bytes) const {
    return spec_.prepare()(argument_sizes, symbols, result_sizes, arena_bytes);
  }

  // False: `failure` tells why. `owners` has one entry per argument (null: not packable in this
  // call); null when no argument is.
  bool run(void* const* arguments, void* const* results, const int64_t* symbols, void* arena,
           PackOwner* const* owners, RunFailure* failure) const {
    return run(spec_.run(), nullptr, arguments, results, symbols, arena, owners, nullptr, failure);
  }

  // As run, by another host program of the same kernels that reports to `marks`. For programs of the CPU;
  // see run_on_gpu of gpu_call.h. `waiting`: null where missing copies are made during the call.
  bool run(disc_run host, Marks* marks, void* const* arguments, void* const* results,
           const int64_t* symbols, void* arena, PackOwner* const* owners, WaitingPacks* waiting,
           RunFailure* failure) const;

  // Missing copies of packable buffers wait for the end of the first call that needs some, then for
  // whoever calls pack_now(); from then on calls make them.
  enum Packing : int { kFirst, kWaiting, kNow };
  Packing packing() const { return packing_.load(std::memory_order_acquire); }
  // True for one call that has told of copies: it has them made.
  bool begin_packing() const {
    Packing first = kFirst;
    return packing_.compare_exchange_strong(first, kWaiting);
  }
  void pack_now() const { packing_.store(kNow, std::memory_order_release); }
  // Makes a copy, unless there is one or no memory for it. `owner` and the memory live meanwhile.
  // False: its kernel cannot be compiled.
  bool fill(const WaitingPack& pack, PackOwner& owner) const;
  PackOwner& owner_of_constant(int64_t index) const {
    return *constant_owners_[static_cast<size_t>(index)];
  }

  // The kernels and constants of a program for GPUs on a device, which are loaded in its first call.
  // Null with `failure` set.
  const LoadedProgram* loaded_on(GpuDevice& device, GpuFailure* failure) const;

  GpuCalls& gpu_calls() const { return gpu_calls_; }

  // The kernel of entry `index` of the table, for a call with these `symbols`; null with `message`
  // if it cannot be compiled.
  disc_kernel kernel(int64_t index, const int64_t* symbols, std::string* message) const;

  // Where a call failed that is_told(): "linalg.py:7: @lapack_spotrf_ffi", "main: kernel 3".
  std::string describe(const RunFailure& failure) const;

 private:
  void note_first(const int64_t* symbols) const;

  const ProgramSpec spec_;
  // The symbols of the first call, once the state says so.
  enum FirstCall : int { kNone, kBeingNoted, kNoted };
  mutable std::vector<int64_t> first_symbols_;
  mutable std::atomic<FirstCall> first_call_{kNone};
  mutable std::atomic<Packing> packing_;
  std::vector<uint32_t> pack_keys_;
  std::vector<ScopedBlock> constant_blocks_;
  std::vector<std::shared_ptr<const void>> constant_holders_;
  std::vector<const void*> constants_;
  std::vector<size_t> constant_bytes_;
  std::vector<std::unique_ptr<PackOwner>> constant_owners_;
  mutable std::unique_ptr<LoadedPrograms> loaded_;  // of a program for GPUs
  mutable GpuCalls gpu_calls_;
  int64_t argument_ranks_ = 0;
  int64_t size_elements_ = 0;
  int64_t result_ranks_ = 0;
};

// Bytes of a dense array; -1 when a size is negative or the product overflows.
int64_t array_bytes(DType dtype, int64_t rank, const int64_t* sizes);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_EXECUTABLE_H_
