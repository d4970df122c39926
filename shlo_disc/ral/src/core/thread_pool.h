// Fork-join parallelism for kernels: one process-wide pool, the caller works too.
#ifndef SHLO_DISC_RAL_THREAD_POOL_H_
#define SHLO_DISC_RAL_THREAD_POOL_H_

#include <cstdint>

#include "disc_ral.h"

namespace shlo_disc {

// Runs `kernel` over [0, extent) in chunks of at least `grain` tasks (the last chunk may be
// shorter) and returns when all are done. Callable from any thread, also from inside a kernel.
// The caller's floating-point environment is restored; kernels see the default one. False when
// memory for scratch ran out: some tasks were then not done.
[[nodiscard]] bool parallel_for(disc_kernel kernel, void* const* args, const int64_t* params, int64_t extent,
                  int64_t grain, int64_t scratch_bytes);

// Threads that work on one parallel_for, the caller included: SHLO_DISC_NUM_THREADS, else the
// cores this process may run on. Starts no thread.
int num_threads();

// At most so many threads work on what this thread starts from now on, the caller included; 0: as many
// as there are. Returns what it was.
int limit_threads(int threads);

// Threads of somebody else's. `run` calls task(data) `count` times, if possible at once, and returns when all
// have returned; it throws nothing.
struct OwnThreads {
  void* context;
  void (*run)(void* context, void (*task)(void* data), void* data, int32_t count);
  int32_t count;
};

// They work on what this thread starts from now on; null: the process-wide pool does. Returns what was before.
const OwnThreads* use_threads(const OwnThreads* own);

// True once the workers of this process exist (they start with the first parallel_for that has
// more than one chunk).
bool pool_started();

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_THREAD_POOL_H_
