/* What runs a model: backend_disc.c, backend_onnx.c. A failure ends the process with a message. */
#ifndef BACKEND_H
#define BACKEND_H
#include <stddef.h>
#include <stdint.h>

typedef struct {
  const char* dtype; /* "float32" or "int32" */
  void* data;
  int64_t sizes[8];
  int32_t rank;
} array;

/* The first result of a call. The next call with it may use its memory again; zero at first. */
typedef struct {
  const void* data;
  size_t bytes;
  void* owner;
} result;

typedef struct model model;

/* `threads` work on a call; 0: as many as the system chooses. */
model* model_open(const char* path, int threads);
/* Any number of threads may call it at once, each with a result of its own. `is_same`: the sizes are those of the
 * last call with `out`. */
void model_run(const model* opened, array* arguments, size_t count, int is_same, result* out);

void fail(const char* what); /* of the program */
#endif
