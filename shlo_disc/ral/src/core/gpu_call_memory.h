// Memory of a device for one call of a program.
#ifndef SHLO_DISC_RAL_GPU_CALL_MEMORY_H_
#define SHLO_DISC_RAL_GPU_CALL_MEMORY_H_

#include <functional>
#include <string>
#include <vector>

#include "call.h"
#include "gpu_device.h"

namespace shlo_disc {

// Of a call that gives its work to a stream. Needs no GIL.
class DeviceMemory : public CallMemory {
 public:
  // `collect`: has what is dead dropped where memory is short; may be null.
  DeviceMemory(Call& call, const GpuPlace& place, std::function<bool()> collect)
      : call_(call), place_(place), collect_(std::move(collect)), scope_(*place.device) {}

  const GpuPlace* place() const override { return &place_; }

  bool arena(int64_t bytes, void** data) override {
    *data = acquire(bytes, "temporary memory");
    return *data != nullptr;
  }

  // Copies an argument to memory that the call may read. `is_there`: it is on the device.
  bool copy_argument(size_t i, int64_t bytes, bool is_there);

 protected:
  bool check(int error, const char* what) {
    return place_.device->driver().check(error, what + place_.device->title(), &call_.failure);
  }

  GpuBlock* take(int64_t bytes, Hold hold, const std::string& what) {
    return place_.device->acquire(bytes, hold, place_.stream, collect_, what, &call_.failure);
  }

  void* acquire(int64_t bytes, const std::string& what) {
    blocks_.emplace_back(take(bytes, Hold::kCall, what));
    return blocks_.back().data();
  }

  Call& call_;
  const GpuPlace place_;

 private:
  const std::function<bool()> collect_;
  std::vector<ScopedGpuBlock> blocks_;  // used again by later work of the stream
  const GpuScope scope_;
};

// Copies `bytes` of a device to the host and waits for them; `what` is read. False with `failure` set.
bool read_from(const GpuPlace& place, void* to, const void* from, int64_t bytes, const char* what, Failure* failure);
// Reads the elements that are sizes, with all arguments of the call on the device. False with its failure set.
bool read_size_elements(Call& call, const GpuPlace& place);

// Of a call whose results go to memory of the host.
class CopiedCall : public DeviceMemory {
 public:
  // `host`: gives memory for results. `are_there`: arguments are on the device, else they are copied there.
  CopiedCall(Call& call, const GpuPlace& place, CallMemory& host, bool are_there = false)
      : DeviceMemory(call, place, nullptr), host_(host), are_there_(are_there) {}

  // Work may still read or write what the caller frees next.
  ~CopiedCall() override {
    if (!is_done_) place_.device->call().wait_stream(place_.stream);
  }

  bool result(size_t i, const int64_t*, int64_t bytes, void** data) override {
    *data = acquire(bytes, "result " + std::to_string(i));
    return *data != nullptr;
  }

  // Runs the call, which is prepared, to its end. False: `failure` of the call tells why.
  bool run();

 private:
  CallMemory& host_;
  const bool are_there_;
  bool is_done_ = false;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_CALL_MEMORY_H_
