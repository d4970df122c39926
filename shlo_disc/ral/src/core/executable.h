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
#include "failure.h"
#include "gpu_program.h"
#include "pack_cache.h"

namespace shlo_disc {

class Call;

// A call of code that is not ours: a handler of XLA FFI (foreign_call.h). Any number of threads may run it
// at once.
class ForeignCode {
 public:
  virtual ~ForeignCode() = default;
  // As `foreign` of disc_context, on memory of the host. False with `failure` set.
  virtual bool run(void* const* buffers, const int64_t* sizes, Failure* failure) const = 0;
  // The same behind all earlier work of the stream of `place`, in front of all later work.
  virtual bool run_on(const GpuPlace& place, void* const* buffers, const int64_t* sizes,
                      Failure* failure) const = 0;
  // Sets every byte of the results to zero, when what they hold does not matter any more.
  virtual void clear_results(void* const* buffers, const int64_t* sizes) const = 0;
};

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
  std::vector<std::shared_ptr<const ForeignCode>> foreign;
  std::shared_ptr<const GpuProgram> gpu;  // null: the program runs on the CPU
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

class Executable {
 public:
  explicit Executable(ProgramSpec spec);

  // Adds a constant; to be called once per constant, in order, before the first run. Aligned memory
  // is read where it is unless it is kPassing, and `owner` lives as long as the program; other memory
  // is copied. False: out of memory.
  enum class Memory { kPassing, kKept, kMappedFile };
  bool add_constant(const void* data, size_t bytes, std::shared_ptr<const void> owner,
                    Memory memory = Memory::kKept);

  // Adds a packed copy of a constant under a slot, which no call packs then; see PackOwner::adopt.
  void add_pack(size_t constant, size_t slot, const void* data, size_t bytes,
                std::shared_ptr<const void> holder) const {
    constant_owners_[constant]->adopt(pack_keys_[slot], data, bytes, std::move(holder));
  }
  // The packed copy of a constant under a slot: see PackOwner::made.
  std::pair<const void*, size_t> pack(size_t constant, size_t slot) const {
    return constant_owners_[constant]->made(pack_keys_[slot]);
  }
  size_t constants() const { return constants_.size(); }

  const ProgramSpec& spec() const { return spec_; }
  // Numbers `prepare` takes: the sizes of all arguments, then the elements of size arguments.
  int64_t prepared_numbers() const { return argument_ranks_ + size_elements_; }
  int64_t size_elements() const { return size_elements_; }
  // Writes the elements of the size arguments; arguments have passed check(). A ui64 from 2^63 on
  // comes out negative, as no size is.
  void read_size_elements(void* const* arguments, int64_t* out) const;
  int64_t result_ranks() const { return result_ranks_; }

  // Runs the host program of a call that is prepared, for the CPU; `arena`: see disc_run. Call::run is the
  // caller, and run_on_gpu of gpu_call.h its counterpart.
  bool run(Call& call, void* arena) const;

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
  const LoadedProgram* loaded_on(GpuDevice& device, Failure* failure) const;

  GpuCalls& gpu_calls() const { return gpu_calls_; }

  // The kernel of entry `index` of the table, for a call with these `symbols`; null with `message`
  // if it cannot be compiled.
  disc_kernel kernel(int64_t index, const int64_t* symbols, std::string* message) const;

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
std::string array_text(DType dtype, int64_t rank, const int64_t* sizes);  // "float32[2,3]"

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_EXECUTABLE_H_
