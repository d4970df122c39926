// A call of an executable on a GPU: what its host program asks of the runtime, on one stream.
#ifndef SHLO_DISC_RAL_GPU_CALL_H_
#define SHLO_DISC_RAL_GPU_CALL_H_

#include "executable.h"
#include "gpu_device.h"

namespace shlo_disc {

// Runs the host program `host`, which enqueues on the stream of `place` and waits for what it reads
// alone. Everything is memory of the device but `symbols`. The arena may be used again by later work
// of the stream. False: `failure` tells why; what was enqueued goes on.
bool run_on_gpu(const Executable& executable, const GpuPlace& place, disc_run host, Marks* marks,
                void* const* arguments, void* const* results, const int64_t* symbols, void* arena,
                RunFailure* failure);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_CALL_H_
