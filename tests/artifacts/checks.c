/* Every function of disc.h and every kind of error, with the program of test_c_api.py:
 *
 *   f(x: float32[n,m], y: float32[n,m], w: float32[m,48]) -> float32[n,m], float32[n,48]
 *
 * where x is donated to the first result. Files of raw elements are beside the artifact. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disc.h"

enum { N = 5, M = 33, K = 48 };

static int failures = 0;
static const char* folder;

static void* checked(int holds, const char* what, int line) {
  if (!holds) {
    printf("line %d: %s\n", line, what);
    ++failures;
  }
  return NULL;
}
#define CHECK(what) checked((what) != 0, #what, __LINE__)
#define WORKS(call) works((call), #call, __LINE__)
#define FAILS(call, code, argument, text) fails((call), (code), (argument), (text), __LINE__)

static void works(disc_error* error, const char* call, int line) {
  if (error == NULL) return;
  printf("line %d: %s: %s\n", line, call, disc_error_message(error));
  ++failures;
  disc_error_free(error);
}

static void fails(disc_error* error, disc_code code, int64_t argument, const char* text, int line) {
  if (disc_error_code(error) != code || disc_error_argument(error) != argument ||
      strstr(disc_error_message(error), text) == NULL) {
    printf("line %d: code %d, argument %d: %s\n", line, (int)disc_error_code(error),
           (int)disc_error_argument(error), disc_error_message(error));
    ++failures;
  }
  disc_error_free(error);
}

static const char* path_of(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

/* The bytes of a file, at a multiple of 64. */
static void* bytes_of(const char* name, size_t* bytes) {
  FILE* file = fopen(path_of(name), "rb");
  void* memory = NULL;
  long size;
  if (file == NULL) exit(2);
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  rewind(file);
  if (posix_memalign(&memory, 64, (size_t)size + 128) != 0) exit(2);
  if (fread(memory, 1, (size_t)size, file) != (size_t)size) exit(2);
  fclose(file);
  if (bytes != NULL) *bytes = (size_t)size;
  return memory;
}

static void* memory_of(size_t bytes) {
  void* memory = NULL;
  if (posix_memalign(&memory, 64, bytes) != 0) exit(2);
  return memory;
}

/* ---- What all checks use ---- */

static disc_program* program;
static float *x, *y, *w, *want0, *want1;
static const int64_t x_sizes[] = {N, M}, y_sizes[] = {N, M}, w_sizes[] = {M, K};

static void arguments_to(disc_array* out) {
  const disc_array arguments[] = {{x, x_sizes, NULL, DISC_FLOAT32, 2, NULL},
                                  {y, y_sizes, NULL, DISC_FLOAT32, 2, NULL},
                                  {w, w_sizes, NULL, DISC_FLOAT32, 2, NULL}};
  memcpy(out, arguments, sizeof arguments);
}

static int are_right(const disc_buffer* results) {
  return results[0].bytes == N * M * 4 && results[1].bytes == N * K * 4 &&
         memcmp(results[0].data, want0, N * M * 4) == 0 && memcmp(results[1].data, want1, N * K * 4) == 0;
}

static void release(disc_buffer* results) {
  int i;
  for (i = 0; i < 2; ++i) disc_memory_release(results[i].memory);
  memset(results, 0, 2 * sizeof *results);
}

static void run_once(const disc_program* of) {
  disc_array arguments[3];
  disc_buffer results[2] = {{NULL, 0, NULL, NULL}, {NULL, 0, NULL, NULL}};
  arguments_to(arguments);
  WORKS(disc_program_run(of, arguments, 3, results, 2));
  CHECK(are_right(results));
  release(results);
}

static disc_options options(void) {
  disc_options out;
  memset(&out, 0, sizeof out);
  out.struct_size = sizeof out;
  return out;
}

/* ---- Opening ---- */

static char logged[4096];

static void log_to(void* context, const char* message) {
  CHECK(context == logged);
  strcat(strcat(logged, message), "\n");
}

