// What handlers may ask of the runtime that calls them: XLA's table of functions, over a context of
// ours.
#ifndef SHLO_DISC_RAL_FOREIGN_API_H_
#define SHLO_DISC_RAL_FOREIGN_API_H_

#include <cstdint>
#include <string>

#include "gpu_device.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {

// A state that a stage has left for later ones. XLA knows how to delete a state by its type, which
// handlers register with XLA alone: a state whose deleter we were not told stays until the process
// ends.
struct ForeignState {
  void* data = nullptr;
  int64_t type_id = 0;
};

// What an opaque xla_ffi::Context points to here: one call, or one instantiation.
struct ForeignContext {
  ForeignState states[xla_ffi::kStages];
  int64_t run_id = 0;
  const GpuPlace* place = nullptr;  // of a call of a handler of GPUs, but for its instantiation
};

struct ForeignError {
  int code;
  std::string message;
};

// `is_on_device`: for handlers of GPUs.
const xla_ffi::Api* foreign_api(bool is_on_device);

inline xla_ffi::Context* opaque(ForeignContext* context) {
  return reinterpret_cast<xla_ffi::Context*>(context);
}

// Takes over an error a handler has returned.
ForeignError take_error(xla_ffi::Error* error);

// Waits for an asynchronous handler and destroys the future; the error it ended with, or null.
xla_ffi::Error* wait_for(xla_ffi::Future* future);

// Remembers how states of a type are deleted. `is_on_device`: of handlers of GPUs, whose types XLA's
// plugin numbers by itself.
void know_state_type(const xla_ffi::TypeId& id, const xla_ffi::TypeInfo& info, bool is_on_device);

// The same for handlers of the host and of GPUs that JAX does not know. A type that no XLA has numbered gets a number.
void number_state_type(xla_ffi::TypeId* id, const xla_ffi::TypeInfo& info);

// Deletes a state, if its type came with a deleter.
void delete_state(const ForeignState& state, bool is_on_device);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FOREIGN_API_H_
