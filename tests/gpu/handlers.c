/* FFI handlers for test_foreign.py, by XLA's own header: of CUDA, which give work to the stand-in, and of
 * the host. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#define API __attribute__((visibility("default")))

/* cuMemcpyDtoDAsync_v2, cuMemsetD32Async */
static int (*copy_on_device)(void* to, const void* from, size_t bytes, void* stream);
static int (*fill32)(void* at, int value, size_t count, void* stream);

API void handlers_driver(void* copy, void* fill) {
  *(void**)&copy_on_device = copy;
  *(void**)&fill32 = fill;
}

/* XLA asks for the version once. */
static int is_question(XLA_FFI_CallFrame* frame) {
  __auto_type const asked = frame->extension_start; /* of a type with another name since JAX 0.12 */
  if (asked == NULL || asked->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata* const metadata = ((XLA_FFI_Metadata_Extension*)asked)->metadata;
  metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

static XLA_FFI_Error* failed(XLA_FFI_CallFrame* frame, const char* text) {
  XLA_FFI_Error_Create_Args args = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, text,
                                    XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return frame->api->XLA_FFI_Error_Create(&args);
}

static XLA_FFI_Buffer* operand(XLA_FFI_CallFrame* frame, int i) { return frame->args.args[i]; }
static XLA_FFI_Buffer* result(XLA_FFI_CallFrame* frame, int i) { return frame->rets.rets[i]; }

static size_t count(const XLA_FFI_Buffer* buffer) {
  size_t elements = 1;
  for (int64_t i = 0; i < buffer->rank; ++i) elements *= (size_t)buffer->dims[i];
  return elements;
}

/* True if there was none. */
static int is_fine(XLA_FFI_CallFrame* frame, XLA_FFI_Error* error) {
  if (error == NULL) return 1;
  XLA_FFI_Error_Destroy_Args args = {XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, NULL, error};
  frame->api->XLA_FFI_Error_Destroy(&args);
  return 0;
}

static void* stream_of(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Stream_Get_Args args = {XLA_FFI_Stream_Get_Args_STRUCT_SIZE, NULL, frame->ctx, NULL};
  return is_fine(frame, frame->api->XLA_FFI_Stream_Get(&args)) ? args.stream : NULL;
}

static void* allocate(XLA_FFI_CallFrame* frame, size_t bytes, size_t alignment) {
  XLA_FFI_DeviceMemory_Allocate_Args args = {XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE, NULL,
                                             frame->ctx, bytes, alignment, NULL};
  return is_fine(frame, frame->api->XLA_FFI_DeviceMemory_Allocate(&args)) ? args.data : NULL;
}

static XLA_FFI_Error* release(XLA_FFI_CallFrame* frame, void* data, size_t bytes) {
  XLA_FFI_DeviceMemory_Free_Args args = {XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE, NULL,
                                         frame->ctx, bytes, data};
  return frame->api->XLA_FFI_DeviceMemory_Free(&args);
}

static int is_aligned(const void* data, uintptr_t alignment) { return (uintptr_t)data % alignment == 0; }

/* y = x, the first row of which is the last one, through scratch memory. Nothing is waited for. */
API XLA_FFI_Error* rolled(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  const XLA_FFI_Buffer *const x = operand(frame, 0), *const y = result(frame, 0);
  const size_t bytes = 4 * count(x), row = bytes / (size_t)x->dims[0];
  void* const stream = stream_of(frame);
  char* const scratch = allocate(frame, bytes, 512);
  if (stream == NULL || scratch == NULL) return failed(frame, "no stream, or no memory");
  if (!is_aligned(scratch, 512) || !is_aligned(x->data, 16) || !is_aligned(y->data, 16)) {
    return failed(frame, "memory is misaligned");
  }
  int error = copy_on_device(scratch, x->data, bytes, stream);
  if (bytes > row) error |= copy_on_device(y->data, scratch + row, bytes - row, stream);
  error |= copy_on_device((char*)y->data + bytes - row, scratch, row, stream);
  if (error != 0) return failed(frame, "the driver refuses");
  return release(frame, scratch, bytes);
}

/* y is x by the alias, but for its first element, which is 100. */
API XLA_FFI_Error* marked(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  const float value = 100;
  int bits;
  memcpy(&bits, &value, 4);
  void* const y = result(frame, 0)->data;
  if (operand(frame, 0)->data != y) return failed(frame, "the operand is elsewhere");
  return fill32(y, bits, 1, stream_of(frame)) == 0 ? NULL : failed(frame, "the driver refuses");
}

/* y: the ordinal of the device, the stage, whether there is a stream and a run. Fails for 13 elements. */
API XLA_FFI_Error* told(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  if (count(operand(frame, 0)) == 13) return failed(frame, "13 elements");
  XLA_FFI_DeviceOrdinal_Get_Args of = {XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE, NULL, frame->ctx, -1};
  XLA_FFI_RunId_Get_Args run = {XLA_FFI_RunId_Get_Args_STRUCT_SIZE, NULL, frame->ctx, 0};
  if (frame->api->XLA_FFI_DeviceOrdinal_Get(&of) != NULL) return failed(frame, "no ordinal");
  if (frame->api->XLA_FFI_RunId_Get(&run) != NULL) return failed(frame, "no run");
  void* const stream = stream_of(frame);
  const int values[] = {of.device_ordinal, (int)frame->stage, stream != NULL, run.run_id > 0};
  int* const y = result(frame, 0)->data;
  for (int i = 0; i < 4; ++i) fill32(y + i, values[i], 1, stream);
  return NULL;
}

/* Wants more memory than there is, then frees what is not its own. */
API XLA_FFI_Error* greedy(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  if (allocate(frame, (size_t)1 << 50, 1) != NULL) return failed(frame, "too much was given");
  return release(frame, result(frame, 0)->data, 4);
}

/* On the host: y = x / 2 and the sum of x. Fails where an element is negative. */
API XLA_FFI_Error* halved(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  const float* const x = operand(frame, 0)->data;
  float *const y = result(frame, 0)->data, *const sum = result(frame, 1)->data;
  if (!is_aligned(x, 64) || !is_aligned(y, 64)) return failed(frame, "memory is misaligned");
  *sum = 0;
  for (size_t i = 0; i < count(operand(frame, 0)); ++i) {
    if (x[i] < 0) return failed(frame, "an element is negative");
    y[i] = x[i] / 2;
    *sum += x[i];
  }
  return NULL;
}

/* On the host, in place by the alias: 100 is added to the first element. */
API XLA_FFI_Error* bumped(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  float* const y = result(frame, 0)->data;
  if (operand(frame, 0)->data != y) return failed(frame, "the operand is elsewhere");
  *y += 100;
  return NULL;
}

/* A state of the instantiate stage: the attribute `value`. y is filled with it. */
static XLA_FFI_TypeId state_type = {0};
static int64_t states;
static void delete_state(void* state) { free(state), --states; }
static XLA_FFI_TypeInfo state_info = {XLA_FFI_TypeInfo_STRUCT_SIZE, NULL, delete_state};

API void* handlers_type(void) { return state_type.type_id = 7, &state_type; }
API void* handlers_type_info(void) { return &state_info; }
API int64_t handlers_states(void) { return states; }

API XLA_FFI_Error* filled_instantiate(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  int* const state = malloc(sizeof(int));
  *state = *(const int*)((XLA_FFI_Scalar*)frame->attrs.attrs[0])->value;
  ++states;
  XLA_FFI_State_Set_Args args = {XLA_FFI_State_Set_Args_STRUCT_SIZE, NULL, frame->ctx,
                                 XLA_FFI_ExecutionStage_INSTANTIATE, &state_type, state};
  if (stream_of(frame) != NULL) return failed(frame, "nothing runs yet, but there is a stream");
  return frame->api->XLA_FFI_State_Set(&args);
}

API XLA_FFI_Error* filled(XLA_FFI_CallFrame* frame) {
  if (is_question(frame)) return NULL;
  XLA_FFI_State_Get_Args args = {XLA_FFI_State_Get_Args_STRUCT_SIZE, NULL, frame->ctx,
                                 XLA_FFI_ExecutionStage_INSTANTIATE, &state_type, NULL};
  XLA_FFI_Error* const error = frame->api->XLA_FFI_State_Get(&args);
  if (error != NULL) return error;
  const XLA_FFI_Buffer* const y = result(frame, 0);
  return fill32(y->data, *(const int*)args.state, count(y), stream_of(frame)) == 0
             ? NULL
             : failed(frame, "the driver refuses");
}