static void check_opening(void) {
  struct later {
    disc_options known;
    int64_t more;
  } later;
  disc_options how = options();
  disc_program* other = (disc_program*)&how;
  size_t bytes;
  char* file = bytes_of("m.disc", &bytes);
  FAILS(disc_program_open(NULL, NULL, &other), DISC_MISUSE, -1, "the path is a null pointer");
  FAILS(disc_program_open("m.disc", NULL, NULL), DISC_MISUSE, -1, "null pointer");
  FAILS(disc_program_open(path_of("none.disc"), NULL, &other), DISC_FILE, -1, "none.disc: No such file");
  CHECK(other == NULL);
  FAILS(disc_program_open(folder, NULL, &other), DISC_FILE, -1, "no regular file");
  FAILS(disc_program_open(path_of("writable.disc"), NULL, &other), DISC_FILE, -1, "everyone may write");
  FAILS(disc_program_open(path_of("empty.disc"), NULL, &other), DISC_DAMAGED, -1, "truncated");
  FAILS(disc_program_open(path_of("truncated.disc"), NULL, &other), DISC_DAMAGED, -1, "truncated");
  FAILS(disc_program_open(path_of("other.zip"), NULL, &other), DISC_DAMAGED, -1, "no artifact");
  FAILS(disc_program_open(path_of("newer.disc"), NULL, &other), DISC_NEWER, -1,
        "it has format 7, of shlo_disc 9.0.0; this runtime reads up to format 4");
  FAILS(disc_program_open(path_of("foreign.disc"), NULL, &other), DISC_NO_TARGET, -1,
        "target arm is for aarch64, this is x86-64; target later needs avx512-of-2030");
  FAILS(disc_program_open(path_of("changed.disc"), NULL, &other), DISC_DAMAGED, -1,
        "code/x86-64-v3.bin has a wrong digest");
  FAILS(disc_program_open(path_of("weights.disc"), NULL, &other), DISC_DAMAGED, -1,
        "constants/0.bin has a wrong digest");

  how.target = "sparc";
  FAILS(disc_program_open(path_of("m.disc"), &how, &other), DISC_NO_TARGET, -1,
        "it has no target sparc, but arm later host");
  how.target = "arm";
  FAILS(disc_program_open(path_of("m.disc"), &how, &other), DISC_NO_TARGET, -1, "is for aarch64");
  how = options();
  how.flags = 8;
  FAILS(disc_program_open(path_of("m.disc"), &how, &other), DISC_MISUSE, -1, "unknown flag");
  how = options();
  how.threads = -1;
  FAILS(disc_program_open(path_of("m.disc"), &how, &other), DISC_MISUSE, -1, "threads is negative");
  how = options();
  how.reserved = 1;
  FAILS(disc_program_open(path_of("m.disc"), &how, &other), DISC_MISUSE, -1, "reserved is not zero");
  how = options();
  how.release = (void (*)(void*, void*, size_t))1;
  FAILS(disc_program_open(path_of("m.disc"), &how, &other), DISC_MISUSE, -1, "come together");
  how = options();
  how.struct_size = 0;
  FAILS(disc_program_open(path_of("m.disc"), &how, &other), DISC_MISUSE, -1, "struct_size is not set");
  memset(&later, 0, sizeof later);
  later.known.struct_size = sizeof later;
  WORKS(disc_program_open(path_of("m.disc"), &later.known, &other));
  disc_program_close(other);
  later.more = 1;
  FAILS(disc_program_open(path_of("m.disc"), &later.known, &other), DISC_MISUSE, -1, "is older");
  how = options();
  how.struct_size = offsetof(disc_options, flags); /* of an older header */
  how.flags = 8;
  WORKS(disc_program_open(path_of("m.disc"), &how, &other));
  disc_program_close(other);

  how = options();
  how.log = log_to;
  how.context = logged;
  WORKS(disc_program_open(path_of("m.disc"), &how, &other));
  CHECK(strstr(logged, "target arm is for aarch64, this is x86-64\ntarget later needs avx512-of-2030"));
  CHECK(strstr(logged, "loading target host\n"));
  CHECK(strcmp(disc_program_target(other), "host") == 0);
  disc_program_close(other);
  how = options();
  how.flags = DISC_TRUST_CONSTANTS;
  WORKS(disc_program_open(path_of("weights.disc"), &how, &other));
  disc_program_close(other);

  FAILS(disc_program_open_memory(NULL, 0, NULL, &other), DISC_MISUSE, -1, "null pointer");
  FAILS(disc_program_open_memory(file, bytes - 1, NULL, &other), DISC_DAMAGED, -1, "truncated");
  WORKS(disc_program_open_memory(file, bytes, NULL, &other));
  run_once(other);
  disc_program_close(other);
  memmove(file + 4, file, bytes); /* its constants are copied */
  WORKS(disc_program_open_memory(file + 4, bytes, NULL, &other));
  run_once(other);
  disc_program_close(other);
  disc_program_close(NULL);
  free(file);
}

