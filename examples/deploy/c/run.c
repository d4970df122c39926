/* Runs the encoder of make_model.py from C99, with no Python and no compiler.
 *
 *   cc -std=c99 run.c -I$INCLUDE $LIB/libdisc_ral.so -Wl,-rpath,$LIB -lm -o run
 *   ./run model.disc 3 20
 */
#include <disc.h>

#include <stdio.h>
#include <stdlib.h>

static void check(disc_error* error) {
  if (error == NULL) return;
  fprintf(stderr, "%s\n", disc_error_message(error));
  disc_error_free(error);
  exit(1);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: run MODEL BATCH TIME\n");
    return 2;
  }
  disc_program* program = NULL;
  check(disc_program_open(argv[1], NULL, &program));
  printf("%s for %s\n", disc_program_name(program), disc_program_target(program));

  disc_spec spec = {0};
  spec.struct_size = sizeof spec;
  check(disc_program_argument(program, 0, &spec));
  int64_t sizes[3] = {atoll(argv[2]), atoll(argv[3]), spec.sizes[2]};
  const size_t count = (size_t)(sizes[0] * sizes[1] * sizes[2]);
  float* x = malloc(count * sizeof *x);
  if (x == NULL) return 1;
  for (size_t i = 0; i < count; ++i) x[i] = (float)(i % 17) / 17.0f;

  disc_array argument = {0};
  argument.data = x;
  argument.sizes = sizes;
  argument.dtype = DISC_FLOAT32;
  argument.rank = 3;
  int64_t result_sizes[3];
  disc_buffer result = {0}; /* no memory of ours: the library gives some */
  result.sizes = result_sizes;
  check(disc_program_run(program, &argument, 1, &result, 1));

  const float* y = result.data;
  double sum = 0;
  for (size_t i = 0; i < result.bytes / sizeof *y; ++i) sum += y[i];
  printf("result [%lld, %lld, %lld], sum %.4f\n", (long long)result_sizes[0], (long long)result_sizes[1],
         (long long)result_sizes[2], sum);

  disc_memory_release(result.memory);
  free(x);
  disc_program_close(program);
  return 0;
}
