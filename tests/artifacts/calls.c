/* calls ARTIFACT CALLS: runs an artifact on arrays of a file, and compares the bits of the results.
 *
 * With -DLINKED=NAME the artifact is that of a shared library this is linked with, whose function is NAME; ARTIFACT is
 * not read then. CALLS is what `calls_in` of building.py makes: numbers of 8 bytes, and elements. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disc.h"

enum { MOST = 16 };

static FILE* file;

static void stop(const char* why) {
  printf("%s\n", why);
  exit(1);
}

static void check(disc_error* error) {
  if (error != NULL) stop(disc_error_message(error));
}

static int64_t number(void) {
  int64_t out;
  if (fread(&out, sizeof out, 1, file) != 1) stop("the file ends too early");
  return out;
}

/* An array of the file: its element type, its rank, its sizes, its bytes, its elements. */
static size_t read_array(disc_array* out) {
  static char nothing[64];
  int64_t* sizes = NULL;
  void* data = NULL;
  size_t bytes;
  int32_t i;
  out->dtype = (int32_t)number();
  out->rank = (int32_t)number();
  sizes = malloc(sizeof *sizes * (size_t)(out->rank + 1));
  if (sizes == NULL) stop("no memory");
  for (i = 0; i < out->rank; ++i) sizes[i] = number();
  bytes = (size_t)number();
  data = bytes == 0 ? nothing : malloc(bytes);
  if (data == NULL || fread(data, 1, bytes, file) != bytes) stop("the file ends too early");
  out->sizes = sizes;
  out->strides = NULL;
  out->weight = NULL;
  out->data = data;
  return bytes;
}

static void run_one(const disc_program* program) {
  disc_array arguments[MOST], wanted;
  disc_buffer results[MOST];
  int64_t sizes[MOST][MOST], count = number(), result_count, i;
  if (count > MOST) stop("too many arguments");
  for (i = 0; i < count; ++i) read_array(&arguments[i]);
  result_count = number();
  if (result_count > MOST) stop("too many results");
  memset(results, 0, sizeof results);
  for (i = 0; i < result_count; ++i) results[i].sizes = sizes[i];
  check(disc_program_run(program, arguments, (size_t)count, results, (size_t)result_count));
  for (i = 0; i < result_count; ++i) {
    const size_t bytes = read_array(&wanted);
    if (memcmp(wanted.sizes, sizes[i], sizeof(int64_t) * (size_t)wanted.rank) != 0) stop("other sizes");
    if (results[i].bytes != bytes || memcmp(results[i].data, wanted.data, bytes) != 0) stop("other elements");
    disc_memory_release(results[i].memory);
  }
}

#ifdef LINKED
const void* LINKED(size_t* bytes);
#endif

int main(int count, char** given) {
  disc_program* program = NULL;
  int64_t calls;
  if (count != 3 || (file = fopen(given[2], "rb")) == NULL) return 2;
#ifdef LINKED
  {
    size_t bytes = 0;
    const void* const artifact = LINKED(&bytes);
    check(disc_program_open_memory(artifact, bytes, NULL, &program));
  }
#else
  check(disc_program_open(given[1], NULL, &program));
#endif
  for (calls = number(); calls > 0; --calls) run_one(program);
  disc_program_close(program);
  printf("right\n");
  return 0;
}
