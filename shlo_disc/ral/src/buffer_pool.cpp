// Size classes are powers of two and their quarters (64, 80, 96, 112, 128, ...), so at most a
// fifth of a block is unused. Idle blocks are kept in one list per class and in one list by age;
// when they exceed the limit the oldest go first.
#include "buffer_pool.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <new>

#include "system_limits.h"

namespace shlo_disc {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kPadding = 64;              // may be read beyond the end
constexpr size_t kHugePage = size_t{2} << 20;  // also where memory comes from mmap
constexpr int kMinShift = 8;                 // smallest class: 256 bytes
constexpr int kClasses = (48 - kMinShift) * 4;
constexpr int kClassesPerDoubling = 4;

// Smallest class whose blocks hold `bytes`; kClasses when none does.
int class_of(size_t bytes) {
  if (bytes <= (size_t{1} << kMinShift)) return 0;
  const int shift = 63 - __builtin_clzll(bytes - 1);  // 2^shift < bytes <= 2^(shift+1)
  const size_t quarter = size_t{1} << (shift - 2);
  const size_t base = size_t{1} << shift;
  const int step = static_cast<int>((bytes - base + quarter - 1) / quarter);  // 1..4
  return std::min((shift - kMinShift) * kClassesPerDoubling + step, kClasses);
}

size_t bytes_of(int size_class) {
  const size_t base = size_t{1} << (kMinShift + size_class / kClassesPerDoubling);
  return base + base / 4 * static_cast<size_t>(size_class % kClassesPerDoubling);
}

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
    if (bytes > std::numeric_limits<size_t>::max() / 2) return nullptr;
    const int wanted = class_of(bytes);
    if (wanted >= kClasses) return nullptr;
    const int doublings = hold == Hold::kCall ? 4 : 1;
    const int largest = std::min(wanted + doublings * kClassesPerDoubling, kClasses - 1);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (int c = next_occupied(wanted); c <= largest; c = next_occupied(c + 1)) {
        Block* const block = idle_[c];
        unlink(block);
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
      link(block);
      evicted = evict_to(limit_);
    }
    destroy_all(evicted);
  }

  int64_t trim() {
    Block* evicted = nullptr;
    int64_t freed = 0;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      freed = idle_bytes_;
      evicted = evict_to(0);
    }
    destroy_all(evicted);
    return freed;
  }

  PoolStats stats() {
    std::lock_guard<std::mutex> lock(mutex_);
    return {in_use_bytes_, in_use_blocks_, idle_bytes_, idle_blocks_, limit_, hits_, misses_};
  }

  std::mutex& mutex() { return mutex_; }

 private:
  static Block* create(int size_class) {
    auto* const block = new (std::nothrow) Block{};
    if (block == nullptr) return nullptr;
    block->size = bytes_of(size_class);
    block->size_class = size_class;
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
      Block* const next = block->below;
      if (block->mapped != 0) {
        munmap(block->data, block->mapped);
      } else {
        std::free(block->data);
      }
      delete block;
      block = next;
    }
  }

  // First class >= c with an idle block; kClasses when there is none.
  int next_occupied(int c) const {
    while (c < kClasses) {
      const uint64_t word = occupied_[c / 64] >> (c % 64);
      if (word != 0) return c + __builtin_ctzll(word);
      c = (c / 64 + 1) * 64;
    }
    return kClasses;
  }

  void count_use(const Block* block) {
    in_use_bytes_ += static_cast<int64_t>(block->size);
    ++in_use_blocks_;
  }

  void link(Block* block) {
    const int c = block->size_class;
    block->above = nullptr;
    block->below = idle_[c];
    if (block->below != nullptr) block->below->above = block;
    idle_[c] = block;
    occupied_[c / 64] |= uint64_t{1} << (c % 64);

    block->newer = nullptr;
    block->older = newest_;
    if (newest_ != nullptr) newest_->newer = block;
    newest_ = block;
    if (oldest_ == nullptr) oldest_ = block;

    idle_bytes_ += static_cast<int64_t>(block->size);
    ++idle_blocks_;
  }

  void unlink(Block* block) {
    const int c = block->size_class;
    if (block->above != nullptr) {
      block->above->below = block->below;
    } else {
      idle_[c] = block->below;
    }
    if (block->below != nullptr) block->below->above = block->above;
    if (idle_[c] == nullptr) occupied_[c / 64] &= ~(uint64_t{1} << (c % 64));

    if (block->newer != nullptr) block->newer->older = block->older;
    else newest_ = block->older;
    if (block->older != nullptr) block->older->newer = block->newer;
    else oldest_ = block->newer;

    idle_bytes_ -= static_cast<int64_t>(block->size);
    --idle_blocks_;
  }

  // Takes the oldest idle blocks out until `bytes` are left; chained by `below`. The caller frees
  // them after unlocking: munmap of a large block takes milliseconds.
  Block* evict_to(int64_t bytes) {
    Block* evicted = nullptr;
    while (idle_bytes_ > bytes && oldest_ != nullptr) {
      Block* const block = oldest_;
      unlink(block);
      block->below = evicted;
      evicted = block;
    }
    return evicted;
  }

  std::mutex mutex_;
  const int64_t limit_;
  Block* idle_[kClasses] = {};
  uint64_t occupied_[(kClasses + 63) / 64] = {};
  Block* newest_ = nullptr;
  Block* oldest_ = nullptr;
  int64_t in_use_bytes_ = 0;
  int64_t in_use_blocks_ = 0;
  int64_t idle_bytes_ = 0;
  int64_t idle_blocks_ = 0;
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
