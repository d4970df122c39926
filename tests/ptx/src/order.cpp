#include "order.h"

#include <algorithm>
#include <string>

#include "machine.h"

namespace ptx {

void Order::start(size_t bytes, size_t granule, int warps) {
  granule_ = granule;
  warps_ = warps;
  generation_ = 1;
  granules_.assign(bytes / granule + 1, Granule{});
  atomics_.clear();
  rows_.clear();
  for (size_t w = 0; w < kAgents; ++w) {
    seen_[w].fill(0);
    seen_[w][w] = 1;
    fenced_[w].fill(0);
  }
}

void Order::merge(Clocks& into, const Clocks& from) {
  for (size_t w = 0; w < kAgents; ++w) into[w] = std::max(into[w], from[w]);
}

void Order::all_met() {
  ++generation_;
  rows_.clear();
}

void Order::fence(int warp) {
  fenced_[size_t(warp)] = seen(warp);
  step(warp);
}

static std::string who(int warp, uint32_t lane) {
  if (warp == kCopier) return "a bulk copy";
  if (lane == Moment::kManyLanes) return "warp " + std::to_string(warp);
  return "thread " + std::to_string(warp * kLanes + int(lane));
}

inline void Order::check(Moment m, int by, const char* did, int warp, int lane,
                         Access access) const {
  if (!m || ordered(m, by, warp, lane)) return;
  constexpr const char* doing[] = {" reads", " writes", " changes atomically"};
  throw Fault("a data race in shared memory: " + who(by, m.lane()) + did + " what thread " +
              std::to_string(warp * kLanes + lane) + doing[int(access)]);
}

void Order::check(const Accesses& a, const char* did, int warp, int lane, Access access) const {
  if (a.generation != generation_) return;
  if (a.row < 0) return check(a.last, a.warp, did, warp, lane, access);
  for (int w = 0; w < warps_; ++w) check(rows_[size_t(a.row + w)], w, did, warp, lane, access);
}

inline void Order::check_all(size_t k, int warp, int lane, Access access) const {
  const Granule& g = granules_[k];
  if (g.is_away) throw Fault("shared memory is used before the copy to it has been waited for");
  check(g.write, g.write_warp, " wrote", warp, lane, access);
  if (access != Access::atomic && !atomics_.empty()) {
    check(atomics_[k], " changed atomically", warp, lane, access);
  }
  if (access == Access::read) return;
  if (g.lent) throw Fault("a write to what an asynchronous instruction may still read");
  check(g.reads, " read", warp, lane, access);
}

inline Moment Order::merged(Moment old, int warp, int lane) const {
  const Moment now(seen(warp)[size_t(warp)], uint32_t(lane));
  if (old.clock() != now.clock() || old == now) return now;
  return Moment(now.clock(), Moment::kManyLanes);
}

inline void Order::add(Accesses& a, int warp, int lane) {
  if (a.generation != generation_) a = {generation_, -1, {}, warp};
  if (a.row < 0 && a.warp == warp) {
    a.last = merged(a.last, warp, lane);
    return;
  }
  if (a.row < 0) {
    a.row = int32_t(rows_.size());
    rows_.resize(rows_.size() + size_t(warps_));
    rows_[size_t(a.row + a.warp)] = a.last;
  }
  Moment& mine = rows_[size_t(a.row + warp)];
  mine = merged(mine, warp, lane);
}

void Order::note(uint32_t offset, uint32_t bytes, int thread, Access access) {
  const int warp = thread / kLanes, lane = thread % kLanes;
  if (access == Access::atomic && atomics_.empty()) atomics_.resize(granules_.size());
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    check_all(k, warp, lane, access);
    Granule& g = granules_[k];
    if (access == Access::write) {
      g.write = {seen(warp)[size_t(warp)], uint32_t(lane)};
      g.write_warp = uint8_t(warp);
    } else {
      add(access == Access::read ? g.reads : atomics_[k], warp, lane);
    }
  }
}

void Order::depart(uint32_t offset, uint32_t bytes, int thread) {
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    check_all(k, thread / kLanes, thread % kLanes, Access::write);
    granules_[k].is_away = true;
  }
}

void Order::arrive(uint32_t offset, uint32_t bytes, int thread, bool by_copier) {
  const int warp = by_copier ? kCopier : thread / kLanes;
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    Granule& g = granules_[k];
    g.is_away = false;
    g.write = {seen(warp)[size_t(warp)], uint32_t(by_copier ? 0 : thread % kLanes)};
    g.write_warp = uint8_t(warp);
    g.reads.generation = 0;
    if (!atomics_.empty()) atomics_[k].generation = 0;
  }
}

void Order::lend(uint32_t offset, uint32_t bytes, int thread) {
  note(offset, bytes, thread, Access::read);
  const size_t warp = size_t(thread / kLanes);
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) {
    Granule& g = granules_[k];
    ++g.lent;
    if (!g.write || g.write_warp == kCopier) continue;
    const size_t by = g.write_warp;
    if (g.write.clock() > fenced_[by][by] && g.write.clock() > fenced_[warp][by]) {
      throw Fault("an asynchronous read of what " + who(g.write_warp, g.write.lane()) +
                  " wrote, without fence.proxy.async in between");
    }
  }
}

void Order::give_back(uint32_t offset, uint32_t bytes, int thread) {
  for (size_t k = offset / granule_; k * granule_ < offset + bytes; ++k) --granules_[k].lent;
  note(offset, bytes, thread, Access::read);
}

}  // namespace ptx
