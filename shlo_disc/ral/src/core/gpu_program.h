// The GPU side of an executable: images of machine code or PTX, and the kernels in them.
#ifndef SHLO_DISC_RAL_GPU_PROGRAM_H_
#define SHLO_DISC_RAL_GPU_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gpu_device.h"
#include "gpu_graphs.h"

namespace shlo_disc {

// An argument of a kernel that describes an array: the kernel copies boxes of it to shared memory. The
// launch is given the array's address, and the sizes among its params.
struct TensorMap {
  static constexpr size_t kBytes = 128;
  static constexpr size_t kMostRank = 5;

  size_t argument = 0;   // entry of `args`
  int type = 0;          // CUtensorMapDataType
  int element_bytes = 0;
  std::vector<uint32_t> box;    // elements, innermost dimension first
  size_t first = 0;             // the param with the elements in front of the tensor
  std::vector<size_t> sizes;    // params, by dimension
  std::vector<size_t> strides;  // params with elements from one index to the next, from dimension 1 on
};

struct GpuKernel {
  std::string symbol;
  size_t image = 0;
  int64_t threads = 0;           // of a block, along x
  int64_t tasks_per_block = 0;   // tasks, not threads
  int64_t shared_bytes = 0;      // dynamic shared memory of a block
  int64_t args = 0;              // entries of `args` of a launch
  std::vector<size_t> by_value;  // those passed by value
  int64_t params = 0;            // entries of `params` of a launch
  std::vector<TensorMap> maps;
  std::string name;              // for messages
  std::string source;            // its line in the program, for messages
};

// What no kernel of a program with so many images may be; empty: there is nothing.
std::string gpu_kernel_mistake(const GpuKernel& kernel, size_t images);
// Sets the type of elements of a map by its name: "bf16". False: no tensor map has it.
bool set_map_element(const std::string& name, TensorMap* map);

struct GpuProgram {
  GpuPlatform platform = GpuPlatform::kCuda;
  std::string architecture;         // "sm_90a", "gfx942"
  std::vector<std::string> images;  // PTX, cubins, code objects
  std::vector<std::string> machine_code;  // of each image: a cubin, or empty
  std::vector<GpuKernel> kernels;
};

// A kernel on a device; what `kernels` of disc_context points to.
struct LoadedKernel {
  const GpuKernel* kernel;
  void* function;
  std::vector<bool> by_value;  // by entry of `args`
  bool may_start_early = false;  // it waits by itself for the kernel in front
};

struct KernelAttributes {
  int registers = 0;
  int local_bytes = 0;
  int shared_bytes = 0;  // static
  int max_threads = 0;
};

// A program on one device. Kernels and constants stay where they are until it dies.
class LoadedProgram {
 public:
  // Null with `failure` set. `constants`: data and bytes of each.
  static std::unique_ptr<LoadedProgram> load(
      const GpuProgram& program, GpuDevice& device,
      const std::vector<std::pair<const void*, size_t>>& constants, Failure* failure);
  ~LoadedProgram();
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  void* const* kernels() const { return kernel_pointers_.data(); }
  const void* const* constants() const { return constants_.data(); }
  GpuGraphs& graphs() const { return *graphs_; }
  bool attributes(size_t kernel, KernelAttributes* out, Failure* failure) const;

 private:
  explicit LoadedProgram(GpuDevice& device)
      : device_(device), graphs_(std::make_unique<GpuGraphs>(device)) {}
  bool load_modules(const GpuProgram& program, Failure* failure);
  bool load_module(const GpuProgram& program, size_t image, Failure* failure);
  bool find_kernels(const GpuProgram& program, Failure* failure);
  bool upload(const std::vector<std::pair<const void*, size_t>>& constants, Failure* failure);

  GpuDevice& device_;
  std::unique_ptr<GpuGraphs> graphs_;
  std::vector<void*> modules_;  // by image; null: not loaded
  std::vector<LoadedKernel> kernels_;
  std::vector<void*> kernel_pointers_;
  ScopedGpuBlock constant_block_;
  std::vector<const void*> constants_;
};

// A program on the devices it was called on. Thread-safe; a device's first caller loads, others wait.
class LoadedPrograms {
 public:
  explicit LoadedPrograms(const GpuProgram& program) : program_(program) {}

  const LoadedProgram* on(GpuDevice& device,
                          const std::vector<std::pair<const void*, size_t>>& constants,
                          Failure* failure);

 private:
  const GpuProgram& program_;
  std::mutex mutex_;
  std::map<GpuDevice*, std::unique_ptr<LoadedProgram>> loaded_;
};

// Whether kernels for `architecture` run on `device`: as they are, or, PTX (`is_text`), compiled by the
// driver. False with `failure` set.
bool gpu_architecture_fits(GpuPlatform platform, const std::string& architecture, bool is_text,
                           const GpuDevice& device, Failure* failure);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_PROGRAM_H_
