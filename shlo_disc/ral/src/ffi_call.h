// A custom call of XLA as a call of an executable: buffers, errors.
#ifndef SHLO_DISC_RAL_FFI_CALL_H_
#define SHLO_DISC_RAL_FFI_CALL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "buffer_pool.h"
#include "call.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {

xla_ffi::Error* ffi_error(const xla_ffi::CallFrame* frame, xla_ffi::ErrorCode code,
                          const std::string& message);
// INVALID_ARGUMENT, from us.
xla_ffi::Error* ffi_invalid(const xla_ffi::CallFrame* frame, const std::string& message);
// Of a call of `executable`.
xla_ffi::Error* ffi_failed(const xla_ffi::CallFrame* frame, const Executable& executable,
                           const Failure& failure);

// The value of an attribute; null: there is none of this name and type.
const void* ffi_attribute(const xla_ffi::CallFrame* frame, std::string_view name,
                          xla_ffi::AttributeType type);

// The buffers that XLA gives to one call, of a device or (`place` is null) of the host. The host's elements
// that XLA packs are copied, a byte each; the device's are refused.
class FrameMemory : public CallMemory {
 public:
  FrameMemory(const xla_ffi::CallFrame* frame, Call& call, const GpuPlace* place)
      : call_(call), frame_(frame), place_(place) {}

  // Gives the call its arguments. False with its failure set.
  bool read();
  bool result(size_t index, const int64_t* sizes, int64_t bytes, void** data) override;
  const GpuPlace* place() const override { return place_; }
  // After the run: results that XLA packs are packed.
  void pack_results();

 protected:
  Call& call_;
  const xla_ffi::CallFrame* const frame_;
  const GpuPlace* const place_;

 private:
  bool refuse(const std::string& what) {
    return call_.failure.set(Failure::Kind::kArgument, what);
  }
  void* new_copy(int64_t bytes);

  std::vector<ScopedBlock> unpacked_;  // copies of what XLA packs
};

// Runs a program of the CPU on buffers of the host.
xla_ffi::Error* execute_on_cpu(xla_ffi::CallFrame* frame, const Executable& executable);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FFI_CALL_H_