/* ---- What is told of a program ---- */

static void check_queries(void) {
  disc_spec spec;
  disc_needs needs;
  disc_array arguments[3];
  int64_t sizes[4];
  int i;
  CHECK(disc_version() == DISC_VERSION);
  CHECK(strcmp(disc_program_name(program), "program") == 0);
  CHECK(strcmp(disc_program_compiler(program), "shlo_disc 0.1.0") == 0);
  int32_t device[2] = {-1, -1};
  disc_program_device(program, &device[0], &device[1]);
  CHECK(device[0] == 1 && device[1] == 0);
  FAILS(disc_program_enqueue(program, NULL, NULL, 0, NULL, 0), DISC_DEVICE, -1, "runs on the CPU");
  CHECK(disc_program_arguments(program) == 3);
  CHECK(disc_program_results(program) == 2);
  spec.struct_size = sizeof spec;
  WORKS(disc_program_argument(program, 0, &spec));
  CHECK(strcmp(spec.name, "x") == 0);
  CHECK(spec.dtype == DISC_FLOAT32 && spec.rank == 2);
  CHECK(spec.sizes[0] == -1 && spec.sizes[1] == -1);
  CHECK(strcmp(spec.texts[0], "n") == 0 && strcmp(spec.texts[1], "m") == 0);
  CHECK(spec.is_donated == 1 && spec.donated_to == 0);
  WORKS(disc_program_argument(program, 2, &spec));
  CHECK(strcmp(spec.name, "w") == 0);
  CHECK(spec.sizes[1] == K && strcmp(spec.texts[1], "48") == 0);
  CHECK(spec.is_donated == 0 && spec.donated_to == -1);
  WORKS(disc_program_result(program, 1, &spec));
  CHECK(strcmp(spec.name, "result[1]") == 0);
  CHECK(spec.dtype == DISC_FLOAT32 && spec.rank == 2);
  CHECK(spec.sizes[0] == -1 && spec.sizes[1] == K);
  FAILS(disc_program_argument(program, 3, &spec), DISC_MISUSE, -1, "there is no such argument");
  FAILS(disc_program_result(program, 2, &spec), DISC_MISUSE, -1, "there is no such result");
  FAILS(disc_program_result(NULL, 0, &spec), DISC_MISUSE, -1, "null pointer");
  spec.struct_size = 1;
  FAILS(disc_program_result(program, 1, &spec), DISC_MISUSE, -1, "struct_size is not set");
  spec.struct_size = offsetof(disc_spec, dtype);
  spec.dtype = 77;
  WORKS(disc_program_result(program, 1, &spec));
  CHECK(spec.dtype == 77); /* not beyond what the caller knows */

  for (i = 0; i < DISC_DTYPES; ++i) CHECK(disc_dtype_name(i) && disc_dtype_bytes(i) >= 1);
  CHECK(strcmp(disc_dtype_name(DISC_BFLOAT16), "bfloat16") == 0 && disc_dtype_bytes(DISC_BFLOAT16) == 2);
  CHECK(strcmp(disc_dtype_name(DISC_UINT4), "uint4") == 0);
  CHECK(disc_dtype_name(DISC_DTYPES) == NULL && disc_dtype_bytes(-1) == 0);

  arguments_to(arguments);
  for (i = 0; i < 3; ++i) arguments[i].data = NULL;
  needs.struct_size = sizeof needs;
  WORKS(disc_program_measure(program, arguments, 3, sizes, &needs));
  CHECK(sizes[0] == N && sizes[1] == M && sizes[2] == N && sizes[3] == K);
  CHECK(needs.result_bytes == N * M * 4 + N * K * 4 && needs.temporary_bytes >= 0);
  CHECK(needs.peak_bytes >= needs.result_bytes + needs.temporary_bytes);
  WORKS(disc_program_measure(program, arguments, 3, NULL, NULL));
  FAILS(disc_program_measure(program, arguments, 2, NULL, NULL), DISC_MISUSE, -1, "number of arguments");
  FAILS(disc_program_measure(NULL, arguments, 3, NULL, NULL), DISC_MISUSE, -1, "null pointer");
}

