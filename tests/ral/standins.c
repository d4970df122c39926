/* Stand-ins for generated code, compiled by the tests: small programs that obey disc_ral.h. */
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "disc_ral.h"

/* Entry `index` of the kernel table. */
#define KERNEL(c, index) (*(disc_kernel const*)(c)->kernels[index])

static void burn(int64_t ns) {
  struct timespec a, b;
  clock_gettime(CLOCK_MONOTONIC, &a);
  do {
    clock_gettime(CLOCK_MONOTONIC, &b);
  } while ((b.tv_sec - a.tv_sec) * 1000000000LL + (b.tv_nsec - a.tv_nsec) < ns);
}

/* ---- y = x + 1, f32[a, b]; a == 13 breaks guard 0, b == 13 guard 1 ---- */
void add1_kernel(void* const* a, const int64_t* p, int64_t lo, int64_t hi, void* scratch) {
  (void)p, (void)scratch;
  for (int64_t i = lo; i < hi; ++i) ((float*)a[1])[i] = ((const float*)a[0])[i] + 1.0f;
}
int64_t add1_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  if (in[0] == 13) return 1;
  if (in[1] == 13) return 2;
  symbols[0] = out[0] = in[0];
  symbols[1] = out[1] = in[1];
  *arena = 4 * in[0] * in[1];
  return 0;
}
/* Through the arena, all of which it writes. */
void add1_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
              void* arena) {
  const int64_t n = s[0] * s[1];
  memset(arena, 0xff, 4 * n);
  void* first[2] = {args[0], arena};
  c->parallel_for(c, KERNEL(c, 0), first, s, n, 1000, 0);
  memcpy(results[0], arena, 4 * n);
}

/* ---- results are copies of one argument of rank N; constant 0: bytes of an element ---- */
#define COPY_PREPARE(N)                                                                         \
  int64_t copy##N##_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) { \
    symbols[0] = 1;                                                                             \
    for (int i = 0; i < N; ++i) symbols[0] *= out[i] = in[i];                                   \
    *arena = 0;                                                                                 \
    return 0;                                                                                   \
  }
COPY_PREPARE(0)
COPY_PREPARE(1)
COPY_PREPARE(2)
COPY_PREPARE(3)
void copy_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
              void* arena) {
  (void)arena;
  memcpy(results[0], args[0], s[0] * ((const int64_t*)c->constants[0])[0]);
}

/* ---- a result of impossible size ---- */
int64_t negative_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = 0;
  out[0] = in[0] - 10;
  *arena = 0;
  return 0;
}

/* ---- a result that no machine holds ---- */
int64_t enormous_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = 0;
  out[0] = INT64_MAX - in[0];
  *arena = 0;
  return 0;
}

/* ---- f32[n], f32[n] -> x + 2 w, and what `packed` answered (i32) ----
 * Slot 0 holds 2 w. n == 17 fills slowly. */
int64_t pack_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  if (in[0] != in[1]) return 1;
  symbols[0] = out[0] = in[0];
  *arena = 0;
  return 0;
}
static void pack_run_of(disc_context* c, int64_t which, const float* w, const float* x, float* y,
                        int32_t* status, int64_t n) {
  float* twice = NULL;
  *status = c->packed(c, which, 0, 4 * n, -1, (void**)&twice);
  if (*status == 2) {
    if (n == 17) usleep(100000);
    for (int64_t i = 0; i < n; ++i) twice[i] = 2 * w[i];
    c->packed_done(c, which, 0, twice);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + (*status == 0 ? 2 * w[i] : twice[i]);
}
void pack_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
              void* arena) {
  (void)arena;
  pack_run_of(c, 1, args[1], args[0], results[0], results[1], s[0]);
}
/* As pack, by a launch of kernel 0, so that it may wait. n == 13: it may not. n == 19: what it packs is
 * computed from the argument. */
void twice_kernel(void* const* args, const int64_t* params, int64_t lo, int64_t hi, void* scratch) {
  (void)scratch;
  for (int64_t i = lo; i < hi; ++i) ((float*)args[1])[i] = params[0] * ((const float*)args[0])[i];
}
int64_t pack_later_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  return pack_prepare(in, symbols, out, arena);
}
static void pack_later_of(disc_context* c, int64_t which, const float* w, void* const* args,
                          void* const* results, int64_t n) {
  float *twice = NULL, *y = results[0];
  const float* x = args[0];
  float copy[19];
  const int32_t status = c->packed(c, which, 0, 4 * n, n == 13 ? -1 : 1, (void**)&twice);
  if (status >= 2) {
    if (n == 19) memcpy(copy, w, sizeof copy);
    void* fill[] = {n == 19 ? copy : (void*)w, twice};
    const int64_t params[] = {2};
    c->parallel_for(c, c->kernel(c, 0), fill, params, n, n, 64);
    c->packed_done(c, which, 0, twice);
  }
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + (status % 3 == 0 ? 2 * w[i] : twice[i]);
  *(int32_t*)results[1] = status;
}
void pack_later_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                    void* arena) {
  (void)arena;
  pack_later_of(c, 1, args[1], args, results, s[0]);
}
int64_t pack_constant_later_prepare(const int64_t* in, int64_t* symbols, int64_t* out,
                                    int64_t* arena) {
  symbols[0] = out[0] = in[0];
  *arena = 0;
  return 0;
}
void pack_constant_later_run(disc_context* c, void* const* args, void* const* results,
                             const int64_t* s, void* arena) {
  (void)arena;
  pack_later_of(c, -1, c->constants[0], args, results, s[0]);
}
/* As pack, five times over, as in a loop; the status has a digit for every time. */
int64_t pack_loop_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  return pack_prepare(in, symbols, out, arena);
}
void pack_loop_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                   void* arena) {
  (void)arena;
  int32_t all = 0;
  for (int i = 0; i < 5; ++i) {
    pack_run_of(c, 1, args[1], args[0], results[0], results[1], s[0]);
    all = 10 * all + *(int32_t*)results[1];
  }
  *(int32_t*)results[1] = all;
}
int64_t carrier_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  return pack_prepare(in, symbols, out, arena);
}
/* The second argument is a carrier: sizes and no data. */
void carrier_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                 void* arena) {
  (void)c, (void)arena;
  memcpy(results[0], args[0], 4 * s[0]);
  *(int32_t*)results[1] = args[1] == NULL;
}
/* As pack, with constant 0 in place of the second argument. */
int64_t pack_constant_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = out[0] = in[0];
  *arena = 0;
  return 0;
}
void pack_constant_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                       void* arena) {
  (void)arena;
  pack_run_of(c, -1, c->constants[0], args[0], results[0], results[1], s[0]);
}

