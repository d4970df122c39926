// The FFI targets `lapack_*_ffi` of jaxlib, over a LAPACK that the host has.
#ifndef SHLO_DISC_RAL_LAPACK_H_
#define SHLO_DISC_RAL_LAPACK_H_

#include <string>

#include "foreign_call.h"

namespace shlo_disc {

// Gives `spec`, a call of such a target, our handler. Its function is of `library`, a path or a name that dlopen
// takes; empty: of the one that DISC_LAPACK names, else of the first that is found by a well-known name. The library
// stays open. Throws std::runtime_error where it lacks the function, or where the call is not as jaxlib's are.
void use_lapack(ForeignSpec* spec, const std::string& library);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_LAPACK_H_
