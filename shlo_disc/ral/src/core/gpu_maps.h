// Tensor maps of launches: the driver encodes each once for an address and sizes.
#ifndef SHLO_DISC_RAL_GPU_MAPS_H_
#define SHLO_DISC_RAL_GPU_MAPS_H_

#include <cstdint>

#include "gpu_driver.h"
#include "gpu_program.h"

namespace shlo_disc {

// A tensor map as the driver makes it.
struct alignas(64) EncodedMap {
  char bytes[TensorMap::kBytes];
};

// Encodes a map of the array at `address`, with sizes of a launch; or copies one that this thread
// encoded before. A tensor without elements gets sizes that the driver takes: nothing of it is copied.
// Gives an error of the driver.
int encode_tensor_map(const DriverFunctions& driver, const TensorMap& map, void* address,
                      const int64_t* params, EncodedMap* out);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_MAPS_H_
