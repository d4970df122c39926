// Custom calls of XLA that run on a GPU.
#ifndef SHLO_DISC_RAL_FFI_GPU_H_
#define SHLO_DISC_RAL_FFI_GPU_H_

#include "executable.h"
#include "gpu_driver.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {

// Runs a program on the stream of XLA, with scratch memory of XLA. Does not wait, but where the program
// reads memory. A program of the CPU is refused.
xla_ffi::Error* execute_on_gpu(xla_ffi::CallFrame* frame, const Executable& executable);

// A program for a GPU in a call of XLA's CPU platform: refused. For tests, where memory of the device
// is the host's (SHLO_DISC_GPU_HOST_MEMORY=1), it runs on a stream of ours, which is waited for.
xla_ffi::Error* execute_gpu_on_host(xla_ffi::CallFrame* frame, const Executable& executable);

// Remembers the stream that XLA computes on: that of a call of this handler.
xla_ffi::Error* learn_stream(xla_ffi::CallFrame* frame);
// The stream that the last call on this device had; false: there was none.
bool learned_stream(int ordinal, void** stream);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FFI_GPU_H_