/* ---- Calls ---- */

static void check_runs(void) {
  disc_array arguments[3];
  disc_buffer results[2] = {{NULL, 0, NULL, NULL}, {NULL, 0, NULL, NULL}};
  int64_t sizes0[2], sizes1[2];
  void *own0 = memory_of(N * M * 4), *own1 = memory_of(N * K * 4), *before;
  arguments_to(arguments);
  results[0].sizes = sizes0;
  results[1].sizes = sizes1;
  WORKS(disc_program_run(program, arguments, 3, results, 2));
  CHECK(are_right(results));
  CHECK(sizes0[0] == N && sizes0[1] == M && sizes1[0] == N && sizes1[1] == K);
  CHECK(results[0].memory != NULL && (uintptr_t)results[0].data % 64 == 0);

  /* The buffers serve another call; those of too little room are replaced. */
  before = results[0].data;
  results[1].bytes = 1;
  WORKS(disc_program_run(program, arguments, 3, results, 2));
  CHECK(are_right(results) && results[0].data == before && results[1].memory != NULL);
  release(results);

  results[0].data = own0;
  results[0].bytes = N * M * 4;
  WORKS(disc_program_run(program, arguments, 3, results, 2));
  CHECK(are_right(results) && results[0].data == own0 && results[0].memory == NULL);
  release(results);
  results[0].data = own0;
  results[0].bytes = 2 * N * M * 4; /* of which the caller says so */
  results[1].data = own1;
  results[1].bytes = N * K * 4;
  WORKS(disc_program_run(program, arguments, 3, results, 2));
  CHECK(are_right(results));
  release(results);

  /* The donated argument is the first result. */
  memcpy(own0, x, N * M * 4);
  arguments[0].data = own0;
  results[0].data = own0;
  results[0].bytes = N * M * 4;
  WORKS(disc_program_run(program, arguments, 3, results, 2));
  CHECK(are_right(results) && results[0].data == own0);
  release(results);
  free(own0);
  free(own1);
}

#define REFUSED(code, argument, text) \
  FAILS(disc_program_run(program, arguments, 3, results, 2), (code), (argument), (text)); \
  CHECK(results[0].memory == NULL && results[1].memory == NULL); \
  arguments_to(arguments); \
  memset(results, 0, sizeof results)

