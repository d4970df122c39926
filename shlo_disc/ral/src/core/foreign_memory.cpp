#include "foreign_memory.h"

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace shlo_disc {
namespace {

constexpr size_t kAlignment = 256;  // of blocks of the pool

// All that handlers hold, by the address they were given.
struct Held {
  std::mutex mutex;
  std::unordered_map<void*, ScopedGpuBlock> blocks;

  static Held& instance() {
    static auto* const held = new Held;  // handlers may call during exit
    return *held;
  }
};

}  // namespace

void* allocate_for_handler(const GpuPlace& place, size_t bytes, size_t alignment,
                           Failure* failure) {
  const size_t more = alignment > kAlignment ? alignment - kAlignment : 0;
  if (bytes > static_cast<size_t>(INT64_MAX) - more) {
    failure->set(Failure::Kind::kOutOfMemory,
                 std::to_string(bytes) + " bytes of scratch memory cannot be allocated");
    return nullptr;
  }
  ScopedGpuBlock block(place.device->acquire(static_cast<int64_t>(bytes + more), Hold::kCall,
                                             place.stream, nullptr,
                                             "scratch memory of an FFI handler", failure));
  if (block.data() == nullptr) return nullptr;
  const auto first = reinterpret_cast<uintptr_t>(block.data());
  auto* const data = reinterpret_cast<void*>((first + alignment - 1) / alignment * alignment);
  Held& held = Held::instance();
  const std::lock_guard<std::mutex> lock(held.mutex);
  held.blocks.emplace(data, std::move(block));
  return data;
}

bool free_of_handler(void* data) {
  ScopedGpuBlock block;  // goes back without the lock
  Held& held = Held::instance();
  const std::lock_guard<std::mutex> lock(held.mutex);
  const auto found = held.blocks.find(data);
  if (found == held.blocks.end()) return false;
  block = std::move(found->second);
  held.blocks.erase(found);
  return true;
}

}  // namespace shlo_disc
