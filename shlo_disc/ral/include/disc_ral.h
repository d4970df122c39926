/* disc_ral.h - the contract between generated code and its host. Plain C, C99 and C++17.
 *
 * Generated code has no undefined symbols: all it may ask for is reached through disc_context,
 * whose fields are pointer-sized and read by index (append only).
 */
#ifndef DISC_RAL_H
#define DISC_RAL_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

typedef struct disc_context disc_context; /* one per call; lives on the caller's stack */

/* Computes the tasks lo <= i < hi. `args`: data pointers. `params`: sizes. `scratch`: 64-byte aligned
 * memory private to the worker. Thread-safe by construction: no globals. */
typedef void (*disc_kernel)(void* const* args, const int64_t* params, int64_t lo, int64_t hi,
                            void* scratch);

struct disc_context {
  size_t struct_size; /* 0: sizeof(disc_context) at the runtime */
  /* 1: run `kernel` over [0, extent) in chunks of at least `grain` tasks, on the process-wide pool when
   * more than one chunk results; returns when all are done. extent <= 0 does nothing.
   * Chunks may run at the same time, and end in any order. They begin in ascending order: a chunk is
   * taken after all chunks of lower tasks were taken, each by a thread that runs it at once to its
   * end, and one thread alone runs the tasks in ascending order. So a task may wait, without sleeping,
   * until tasks of lower numbers are done (launches of `Launch.ordered`), never for higher ones. */
  void (*parallel_for)(disc_context* ctx, disc_kernel kernel, void* const* args,
                       const int64_t* params, int64_t extent, int64_t grain,
                       int64_t scratch_bytes);
  /* 2: the packed copy of main argument `arg` (constants: -1 - index) under `slot` (index into the
   * executable's list of pack keys), `bytes` long. `params`: the number of parameters of the launch that
   * fills it, whose arguments are the memory of `arg` and the copy; -1: the copy cannot wait; -2: it
   * is used often, so its first use makes it. Returns
   *   0  there is none for this buffer (mutable, or first seen): *out untouched
   *   1  *out is ready to read
   *   2  the caller fills *out, by its next launch, then calls packed_done (exactly once)
   *   3  the same, but the launch only tells how: it runs after the call, and nothing reads *out */
  int32_t (*packed)(disc_context* ctx, int64_t arg, int64_t slot, int64_t bytes, int64_t params,
                    void** out);
  /* 3: what was filled after `packed` returned 2 is ready; or the launch after it returned 3 is told */
  void (*packed_done)(disc_context* ctx, int64_t arg, int64_t slot, void* filled);
  /* 4: the executable's kernel table. In programs for the CPU an entry is where the address of the kernel
   * is: null before it is compiled (see 15), and another one once there is better code of equal bits. In
   * programs for GPUs it is the kernel itself. */
  const void* const* kernels;
  const void* const* constants; /* 5: the executable's constants */
  /* 6: host programs made for profiling only: launch site `site` begins (end = 0), is done (1) */
  void (*mark)(disc_context* ctx, int64_t site, int64_t end);
  /* 7: run FFI call `call` of the executable. `buffers`: operands, then results; `sizes`: the logical
   * sizes of each in turn, then the attributes that are sizes. After a failure this does nothing but to
   * zero the results. In programs for GPUs buffers are the device's, the call takes its place among what is
   * given to the stream, and results are not zeroed. */
  void (*foreign)(disc_context* ctx, int64_t call, void* const* buffers, const int64_t* sizes);
  int64_t failed; /* 8: is 1 once a call has failed: loops end, results do not matter any more */
  /* 9: Fourier transforms of `batch` x `length` x `inner` elements: fft_transform of src/core/fft.h */
  void (*fft)(disc_context* ctx, int64_t options, int64_t batch, int64_t length, int64_t inner,
              void* const* buffers);

  /* 10 to 14 are set in programs for GPUs only, where 1, 3 and 9 are null and 2 always returns 0.
   * Arguments, results, arena and constants are addresses of the device there. The five give work to
   * one stream, in order; none but gpu_read waits, and `foreign` for a handler of the host. After a failure (`failed` is 1) they do nothing. */

  /* 10: run the blocks of `kernel` (an entry of `kernels`) that `tasks` tasks take; tasks <= 0 does
   * nothing. The kernel's parameters are the entries of `args`, `params` and `tasks`, 8 bytes each. An
   * entry of `args` is an address of the device, or, for an argument passed by value, the host's
   * address of the value. An argument that the kernel takes as a tensor map (TMA) is an address too:
   * the runtime encodes the map from it and from sizes among `params`. All are read before this
   * returns. Block (x, y) of the grid has the number
   * y * 2^21 + x; blocks whose number is too large for `tasks` have nothing to do. */
  void (*gpu_launch)(disc_context* ctx, const void* kernel, void* const* args,
                     const int64_t* params, int64_t tasks);
  /* 11: copy `bytes` bytes of the device's memory; the places are one, or do not overlap */
  void (*gpu_copy)(disc_context* ctx, void* destination, const void* source, int64_t bytes);
  /* 12: zero `bytes` bytes of the device's memory */
  void (*gpu_zero)(disc_context* ctx, void* address, int64_t bytes);
  /* 13: the integer of 1, 2, 4 or 8 bytes at `address`, zero-extended. Waits for all work before it;
   * 0 after a failure. */
  int64_t (*gpu_read)(disc_context* ctx, const void* address, int64_t bytes);
  /* 14: put the low 1, 2, 4 or 8 bytes of `value` to `address` */
  void (*gpu_write)(disc_context* ctx, void* address, int64_t value, int64_t bytes);

  /* 15: the kernel of entry `index` of `kernels`, compiled first if there is none: a variant that no call has needed so far.
   * After a failure (`failed` is 1) this is a kernel that does nothing. Null in programs for GPUs. */
  disc_kernel (*kernel)(disc_context* ctx, int64_t index);
};

/* Generated, one pair per executable.
 * disc_prepare: from the sizes of all arguments (concatenated, row by row), then the elements of
 * the arguments that are sizes themselves, compute the symbols, the sizes of
 * all results (concatenated) and the arena size in bytes. Returns 0, or 1 + the index of the first
 * guard that does not hold (nothing else is then written). */
typedef int64_t (*disc_prepare)(const int64_t* arg_sizes, int64_t* symbols, int64_t* result_sizes,
                                int64_t* arena_bytes);
/* disc_run: `results` and `arena` are 64-byte aligned and uninitialised; a result is no argument's
 * memory, but for the pairs the program says it can do with (donated arguments). */
typedef void (*disc_run)(disc_context* ctx, void* const* args, void* const* results,
                         const int64_t* symbols, void* arena);

#ifdef __cplusplus
}
#endif
#endif /* DISC_RAL_H */
