// A call of an executable on a GPU: what its host program asks of the runtime, on one stream.
#ifndef SHLO_DISC_RAL_GPU_CALL_H_
#define SHLO_DISC_RAL_GPU_CALL_H_

#include "executable.h"
#include "gpu_device.h"

namespace shlo_disc {

// Runs the host program of a call that is prepared. It enqueues on the stream of `place` and waits for what
// it reads alone. Everything is memory of the device but the symbols. The arena may be used again by later
// work of the stream. False: `failure` of the call tells why; what was enqueued goes on.
bool run_on_gpu(Call& call, const GpuPlace& place, void* arena);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_CALL_H_
