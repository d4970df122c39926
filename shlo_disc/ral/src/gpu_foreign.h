// Calls of XLA FFI handlers in programs for GPUs: handlers of the GPU's platform get its memory and the
// stream, those of the host copies of it.
#ifndef SHLO_DISC_RAL_GPU_FOREIGN_H_
#define SHLO_DISC_RAL_GPU_FOREIGN_H_

#include <cstdint>
#include <memory>

#include "executable.h"
#include "foreign_call.h"
#include "gpu_device.h"

namespace shlo_disc {

// Runs `foreign` behind all earlier work of the stream of `place`, in front of all later work. Buffers
// and sizes are those of ForeignCall::run, with addresses of the device. A handler of the host is waited
// for, as is all work in front of it. False with `failure` set, but for its member `foreign`: null is
// returned where the handler has not failed itself.
bool run_foreign_on_gpu(const ForeignCall& foreign, const GpuPlace& place, void* const* buffers,
                        const int64_t* sizes, std::unique_ptr<ForeignFailure>* failed,
                        RunFailure* failure);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_FOREIGN_H_
