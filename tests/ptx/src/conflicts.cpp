#include "conflicts.h"

#include "machine.h"

namespace ptx {

constexpr uint64_t kMost = uint64_t{1} << 28;  // larger arrays would take too much memory

bool Conflicts::conflict(const Warp& w, int lane, const Stamp& s) const {
  if (!s.block || w.block->is_informed) return false;
  if (s.block != w.block->number + 1) return true;
  return !w.block->order.ordered(s.moment, s.warp, w.number, lane);
}

void Conflicts::read(const Warp& w, int lane, size_t segment, uint64_t, uint64_t from,
                     uint64_t bytes) {
  const Stamp* stamps = written_[segment].get();
  if (!stamps) return;
  for (uint64_t k = from / granule_; k * granule_ < from + bytes; ++k) {
    if (conflict(w, lane, stamps[k])) {
      throw Fault("a data race in global memory: thread " + std::to_string(w.thread(lane)) +
                  " reads what block " + std::to_string(stamps[k].block - 1) + ", thread " +
                  std::to_string(stamps[k].warp * kLanes + int(stamps[k].moment.lane())) +
                  " wrote");
    }
  }
}

void Conflicts::write(const Warp& w, int lane, size_t segment, uint64_t bytes_of_segment,
                      uint64_t from, uint64_t bytes, const uint8_t* old, const uint8_t* value) {
  if (bytes_of_segment > kMost) return;
  auto& stamps = written_[segment];
  if (!stamps) {
    const size_t count = bytes_of_segment / granule_ + 1;
    stamps.reset(static_cast<Stamp*>(std::calloc(count, sizeof(Stamp))));
    if (!stamps) throw std::bad_alloc();
  }
  const Moment now(w.block->order.seen(w.number)[size_t(w.number)], uint32_t(lane));
  const bool is_change = std::memcmp(old, value, bytes) != 0;
  for (uint64_t k = from / granule_; k * granule_ < from + bytes; ++k) {
    Stamp& s = stamps[k];
    if (is_change && conflict(w, lane, s)) {
      throw Fault("a data race in global memory: thread " + std::to_string(w.thread(lane)) +
                  " writes what block " + std::to_string(s.block - 1) + ", thread " +
                  std::to_string(s.warp * kLanes + int(s.moment.lane())) + " wrote otherwise");
    }
    s = {uint32_t(w.block->number + 1), now, w.number};
  }
}

}  // namespace ptx
