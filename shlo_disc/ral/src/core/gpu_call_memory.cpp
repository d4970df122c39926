#include "gpu_call_memory.h"

#include <memory>
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

bool read_from(const GpuPlace& place, void* to, const void* from, int64_t bytes, const char* what, Failure* failure) {
  if (bytes == 0) return true;
  const GpuScope scope(*place.device);
  const int error = place.device->call().copy_to_host(to, from, static_cast<size_t>(bytes), place.stream);
  return place.device->driver().check(error, std::string(what) + " cannot be copied", failure) &&
         place.device->wait(place.stream, (std::string("when ") + what + " are read").c_str(), failure);
}

bool read_size_elements(Call& call, const GpuPlace& place) {
  const ProgramSpec& spec = call.executable.spec();
  std::vector<void*> on_host(call.arguments(), call.arguments() + spec.arguments.size());
  std::vector<std::unique_ptr<char[]>> copies;
  for (const size_t i : spec.size_arguments) {
    const ArgumentSpec& argument = spec.arguments[i];  // whose sizes are numbers
    const int64_t bytes = array_bytes(argument.dtype, static_cast<int64_t>(argument.sizes.size()), argument.sizes.data());
    copies.push_back(std::make_unique<char[]>(static_cast<size_t>(bytes)));
    on_host[i] = copies.back().get();
    if (!read_from(place, on_host[i], call.arguments()[i], bytes, "sizes", &call.failure)) return false;
  }
  call.read_size_elements(on_host.data());
  return true;
}

bool CopiedCall::run() {
  const ProgramSpec& spec = call_.executable.spec();
  const int64_t* sizes = call_.sizes();
  for (size_t i = 0; i < spec.arguments.size() && !are_there_; ++i) {
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
