/* An artifact, by disc.h. */
#include <disc.h>
#include <stdlib.h>
#include <string.h>

#include "backend.h"

struct model {
  disc_program* program;
};

static void check(disc_error* error) {
  if (error != NULL) fail(disc_error_message(error));
}

model* model_open(const char* path, int threads) {
  model* const opened = malloc(sizeof *opened);
  disc_options options = {0};
  options.struct_size = sizeof options;
  options.threads = threads;
  check(disc_program_open(path, &options, &opened->program));
  return opened;
}

void model_run(const model* opened, array* arguments, size_t count, int is_same, result* out) {
  disc_array given[8];
  (void)is_same;
  for (size_t i = 0; i < count; ++i) {
    const array* const from = &arguments[i];
    const int32_t dtype = strcmp(from->dtype, "int32") == 0 ? DISC_INT32 : DISC_FLOAT32;
    given[i] = (disc_array){from->data, from->sizes, NULL, dtype, from->rank, NULL};
  }
  disc_buffer buffer = {(void*)out->data, out->bytes, NULL, out->owner};
  check(disc_program_run(opened->program, given, count, &buffer, 1));
  *out = (result){buffer.data, buffer.bytes, buffer.memory};
}
