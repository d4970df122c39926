#include "gpu_memory.h"

#include <mutex>
#include <unordered_map>

#include "gpu_device.h"
#include "py_support.h"

namespace shlo_disc {

struct GpuMemory::Shared {
  ScopedGpuBlock block;
  int64_t references = 1;  // under the lock of the table
};

namespace {

// All that are alive, by address.
template <typename Shared>
struct Table {
  std::mutex mutex;
  std::unordered_map<const void*, Shared*> living;

  static Table& instance() {
    static auto* const table = new Table;  // arrays outlive main
    return *table;
  }
};

}  // namespace

GpuMemory::GpuMemory(ScopedGpuBlock block) {
  auto& table = Table<Shared>::instance();
  auto* const shared = new Shared{std::move(block)};
  const std::lock_guard<std::mutex> lock(table.mutex);
  table.living[shared->block.data()] = shared;
  shared_ = shared;
}

GpuMemory GpuMemory::at(const void* data) {
  auto& table = Table<Shared>::instance();
  GpuMemory found;
  const std::lock_guard<std::mutex> lock(table.mutex);
  const auto entry = table.living.find(data);
  if (entry != table.living.end()) {
    ++entry->second->references;
    found.shared_ = entry->second;
  }
  return found;
}

void* GpuMemory::data() const { return shared_ == nullptr ? nullptr : shared_->block.data(); }

bool GpuMemory::is_alone() const {
  if (shared_ == nullptr) return false;
  const std::lock_guard<std::mutex> lock(Table<Shared>::instance().mutex);
  return shared_->references == 1;
}

void GpuMemory::reset() {
  Shared* const shared = std::exchange(shared_, nullptr);
  if (shared == nullptr) return;
  auto& table = Table<Shared>::instance();
  {
    const std::lock_guard<std::mutex> lock(table.mutex);
    if (--shared->references != 0) return;
    table.living.erase(shared->block.data());
  }
  GpuPool& pool = shared->block.get()->device->pool();
  const bool is_too_full = pool.release(shared->block.take());
  delete shared;
  if (!is_too_full) return;
  const WithoutGilIfHeld without_gil;  // the work that is waited for may need it
  pool.shrink();
}

}  // namespace shlo_disc