/* ---- kernels for parallel_for alone ---- */
/* args[0]: int64 counts per task */
void count_kernel(void* const* a, const int64_t* p, int64_t lo, int64_t hi, void* scratch) {
  (void)p, (void)scratch;
  for (int64_t i = lo; i < hi; ++i) __atomic_fetch_add(&((int64_t*)a[0])[i], 1, __ATOMIC_RELAXED);
}
/* args[0]: uint64 thread per task, args[1]: int64 size of the chunk it was in */
void who_kernel(void* const* a, const int64_t* p, int64_t lo, int64_t hi, void* scratch) {
  (void)p, (void)scratch;
  for (int64_t i = lo; i < hi; ++i) {
    ((uint64_t*)a[0])[i] = (uint64_t)pthread_self();
    ((int64_t*)a[1])[i] = hi - lo;
    burn(20000);
  }
}
/* args[0]: int64 errors, params[0]: bytes of scratch */
void scratch_kernel(void* const* a, const int64_t* p, int64_t lo, int64_t hi, void* scratch) {
  int64_t* errors = a[0];
  if ((uintptr_t)scratch % 64 != 0) __atomic_fetch_add(errors, 1, __ATOMIC_RELAXED);
  unsigned char* s = scratch;
  for (int64_t i = lo; i < hi; ++i) {
    memset(s, (int)(i & 255), p[0]);
    burn(2000);
    for (int64_t k = 0; k < p[0]; ++k) {
      if (s[k] != (i & 255)) {
        __atomic_fetch_add(errors, 1, __ATOMIC_RELAXED);
        break;
      }
    }
  }
}
/* args[0]: uint32 control word per task, args[1]: float smallest denormal * 1 per task */
void fp_kernel(void* const* a, const int64_t* p, int64_t lo, int64_t hi, void* scratch) {
  (void)p, (void)scratch;
  for (int64_t i = lo; i < hi; ++i) {
#if defined(__x86_64__)
    ((uint32_t*)a[0])[i] = _mm_getcsr() & ~0x3fu;
#endif
    volatile float denormal = 1e-40f, one = 1.0f;
    ((float*)a[1])[i] = denormal * one;
    burn(1000);
  }
}
/* Nested: each task of the outer loop runs an inner one. args[0]: disc_context, args[1]: counts,
 * params[0]: inner extent; args[2]: the inner kernel */
void nested_kernel(void* const* a, const int64_t* p, int64_t lo, int64_t hi, void* scratch) {
  disc_context* c = a[0];
  unsigned char* mine = scratch;
  for (int64_t i = lo; i < hi; ++i) {
    memset(mine, (int)(i & 255), 256);
    void* inner[1] = {(int64_t*)a[1] + i * p[0]};
    c->parallel_for(c, (disc_kernel)a[2], inner, p, p[0], 1, 256);
    for (int k = 0; k < 256; ++k) {
      if (mine[k] != (i & 255)) ((int64_t*)a[1])[i * p[0]] += 1000;
    }
  }
}
void inner_kernel(void* const* a, const int64_t* p, int64_t lo, int64_t hi, void* scratch) {
  memset(scratch, 0xaa, 256);
  count_kernel(a, p, lo, hi, scratch);
}
/* i64[n] -> i64[n * 7] counts, through a nested parallel_for */
int64_t nested_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = in[0];
  out[0] = in[0] * 7;
  *arena = 0;
  return 0;
}
void nested_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
                void* arena) {
  (void)args, (void)arena;
  memset(results[0], 0, s[0] * 7 * 8);
  const int64_t inner_extent = 7;
  void* outer[3] = {c, results[0], (void*)KERNEL(c, 1)};
  c->parallel_for(c, KERNEL(c, 0), outer, &inner_extent, s[0], 1, 256);
}
/* f32[n] -> u32[n] control words, f32[n] denormals */
int64_t fp_prepare(const int64_t* in, int64_t* symbols, int64_t* out, int64_t* arena) {
  symbols[0] = out[0] = out[1] = in[0];
  *arena = 0;
  return 0;
}
void fp_run(disc_context* c, void* const* args, void* const* results, const int64_t* s,
            void* arena) {
  (void)args, (void)arena;
  fp_kernel(results, s, 0, 1, NULL); /* host code, too */
  c->parallel_for(c, KERNEL(c, 0), results, s, s[0], 1, 0);
}

#if defined(__x86_64__)
uint32_t get_control(void) { return _mm_getcsr(); }
void set_control(uint32_t value) { _mm_setcsr(value); }
#endif

void nothing_kernel(void* const* a, const int64_t* p, int64_t lo, int64_t hi, void* scratch) {
  (void)a, (void)p, (void)lo, (void)hi, (void)scratch;
}
