// The drivers of GPUs: libcuda and libamdhip64 behind one table of functions, found at run time.
//
// Both libraries have functions of the same shapes, so neutral code calls one table. Devices, streams,
// events, modules and functions are opaque pointers or numbers of the driver.
// Sources: cuda.h of CUDA 13.0, hip/hip_runtime_api.h of ROCm 6.
#ifndef SHLO_DISC_RAL_GPU_DRIVER_H_
#define SHLO_DISC_RAL_GPU_DRIVER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "failure.h"

namespace shlo_disc {

enum class GpuPlatform : uint8_t { kCuda, kRocm };
constexpr int kGpuPlatforms = 2;

// Results of the functions: the numbers are the same in both drivers.
constexpr int kGpuSuccess = 0;
constexpr int kGpuOutOfMemory = 2;

// One row: name, arguments, the symbol of CUDA, the symbol of HIP; null where a platform has no use
// for it. All return 0 or an error.
#define SHLO_DISC_DRIVER_FUNCTIONS(F)                                                             \
  F(init, (unsigned flags), "cuInit", "hipInit")                                                  \
  F(version, (int* version), "cuDriverGetVersion", "hipDriverGetVersion")                         \
  F(error_name, (int error, const char** name), "cuGetErrorName", "hipDrvGetErrorName")           \
  F(error_text, (int error, const char** text), "cuGetErrorString", "hipDrvGetErrorString")       \
  F(device_count, (int* count), "cuDeviceGetCount", "hipGetDeviceCount")                          \
  F(device_get, (int* device, int ordinal), "cuDeviceGet", "hipDeviceGet")                        \
  F(device_name, (char* name, int bytes, int device), "cuDeviceGetName", "hipDeviceGetName")      \
  F(device_attribute, (int* value, int attribute, int device), "cuDeviceGetAttribute", nullptr)   \
  F(device_properties, (void* properties, int device), nullptr, "hipGetDevicePropertiesR0600")    \
  F(device_memory, (size_t* bytes, int device), "cuDeviceTotalMem_v2", "hipDeviceTotalMem")       \
  F(retain_context, (void** context, int device), "cuDevicePrimaryCtxRetain", nullptr)            \
  F(push_context, (void* context), "cuCtxPushCurrent_v2", nullptr)                                \
  F(pop_context, (void** context), "cuCtxPopCurrent_v2", nullptr)                                 \
  F(current_device, (int* device), nullptr, "hipGetDevice")                                       \
  F(set_device, (int device), nullptr, "hipSetDevice")                                            \
  F(synchronize, (), "cuCtxSynchronize", "hipDeviceSynchronize")                                  \
  F(load_module, (void** module, const void* image, unsigned options, int* names, void** values), \
    "cuModuleLoadDataEx", "hipModuleLoadDataEx")                                                  \
  F(unload_module, (void* module), "cuModuleUnload", "hipModuleUnload")                           \
  F(get_function, (void** function, void* module, const char* name), "cuModuleGetFunction",       \
    "hipModuleGetFunction")                                                                       \
  F(function_attribute, (int* value, int attribute, void* function), "cuFuncGetAttribute",        \
    "hipFuncGetAttribute")                                                                        \
  F(set_function_attribute, (void* function, int attribute, int value), "cuFuncSetAttribute",     \
    nullptr)                                                                                      \
  F(launch,                                                                                       \
    (void* function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned threads_x, \
     unsigned threads_y, unsigned threads_z, unsigned shared_bytes, void* stream, void** params,  \
     void** extra),                                                                               \
    "cuLaunchKernel", "hipModuleLaunchKernel")                                                    \
  F(launch_with,                                                                                  \
    (const LaunchConfig* config, void* function, void** params, void** extra),                    \
    "cuLaunchKernelEx", nullptr)                                                                  \
  F(begin_capture, (void* stream, int mode), "cuStreamBeginCapture_v2", nullptr)                  \
  F(end_capture, (void* stream, void** graph), "cuStreamEndCapture", nullptr)                     \
  F(instantiate_graph, (void** made, void* graph, unsigned long long flags),                      \
    "cuGraphInstantiateWithFlags", nullptr)                                                       \
  F(launch_graph, (void* made, void* stream), "cuGraphLaunch", nullptr)                           \
  F(destroy_graph, (void* graph), "cuGraphDestroy", nullptr)                                      \
  F(destroy_graph_exec, (void* made), "cuGraphExecDestroy", nullptr)                              \
  F(encode_tensor_map,                                                                            \
    (void* map, int type, unsigned rank, void* address, const uint64_t* sizes,                    \
     const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave,         \
     int swizzle, int promotion, int fill),                                                       \
    "cuTensorMapEncodeTiled", nullptr)                                                            \
  F(allocate, (void** address, size_t bytes), "cuMemAlloc_v2", "hipMalloc")                       \
  F(free, (void* address), "cuMemFree_v2", "hipFree")                                             \
  F(allocate_host, (void** address, size_t bytes, unsigned flags), "cuMemHostAlloc",              \
    "hipHostMalloc")                                                                              \
  F(memory_info, (size_t* free_bytes, size_t* total_bytes), "cuMemGetInfo_v2", "hipMemGetInfo")   \
  F(copy_to_device, (void* to, const void* from, size_t bytes, void* stream),                     \
    "cuMemcpyHtoDAsync_v2", "hipMemcpyHtoDAsync")                                                 \
  F(copy_to_host, (void* to, const void* from, size_t bytes, void* stream),                       \
    "cuMemcpyDtoHAsync_v2", "hipMemcpyDtoHAsync")                                                 \
  F(copy_on_device, (void* to, const void* from, size_t bytes, void* stream),                     \
    "cuMemcpyDtoDAsync_v2", "hipMemcpyDtoDAsync")                                                 \
  F(fill8, (void* address, unsigned char value, size_t count, void* stream), "cuMemsetD8Async",   \
    "hipMemsetD8Async")                                                                           \
  F(fill16, (void* address, unsigned short value, size_t count, void* stream),                    \
    "cuMemsetD16Async", "hipMemsetD16Async")                                                      \
  F(fill32, (void* address, int value, size_t count, void* stream), "cuMemsetD32Async",           \
    "hipMemsetD32Async")                                                                          \
  F(create_stream, (void** stream, unsigned flags), "cuStreamCreate", "hipStreamCreateWithFlags") \
  F(wait_stream, (void* stream), "cuStreamSynchronize", "hipStreamSynchronize")                   \
  F(stream_wait_event, (void* stream, void* event, unsigned flags), "cuStreamWaitEvent",          \
    "hipStreamWaitEvent")                                                                         \
  F(create_event, (void** event, unsigned flags), "cuEventCreate", "hipEventCreateWithFlags")     \
  F(destroy_event, (void* event), "cuEventDestroy_v2", "hipEventDestroy")                         \
  F(record_event, (void* event, void* stream), "cuEventRecord", "hipEventRecord")                 \
  F(wait_event, (void* event), "cuEventSynchronize", "hipEventSynchronize")                       \
  F(query_event, (void* event), "cuEventQuery", "hipEventQuery")                                  \
  F(event_time, (float* milliseconds, void* from, void* to), "cuEventElapsedTime",                \
    "hipEventElapsedTime")

// CUlaunchAttribute.
struct LaunchAttribute {
  int id;
  int padding;
  int value;
  char rest[60];
};
static_assert(sizeof(LaunchAttribute) == 72, "as in cuda.h");

// CUlaunchConfig.
struct LaunchConfig {
  unsigned blocks[3];
  unsigned threads[3];
  unsigned shared_bytes;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};
static_assert(offsetof(LaunchConfig, stream) == 32 && sizeof(LaunchConfig) == 56, "as in cuda.h");

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel itself waits for the one in front.
constexpr int kMayStartEarly = 6;

struct DriverFunctions {
#define SHLO_DISC_DECLARE(name, arguments, cuda, hip) int(*name) arguments = nullptr;
  SHLO_DISC_DRIVER_FUNCTIONS(SHLO_DISC_DECLARE)
#undef SHLO_DISC_DECLARE
};

// Flags and attributes, the same in both drivers.
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kFunctionMaxThreads = 0;
constexpr int kFunctionSharedBytes = 1;
constexpr int kFunctionLocalBytes = 3;
constexpr int kFunctionRegisters = 4;
constexpr int kFunctionMaxDynamicSharedBytes = 8;

// Of encode_tensor_map: lines of 128 bytes whose pieces of 16 change places, reads of whole lines of L2.
constexpr int kTensorMapSwizzle128 = 3;
constexpr int kTensorMapPromotion256 = 3;

// What a driver tells of a device, before anything runs on it.
struct GpuDeviceInfo {
  int ordinal = 0;
  int handle = 0;            // CUdevice, hipDevice_t
  std::string name;          // "NVIDIA H200"
  std::string architecture;  // "sm_90", "gfx942"
  int multiprocessors = 0;
  int warp_size = 0;
  int64_t shared_bytes = 0;  // a block may have
  int64_t l2_bytes = 0;
  int64_t total_bytes = 0;
};

class GpuDriver {
 public:
  // Loads the library, once it has worked; null with `failure` set where it or a function is missing.
  static const GpuDriver* get(GpuPlatform platform, Failure* failure);

  const DriverFunctions call;
  const GpuPlatform platform;
  const std::string library;

  // "CUDA_ERROR_ILLEGAL_ADDRESS (an illegal memory access was encountered)"
  std::string describe(int error) const;
  // False, with `failure` set, for an error: "WHAT: CUDA_ERROR_... (...)".
  bool check(int error, const std::string& what, Failure* failure) const;

  // The devices it finds; false with `failure` set where there are none.
  bool devices(std::vector<GpuDeviceInfo>* found, Failure* failure) const;
  // "13.0", "60342"
  std::string version() const;

 private:
  GpuDriver(GpuPlatform which, std::string path, const DriverFunctions& functions)
      : call(functions), platform(which), library(std::move(path)) {}
  bool describe_device(int ordinal, GpuDeviceInfo* info, Failure* failure) const;
};

const char* gpu_platform_name(GpuPlatform platform);  // "cuda"
const char* gpu_platform_title(GpuPlatform platform);  // "CUDA"
// False for another name than "cuda" and "rocm".
bool gpu_platform_of(const std::string& name, GpuPlatform* platform);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_DRIVER_H_
