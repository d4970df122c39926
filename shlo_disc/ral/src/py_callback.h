// Calls of Python objects from compiled programs.
#ifndef SHLO_DISC_RAL_PY_CALLBACK_H_
#define SHLO_DISC_RAL_PY_CALLBACK_H_

namespace shlo_disc {

// The address of an XLA_FFI_Handler that calls the Python object whose address is the i64 attribute
// `callback`; the owner of the program keeps that object alive. The object is given two tuples, of
// operands as (bytes, sizes) and of results as (writable memoryview, sizes). Views must not outlive
// the call. It returns None, or the text of an error. Takes the GIL for the call.
void* python_callback_address();

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PY_CALLBACK_H_
