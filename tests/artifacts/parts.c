/* A program of several parts from C, that of test_parts.py:
 *
 *   f(x: float32[n]) -> float32[k], int32[], float32[n]
 *
 * The k positive elements in descending order, k, and x with 1 added to these. `FILE` is the artifact. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disc.h"

enum { MOST = 101 };

static int failures = 0;
static const char* path;

static void checked(int holds, const char* what, int line) {
  if (holds) return;
  printf("line %d: %s\n", line, what);
  ++failures;
}
#define CHECK(what) checked((what) != 0, #what, __LINE__)
#define FAILS(call, code, text) fails((call), (code), (text), __LINE__)

static void fails(disc_error* error, disc_code code, const char* text, int line) {
  if (disc_error_code(error) != code || strstr(disc_error_message(error), text) == NULL) {
    printf("line %d: code %d: %s\n", line, (int)disc_error_code(error), disc_error_message(error));
    ++failures;
  }
  disc_error_free(error);
}

static disc_program* opened(const disc_options* options) {
  disc_program* program = NULL;
  FAILS(disc_program_open(path, options, &program), DISC_OK, "");
  if (program == NULL) exit(1);
  return program;
}

/* Distinct numbers, about half of them positive. */
static disc_array argument(float* x, int64_t* size, int n) {
  disc_array out = {NULL, NULL, NULL, DISC_FLOAT32, 1, NULL};
  int i;
  for (i = 0; i < n; ++i) x[i] = (float)((i * 37) % MOST - MOST / 2);
  *size = n;
  out.data = x;
  out.sizes = size;
  return out;
}

static int are_right(const disc_buffer* results, const float* x, int n) {
  const float* const kept = results[0].data;
  const float* const late = results[2].data;
  int32_t count;
  int i, positive = 0;
  for (i = 0; i < n; ++i) positive += x[i] > 0;
  memcpy(&count, results[1].data, sizeof count);
  if (count != positive || results[0].sizes[0] != positive || results[2].sizes[0] != n) return 0;
  if (results[0].bytes != 4 * (size_t)positive || results[2].bytes != 4 * (size_t)n) return 0;
  for (i = 0; i < positive; ++i) {
    if (kept[i] <= 0 || (i != 0 && kept[i] >= kept[i - 1])) return 0;
  }
  for (i = 0; i < n; ++i) {
    if (late[i] != x[i] + (x[i] > 0)) return 0;
  }
  return 1;
}

static void run_at(const disc_program* program, int n) {
  float x[MOST];
  int64_t size, kept, late;
  const disc_array given = argument(x, &size, n);
  disc_buffer results[3];
  int i;
  memset(results, 0, sizeof results);
  results[0].sizes = &kept;
  results[2].sizes = &late;
  FAILS(disc_program_run(program, &given, 1, results, 3), DISC_OK, "");
  CHECK(are_right(results, x, n));
  for (i = 0; i < 3; ++i) disc_memory_release(results[i].memory);
}

static void check_memory_of_the_caller(const disc_program* program) {
  float x[MOST];
  int64_t size, kept, late;
  disc_array given = argument(x, &size, 40);
  disc_buffer results[3];
  void* memory = NULL;
  memset(results, 0, sizeof results);
  results[0].sizes = &kept;
  results[2].sizes = &late;
  if (posix_memalign(&memory, 64, 4 * MOST) != 0) exit(1);
  results[0].data = memory;
  results[0].bytes = 8;
  FAILS(disc_program_run(program, &given, 1, results, 3), DISC_TOO_SMALL, "and its memory has 8");
  CHECK(results[1].memory == NULL && results[1].data == NULL);
  results[0].bytes = 4 * MOST;
  FAILS(disc_program_run(program, &given, 1, results, 3), DISC_OK, "");
  CHECK(results[0].data == memory && results[0].memory == NULL && are_right(results, x, 40));
  given = argument(x, &size, 30); /* memory of the library is used again */
  results[0].bytes = 4 * MOST;
  FAILS(disc_program_run(program, &given, 1, results, 3), DISC_OK, "");
  CHECK(are_right(results, x, 30));
  given = argument(memory, &size, 40); /* the last program alone could not tell */
  results[0].bytes = 4 * MOST;
  FAILS(disc_program_run(program, &given, 1, results, 3), DISC_OVERLAP, "argument 0");
  disc_memory_release(results[1].memory);
  disc_memory_release(results[2].memory);
  free(memory);
}

