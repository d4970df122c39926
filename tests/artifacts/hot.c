/* hot FOLDER CALLS: allocations of the heap in many calls of the program of checks.c, and the time of one
 * into memory of the library and of the caller, in nanoseconds. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "disc.h"

extern void* __libc_malloc(size_t bytes);
static long allocations = 0;

/* The whole process has this one. */
void* malloc(size_t bytes) {
  ++allocations;
  return __libc_malloc(bytes);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int main(int count, char** given) {
  enum { N = 5, M = 33, K = 48 };
  static float x[64][64], y[64][64], w[64][64];
  static char memory[2 * 16384];
  char* aligned = memory + (64 - (uintptr_t)memory % 64) % 64;
  const int64_t sizes[] = {N, M}, w_sizes[] = {M, K};
  char path[4096];
  disc_program* program;
  const disc_array arguments[] = {{x, sizes, NULL, DISC_FLOAT32, 2, NULL},
                                  {y, sizes, NULL, DISC_FLOAT32, 2, NULL},
                                  {w, w_sizes, NULL, DISC_FLOAT32, 2, NULL}};
  double begin;
  long before, calls;
  int kind, i;
  if (count != 3) return 2;
  calls = atol(given[2]);
  snprintf(path, sizeof path, "%s/m.disc", given[1]);
  begin = now();
  if (disc_program_open(path, NULL, &program) != NULL) return 2;
  printf("%.0f", now() - begin);
  for (kind = 0; kind < 2; ++kind) {
    for (i = 0; i < 2; ++i) { /* the first call starts what is needed once */
      long k, times = i == 0 ? 10 : calls;
      before = allocations;
      begin = now();
      for (k = 0; k < times; ++k) {
        disc_buffer results[2] = {{NULL, 0, NULL, NULL}, {NULL, 0, NULL, NULL}};
        if (kind == 1) {
          results[0].data = aligned;
          results[1].data = aligned + 16384;
          results[0].bytes = results[1].bytes = 16000;
        }
        if (disc_program_run(program, arguments, 3, results, 2) != NULL) return 2;
        disc_memory_release(results[0].memory);
        disc_memory_release(results[1].memory);
      }
      begin = (now() - begin) / (double)times;
    }
    printf(" %.0f %ld", begin, allocations - before);
  }
  printf("\n");
  disc_program_close(program);
  return 0;
}