static void check_refusals(void) {
  disc_array arguments[3];
  disc_buffer results[2];
  disc_error* error;
  const int64_t four[] = {4, M}, wide[] = {M, K + 1}, negative[] = {-N, M}, none[] = {0, M};
  const int64_t columns[] = {1, N}, rows[] = {M, 1}, huge[] = {INT64_MAX, M};
  char* memory = memory_of(4096);
  memset(results, 0, sizeof results);
  arguments_to(arguments);

  FAILS(disc_program_run(NULL, arguments, 3, results, 2), DISC_MISUSE, -1, "the program is a null pointer");
  FAILS(disc_program_run(program, arguments, 2, results, 2), DISC_MISUSE, -1, "number of arguments");
  FAILS(disc_program_run(program, arguments, 3, results, 1), DISC_MISUSE, -1, "number of results");
  FAILS(disc_program_run(program, NULL, 3, results, 2), DISC_MISUSE, -1, "the arguments are a null pointer");
  FAILS(disc_program_run(program, arguments, 3, NULL, 2), DISC_MISUSE, -1, "the results are a null pointer");

  arguments[1].dtype = DISC_FLOAT64;
  REFUSED(DISC_DTYPE, 1, "argument 1 ('y', float64[5,33] given, float32[n,m] taken): dtype is float64, the program takes float32");
  arguments[1].dtype = 1000;
  REFUSED(DISC_DTYPE, 1, "argument 1 ('y', an unsupported type[5,33] given");
  arguments[0].dtype = -1;
  REFUSED(DISC_DTYPE, 0, "an unsupported type[5,33] given");
  arguments[0].rank = 1;
  REFUSED(DISC_RANK, 0, "argument 0 ('x', float32[5] given, float32[n,m] taken): rank is 1, the program takes 2");
  arguments[0].rank = -1;
  REFUSED(DISC_MISUSE, 0, "it has no sizes");
  arguments[0].sizes = NULL;
  REFUSED(DISC_MISUSE, 0, "argument 0 ('x', without sizes given, float32[n,m] taken): it has no sizes");
  arguments[2].sizes = wide;
  REFUSED(DISC_SIZE, 2, "float32[33,49] given, float32[m,48] taken): dimension 1 is 49, the program takes 48");
  arguments[0].sizes = negative;
  REFUSED(DISC_SIZE, 0, "a size is negative");
  arguments[0].sizes = huge;
  REFUSED(DISC_SIZE, 0, "too large");
  arguments[1].sizes = four;
  REFUSED(DISC_CONSTRAINT, -1, "; the arguments are 'x' float32[5,33], 'y' float32[4,33], 'w' float32[33,48]");
  arguments[0].strides = columns;
  REFUSED(DISC_STRIDES, 0, "argument 0 ('x', float32[5,33] given, float32[n,m] taken): its strides are [1,5]");
  arguments[0].data = NULL;
  REFUSED(DISC_NULL, 0, "argument 0 ('x', float32[5,33] given, float32[n,m] taken): its memory is a null pointer");
  arguments[1].data = (char*)y + 2;
  REFUSED(DISC_ALIGNMENT, 1, "its memory begins at no multiple of 4");

  results[0].data = memory;
  results[0].bytes = N * M * 4 - 1;
  error = disc_program_run(program, arguments, 3, results, 2);
  CHECK(disc_error_result(error) == 0);
  FAILS(error, DISC_TOO_SMALL, -1, "result 0 (float32[5,33]): it takes 660 bytes, and its memory has 659");
  results[0].data = memory + 32;
  results[0].bytes = N * M * 4;
  REFUSED(DISC_ALIGNMENT, -1, "result 0 (float32[5,33]): its memory begins at no multiple of 64");
  results[1].data = (char*)w + 64;
  results[1].bytes = N * K * 4;
  REFUSED(DISC_OVERLAP, -1, "result 1 (float32[5,48]): its memory overlaps that of argument 2 ('w', float32[33,48])");
  results[1].data = x; /* donated to the other result */
  results[1].bytes = N * K * 4;
  REFUSED(DISC_OVERLAP, -1, "argument 0 ('x', float32[5,33])");
  memcpy(memory, x, N * M * 4);
  arguments[0].data = memory + 64;
  results[0].data = memory; /* not just where the donated one is */
  results[0].bytes = N * M * 4;
  REFUSED(DISC_OVERLAP, -1, "argument 0 ('x', float32[5,33])");
  results[0].data = memory;
  results[1].data = memory + 640;
  results[0].bytes = results[1].bytes = 1024;
  REFUSED(DISC_OVERLAP, -1, "result 1 (float32[5,48]): its memory overlaps that of result 0");

  /* All of this is fine. */
  arguments[0].strides = rows;
  results[0].data = memory;
  results[1].data = memory + 704;
  results[0].bytes = N * M * 4;
  results[1].bytes = N * K * 4;
  WORKS(disc_program_run(program, arguments, 3, results, 2));
  CHECK(are_right(results));
  memset(results, 0, sizeof results);
  arguments[0].sizes = arguments[1].sizes = none;
  arguments[0].data = arguments[1].data = NULL; /* no mistake where there are no elements */
  REFUSED(DISC_CONSTRAINT, -1, "must be at least 1; the arguments are 'x' float32[0,33]");
  free(memory);
}

/* ---- Own memory and threads ---- */

static long blocks = 0, taken = 0, most_blocks = 1000;
static int shift = 0;

static void* allocate(void* context, size_t bytes, size_t alignment) {
  char* memory;
  CHECK(context == &blocks && alignment == 64);
  if (blocks >= most_blocks) return NULL;
  memory = memory_of(bytes + 64);
  ++blocks;
  ++taken;
  return memory + shift;
}

