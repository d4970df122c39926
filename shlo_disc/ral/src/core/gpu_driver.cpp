#include "gpu_driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>

namespace shlo_disc {
namespace {

struct PlatformRow {
  const char* name;
  const char* title;
  const char* library;
  const char* variable;  // of the environment: another library
  const char* example;   // an architecture
};

constexpr PlatformRow kPlatforms[kGpuPlatforms] = {
    {"cuda", "CUDA", "libcuda.so.1", "SHLO_DISC_CUDA_LIBRARY", "sm_90"},
    {"rocm", "ROCm", "libamdhip64.so", "SHLO_DISC_ROCM_LIBRARY", "gfx942"},
};

const PlatformRow& row_of(GpuPlatform platform) { return kPlatforms[static_cast<int>(platform)]; }

struct FunctionRow {
  const char* symbols[kGpuPlatforms];
};

constexpr FunctionRow kFunctions[] = {
#define SHLO_DISC_ROW(name, arguments, cuda, hip) {{cuda, hip}},
    SHLO_DISC_DRIVER_FUNCTIONS(SHLO_DISC_ROW)
#undef SHLO_DISC_ROW
};
static_assert(sizeof(kFunctions) / sizeof(kFunctions[0]) * sizeof(void*) == sizeof(DriverFunctions),
              "one row per function");

// Of newer architectures only: null where the driver is older.
constexpr const char* kOptional[] = {"cuLaunchKernelEx", "cuTensorMapEncodeTiled",
                                     "cuStreamBeginCapture_v2", "cuGraphInstantiateWithFlags"};

bool is_optional(const char* symbol) {
  for (const char* const optional : kOptional) {
    if (std::strcmp(symbol, optional) == 0) return true;
  }
  return false;
}

// Attributes of CUDA's devices.
constexpr int kWarpSize = 10;
constexpr int kMultiprocessors = 16;
constexpr int kL2Bytes = 38;
constexpr int kMajor = 75;
constexpr int kMinor = 76;
constexpr int kSharedBytesOptIn = 97;

// The parts of hipDeviceProp_tR0600 that are read, at their places; HIP writes 1472 bytes.
struct HipProperties {
  char before_shared[296];
  size_t shared_bytes;
  char before_warp[4];
  int warp_size;
  char before_multiprocessors[76];
  int multiprocessors;
  char before_l2[224];
  int l2_bytes;
  char before_architecture[540];
  char architecture[256];
  char rest[1024];
};
static_assert(offsetof(HipProperties, warp_size) == 308 &&
                  offsetof(HipProperties, multiprocessors) == 388 &&
                  offsetof(HipProperties, l2_bytes) == 616 &&
                  offsetof(HipProperties, architecture) == 1160,
              "as in hip_runtime_api.h");

// What a machine without a driver still does; the end of a message.
std::string what_works(const PlatformRow& row) {
  return std::string("; programs are still compiled for a named architecture (target='") + row.name +
         ":" + row.example + "') and run on the CPU (target='cpu')";
}

// Null with `failure` set where the library cannot be used.
void* open_library(const PlatformRow& row, std::string* path, Failure* failure) {
  const char* const given = std::getenv(row.variable);
  *path = given != nullptr && *given != 0 ? given : row.library;
  void* const library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = dlerror();
    failure->set(Failure::Kind::kDevice,
                 std::string("no ") + row.title + " driver: " + *path + " cannot be loaded (" +
                     (why != nullptr ? why : "?") + ")" + what_works(row));
  }
  return library;
}

}  // namespace

const char* gpu_platform_name(GpuPlatform platform) { return row_of(platform).name; }

const char* gpu_platform_title(GpuPlatform platform) { return row_of(platform).title; }

bool gpu_platform_of(const std::string& name, GpuPlatform* platform) {
  for (int i = 0; i < kGpuPlatforms; ++i) {
    if (name != kPlatforms[i].name) continue;
    *platform = static_cast<GpuPlatform>(i);
    return true;
  }
  return false;
}

