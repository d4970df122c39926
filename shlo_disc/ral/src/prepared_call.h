// What is known of a call before it runs: symbols, sizes of the results, bytes of the arena.
#ifndef SHLO_DISC_RAL_PREPARED_CALL_H_
#define SHLO_DISC_RAL_PREPARED_CALL_H_

#include <cstdint>

#include "executable.h"
#include "py_arguments.h"
#include "py_support.h"
#include "small_vector.h"

namespace shlo_disc {

// All of it needs the GIL to make.
class PreparedCall {
 public:
  explicit PreparedCall(const Executable& executable)
      : executable_(executable),
        symbols_(static_cast<size_t>(executable.spec().symbols)),
        sizes_(static_cast<size_t>(executable.result_ranks())),
        bytes_(executable.spec().results.size()) {}

  // From arguments that were read. False with GuardError, MemoryError or another Python error set.
  bool prepare(CallArguments& arguments);

  const int64_t* symbols() { return symbols_.data(); }
  int64_t arena_bytes() const { return arena_bytes_; }
  int64_t bytes(size_t result) { return bytes_[result]; }
  int64_t total_bytes() const { return total_bytes_; }  // of the results
  const int64_t* sizes(size_t result);

  // "result 0 is float32[2,3] and takes 24 bytes"
  std::string describe(size_t result);
  // Always null.
  PyObject* raise_no_memory_for_result(size_t result);

 private:
  const Executable& executable_;
  SmallVector<int64_t, 64> symbols_;
  SmallVector<int64_t, 64> sizes_;
  SmallVector<int64_t, 16> bytes_;
  int64_t arena_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PREPARED_CALL_H_
