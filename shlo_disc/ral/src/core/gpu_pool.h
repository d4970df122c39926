// Device memory, recycled as the host's is: by size classes, bounded while idle.
//
// Memory is ordered by streams. A block that is given back may still be read or written by work that
// its stream has been given; it is used again only by later work of the same stream.
#ifndef SHLO_DISC_RAL_GPU_POOL_H_
#define SHLO_DISC_RAL_GPU_POOL_H_

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "buffer_pool.h"
#include "idle_blocks.h"
#include "size_classes.h"

namespace shlo_disc {

class GpuDevice;

// One block. `data` is 256-byte aligned and never null.
struct GpuBlock {
  void* data;
  size_t size;  // usable bytes
  void* stream;
  GpuDevice* device;

  // Used by the pool only.
  IdleLinks<GpuBlock> links;
};

// Thread-safe; needs no GIL and no current device.
class GpuPool {
 public:
  GpuPool(GpuDevice* device, int64_t limit) : device_(device), limit_(limit) {}

  // Null with the driver's error in `error`. Tries once, frees nothing.
  GpuBlock* acquire(size_t bytes, Hold hold, void* stream, int* error);
  // Frees nothing. True: more memory is idle than may be, and `shrink` is due.
  bool release(GpuBlock* block);
  // Gives idle memory beyond the limit back to the driver, after all work of the device.
  void shrink() { free_to(limit_); }
  // Gives all idle memory back; bytes freed.
  int64_t trim() { return free_to(0); }
  PoolStats stats();

 private:
  GpuBlock* create(int size_class, void* stream, int* error);
  int64_t free_to(int64_t idle_bytes);
  void destroy_all(GpuBlock* block);
  void count_use(const GpuBlock* block);

  std::mutex mutex_;
  GpuDevice* const device_;
  const int64_t limit_;
  IdleBlocks<GpuBlock> idle_;
  int64_t in_use_bytes_ = 0;
  int64_t in_use_blocks_ = 0;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
};

void gpu_release(GpuBlock* block);  // null is fine; may wait for the device

// Owns a block for a scope.
class ScopedGpuBlock {
 public:
  explicit ScopedGpuBlock(GpuBlock* block = nullptr) : block_(block) {}
  ~ScopedGpuBlock() { gpu_release(block_); }
  ScopedGpuBlock(ScopedGpuBlock&& other) noexcept : block_(other.take()) {}
  ScopedGpuBlock& operator=(ScopedGpuBlock&& other) noexcept {
    if (this != &other) {
      gpu_release(block_);
      block_ = other.take();
    }
    return *this;
  }
  GpuBlock* get() const { return block_; }
  void* data() const { return block_ == nullptr ? nullptr : block_->data; }
  GpuBlock* take() {
    GpuBlock* const block = block_;
    block_ = nullptr;
    return block;
  }

 private:
  GpuBlock* block_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_POOL_H_
