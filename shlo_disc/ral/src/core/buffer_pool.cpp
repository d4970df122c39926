// Idle blocks are kept by size class and by age; when they exceed the limit the oldest go first.
#include "buffer_pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cstdlib>
#include <mutex>
#include <new>

#include "system_limits.h"

namespace shlo_disc {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPadding = 64;              // may be read beyond the end
constexpr size_t kHugePage = size_t{2} << 20;  // also where memory comes from mmap

size_t round_up(size_t value, size_t to) { return (value + to - 1) / to * to; }

// Address space aligned to a huge page, so that the kernel can use huge pages from the first
// byte on: a 32 MB result costs 16 page faults instead of 8192.
void* map_huge(size_t bytes) {
  const size_t reserve = bytes + kHugePage;
  void* const raw =
      mmap(nullptr, reserve, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = round_up(start, kHugePage);
  if (aligned > start) munmap(raw, aligned - start);
  const uintptr_t end = aligned + bytes;
  if (start + reserve > end) munmap(reinterpret_cast<void*>(end), start + reserve - end);
  void* const data = reinterpret_cast<void*>(aligned);
  madvise(data, bytes, MADV_HUGEPAGE);  // a hint: without huge pages all still works
  return data;
}

class BufferPool {
 public:
  BufferPool()
      : limit_(bytes_from_environment("SHLO_DISC_POOL_BYTES", physical_memory_bytes() / 4)) {}

  Block* acquire(size_t bytes, Hold hold) {
    const int wanted = class_of(bytes);
    if (wanted >= kClasses) return nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      const auto any = [](const Block&) { return true; };
      if (Block* const block = idle_.take(wanted, largest_class(wanted, hold), any)) {
        ++hits_;
        count_use(block);
        return block;
      }
      ++misses_;
    }
    Block* const block = create(wanted);
    if (block == nullptr) return nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    count_use(block);
    return block;
  }

  void release(Block* block) {
    Block* evicted = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      in_use_bytes_ -= static_cast<int64_t>(block->size);
      --in_use_blocks_;
      idle_.link(block);
      evicted = idle_.evict_to(limit_);
    }
    destroy_all(evicted);
  }

  int64_t trim() {
    Block* evicted = nullptr;
    int64_t freed = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      freed = idle_.bytes();
      evicted = idle_.evict_to(0);
    }
    destroy_all(evicted);
    return freed;
  }

  PoolStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {in_use_bytes_, in_use_blocks_, idle_.bytes(), idle_.count(), limit_, hits_, misses_};
  }

  std::mutex& mutex() { return mutex_; }

 private:
  static Block* create(int size_class) {
    auto* const block = new (std::nothrow) Block{};
    if (block == nullptr) return nullptr;
    block->size = bytes_of(size_class);
    block->links.size_class = size_class;
    if (block->size >= kHugePage) {
      block->mapped = round_up(block->size + kPadding, kHugePage);
      block->data = map_huge(block->mapped);
    } else {
      block->data = std::aligned_alloc(kAlignment, round_up(block->size + kPadding, kAlignment));
    }
    if (block->data != nullptr) return block;
    delete block;
    return nullptr;
  }

  static void destroy_all(Block* block) {
    while (block != nullptr) {
      Block* const next = block->links.below;
      if (block->mapped != 0) {
        munmap(block->data, block->mapped);
      } else {
        std::free(block->data);
      }
      delete block;
      block = next;
    }
  }

  void count_use(const Block* block) {
    in_use_bytes_ += static_cast<int64_t>(block->size);
    ++in_use_blocks_;
  }

  std::mutex mutex_;
  const int64_t limit_;
  IdleBlocks<Block> idle_;
  int64_t in_use_bytes_ = 0;
  int64_t in_use_blocks_ = 0;
  int64_t hits_ = 0;
  int64_t misses_ = 0;
};

BufferPool& pool() {
  // Never destroyed: arrays may outlive static destructors. Locked across fork, so that the child
  // gets consistent lists.
  static BufferPool* const instance = [] {
    auto* const created = new BufferPool();
    pthread_atfork([] { pool().mutex().lock(); }, [] { pool().mutex().unlock(); },
                   [] { pool().mutex().unlock(); });
    return created;
  }();
  return *instance;
}

}  // namespace

Block* pool_acquire(size_t bytes, Hold hold) { return pool().acquire(bytes, hold); }

void pool_release(Block* block) {
  if (block != nullptr) pool().release(block);
}

int64_t pool_trim() { return pool().trim(); }

PoolStats pool_stats() { return pool().stats(); }

}  // namespace shlo_disc