const GpuDriver* GpuDriver::get(GpuPlatform platform, Failure* failure) {
  static std::mutex mutex;
  static const GpuDriver* drivers[kGpuPlatforms] = {};  // never destroyed: arrays outlive main
  const int index = static_cast<int>(platform);
  const PlatformRow& row = row_of(platform);
  const std::lock_guard<std::mutex> lock(mutex);
  if (drivers[index] != nullptr) return drivers[index];
  std::string path;
  void* const library = open_library(row, &path, failure);
  if (library == nullptr) return nullptr;
  DriverFunctions functions;
  void* addresses[sizeof(kFunctions) / sizeof(kFunctions[0])] = {};
  size_t next = 0;
  for (const FunctionRow& function : kFunctions) {
    const char* const symbol = function.symbols[index];
    if (symbol != nullptr) {
      addresses[next] = dlsym(library, symbol);
      if (addresses[next] == nullptr && !is_optional(symbol)) {
        failure->set(Failure::Kind::kDevice,
                     std::string("the ") + row.title + " driver " + path + " has no function " +
                         symbol + ": it is too old" + what_works(row));
        return nullptr;
      }
    }
    ++next;
  }
  std::memcpy(&functions, addresses, sizeof(functions));
  auto* const driver = new GpuDriver(platform, path, functions);
  if (!driver->check(functions.init(0),
                     std::string("the ") + row.title + " driver " + path + " does not start",
                     failure)) {
    failure->message += what_works(row);
    delete driver;
    return nullptr;
  }
  return drivers[index] = driver;
}

std::string GpuDriver::describe(int error) const {
  const char *name = nullptr, *text = nullptr;
  if (call.error_name(error, &name) != kGpuSuccess || name == nullptr) {
    return std::string(gpu_platform_title(platform)) + " error " + std::to_string(error);
  }
  std::string result = name;
  if (call.error_text(error, &text) == kGpuSuccess && text != nullptr) {
    result += std::string(" (") + text + ")";
  }
  return result;
}

bool GpuDriver::check(int error, const std::string& what, Failure* failure) const {
  if (error == kGpuSuccess) return true;
  return failure->set(Failure::Kind::kDevice, what + ": " + describe(error));
}

bool GpuDriver::devices(std::vector<GpuDeviceInfo>* found, Failure* failure) const {
  const PlatformRow& row = row_of(platform);
  int count = 0;
  const int error = call.device_count(&count);
  if (error != kGpuSuccess || count == 0) {
    return failure->set(Failure::Kind::kDevice,
                        std::string("the ") + row.title + " driver " + library +
                            " finds no device" +
                            (error == kGpuSuccess ? "" : ": " + describe(error)) +
                            what_works(row));
  }
  found->resize(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    if (!describe_device(i, &(*found)[static_cast<size_t>(i)], failure)) return false;
  }
  return true;
}

bool GpuDriver::describe_device(int ordinal, GpuDeviceInfo* info, Failure* failure) const {
  info->ordinal = ordinal;
  char name[256] = {};
  size_t total = 0;
  int error = call.device_get(&info->handle, ordinal);
  if (error == kGpuSuccess) error = call.device_name(name, sizeof(name) - 1, info->handle);
  if (error == kGpuSuccess) error = call.device_memory(&total, info->handle);
  info->name = name;
  info->total_bytes = static_cast<int64_t>(total);
  if (platform == GpuPlatform::kCuda) {
    int major = 0, minor = 0, shared = 0, l2 = 0;
    const std::pair<int, int*> wanted[] = {{kMajor, &major},
                                           {kMinor, &minor},
                                           {kSharedBytesOptIn, &shared},
                                           {kL2Bytes, &l2},
                                           {kWarpSize, &info->warp_size},
                                           {kMultiprocessors, &info->multiprocessors}};
    for (const auto& [attribute, value] : wanted) {
      if (error == kGpuSuccess) error = call.device_attribute(value, attribute, info->handle);
    }
    info->architecture = "sm_" + std::to_string(major) + std::to_string(minor);
    info->shared_bytes = shared;
    info->l2_bytes = l2;
  } else {
    HipProperties properties{};
    if (error == kGpuSuccess) error = call.device_properties(&properties, info->handle);
    properties.architecture[sizeof(properties.architecture) - 1] = 0;
    info->architecture = properties.architecture;  // "gfx942:sramecc+:xnack-"
    info->architecture.resize(std::min(info->architecture.find(':'), info->architecture.size()));
    info->shared_bytes = static_cast<int64_t>(properties.shared_bytes);
    info->l2_bytes = properties.l2_bytes;
    info->warp_size = properties.warp_size;
    info->multiprocessors = properties.multiprocessors;
  }
  return check(error,
               std::string("device ") + gpu_platform_name(platform) + ":" +
                   std::to_string(ordinal) + " cannot be asked what it is",
               failure);
}

std::string GpuDriver::version() const {
  int number = 0;
  if (call.version(&number) != kGpuSuccess) return "?";
  if (platform == GpuPlatform::kRocm) return std::to_string(number);
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

}  // namespace shlo_disc
