// One GPU of the process: its context, a stream of our own, its memory pool.
#ifndef SHLO_DISC_RAL_GPU_DEVICE_H_
#define SHLO_DISC_RAL_GPU_DEVICE_H_

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "gpu_driver.h"
#include "gpu_pool.h"

namespace shlo_disc {

class GpuDevice {
 public:
  // The device, which is opened on first use and lives as long as the process. Null with `failure`
  // set where there is no driver or no such device.
  static GpuDevice* get(GpuPlatform platform, int ordinal, Failure* failure);
  GpuDevice(const GpuDevice&) = delete;
  GpuDevice& operator=(const GpuDevice&) = delete;

  const GpuDriver& driver() const { return driver_; }
  const DriverFunctions& call() const { return driver_.call; }
  const GpuDeviceInfo& info() const { return info_; }
  void* context() const { return context_; }
  // Where work goes when the caller gives no stream. It waits for no other stream.
  void* stream() const { return stream_; }
  GpuPool& pool() { return pool_; }
  // "NVIDIA H200 (cuda:0, sm_90)"
  const std::string& title() const { return title_; }

  // Memory of the pool, uninitialised and 256-byte aligned, for work of `stream`. Out of memory: idle
  // memory of the pool is freed, `collect` called (null: nothing) and the request tried once more.
  // Null with `failure` set; `what` is who wants it: "result 0".
  GpuBlock* acquire(int64_t bytes, Hold hold, void* stream,
                    const std::function<bool()>& collect, const std::string& what,
                    Failure* failure);

  // Waits for all work of a stream. False with `failure` set when some of it, or earlier work, failed;
  // `when`: "at the end of the call".
  bool wait(void* stream, const char* when, Failure* failure) const;

  // A stream whose work is recorded; null: the driver makes none. Held: `recording()`.
  void* recording_stream();
  std::mutex& recording() { return recording_; }

  // 8 bytes of host memory that the device writes without a copy; null: none. Give it back.
  int64_t* take_slot();
  void give_slot(int64_t* slot);

 private:
  GpuDevice(const GpuDriver& driver, GpuDeviceInfo info);
  bool open(Failure* failure);

  const GpuDriver& driver_;
  const GpuDeviceInfo info_;
  const std::string title_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
  GpuPool pool_;
  std::mutex recording_;
  void* recording_stream_ = nullptr;
  std::mutex slots_mutex_;
  std::vector<int64_t*> slots_;
};

// Where work goes.
struct GpuPlace {
  GpuDevice* device;
  void* stream;
};

// Makes a device the current one of this thread for a scope.
class GpuScope {
 public:
  explicit GpuScope(const GpuDevice& device);
  ~GpuScope();
  GpuScope(const GpuScope&) = delete;
  GpuScope& operator=(const GpuScope&) = delete;

 private:
  const GpuDevice& device_;
  int before_ = -1;  // HIP: the device that was current
  bool entered_ = false;
};

// SHLO_DISC_GPU_SYNC=1 in the environment when first asked: wait after every launch.
bool gpu_waits_for_launches();
// Not SHLO_DISC_GPU_OVERLAP=0 in the environment when first asked: kernels that can may start early.
bool gpu_overlaps_launches();
// Not SHLO_DISC_GPU_GRAPHS=0 in the environment when first asked: calls that come again become graphs.
bool gpu_makes_graphs();
// SHLO_DISC_GPU_HOST_MEMORY=1 in the environment when first asked: the driver is a stand-in of tests, and
// the host's memory is the device's.
bool gpu_memory_is_the_hosts();

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_DEVICE_H_