static void give_back(void* context, void* memory, size_t bytes) {
  CHECK(context == &blocks && bytes >= 128);
  memset((char*)memory, 0xff, bytes);
  free((char*)memory - shift);
  --blocks;
}

static void check_allocator(void) {
  disc_options how = options();
  disc_program* other;
  disc_array arguments[3];
  disc_buffer results[2];
  how.context = &blocks;
  how.allocate = allocate;
  how.release = give_back;
  memset(results, 0, sizeof results);
  arguments_to(arguments);
  WORKS(disc_program_open(path_of("m.disc"), &how, &other));
  run_once(other);
  CHECK(blocks == 0 && taken == 3);
  WORKS(disc_program_run(other, arguments, 3, results, 2));
  CHECK(blocks == 2);
  for (most_blocks = 2; most_blocks < 5; ++most_blocks) {
    disc_buffer more[2];
    memset(more, 0, sizeof more);
    FAILS(disc_program_run(other, arguments, 3, more, 2), DISC_OUT_OF_MEMORY, -1, "cannot be allocated");
    CHECK(blocks == 2 && more[0].memory == NULL && more[0].data == NULL);
  }
  disc_program_close(other);
  CHECK(are_right(results)); /* memory of results outlives the program */
  release(results);
  CHECK(blocks == 0);
  most_blocks = 1000;
  shift = 8;
  WORKS(disc_program_open(path_of("m.disc"), &how, &other));
  FAILS(disc_program_run(other, arguments, 3, results, 2), DISC_MISUSE, -1, "no multiple of its alignment");
  CHECK(blocks == 0);
  disc_program_close(other);
}

static int tasks = 0;
static struct {
  void (*task)(void*);
  void* data;
} shared;

static void* on_thread(void* unused) {
  shared.task(shared.data);
  return unused;
}

/* Two at once, the rest one after the other. */
static void own_threads(void* context, void (*task)(void*), void* data, int32_t count) {
  pthread_t thread;
  int32_t i;
  CHECK(context == &tasks && count >= 1 && count <= 4);
  shared.task = task;
  shared.data = data;
  tasks += count;
  if (pthread_create(&thread, NULL, on_thread, NULL) != 0) exit(2);
  for (i = 1; i < count; ++i) task(data);
  pthread_join(thread, NULL);
}

static void no_threads(void* context, void (*task)(void*), void* data, int32_t count) {
  CHECK(context == &tasks && task != NULL && data != NULL && count >= 1);
}

/* A call large enough for several threads, with the bits of one thread. */
static void check_threads(void) {
  disc_options how = options();
  const int64_t rows = 3000, sizes[] = {3000, M};
  float* large = memory_of((size_t)rows * M * 4);
  disc_array arguments[3];
  disc_buffer alone[2], results[2];
  disc_program* programs[4];
  int64_t i;
  int kind;
  memset(alone, 0, sizeof alone);
  for (i = 0; i < rows * M; ++i) large[i] = (float)(i % 1001) / 1001;
  arguments_to(arguments);
  arguments[0].data = arguments[1].data = large;
  arguments[0].sizes = arguments[1].sizes = sizes;
  for (kind = 0; kind < 4; ++kind) {
    how = options();
    how.context = &tasks;
    how.threads = kind == 0 ? 1 : kind == 3 ? 0 : 4;
    if (kind == 1) how.parallel_for = no_threads;
    if (kind == 2) how.parallel_for = own_threads;
    tasks = 0;
    memset(results, 0, sizeof results);
    WORKS(disc_program_open(path_of("m.disc"), &how, &programs[kind]));
    WORKS(disc_program_run(programs[kind], arguments, 3, kind == 0 ? alone : results, 2));
    if (kind != 0) {
      CHECK(memcmp(alone[0].data, results[0].data, alone[0].bytes) == 0);
      CHECK(memcmp(alone[1].data, results[1].data, alone[1].bytes) == 0);
    }
    CHECK((tasks > 0) == (kind == 2)); /* the last call has the library's threads again */
    release(results);
  }
  for (kind = 0; kind < 4; ++kind) disc_program_close(programs[kind]);
  release(alone);
  free(large);
}

