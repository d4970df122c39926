/* XLA's side of a custom call on a GPU, by XLA's own header: one argument and one result, f32[n]. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#define API __attribute__((visibility("default")))

struct XLA_FFI_Error {
  XLA_FFI_Error_Code code;
  char message[512];
};

static void* state;
static void* stream;
static int ordinal;
static int64_t scratch_bytes, scratch_most;
static int refuses_scratch;

static XLA_FFI_Error* create_error(XLA_FFI_Error_Create_Args* args) {
  XLA_FFI_Error* const error = calloc(1, sizeof(XLA_FFI_Error));
  error->code = args->errc;
  snprintf(error->message, sizeof(error->message), "%s", args->message);
  return error;
}
static void destroy_error(XLA_FFI_Error_Destroy_Args* args) { free(args->error); }
static XLA_FFI_Error* register_type(XLA_FFI_Type_Register_Args* args) {
  args->type_id->type_id = 42;
  return NULL;
}
static XLA_FFI_Error* set_state(XLA_FFI_State_Set_Args* args) {
  state = args->state;
  return NULL;
}
static XLA_FFI_Error* get_state(XLA_FFI_State_Get_Args* args) {
  args->state = state;
  return NULL;
}
static XLA_FFI_Error* get_stream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = stream;
  return NULL;
}
static XLA_FFI_Error* get_ordinal(XLA_FFI_DeviceOrdinal_Get_Args* args) {
  args->device_ordinal = ordinal;
  return NULL;
}
static XLA_FFI_Error* allocate(XLA_FFI_DeviceMemory_Allocate_Args* args) {
  XLA_FFI_Error_Create_Args refused = {sizeof(refused), NULL, "no scratch",
                                       XLA_FFI_Error_Code_RESOURCE_EXHAUSTED};
  if (refuses_scratch || args->alignment > 16) return create_error(&refused);
  scratch_bytes += args->size;
  if (scratch_bytes > scratch_most) scratch_most = scratch_bytes;
  args->data = (char*)malloc(args->size + 16) + 16; /* as late as the stream: never freed */
  return NULL;
}
static XLA_FFI_Error* release(XLA_FFI_DeviceMemory_Free_Args* args) {
  scratch_bytes -= args->size;
  return NULL;
}

static XLA_FFI_Api api;

API void frame_set(void* to, int device, int refuses) {
  stream = to, ordinal = device, refuses_scratch = refuses;
}
API int64_t frame_scratch_most(void) { return scratch_most; }
API int64_t frame_scratch_held(void) { return scratch_bytes; }

/* Runs a stage of a handler; an error's text goes to `text`. */
API int frame_call(XLA_FFI_Handler* handler, int stage, int64_t fingerprint, void* argument,
                   void* result, int64_t count, char* text, int64_t text_bytes) {
  api.struct_size = XLA_FFI_Api_STRUCT_SIZE;
  api.XLA_FFI_Error_Create = create_error;
  api.XLA_FFI_Error_Destroy = destroy_error;
  api.XLA_FFI_Type_Register = register_type;
  api.XLA_FFI_State_Set = set_state;
  api.XLA_FFI_State_Get = get_state;
  api.XLA_FFI_Stream_Get = get_stream;
  api.XLA_FFI_DeviceOrdinal_Get = get_ordinal;
  api.XLA_FFI_DeviceMemory_Allocate = allocate;
  api.XLA_FFI_DeviceMemory_Free = release;

  XLA_FFI_Buffer buffers[2];
  void* values[2];
  memset(buffers, 0, sizeof(buffers));
  for (int i = 0; i < 2; ++i) {
    buffers[i].struct_size = XLA_FFI_Buffer_STRUCT_SIZE;
    buffers[i].dtype = XLA_FFI_DataType_F32;
    buffers[i].data = i == 0 ? argument : result;
    buffers[i].rank = 1;
    buffers[i].dims = &count;
    values[i] = &buffers[i];
  }
  XLA_FFI_ArgType argument_type = XLA_FFI_ArgType_BUFFER;
  XLA_FFI_RetType result_type = XLA_FFI_RetType_BUFFER;
  XLA_FFI_ByteSpan name = {"executable", 10};
  XLA_FFI_ByteSpan* names[1] = {&name};
  XLA_FFI_Scalar scalar = {XLA_FFI_DataType_S64, &fingerprint};
  void* attributes[1] = {&scalar};
  XLA_FFI_AttrType attribute_type = XLA_FFI_AttrType_SCALAR;

  XLA_FFI_CallFrame frame;
  memset(&frame, 0, sizeof(frame));
  frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
  frame.api = &api;
  frame.stage = (XLA_FFI_ExecutionStage)stage;
  const int is_execute = stage == XLA_FFI_ExecutionStage_EXECUTE;
  frame.args.size = frame.rets.size = is_execute;
  frame.args.types = &argument_type;
  frame.args.args = &values[0];
  frame.rets.types = &result_type;
  frame.rets.rets = &values[1];
  frame.attrs.size = 1;
  frame.attrs.types = &attribute_type;
  frame.attrs.names = names;
  frame.attrs.attrs = attributes;
  XLA_FFI_Error* const error = handler(&frame);
  text[0] = 0;
  if (error == NULL) return 0;
  snprintf(text, text_bytes, "%s", error->message);
  const int code = error->code;
  free(error);
  return code;
}
