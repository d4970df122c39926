#include "gpu_call_memory.h"

#include <utility>

namespace shlo_disc {

bool DeviceMemory::copy_argument(size_t i, int64_t bytes, bool is_there) {
  void*& data = call_.arguments()[i];
  void* const from = std::exchange(data, acquire(bytes, "argument " + std::to_string(i)));
  const DriverFunctions& driver = place_.device->call();
  const auto copy = is_there ? driver.copy_on_device : driver.copy_to_device;
  return data != nullptr && check(bytes == 0 ? kGpuSuccess : copy(data, from, bytes, place_.stream),
                                  "an argument cannot be copied to ");
}

bool CopiedCall::run() {
  const ProgramSpec& spec = call_.executable.spec();
  const int64_t* sizes = call_.sizes();
  for (size_t i = 0; i < spec.arguments.size(); ++i) {
    const auto rank = static_cast<int64_t>(spec.arguments[i].sizes.size());
    const int64_t bytes = array_bytes(spec.arguments[i].dtype, rank, sizes);
    sizes += rank;
    if (spec.arguments[i].unread) {
      call_.arguments()[i] = nullptr;
    } else if (!copy_argument(i, bytes, false)) {
      return false;
    }
  }
  ++call_.executable.gpu_calls().direct;
  if (!call_.run(*this)) return false;
  const int64_t* result_sizes = call_.result_sizes();
  for (size_t i = 0; i < spec.results.size(); ++i) {
    void* to = nullptr;
    const int64_t bytes = call_.bytes(i);
    if (!host_.result(i, result_sizes, bytes, &to)) {
      return call_.failure.set(Failure::Kind::kOutOfMemory, "no memory of the host");
    }
    result_sizes += spec.results[i].rank;
    if (!check(bytes == 0 ? kGpuSuccess
                          : place_.device->call().copy_to_host(to, call_.results()[i], bytes, place_.stream),
               "a result cannot be copied from ")) {
      return false;
    }
  }
  is_done_ = place_.device->wait(place_.stream, "at the end of the call", &call_.failure);
  return is_done_;
}

}  // namespace shlo_disc