static void* many_runs(void* weights) {
  int i;
  for (i = 0; i < 200; ++i) {
    disc_array arguments[3];
    disc_buffer results[2];
    memset(results, 0, sizeof results);
    arguments_to(arguments);
    arguments[2].weight = weights;
    WORKS(disc_program_run(program, arguments, 3, results, 2));
    CHECK(are_right(results));
    release(results);
    arguments[0].rank = 1;
    FAILS(disc_program_run(program, arguments, 3, results, 2), DISC_RANK, 0, "rank is 1");
  }
  return NULL;
}

static void check_many_threads(void) {
  pthread_t threads[16];
  disc_weight* weight;
  int i;
  WORKS(disc_weight_create(&weight));
  for (i = 0; i < 16; ++i) {
    if (pthread_create(&threads[i], NULL, many_runs, i % 2 ? weight : NULL) != 0) exit(2);
  }
  for (i = 0; i < 16; ++i) pthread_join(threads[i], NULL);
  disc_weight_free(weight);
  disc_weight_free(NULL);
  FAILS(disc_weight_create(NULL), DISC_MISUSE, -1, "null pointer");
}

/* ---- DLPack, as its header has it ---- */

typedef struct {
  void* data;
  struct {
    int32_t type, id;
  } device;
  int32_t rank;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t *sizes, *strides;
  uint64_t byte_offset;
} tensor;

struct DLManagedTensorVersioned {
  uint32_t major, minor;
  void* manager;
  void (*deleter)(struct DLManagedTensorVersioned* self);
  uint64_t flags;
  tensor of;
};

static void check_dlpack(void) {
  tensor t[3];
  const void* arguments[3];
  struct DLManagedTensorVersioned* results[2];
  int i;
  memset(t, 0, sizeof t);
  t[0].data = (char*)x - 4;
  t[0].byte_offset = 4;
  t[0].sizes = (int64_t*)x_sizes;
  t[1].data = y;
  t[1].sizes = (int64_t*)y_sizes;
  t[2].data = w;
  t[2].sizes = (int64_t*)w_sizes;
  for (i = 0; i < 3; ++i) {
    t[i].device.type = 1;
    t[i].rank = 2;
    t[i].dtype.code = 2;
    t[i].dtype.bits = 32;
    t[i].dtype.lanes = 1;
    arguments[i] = &t[i];
  }
  WORKS(disc_program_run_dlpack(program, arguments, 3, results, 2));
  CHECK(results[0]->major == 1 && results[0]->of.rank == 2 && results[0]->of.sizes[1] == M);
  CHECK(results[0]->of.dtype.code == 2 && results[0]->of.dtype.bits == 32 && results[0]->of.device.type == 1);
  CHECK(memcmp(results[0]->of.data, want0, N * M * 4) == 0);
  CHECK(memcmp(results[1]->of.data, want1, N * K * 4) == 0);
  for (i = 0; i < 2; ++i) results[i]->deleter(results[i]);
  t[1].device.type = 2;
  FAILS(disc_program_run_dlpack(program, arguments, 3, results, 2), DISC_DEVICE, 1, "not in memory of the CPU");
  CHECK(results[0] == NULL && results[1] == NULL);
  t[1].device.type = 1;
  t[1].dtype.lanes = 2;
  FAILS(disc_program_run_dlpack(program, arguments, 3, results, 2), DISC_DTYPE, 1, "an unsupported type");
  FAILS(disc_program_run_dlpack(program, NULL, 3, results, 2), DISC_MISUSE, -1, "null pointer");
  FAILS(disc_program_run_dlpack(program, arguments, 1, results, 2), DISC_MISUSE, -1, "number of arguments");
}

int main(int count, char** given) {
  if (count != 2) return 2;
  folder = given[1];
  x = bytes_of("x", NULL);
  y = bytes_of("y", NULL);
  w = bytes_of("w", NULL);
  want0 = bytes_of("want0", NULL);
  want1 = bytes_of("want1", NULL);
  WORKS(disc_program_open(path_of("m.disc"), NULL, &program));
  if (program == NULL) return 1;
  run_once(program);
  check_opening();
  check_queries();
  check_runs();
  check_refusals();
  check_allocator();
  check_threads();
  check_many_threads();
  check_dlpack();
  disc_program_close(program);
  free(x);
  free(y);
  free(w);
  free(want0);
  free(want1);
  printf("%d failures\n", failures);
  return failures != 0;
}
