/* Programs that call code of others: `handlers FOLDER HANDLERS LAPACK`, with the artifacts of test_calls.py. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disc.h"

static int failures = 0;
static const char* folder;

static void check(int holds, const char* what, int line) {
  if (holds) return;
  printf("line %d: %s\n", line, what);
  ++failures;
}
#define CHECK(what) check((what) != 0, #what, __LINE__)

static void fails(disc_error* error, disc_code code, const char* text, int line) {
  if (disc_error_code(error) != code || strstr(disc_error_message(error), text) == NULL) {
    printf("line %d: code %d: %s\n", line, (int)disc_error_code(error), disc_error_message(error));
    ++failures;
  }
  disc_error_free(error);
}
#define FAILS(call, code, text) fails((call), (code), (text), __LINE__)
#define WORKS(call) fails((call), DISC_OK, "", __LINE__)

static const char* path_of(const char* name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void* bytes_of(const char* name, size_t* bytes) {
  FILE* const file = fopen(path_of(name), "rb");
  void* memory = NULL;
  if (file == NULL || posix_memalign(&memory, 64, 4096) != 0) exit(2);
  *bytes = fread(memory, 1, 4096, file);
  fclose(file);
  return memory;
}

/* A function of the library of handlers. */
static void* found(void* library, const char* name) {
  void* const address = dlsym(library, name);
  if (address == NULL) exit(3);
  return address;
}

static void* called(void* library, const char* name) {
  void* (*function)(void);
  void* const address = found(library, name);
  memcpy(&function, &address, sizeof function);
  return function();
}

int main(int count, char** arguments) {
  disc_program* program = NULL;
  disc_options options;
  disc_handler handlers[5];
  disc_buffer results[5];
  disc_array x;
  const int64_t sizes[] = {3, 4}, square[] = {2, 2};
  static const char* const names[] = {"affine", "dump", "later", "pooled"};
  static char targets[4][32];
  const float matrix[] = {4, 2, 2, 5};
  void* library;
  size_t bytes;
  int i;
  if (count != 4) return 4;
  folder = arguments[1];
  library = dlopen(arguments[2], RTLD_NOW);
  if (library == NULL) return 5;

  memset(handlers, 0, sizeof handlers);
  for (i = 0; i < 4; ++i) {
    snprintf(targets[i], sizeof targets[i], "test_ffi.%s", names[i]);
    handlers[i].target = targets[i];
    handlers[i].execute = found(library, names[i]);
  }
  handlers[4].target = "test_ffi.power";
  handlers[4].instantiate = found(library, "power_instantiate");
  handlers[4].execute = found(library, "power");
  handlers[4].state_type_id = called(library, "power_id");
  handlers[4].state_type_info = called(library, "power_info");

  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  FAILS(disc_program_open(path_of("extern.disc"), NULL, &program), DISC_NO_HANDLER, "its handler was not given");
  options.handler_count = 5;
  FAILS(disc_program_open(path_of("extern.disc"), &options, &program), DISC_MISUSE, "options.handlers");
  options.handlers = handlers;
  options.handler_count = 4;
  FAILS(disc_program_open(path_of("extern.disc"), &options, &program), DISC_NO_HANDLER, "test_ffi.power");
  options.handler_count = 5;
  handlers[4].state_type_info = NULL;
  FAILS(disc_program_open(path_of("extern.disc"), &options, &program), DISC_MISUSE, "come together");
  handlers[4].state_type_info = called(library, "power_info");
  WORKS(disc_program_open(path_of("extern.disc"), &options, &program));
  if (program == NULL) return 6;
  memset(results, 0, sizeof results);
  memset(&x, 0, sizeof x);
  x.data = bytes_of("x", &bytes);
  x.sizes = sizes;
  x.dtype = DISC_FLOAT32;
  x.rank = 2;
  WORKS(disc_program_run(program, &x, 1, results, 5));
  for (i = 0; i < 5; ++i) {
    char name[16];
    void* want;
    snprintf(name, sizeof name, "want%d", i);
    want = bytes_of(name, &bytes);
    CHECK(results[i].bytes == bytes && memcmp(results[i].data, want, bytes) == 0);
    free(want);
    disc_memory_release(results[i].memory);
  }
  disc_program_close(program);

  options.lapack = "/nowhere/liblapack.so";
  FAILS(disc_program_open(path_of("cholesky.disc"), &options, &program), DISC_NO_HANDLER, "disc_options.lapack");
  options.lapack = arguments[3];
  WORKS(disc_program_open(path_of("cholesky.disc"), &options, &program));
  if (program == NULL) return 7;
  memset(results, 0, sizeof results);
  free((void*)x.data);
  x.data = matrix;
  x.sizes = square;
  WORKS(disc_program_run(program, &x, 1, results, 1));
  {
    const float* const factor = results[0].data;
    CHECK(factor[0] == 2 && factor[1] == 0 && factor[2] == 1 && factor[3] == 2);
  }
  disc_memory_release(results[0].memory);
  disc_program_close(program);
  printf("%d failures\n", failures);
  return failures != 0;
}
