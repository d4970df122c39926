// Reads and makes jax.Arrays in the memory of one GPU, without a copy and without XLA.
//
// All work goes to the stream XLA computes on. So work of ours and of XLA is ordered without events:
// arguments need not be kept alive, and memory that either gives back is used again behind what still
// reads it. An array that XLA has not enqueued yet is waited for on the stream, never by the host.
#ifndef SHLO_DISC_RAL_GPU_BRIDGE_H_
#define SHLO_DISC_RAL_GPU_BRIDGE_H_

#include <string>
#include <unordered_map>
#include <utility>

#include "gpu_call.h"
#include "gpu_device.h"
#include "gpu_memory.h"
#include "jax_bridge.h"

namespace shlo_disc {

// See shlo_disc/ral/_ral.pyi for what each must be.
struct GpuHooks {
  PyRef order;    // (array, stream) -> None: work of the stream sees the array
  PyRef adopt;    // (capsule, device) -> committed array over its memory
  PyRef rewrap;   // (aval, sharding, committed) -> ((array,) -> array) of that type
  PyRef to_host;  // (array) -> ndarray; waits
};

class GpuBridge : public JaxBridge {
 public:
  // `waits`: each call ends when its work is done.
  GpuBridge(JaxHooks hooks, GpuHooks gpu_hooks, const GpuPlace& place, int32_t dlpack_device,
            bool waits)
      : JaxBridge(std::move(hooks)),
        gpu_hooks_(std::move(gpu_hooks)),
        place_(place),
        dlpack_device_(dlpack_device),
        waits_(waits) {}
  ~GpuBridge() override;

  const GpuPlace& place() const { return place_; }
  bool waits() const { return waits_; }
  GpuBridge* as_gpu() override { return this; }
  bool owns(const void* data) const override { return static_cast<bool>(GpuMemory::at(data)); }

  // The elements of an array as a NumPy array. Waits for them. Null with a Python error set.
  PyRef to_host(PyObject* array) const;

  // An array over memory that enqueued work fills; uncommitted unless `committed`. Null with a Python
  // error set.
  PyObject* adopt(GpuMemory memory, PyArray_Descr* descr, DType dtype, bool weak_type,
                  int64_t rank, const int64_t* sizes, bool committed);

 protected:
  bool wait(Py_ssize_t index, PyObject* array) override;

 private:
  // Makes arrays of one type of the arrays that `adopt` gives; null with a Python error set.
  PyObject* maker(PyObject* aval, PyObject* sharding, bool committed);

  const GpuHooks gpu_hooks_;
  const GpuPlace place_;
  const int32_t dlpack_device_;
  const bool waits_;
  // By aval, which they keep alive, of uncommitted and committed arrays.
  std::unordered_map<PyObject*, PyRef> makers_[2];
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_BRIDGE_H_
