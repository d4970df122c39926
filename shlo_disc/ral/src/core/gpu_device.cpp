#include "gpu_device.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <new>
#include <utility>

#include "system_limits.h"

namespace shlo_disc {
namespace {

constexpr size_t kSlots = 64;  // taken from the driver at once: page-locked memory is made in pages

struct Opened {
  std::mutex mutex;
  std::map<std::pair<GpuPlatform, int>, GpuDevice*> devices;
};

Opened& opened_devices() {
  static auto* const instance = new Opened;  // arrays outlive main
  return *instance;
}

std::string title_of(const GpuDriver& driver, const GpuDeviceInfo& info) {
  return info.name + " (" + gpu_platform_name(driver.platform) + ":" +
         std::to_string(info.ordinal) + ", " + info.architecture + ")";
}

bool is_set_to(const char* variable, char value) {
  const char* const text = std::getenv(variable);
  return text != nullptr && text[0] == value && text[1] == 0;
}

bool is_on(const char* variable) { return is_set_to(variable, '1'); }

// "4194304 bytes (4.00 MiB)"
std::string amount(int64_t bytes) {
  const bool is_large = bytes >= int64_t{1} << 30;
  const double unit = is_large ? 1024.0 * 1024.0 * 1024.0 : 1024.0 * 1024.0;
  char text[64];
  std::snprintf(text, sizeof(text), "%lld bytes (%.2f %s)", static_cast<long long>(bytes),
                static_cast<double>(bytes) / unit, is_large ? "GiB" : "MiB");
  return text;
}

}  // namespace

GpuDevice::GpuDevice(const GpuDriver& driver, GpuDeviceInfo info)
    : driver_(driver),
      info_(std::move(info)),
      title_(title_of(driver, info_)),
      pool_(this, bytes_from_environment("SHLO_DISC_GPU_POOL_BYTES", info_.total_bytes / 4)) {}

GpuDevice* GpuDevice::get(GpuPlatform platform, int ordinal, Failure* failure) {
  Opened& all = opened_devices();
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.devices.find({platform, ordinal});
  if (found != all.devices.end()) return found->second;
  const GpuDriver* const driver = GpuDriver::get(platform, failure);
  std::vector<GpuDeviceInfo> infos;
  if (driver == nullptr || !driver->devices(&infos, failure)) return nullptr;
  if (ordinal < 0 || static_cast<size_t>(ordinal) >= infos.size()) {
    failure->set(Failure::Kind::kDevice,
                 std::string("there is no device ") + gpu_platform_name(platform) + ":" +
                     std::to_string(ordinal) + "; devices: " + std::to_string(infos.size()));
    return nullptr;
  }
  auto* const device = new GpuDevice(*driver, std::move(infos[static_cast<size_t>(ordinal)]));
  if (!device->open(failure)) {
    delete device;
    return nullptr;
  }
  all.devices.emplace(std::pair(platform, ordinal), device);
  return device;
}

bool GpuDevice::open(Failure* failure) {
  const std::string what = title_ + " cannot be used";
  if (driver_.platform == GpuPlatform::kCuda &&
      !driver_.check(call().retain_context(&context_, info_.handle), what, failure)) {
    return false;
  }
  const GpuScope scope(*this);
  return driver_.check(call().create_stream(&stream_, kStreamNonBlocking), what, failure);
}

GpuBlock* GpuDevice::acquire(int64_t bytes, Hold hold, void* stream,
                             const std::function<bool()>& collect, const std::string& what,
                             Failure* failure) {
  int error = kGpuSuccess;
  const auto size = static_cast<size_t>(bytes);
  GpuBlock* block = pool_.acquire(size, hold, stream, &error);
  if (block == nullptr && error == kGpuOutOfMemory) {
    if (collect != nullptr) collect();
    pool_.trim();
    block = pool_.acquire(size, hold, stream, &error);
  }
  if (block != nullptr) return block;
  if (error != kGpuOutOfMemory) {
    driver_.check(error, "memory of " + title_ + " cannot be allocated", failure);
    return nullptr;
  }
  size_t free_bytes = 0, total_bytes = 0;
  const GpuScope scope(*this);
  call().memory_info(&free_bytes, &total_bytes);
  failure->set(Failure::Kind::kOutOfMemory,
               what + " takes " + amount(bytes) + " of " + title_ + ", which has " +
                   amount(static_cast<int64_t>(free_bytes)) + " free of " +
                   amount(info_.total_bytes) + "; shlo_disc holds " +
                   amount(pool_.stats().in_use_bytes) +
                   ", and JAX takes three quarters of the memory when it starts: lower that by "
                   "XLA_PYTHON_CLIENT_MEM_FRACTION=0.5 in the environment, or call with smaller "
                   "arrays");
  return nullptr;
}

bool GpuDevice::wait(void* stream, const char* when, Failure* failure) const {
  const int error = call().wait_stream(stream);
  if (error == kGpuSuccess) return true;
  return failure->set(
      Failure::Kind::kDevice,
      "work on " + title_ + " has failed, which shows " + when + ": " + driver_.describe(error) +
          "; the driver may refuse all further work of this process" +
          (gpu_waits_for_launches()
               ? ""
               : ". SHLO_DISC_GPU_SYNC=1 in the environment names the kernel"));
}

void* GpuDevice::recording_stream() {
  if (recording_stream_ == nullptr &&
      call().create_stream(&recording_stream_, kStreamNonBlocking) != kGpuSuccess) {
    recording_stream_ = nullptr;
  }
  return recording_stream_;
}

int64_t* GpuDevice::take_slot() {
  const std::lock_guard<std::mutex> lock(slots_mutex_);
  if (slots_.empty()) {
    void* page = nullptr;
    if (call().allocate_host(&page, kSlots * sizeof(int64_t), 0) != kGpuSuccess) return nullptr;
    auto* const first = static_cast<int64_t*>(page);
    slots_.reserve(slots_.capacity() + kSlots);
    for (size_t i = 0; i < kSlots; ++i) slots_.push_back(first + i);
  }
  int64_t* const slot = slots_.back();
  slots_.pop_back();
  return slot;
}

void GpuDevice::give_slot(int64_t* slot) {
  const std::lock_guard<std::mutex> lock(slots_mutex_);
  slots_.push_back(slot);  // there was room for it before
}

GpuScope::GpuScope(const GpuDevice& device) : device_(device) {
  const DriverFunctions& call = device.call();
  if (device.driver().platform == GpuPlatform::kCuda) {
    entered_ = call.push_context(device.context()) == kGpuSuccess;
    return;
  }
  entered_ = call.current_device(&before_) == kGpuSuccess && before_ != device.info().ordinal &&
             call.set_device(device.info().ordinal) == kGpuSuccess;
}

GpuScope::~GpuScope() {
  if (!entered_) return;
  const DriverFunctions& call = device_.call();
  if (device_.driver().platform == GpuPlatform::kCuda) {
    void* popped = nullptr;
    call.pop_context(&popped);
  } else {
    call.set_device(before_);
  }
}

bool gpu_waits_for_launches() {
  static const bool waits = is_on("SHLO_DISC_GPU_SYNC");
  return waits;
}

bool gpu_overlaps_launches() {
  static const bool overlaps = !is_set_to("SHLO_DISC_GPU_OVERLAP", '0');
  return overlaps;
}

bool gpu_makes_graphs() {
  static const bool makes = !is_set_to("SHLO_DISC_GPU_GRAPHS", '0');
  return makes;
}

bool gpu_memory_is_the_hosts() {
  static const bool is_the_hosts = is_on("SHLO_DISC_GPU_HOST_MEMORY");
  return is_the_hosts;
}

}  // namespace shlo_disc
