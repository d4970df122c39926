// Memory for results, arenas and packed weights: aligned, recycled, bounded while idle.
#ifndef SHLO_DISC_RAL_BUFFER_POOL_H_
#define SHLO_DISC_RAL_BUFFER_POOL_H_

#include <cstddef>
#include <cstdint>

#include "idle_blocks.h"
#include "size_classes.h"

namespace shlo_disc {

// One block. `data` is 64-byte aligned, never null, and may be read up to 64 bytes beyond the
// bytes asked for (masked vector code does).
struct Block {
  void* data;
  size_t size;  // usable bytes

  // Used by the pool only.
  size_t mapped;  // bytes of address space, 0 when it came from the C heap
  IdleLinks<Block> links;
};

struct PoolStats {
  int64_t in_use_bytes;
  int64_t in_use_blocks;
  int64_t idle_bytes;
  int64_t idle_blocks;
  int64_t limit_bytes;  // of idle memory
  int64_t hits;         // requests served by a recycled block
  int64_t misses;
};

// The process-wide pool. All of it is thread-safe and needs no GIL.
Block* pool_acquire(size_t bytes, Hold hold);  // nullptr: out of memory
void pool_release(Block* block);               // nullptr is fine
int64_t pool_trim();                           // gives idle memory back to the system; bytes freed
PoolStats pool_stats();

// Owns a block for a scope.
class ScopedBlock {
 public:
  explicit ScopedBlock(Block* block = nullptr) : block_(block) {}
  ~ScopedBlock() { pool_release(block_); }
  ScopedBlock(ScopedBlock&& other) noexcept : block_(other.take()) {}
  ScopedBlock& operator=(ScopedBlock&& other) noexcept {
    if (this != &other) {
      pool_release(block_);
      block_ = other.take();
    }
    return *this;
  }
  Block* get() const { return block_; }
  void* data() const { return block_ == nullptr ? nullptr : block_->data; }
  Block* take() {
    Block* block = block_;
    block_ = nullptr;
    return block;
  }

 private:
  Block* block_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_BUFFER_POOL_H_
