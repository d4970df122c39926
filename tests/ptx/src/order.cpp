#include "order.h"

#include <algorithm>

#include "machine.h"

namespace ptx {

void Order::start(size_t bytes, size_t granule, int warps) {
  granule_ = granule;
  warps_ = warps;
  generation_ = 1;
  granules_.assign(bytes / granule + 1, Granule{});
  shared_.clear();
  for (int w = 0; w < kAgents; ++w) {
    seen_[w].fill(0);
    seen_[w][w] = 1;
    fenced_[w].fill(0);
  }
}

void Order::merge(Clocks& into, const Clocks& from) {
  for (int w = 0; w < kAgents; ++w) into[w] = std::max(into[w], from[w]);
}

void Order::all_met() {
  ++generation_;
  shared_.clear();
}

void Order::fence(int warp) {
  fenced_[warp] = seen_[warp];
  step(warp);
}

static std::string who(int warp, int lane) {
  if (warp == kCopier) return "a bulk copy";
  if (lane == kManyLanes) return "warp " + std::to_string(warp);
  return "thread " + std::to_string(warp * kLanes + lane);
}

void Order::check_write(const Granule& g, int warp, int lane, Access access) const {
  if (g.is_away) throw Fault("shared memory is used before the copy to it has been waited for");
  if (!g.write_clock || (g.write_atomic && access == Access::atomic)) return;
  if (!ordered(g.write_clock, g.write_warp, g.write_lane, warp, lane)) {
    throw Fault("a data race in shared memory: " + who(g.write_warp, g.write_lane) +
                " wrote what thread " + std::to_string(warp * kLanes + lane) +
                (access == Access::read ? " reads" : " writes"));
  }
}

void Order::check_readers(const Granule& g, int warp, int lane) const {
  if (g.generation != generation_ || !g.reader.clock) return;
  const auto check = [&](const Reader& r, int by) {
    if (r.clock && !ordered(r.clock, by, r.lane, warp, lane)) {
      throw Fault("a data race in shared memory: " + who(by, r.lane) + " read what thread " +
                  std::to_string(warp * kLanes + lane) + " writes");
    }
  };
  if (g.many < 0) return check(g.reader, g.read_warp);
  for (int w = 0; w < warps_; ++w) check(shared_[g.many][w], w);
}

Order::Reader Order::merged(Reader old, int warp, int lane) const {
  const uint32_t now = seen_[warp][warp];
  if (old.clock != now || old.lane == lane) return {now, uint8_t(lane)};
  return {now, kManyLanes};
}

void Order::add_reader(Granule& g, int warp, int lane) {
  if (g.generation != generation_) {
    g.generation = generation_;
    g.many = -1;
    g.reader.clock = 0;
  }
  if (g.many >= 0) {
    Reader& mine = shared_[g.many][warp];
    mine = merged(mine, warp, lane);
  } else if (!g.reader.clock || g.read_warp == warp) {
    g.reader = merged(g.reader, warp, lane);
    g.read_warp = uint8_t(warp);
  } else {
    g.many = int32_t(shared_.size());
    auto& row = shared_.emplace_back();
    row[g.read_warp] = g.reader;
    row[warp] = merged({}, warp, lane);
  }
}

void Order::note(uint32_t offset, uint32_t bytes, int thread, Access access) {
  const int warp = thread / kLanes, lane = thread % kLanes;
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    Granule& g = granules_[k];
    check_write(g, warp, lane, access);
    if (access == Access::read) {
      add_reader(g, warp, lane);
      continue;
    }
    check_readers(g, warp, lane);
    g.write_clock = seen_[warp][warp];
    g.write_warp = uint8_t(warp);
    g.write_lane = uint8_t(lane);
    g.write_atomic = access == Access::atomic;
  }
}

void Order::depart(uint32_t offset, uint32_t bytes, int thread) {
  const int warp = thread / kLanes, lane = thread % kLanes;
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    check_write(granules_[k], warp, lane, Access::write);
    check_readers(granules_[k], warp, lane);
    granules_[k].is_away = true;
  }
}

void Order::arrive(uint32_t offset, uint32_t bytes, int thread, bool by_copier) {
  const int warp = by_copier ? kCopier : thread / kLanes;
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    Granule& g = granules_[k];
    g.is_away = false;
    g.write_clock = seen_[warp][warp];
    g.write_warp = uint8_t(warp);
    g.write_lane = by_copier ? 0 : uint8_t(thread % kLanes);
    g.write_atomic = false;
    g.generation = 0;
  }
}

void Order::fenced_read(uint32_t offset, uint32_t bytes, int warp) const {
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    const Granule& g = granules_[k];
    if (!g.write_clock || g.write_warp == kCopier) continue;
    const int by = g.write_warp;
    if (g.write_clock > fenced_[by][by] && g.write_clock > fenced_[warp][by]) {
      throw Fault("an asynchronous read of what " + who(by, g.write_lane) +
                  " wrote, without fence.proxy.async in between");
    }
  }
}

}  // namespace ptx
