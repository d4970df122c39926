// Executables as XLA FFI custom calls.
//
// One target serves all executables of the process. The attribute `executable` (i64) says which:
// a fingerprint of the program chosen by its owner, so that a module that XLA cached on disk finds
// the same program or none, never another. The optional attribute `sizes` (i64 array) gives the
// sizes of one more argument, a zero-size carrier that shows sizes no array shows.
#ifndef SHLO_DISC_RAL_FFI_HANDLER_H_
#define SHLO_DISC_RAL_FFI_HANDLER_H_

#include <cstdint>
#include <memory>

#include "executable.h"

namespace shlo_disc {

// Keeps the executable for the life of the process: XLA may hold modules that call it. A
// fingerprint that is known already keeps its first executable.
void ffi_register(int64_t fingerprint, std::shared_ptr<const Executable> executable);

// The address of the handler, an XLA_FFI_Handler*.
void* ffi_handler_address();

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FFI_HANDLER_H_
