/* Host programs of GPUs as generated code would be: sizes and launches, through disc_ral.h alone. */
#include <stddef.h>
#include <stdint.h>

#include "disc_ral.h"

#define API __attribute__((visibility("default")))

/* ---- y = x + 1, f32[n], through the arena; n == 13 breaks the guard ---- */
API int64_t add1_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  if (in[0] == 13) return 1;
  symbols[0] = out[0] = in[0];
  *arena = 4 * in[0];
  return 0;
}
API void add1_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                  void* arena) {
  void* given[2] = {args[0], arena};
  int64_t sizes[1] = {s[0]};
  c->gpu_launch(c, c->kernels[0], given, sizes, s[0]);
  given[0] = given[1] = NULL; /* all has been read */
  sizes[0] = -1;
  c->gpu_copy(c, results[0], arena, 4 * s[0]);
}

/* ---- scalars by value: kernel(x, f32, i8, y; n) ---- */
API int64_t scalars_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = out[0] = in[0];
  *arena = 0;
  return 0;
}
API void scalars_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                     void* arena) {
  (void)arena;
  float scale = 2.5f;
  int8_t shift = -3;
  void* given[4] = {args[0], &scale, &shift, results[0]};
  c->gpu_launch(c, c->kernels[0], given, s, s[0]);
  scale = 0, shift = 0;
}

/* ---- y = steps of x -> f(x) until f(x) is 1; i64[] ---- */
API int64_t steps_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  (void)in, (void)symbols, (void)out;
  *arena = 16;
  return 0;
}
API void steps_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                   void* arena) {
  (void)s;
  int64_t steps = 0;
  c->gpu_copy(c, arena, args[0], 8);
  while (c->failed == 0 && c->gpu_read(c, arena, 8) != 1) {
    c->gpu_launch(c, c->kernels[0], &arena, NULL, 1);
    ++steps;
  }
  c->gpu_write(c, results[0], steps, 8);
}

/* ---- y[1:] = what FFI call 1 makes, in place, of what call 0 makes of x[1:]; y[0] = 0; f32[n] ---- */
API int64_t shifted_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = out[0] = in[0];
  *arena = 0;
  return 0;
}
API void shifted_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                     void* arena) {
  (void)arena;
  const int64_t sizes[2] = {s[0] - 1, s[0] - 1};
  void* buffers[2] = {(char*)args[0] + 4, (char*)results[0] + 4};
  c->gpu_zero(c, results[0], 4);
  c->foreign(c, 0, buffers, sizes);
  buffers[0] = buffers[1];
  c->foreign(c, 1, buffers, sizes);
  buffers[0] = buffers[1] = NULL; /* all has been read */
}

/* ---- bytes of reads and writes: u8[16] -> u8[32] ---- */
API int64_t moves_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  (void)in, (void)symbols;
  out[0] = 32;
  *arena = 0;
  return 0;
}
API void moves_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                   void* arena) {
  (void)s, (void)arena;
  const char* from = args[0];
  char* to = results[0];
  c->gpu_zero(c, to, 32);
  c->gpu_write(c, to, c->gpu_read(c, from, 1), 8);
  c->gpu_write(c, to + 8, c->gpu_read(c, from, 2), 8);
  c->gpu_write(c, to + 16, c->gpu_read(c, from, 4), 2);
  c->gpu_write(c, to + 18, c->gpu_read(c, from + 1, 1), 1);
  c->gpu_write(c, to + 20, c->gpu_read(c, from + 8, 8), 4);
  c->gpu_write(c, to + 24, c->gpu_read(c, from + 8, 8), 8);
}

/* ---- y = x + table: kernel(x, constant 0, y; n); constant 1 follows ---- */
API int64_t table_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = out[0] = in[0];
  *arena = 0;
  return 0;
}
API void table_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                   void* arena) {
  (void)arena;
  void* first[3] = {args[0], (void*)c->constants[0], results[0]};
  c->gpu_launch(c, c->kernels[0], first, s, s[0]);
  void* second[3] = {results[0], (void*)c->constants[1], results[0]};
  c->gpu_launch(c, c->kernels[0], second, s, s[0]);
}

/* ---- s[0] tasks of a kernel without arguments: i64[] as a size ---- */
API int64_t tasks_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  (void)out;
  symbols[0] = in[0];
  *arena = 0;
  return 0;
}
API void tasks_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                   void* arena) {
  (void)args, (void)results, (void)arena;
  if (c->mark != NULL) c->mark(c, 7, 0);
  c->gpu_launch(c, c->kernels[0], NULL, NULL, s[0]);
  if (c->mark != NULL) c->mark(c, 7, 1);
}

/* ---- y = kernel(x), a result for each argument, f32[n] and f32[m] ---- */
API int64_t pair_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = out[0] = in[0];
  symbols[1] = out[1] = in[1];
  *arena = 0;
  return 0;
}
API void pair_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                  void* arena) {
  (void)arena;
  for (int i = 0; i < 2; ++i) {
    void* given[2] = {args[i], results[i]};
    c->gpu_launch(c, c->kernels[0], given, &s[i], s[i]);
  }
}

/* ---- y = x[:n] for i64[2] (n, ...) as sizes: an argument whose elements are sizes ---- */
API int64_t sized_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = out[0] = in[2];
  *arena = 0;
  return 0;
}
API void sized_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                   void* arena) {
  (void)arena;
  c->gpu_copy(c, results[0], args[0], 4 * s[0]);
}
