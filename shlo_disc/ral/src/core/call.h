// One call of an executable: check, prepare, allocate, run. Python and XLA say where arguments and results
// are, and tell their callers what failed; the rest is the same for all.
#ifndef SHLO_DISC_RAL_CALL_H_
#define SHLO_DISC_RAL_CALL_H_

#include <cstdint>

#include "executable.h"
#include "failure.h"
#include "small_vector.h"

namespace shlo_disc {

// The memory that a call works in, which the caller of an executable gives.
class CallMemory {
 public:
  virtual ~CallMemory() = default;
  // Where result `index` is written, see disc_run. False: there is no memory; `failure` of the call may
  // tell more.
  virtual bool result(size_t index, const int64_t* sizes, int64_t bytes, void** data) = 0;
  // The device and the stream of a program for GPUs; null: the program runs on the CPU.
  virtual const GpuPlace* place() const { return nullptr; }
  // Temporary values, there too. As `result`.
  virtual bool arena(int64_t bytes, void** data) {
    arena_ = ScopedBlock(pool_acquire(static_cast<size_t>(bytes), Hold::kCall));
    *data = arena_.data();
    return *data != nullptr;
  }

 private:
  ScopedBlock arena_;
};

// The steps, in order, return false with `failure` set. Of one thread; needs no GIL.
class Call {
 public:
  explicit Call(const Executable& of)
      : executable(of),
        host(of.spec().run()),
        arguments_(of.spec().arguments.size()),
        sizes_(static_cast<size_t>(of.prepared_numbers())),
        symbols_(static_cast<size_t>(of.spec().symbols)),
        result_sizes_(static_cast<size_t>(of.result_ranks())),
        bytes_(of.spec().results.size()),
        results_(of.spec().results.size()),
        next_size_(sizes_.data()) {}

  // Checks the next argument. Copies its sizes.
  bool take(void* data, DType dtype, int64_t rank, const int64_t* sizes);
  // Reads the elements of size arguments, where the host sees them: one address per argument.
  void read_size_elements(void* const* on_host) {
    executable.read_size_elements(on_host, next_size_);
  }
  // Computes symbols and the sizes of results.
  bool prepare();
  // Takes memory of `memory`, and has the program run there. On a GPU it need not be done then.
  bool run(CallMemory& memory);

  void** arguments() { return arguments_.data(); }
  const int64_t* sizes() { return sizes_.data(); }  // of all arguments, then the elements of size arguments
  const int64_t* next_sizes() { return next_size_; }  // where those of the next argument will be
  const int64_t* symbols() { return symbols_.data(); }
  const int64_t* result_sizes() { return result_sizes_.data(); }  // of all results
  int64_t bytes(size_t result) { return bytes_[result]; }
  int64_t total_bytes() const { return total_bytes_; }  // of the results
  int64_t arena_bytes() const { return arena_bytes_; }
  void* const* results() { return results_.data(); }

  const Executable& executable;
  Failure failure;
  disc_run host;  // that of the executable, or another of the same kernels, which reports to `marks`
  Marks* marks = nullptr;
  PackOwner* const* owners = nullptr;  // one per argument, null: not packable in this call; null: none is
  WaitingPacks* waiting = nullptr;     // null: missing copies are made during the call

 private:
  bool refuse_result(size_t index, const int64_t* sizes);

  SmallVector<void*, 64> arguments_;
  SmallVector<int64_t, 128> sizes_;
  SmallVector<int64_t, 64> symbols_;
  SmallVector<int64_t, 64> result_sizes_;
  SmallVector<int64_t, 16> bytes_;
  SmallVector<void*, 16> results_;
  size_t taken_ = 0;
  int64_t* next_size_;
  int64_t arena_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_CALL_H_
