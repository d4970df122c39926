// Executables as XLA FFI custom calls.
//
// One target serves all executables of the process. The attribute `executable` (i64) says which:
// a fingerprint of the program chosen by its owner, so that a module that XLA cached on disk finds
// the same program or none, never another. The optional attribute `sizes` (i64 array) gives the
// sizes of one more argument, a zero-size carrier that shows sizes no array shows.
//
// An XLA executable looks its program up once, when it is made, and owns it from then on: the
// program's machine code is freed with its last owner, be that Python or XLA.
#ifndef SHLO_DISC_RAL_FFI_HANDLER_H_
#define SHLO_DISC_RAL_FFI_HANDLER_H_

#include <cstdint>
#include <memory>

#include "executable.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {

// Lets XLA find the executable as long as it has another owner. Several executables may have one
// fingerprint, if they are the same program: one that is alive is found.
void ffi_register(int64_t fingerprint, const std::shared_ptr<const Executable>& executable);

// How many registered executables are alive.
int64_t ffi_registered();

// True if a handler was only asked which version of the API it was built for, which is answered.
bool ffi_answers_metadata(xla_ffi::CallFrame* frame);

// The addresses of the handlers of two stages, both XLA_FFI_Handler*. `on_gpu`: of platforms whose
// buffers are a GPU's; programs of the CPU are refused there, and programs for GPUs elsewhere.
void* ffi_instantiate_address();
void* ffi_execute_address(bool on_gpu);
// Of a handler of GPUs that remembers the stream of its calls; see learned_stream of ffi_gpu.h.
void* ffi_learn_stream_address();

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FFI_HANDLER_H_
