/* A process that runs a model as benchmarks/deploy asks: the protocol is that of peers/deployed.py.
 *
 * process MODEL INPUTS
 */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend.h"

enum { MOST_CASES = 16, MOST_PATH = 4096 };

typedef struct {
  size_t count;
  array arguments[8];
  char names[8][32];
  result out;
  int is_warm;
} call;

void fail(const char* what) {
  fprintf(stderr, "process: %s\n", what);
  exit(1);
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static void* contents(const char* folder, size_t number, size_t argument, size_t bytes) {
  char path[MOST_PATH];
  snprintf(path, sizeof path, "%s/%zu-%zu.bin", folder, number, argument);
  void* const data = aligned_alloc(64, (bytes + 127) / 64 * 64);
  FILE* const file = fopen(path, "rb");
  if (file == NULL || data == NULL || fread(data, 1, bytes, file) != bytes) fail(path);
  fclose(file);
  return data;
}

static size_t read_calls(const char* folder, call* calls) {
  char path[MOST_PATH];
  size_t cases;
  snprintf(path, sizeof path, "%s/cases.txt", folder);
  FILE* const file = fopen(path, "r");
  if (file == NULL || fscanf(file, "%zu", &cases) != 1 || cases > MOST_CASES) fail(path);
  for (size_t k = 0; k < cases; ++k) {
    call* const one = &calls[k];
    if (fscanf(file, "%zu", &one->count) != 1 || one->count > 8) fail(path);
    for (size_t i = 0; i < one->count; ++i) {
      array* const into = &one->arguments[i];
      if (fscanf(file, "%31s %" SCNd32, one->names[i], &into->rank) != 2 || into->rank > 8) fail(path);
      into->dtype = one->names[i];
      size_t bytes = 4;
      for (int32_t d = 0; d < into->rank; ++d) {
        if (fscanf(file, "%" SCNd64, &into->sizes[d]) != 1) fail(path);
        bytes *= (size_t)into->sizes[d];
      }
      into->data = contents(folder, k, i, bytes);
    }
  }
  fclose(file);
  return cases;
}

static void run(const model* opened, call* one) {
  model_run(opened, one->arguments, one->count, one->is_warm, &one->out);
  one->is_warm = 1;
}

int main(int argc, char** argv) {
  if (argc != 3) fail("usage: process MODEL INPUTS");
  static call calls[MOST_CASES];
  const double start = now_ms();
  const model* const opened = model_open(argv[1], 0);
  const double loaded = now_ms();
  const size_t cases = read_calls(argv[2], calls);
  run(opened, &calls[0]);
  printf("ready %f\n", loaded - start);
  fflush(stdout);
  char line[MOST_PATH], path[MOST_PATH];
  while (fgets(line, sizeof line, stdin) != NULL) {
    size_t k, count;
    double settle;
    if (sscanf(line, "run %zu %4095s", &k, path) == 2 && k < cases) {
      run(opened, &calls[k]);
      FILE* const file = fopen(path, "wb");
      if (file == NULL || fwrite(calls[k].out.data, 1, calls[k].out.bytes, file) != calls[k].out.bytes) fail(path);
      fclose(file);
      printf("done\n");
    } else if (sscanf(line, "time %zu %zu %lf", &k, &count, &settle) == 3 && k < cases) {
      const double settled = now_ms() + settle * 1e3;
      while (now_ms() < settled) run(opened, &calls[k]);
      for (size_t i = 0; i < count; ++i) {
        const double before = now_ms();
        run(opened, &calls[k]);
        printf(i == 0 ? "%.6f" : " %.6f", now_ms() - before);
      }
      printf("\n");
    } else {
      fail("an unknown request");
    }
    fflush(stdout);
  }
  return 0;
}
