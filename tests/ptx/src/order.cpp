#include "order.h"

#include <algorithm>

#include "machine.h"

namespace ptx {

void Order::start(size_t bytes, size_t granule, int warps) {
  granule_ = granule;
  warps_ = warps;
  generation_ = 1;
  granules_.assign(bytes / granule + 1, Granule{});
  rows_.clear();
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
  rows_.clear();
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

void Order::check(const Entry& e, int by, const char* did, int warp, int lane,
                  Access access) const {
  if (!e.clock || ordered(e.clock, by, e.lane, warp, lane)) return;
  constexpr const char* doing[] = {" reads", " writes", " changes atomically"};
  throw Fault("a data race in shared memory: " + who(by, e.lane) + did + " what thread " +
              std::to_string(warp * kLanes + lane) + doing[int(access)]);
}

void Order::check(const Accesses& a, const char* did, int warp, int lane, Access access) const {
  if (a.generation != generation_) return;
  if (a.many < 0) return check(a.entry, a.warp, did, warp, lane, access);
  for (int w = 0; w < warps_; ++w) check(rows_[size_t(a.many)][w], w, did, warp, lane, access);
}

void Order::check_all(const Granule& g, int warp, int lane, Access access) const {
  if (g.is_away) throw Fault("shared memory is used before the copy to it has been waited for");
  check(g.write, g.write_warp, " wrote", warp, lane, access);
  if (access != Access::atomic) check(g.atomics, " changed atomically", warp, lane, access);
  if (access == Access::read) return;
  if (g.lent) throw Fault("a write to what an asynchronous instruction may still read");
  check(g.reads, " read", warp, lane, access);
}

Order::Entry Order::merged(Entry old, int warp, int lane) const {
  const uint32_t now = seen_[warp][warp];
  if (old.clock != now || old.lane == lane) return {now, uint8_t(lane)};
  return {now, kManyLanes};
}

void Order::add(Accesses& a, int warp, int lane) {
  if (a.generation != generation_) a = {generation_, -1, uint8_t(warp), {}};
  if (a.many >= 0) {
    Entry& mine = rows_[size_t(a.many)][warp];
    mine = merged(mine, warp, lane);
  } else if (a.warp == warp) {
    a.entry = merged(a.entry, warp, lane);
  } else {
    a.many = int32_t(rows_.size());
    auto& row = rows_.emplace_back();
    row[a.warp] = a.entry;
    row[warp] = merged({}, warp, lane);
  }
}

void Order::note(uint32_t offset, uint32_t bytes, int thread, Access access) {
  const int warp = thread / kLanes, lane = thread % kLanes;
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    Granule& g = granules_[k];
    check_all(g, warp, lane, access);
    if (access == Access::write) {
      g.write = {seen_[warp][warp], uint8_t(lane)};
      g.write_warp = uint8_t(warp);
    } else {
      add(access == Access::read ? g.reads : g.atomics, warp, lane);
    }
  }
}

void Order::depart(uint32_t offset, uint32_t bytes, int thread) {
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    check_all(granules_[k], thread / kLanes, thread % kLanes, Access::write);
    granules_[k].is_away = true;
  }
}

void Order::arrive(uint32_t offset, uint32_t bytes, int thread, bool by_copier) {
  const int warp = by_copier ? kCopier : thread / kLanes;
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    Granule& g = granules_[k];
    g.is_away = false;
    g.write = {seen_[warp][warp], uint8_t(by_copier ? 0 : thread % kLanes)};
    g.write_warp = uint8_t(warp);
    g.reads.generation = g.atomics.generation = 0;
  }
}

void Order::lend(uint32_t offset, uint32_t bytes, int thread) {
  note(offset, bytes, thread, Access::read);
  const int warp = thread / kLanes;
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    Granule& g = granules_[k];
    ++g.lent;
    if (!g.write.clock || g.write_warp == kCopier) continue;
    const int by = g.write_warp;
    if (g.write.clock > fenced_[by][by] && g.write.clock > fenced_[warp][by]) {
      throw Fault("an asynchronous read of what " + who(by, g.write.lane) +
                  " wrote, without fence.proxy.async in between");
    }
  }
}

void Order::give_back(uint32_t offset, uint32_t bytes, int thread) {
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) --granules_[k].lent;
  note(offset, bytes, thread, Access::read);
}

}  // namespace ptx
