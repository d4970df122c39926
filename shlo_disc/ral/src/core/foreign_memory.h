// Scratch memory of the device for handlers of GPUs.
#ifndef SHLO_DISC_RAL_FOREIGN_MEMORY_H_
#define SHLO_DISC_RAL_FOREIGN_MEMORY_H_

#include <cstddef>

#include "gpu_device.h"

namespace shlo_disc {

// Memory of the device's pool for work of the stream of `place`. It stays until it is freed, as in XLA,
// also beyond the call. Null with `failure` set. Thread-safe.
void* allocate_for_handler(const GpuPlace& place, size_t bytes, size_t alignment,
                           Failure* failure);

// Gives such memory back: later work of the stream may use it. False: it is none. Thread-safe.
bool free_of_handler(void* data);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FOREIGN_MEMORY_H_
