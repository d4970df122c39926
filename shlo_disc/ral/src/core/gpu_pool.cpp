#include "gpu_pool.h"

#include <new>

#include "gpu_device.h"

namespace shlo_disc {

GpuBlock* GpuPool::acquire(size_t bytes, Hold hold, void* stream, int* error) {
  const int wanted = class_of(bytes);
  if (wanted >= kClasses) {
    *error = kGpuOutOfMemory;
    return nullptr;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto of_stream = [stream](const GpuBlock& block) { return block.stream == stream; };
    if (GpuBlock* const block = idle_.take(wanted, largest_class(wanted, hold), of_stream)) {
      ++hits_;
      count_use(block);
      return block;
    }
    ++misses_;
  }
  GpuBlock* const block = create(wanted, stream, error);
  if (block == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  count_use(block);
  return block;
}

bool GpuPool::release(GpuBlock* block) {
  const std::lock_guard<std::mutex> lock(mutex_);
  in_use_bytes_ -= static_cast<int64_t>(block->size);
  --in_use_blocks_;
  idle_.link(block);
  return idle_.bytes() > limit_;
}

int64_t GpuPool::free_to(int64_t idle_bytes) {
  GpuBlock* evicted = nullptr;
  int64_t freed = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    freed = idle_.bytes();
    evicted = idle_.evict_to(idle_bytes);
    freed -= idle_.bytes();
  }
  destroy_all(evicted);
  return freed;
}

PoolStats GpuPool::stats() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {in_use_bytes_, in_use_blocks_, idle_.bytes(), idle_.count(), limit_, hits_, misses_};
}

GpuBlock* GpuPool::create(int size_class, void* stream, int* error) {
  auto* const block = new (std::nothrow) GpuBlock{};
  if (block == nullptr) {
    *error = kGpuOutOfMemory;
    return nullptr;
  }
  block->size = bytes_of(size_class);
  block->links.size_class = size_class;
  block->stream = stream;
  block->device = device_;
  const GpuScope scope(*device_);
  *error = device_->call().allocate(&block->data, block->size);
  if (*error == kGpuSuccess) return block;
  delete block;
  return nullptr;
}

// Work of the streams may still use the blocks.
void GpuPool::destroy_all(GpuBlock* block) {
  if (block == nullptr) return;
  const GpuScope scope(*device_);
  device_->call().synchronize();
  while (block != nullptr) {
    GpuBlock* const next = block->links.below;
    device_->call().free(block->data);
    delete block;
    block = next;
  }
}

void GpuPool::count_use(const GpuBlock* block) {
  in_use_bytes_ += static_cast<int64_t>(block->size);
  ++in_use_blocks_;
}

void gpu_release(GpuBlock* block) {
  if (block != nullptr && block->device->pool().release(block)) block->device->pool().shrink();
}

}  // namespace shlo_disc
