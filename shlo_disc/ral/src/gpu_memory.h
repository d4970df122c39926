// Device memory of results, shared by the arrays over it and by the calls that read it.
#ifndef SHLO_DISC_RAL_GPU_MEMORY_H_
#define SHLO_DISC_RAL_GPU_MEMORY_H_

#include <cstdint>
#include <utility>

#include "gpu_pool.h"

namespace shlo_disc {

// One reference to a block, which goes back to its pool with the last one: then later work of its
// stream may use it again. Thread-safe as std::shared_ptr is; needs no GIL, and gives it up where a
// pool has to free memory.
class GpuMemory {
 public:
  GpuMemory() = default;
  explicit GpuMemory(ScopedGpuBlock block);
  // The memory of a result of ours that begins at an address; empty: there is none.
  static GpuMemory at(const void* data);
  ~GpuMemory() { reset(); }
  GpuMemory(GpuMemory&& other) noexcept : shared_(std::exchange(other.shared_, nullptr)) {}
  GpuMemory& operator=(GpuMemory&& other) noexcept {
    if (this != &other) {
      reset();
      shared_ = std::exchange(other.shared_, nullptr);
    }
    return *this;
  }

  explicit operator bool() const { return shared_ != nullptr; }
  void* data() const;
  // True if this is the only reference; nobody else can make another then.
  bool is_alone() const;
  void reset();

 private:
  struct Shared;

  Shared* shared_ = nullptr;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_MEMORY_H_
