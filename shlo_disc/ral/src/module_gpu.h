// What the Python module has for GPUs.
#ifndef SHLO_DISC_RAL_MODULE_GPU_H_
#define SHLO_DISC_RAL_MODULE_GPU_H_

#include <nanobind/nanobind.h>

#include <memory>

#include "buffer_pool.h"
#include "gpu_program.h"
#include "py_executable.h"

namespace shlo_disc {

// A GpuProgram as Python holds it.
struct SharedGpuProgram {
  std::shared_ptr<const GpuProgram> program;
};

void bind_gpu(nanobind::module_& m);

// One row for each kernel, in order; loads the program.
nanobind::list gpu_kernels(const PyExecutable& self, int ordinal);

nanobind::dict pool_statistics(const PoolStats& stats);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_MODULE_GPU_H_