static void check_refusals(const disc_program* program) {
  float x[MOST];
  int64_t size, sizes[3];
  disc_array given = argument(x, &size, 5);
  disc_buffer results[3];
  disc_spec spec;
  memset(results, 0, sizeof results);
  CHECK(disc_program_arguments(program) == 1 && disc_program_results(program) == 3);
  spec.struct_size = sizeof spec;
  FAILS(disc_program_argument(program, 0, &spec), DISC_OK, "");
  CHECK(spec.rank == 1 && spec.sizes[0] == -1);
  FAILS(disc_program_argument(program, 1, &spec), DISC_MISUSE, "there is no such argument");
  FAILS(disc_program_measure(program, &given, 1, sizes, NULL), DISC_DATA_SIZED, "sizes that come from data");
  FAILS(disc_program_enqueue(program, NULL, &given, 1, results, 3), DISC_DEVICE, "runs on the CPU, and has no stream");
  FAILS(disc_program_run(program, &given, 2, results, 3), DISC_MISUSE, "the number of arguments");
  given.data = NULL;
  FAILS(disc_program_run(program, &given, 1, results, 3), DISC_NULL, "argument 0");
  given.dtype = DISC_FLOAT64;
  FAILS(disc_program_run(program, &given, 1, results, 3), DISC_DTYPE, "dtype is float64");
}

static long blocks = 0, taken = 0, most_blocks = 1000;

static void* allocate(void* context, size_t bytes, size_t alignment) {
  void* memory = NULL;
  (void)context;
  if (blocks >= most_blocks || posix_memalign(&memory, alignment, bytes) != 0) return NULL;
  ++blocks;
  ++taken;
  return memory;
}

static void give_back(void* context, void* memory, size_t bytes) {
  (void)context;
  (void)bytes;
  free(memory);
  --blocks;
}

static void check_allocator(void) {
  disc_options how;
  disc_program* program;
  float x[MOST];
  int64_t size, kept, late;
  const disc_array given = argument(x, &size, 20);
  disc_buffer results[3];
  memset(&how, 0, sizeof how);
  how.struct_size = sizeof how;
  how.allocate = allocate;
  how.release = give_back;
  program = opened(&how);
  run_at(program, 20);
  CHECK(blocks == 0 && taken > 4);
  memset(results, 0, sizeof results);
  results[0].sizes = &kept;
  results[2].sizes = &late;
  /* Each block of memory is missing once. */
  for (most_blocks = 0; most_blocks < 1000; ++most_blocks) {
    disc_error* const error = disc_program_run(program, &given, 1, results, 3);
    if (error == NULL) break;
    FAILS(error, DISC_OUT_OF_MEMORY, "");
    CHECK(blocks == 0 && results[0].memory == NULL && results[0].data == NULL);
  }
  CHECK(most_blocks > 4 && most_blocks < 1000 && blocks == 3);
  disc_program_close(program);
  CHECK(are_right(results, x, 20)); /* memory of results outlives the program */
  for (size = 0; size < 3; ++size) disc_memory_release(results[size].memory);
  CHECK(blocks == 0);
}

static void* many_runs(void* program) {
  int i;
  for (i = 0; i < 200; ++i) run_at(program, (i * 7) % (MOST + 1));
  return NULL;
}

int main(int count, char** given) {
  disc_program* program;
  pthread_t threads[8];
  size_t i;
  if (count != 2) return 2;
  path = given[1];
  program = opened(NULL);
  run_at(program, 0);
  run_at(program, 1);
  run_at(program, MOST);
  check_refusals(program);
  check_memory_of_the_caller(program);
  for (i = 0; i < 8; ++i) {
    if (pthread_create(&threads[i], NULL, many_runs, program) != 0) return 1;
  }
  for (i = 0; i < 8; ++i) pthread_join(threads[i], NULL);
  disc_program_close(program);
  check_allocator();
  printf("%d failures\n", failures);
  return failures != 0;
}
