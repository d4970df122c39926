/* A model of ONNX, by the C API of ONNX Runtime.
 *
 * Its wheel has the library and no headers. The API is a table of functions; later versions only add to its end, so
 * places in it are fixed: https://onnxruntime.ai/docs/api/c/struct_ort_api.html
 */
#include <stdlib.h>
#include <string.h>

#include "backend.h"

enum {
  GET_ERROR_MESSAGE = 2, CREATE_ENV = 3, CREATE_SESSION = 7, RUN = 9, CREATE_SESSION_OPTIONS = 10,
  SET_OPTIMIZATION = 23, SET_INTRA_OP_THREADS = 24, SESSION_GET_INPUT_COUNT = 30, SESSION_GET_INPUT_NAME = 36,
  SESSION_GET_OUTPUT_NAME = 37, CREATE_TENSOR_WITH_DATA = 49, GET_TENSOR_DATA = 51, GET_SHAPE_ELEMENT_COUNT = 64,
  GET_TYPE_AND_SHAPE = 65, CREATE_CPU_MEMORY_INFO = 69, GET_DEFAULT_ALLOCATOR = 78, RELEASE_VALUE = 96,
  RELEASE_TYPE_AND_SHAPE = 99,
  API_VERSION = 10, LOGS_ERRORS = 3, ALL_OPTIMIZATIONS = 99, FLOAT32 = 1, INT32 = 6, ARENA = 1, DEFAULT_MEMORY = 0,
};

typedef struct {
  const void* const* (*get_api)(uint32_t version);
  const char* (*get_version)(void);
} api_base;
extern const api_base* OrtGetApiBase(void);

typedef const char* (*message_of)(void* status);
typedef void* (*create_env)(int level, const char* name, void** out);
typedef void* (*create_options)(void** out);
typedef void* (*set_number)(void* options, int number);
typedef void* (*create_session)(void* env, const char* path, void* options, void** out);
typedef void* (*get_allocator)(void** out);
typedef void* (*get_count)(const void* session, size_t* out);
typedef void* (*get_name)(const void* session, size_t index, void* allocator, char** out);
typedef void* (*create_memory_info)(int allocator, int memory, void** out);
typedef void* (*create_tensor)(const void* info, void* data, size_t bytes, const int64_t* sizes, size_t rank, int type,
                               void** out);
typedef void* (*run_session)(const void* session, const void* options, const char* const* inputs,
                             const void* const* values, size_t count, const char* const* outputs, size_t output_count,
                             void** results);
typedef void* (*get_data)(void* value, void** out);
typedef void* (*get_shape)(const void* value, void** out);
typedef void* (*get_elements)(const void* shape, size_t* out);
typedef void (*release)(void* object);

struct model {
  const void* const* api;
  void *session, *memory;
  char *inputs[8], *output;
};

#define CALL(opened, type, place) ((type)(opened)->api[place])

static void check(const model* opened, void* status) {
  if (status != NULL) fail(CALL(opened, message_of, GET_ERROR_MESSAGE)(status));
}

model* model_open(const char* path, int threads) {
  model* const opened = calloc(1, sizeof *opened);
  void *env, *options, *allocator;
  size_t count;
  opened->api = OrtGetApiBase()->get_api(API_VERSION);
  check(opened, CALL(opened, create_env, CREATE_ENV)(LOGS_ERRORS, "benchmark", &env));
  check(opened, CALL(opened, create_options, CREATE_SESSION_OPTIONS)(&options));
  check(opened, CALL(opened, set_number, SET_OPTIMIZATION)(options, ALL_OPTIMIZATIONS));
  check(opened, CALL(opened, set_number, SET_INTRA_OP_THREADS)(options, threads));
  check(opened, CALL(opened, create_session, CREATE_SESSION)(env, path, options, &opened->session));
  check(opened, CALL(opened, get_allocator, GET_DEFAULT_ALLOCATOR)(&allocator));
  check(opened, CALL(opened, create_memory_info, CREATE_CPU_MEMORY_INFO)(ARENA, DEFAULT_MEMORY, &opened->memory));
  check(opened, CALL(opened, get_count, SESSION_GET_INPUT_COUNT)(opened->session, &count));
  for (size_t i = 0; i < count && i < 8; ++i) {
    check(opened, CALL(opened, get_name, SESSION_GET_INPUT_NAME)(opened->session, i, allocator, &opened->inputs[i]));
  }
  check(opened, CALL(opened, get_name, SESSION_GET_OUTPUT_NAME)(opened->session, 0, allocator, &opened->output));
  return opened;
}

void model_run(const model* opened, array* arguments, size_t count, int is_same, result* out) {
  void *values[8], *value = is_same ? out->owner : NULL, *data, *shape;
  for (size_t i = 0; i < count; ++i) {
    const array* const from = &arguments[i];
    size_t bytes = 4;
    for (int32_t d = 0; d < from->rank; ++d) bytes *= (size_t)from->sizes[d];
    check(opened, CALL(opened, create_tensor, CREATE_TENSOR_WITH_DATA)(
                      opened->memory, from->data, bytes, from->sizes, (size_t)from->rank,
                      strcmp(from->dtype, "int32") == 0 ? INT32 : FLOAT32, &values[i]));
  }
  const char* const outputs[] = {opened->output};
  if (!is_same && out->owner != NULL) CALL(opened, release, RELEASE_VALUE)(out->owner);
  check(opened, CALL(opened, run_session, RUN)(opened->session, NULL, (const char* const*)opened->inputs,
                                               (const void* const*)values, count, outputs, 1, &value));
  for (size_t i = 0; i < count; ++i) CALL(opened, release, RELEASE_VALUE)(values[i]);
  if (value == out->owner) return;
  size_t elements;
  check(opened, CALL(opened, get_data, GET_TENSOR_DATA)(value, &data));
  check(opened, CALL(opened, get_shape, GET_TYPE_AND_SHAPE)(value, &shape));
  check(opened, CALL(opened, get_elements, GET_SHAPE_ELEMENT_COUNT)(shape, &elements));
  CALL(opened, release, RELEASE_TYPE_AND_SHAPE)(shape);
  *out = (result){data, elements * sizeof(float), value};
}
