// A custom call of XLA as a call of an executable: buffers, sizes, errors.
#ifndef SHLO_DISC_RAL_FFI_CALL_H_
#define SHLO_DISC_RAL_FFI_CALL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "buffer_pool.h"
#include "executable.h"
#include "small_vector.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {

DType dtype_of(xla_ffi::DataType type);  // kOther for what a program never takes

xla_ffi::Error* ffi_error(const xla_ffi::CallFrame* frame, xla_ffi::ErrorCode code,
                          const std::string& message);
// INVALID_ARGUMENT, from us.
xla_ffi::Error* ffi_invalid(const xla_ffi::CallFrame* frame, const std::string& message);

// The value of an attribute; null: there is none of this name and type.
const void* ffi_attribute(const xla_ffi::CallFrame* frame, std::string_view name,
                          xla_ffi::AttributeType type);

// What XLA says of the arguments and results of one call. Steps return null, or an error for XLA.
class FfiCall {
 public:
  FfiCall(xla_ffi::CallFrame* frame, const Executable& executable);

  // Step 1: arguments and their sizes. `unpacks`: elements that XLA packs are copied, a byte each, by
  // the CPU; else they are refused.
  xla_ffi::Error* read(bool unpacks);
  // Step 2: the elements of size arguments, given the host's addresses of all arguments.
  void read_size_elements(void* const* host_arguments);
  // Step 3: symbols, results, arena.
  xla_ffi::Error* prepare();
  // Step 4, after the run: results that XLA packs are packed.
  void pack_results();

  void** arguments() { return arguments_.data(); }
  void** results() { return results_.data(); }
  const int64_t* symbols() { return symbols_.data(); }
  int64_t arena_bytes() const { return arena_bytes_; }

 private:
  void* new_copy(int64_t bytes);

  xla_ffi::CallFrame* const frame_;
  const Executable& executable_;
  const xla_ffi::Array* const carrier_;
  std::vector<ScopedBlock> unpacked_;  // copies of what XLA packs
  SmallVector<void*, 64> arguments_;
  SmallVector<int64_t, 128> sizes_;
  SmallVector<int64_t, 64> symbols_;
  SmallVector<int64_t, 64> result_sizes_;
  SmallVector<void*, 16> results_;
  int64_t* next_size_;
  int64_t arena_bytes_ = 0;
};

// Of a run in which a handler has failed, or a kernel could not be compiled.
xla_ffi::Error* told_error(const xla_ffi::CallFrame* frame, const Executable& executable,
                           const RunFailure& failure);

// Runs a program of the CPU on buffers of the host.
xla_ffi::Error* execute_on_cpu(xla_ffi::CallFrame* frame, const Executable& executable);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FFI_CALL_H_
