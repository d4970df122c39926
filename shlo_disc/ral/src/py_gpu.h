// Programs for GPUs, called with NumPy's arrays.
#ifndef SHLO_DISC_RAL_PY_GPU_H_
#define SHLO_DISC_RAL_PY_GPU_H_

#include <string>

#include "gpu_driver.h"
#include "py_support.h"

namespace shlo_disc {

// Sets DeviceError or MemoryError; always null. `program`: its name, or empty.
PyObject* raise_gpu_failure(const std::string& program, const GpuFailure& failure);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PY_GPU_H_
