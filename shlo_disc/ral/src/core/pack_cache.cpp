#include "pack_cache.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>
#include <new>
#include <unordered_map>

#include "system_limits.h"

namespace shlo_disc {

struct Pack {
  uint32_t key;
  std::atomic<bool> ready{false};
  void* data;
  size_t bytes;
  Block* block;  // null: `holder` has the memory, which nobody writes to
  std::shared_ptr<const void> holder;
  Pack* next;
};

namespace {

struct Registry {
  std::mutex mutex;  // of everything below and of insertions into any owner's list
  std::shared_mutex readers;
  PackOwner* owners = nullptr;
  int64_t owner_count = 0;
  int64_t bytes = 0;
  int64_t packs = 0;
  int64_t filled = 0;
  int64_t refused = 0;
  const int64_t limit = bytes_from_environment("SHLO_DISC_PACK_BYTES", physical_memory_bytes() / 4);
  std::unordered_map<std::string, uint32_t> keys;
};

Registry& registry();

// `readers` may have been held by a thread that the child does not have.
void renew_in_child() {
  new (&registry().readers) std::shared_mutex;
  registry().mutex.unlock();
}

Registry& registry() {
  // Never destroyed: arrays may outlive static destructors.
  static Registry* const instance = [] {
    auto* const created = new Registry();
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   &renew_in_child);
    return created;
  }();
  return *instance;
}

Pack* find(Pack* pack, uint32_t key) {
  while (pack != nullptr && pack->key != key) pack = pack->next;
  return pack;
}

}  // namespace

void drop_file_pages(const void* data, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(data) + page - 1) / page * page;
  const auto last = (reinterpret_cast<uintptr_t>(data) + bytes) / page * page;
  // It may fail where pages are locked; they stay then.
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

PackOwner::PackOwner() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  next_ = all.owners;
  if (next_ != nullptr) next_->previous_ = this;
  all.owners = this;
  ++all.owner_count;
}

PackOwner::~PackOwner() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  free_packs();
  if (next_ != nullptr) next_->previous_ = previous_;
  if (previous_ != nullptr) {
    previous_->next_ = next_;
  } else {
    all.owners = next_;
  }
  --all.owner_count;
}

void* PackOwner::ready(uint32_t key) const {
  const Pack* const pack = find(head_.load(std::memory_order_acquire), key);
  const bool is_ready = pack != nullptr && pack->ready.load(std::memory_order_acquire);
  return is_ready ? pack->data : nullptr;
}

std::pair<const void*, size_t> PackOwner::made(uint32_t key) const {
  const Pack* const pack = find(head_.load(std::memory_order_acquire), key);
  if (pack == nullptr || !pack->ready.load(std::memory_order_acquire)) return {nullptr, 0};
  return {pack->data, pack->bytes};
}

void PackOwner::adopt(uint32_t key, const void* data, size_t bytes, std::shared_ptr<const void> holder) {
  auto* const pack = new Pack{};
  pack->key = key;
  pack->data = const_cast<void*>(data);
  pack->bytes = bytes;
  pack->holder = std::move(holder);
  pack->ready.store(true, std::memory_order_relaxed);
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  pack->next = head_.load(std::memory_order_relaxed);
  ++all.packs;
  head_.store(pack, std::memory_order_release);
}

int32_t PackOwner::find_or_begin(uint32_t key, int64_t bytes, void** out) {
  Pack* pack = find(head_.load(std::memory_order_acquire), key);
  if (pack == nullptr) {
    Registry& all = registry();
    std::lock_guard<std::mutex> lock(all.mutex);
    pack = find(head_.load(std::memory_order_acquire), key);
    if (pack == nullptr) {
      Block* block = nullptr;
      if (bytes >= 0 && all.bytes + bytes <= all.limit) {
        block = pool_acquire(static_cast<size_t>(bytes), Hold::kResult);
      }
      pack = block == nullptr ? nullptr : new (std::nothrow) Pack{};
      if (pack == nullptr) {
        pool_release(block);
        ++all.refused;
        return 0;
      }
      pack->key = key;
      pack->data = block->data;
      pack->bytes = static_cast<size_t>(bytes);
      pack->block = block;
      pack->next = head_.load(std::memory_order_relaxed);
      all.bytes += static_cast<int64_t>(block->size);
      ++all.packs;
      head_.store(pack, std::memory_order_release);
      *out = block->data;
      return 2;
    }
  }
  if (!pack->ready.load(std::memory_order_acquire)) return 0;  // another call is filling it
  *out = pack->data;
  return 1;
}

void PackOwner::publish(uint32_t key) {
  Pack* const pack = find(head_.load(std::memory_order_acquire), key);
  if (pack == nullptr) return;
  pack->ready.store(true, std::memory_order_release);
  drop_file_pages(in_file_, bytes_in_file_);
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  ++all.filled;
}

int64_t PackOwner::free_packs() {
  Registry& all = registry();
  int64_t freed = 0;
  Pack* pack = head_.exchange(nullptr, std::memory_order_acq_rel);
  while (pack != nullptr) {
    Pack* const next = pack->next;
    if (pack->block != nullptr) freed += static_cast<int64_t>(pack->block->size);
    pool_release(pack->block);
    --all.packs;
    delete pack;
    pack = next;
  }
  all.bytes -= freed;
  return freed;
}

uint32_t pack_key(const std::string& layout) {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  return all.keys.emplace(layout, static_cast<uint32_t>(all.keys.size())).first->second;
}

PackStats pack_stats() {
  Registry& all = registry();
  std::lock_guard<std::mutex> lock(all.mutex);
  return {all.bytes, all.packs, all.owner_count, all.limit, all.filled, all.refused};
}

int64_t pack_clear() {
  Registry& all = registry();
  std::unique_lock<std::shared_mutex> no_readers(all.readers);
  std::lock_guard<std::mutex> lock(all.mutex);
  int64_t freed = 0;
  for (PackOwner* owner = all.owners; owner != nullptr; owner = owner->next_) {
    freed += owner->free_packs();
  }
  return freed;
}

std::shared_mutex& pack_readers() { return registry().readers; }

}  // namespace shlo_disc
