// Data races in shared memory: vector clocks of warps; of every granule the last write, and what has
// read it or changed it atomically since.
//
// An access happens before another one if the same thread made it, if a barrier lies between them,
// or if both are of one warp and its lanes have met in between. Source: PTX ISA, memory
// consistency model; FastTrack (Flanagan and Freund, 2009).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ptx {

constexpr int kWarps = 32;
constexpr int kCopier = kWarps;        // the agent of bulk copies, as a warp
constexpr int kAgents = kWarps + 1;
constexpr uint8_t kManyLanes = 255;
using Clocks = std::array<uint32_t, kAgents>;

enum class Access { read, write, atomic };

class Order {
 public:
  void start(size_t bytes, size_t granule, int warps);

  // Note an access by a thread. Throws Fault where it races with an earlier one.
  void note(uint32_t offset, uint32_t bytes, int thread, Access access);

  // A write that a copy of `warp` brings later: no access until `arrive`.
  void depart(uint32_t offset, uint32_t bytes, int thread);
  void arrive(uint32_t offset, uint32_t bytes, int thread, bool by_copier);

  // Reads of the asynchronous proxy (wgmma, bulk stores): what ordinary stores wrote must have been
  // fenced, and nothing may be written from `lend` until `give_back`.
  void lend(uint32_t offset, uint32_t bytes, int thread);
  void give_back(uint32_t offset, uint32_t bytes, int thread);
  void fence(int warp);

  void step(int warp) { ++seen_[warp][warp]; }
  const Clocks& seen(int agent) const { return seen_[agent]; }
  static void merge(Clocks& into, const Clocks& from);
  void acquire(int agent, const Clocks& from) { merge(seen_[agent], from); }
  void all_met();  // a barrier of every warp: no earlier access can race any more

  // Whether an access by a lane of `warp` at its time `clock` is ordered before those of another.
  bool ordered(uint32_t clock, int warp, uint8_t lane, int by_warp, int by_lane) const {
    if (warp != by_warp) return clock <= seen_[by_warp][warp];
    return lane == by_lane || clock < seen_[warp][warp];
  }

 private:
  struct Entry {
    uint32_t clock = 0;  // 0: none
    uint8_t lane = 0;
  };
  struct Accesses {  // the latest of every warp since all met
    uint32_t generation = 0;
    int32_t many = -1;  // of several warps: a row of `rows_`
    uint8_t warp = 0;
    Entry entry;
  };
  struct Granule {
    uint8_t write_warp = 0;
    Entry write;
    bool is_away = false;
    uint16_t lent = 0;
    Accesses reads, atomics;
  };

  void check(const Entry& e, int by, const char* did, int warp, int lane, Access access) const;
  void check(const Accesses& a, const char* did, int warp, int lane, Access access) const;
  void check_all(const Granule& g, int warp, int lane, Access access) const;
  void add(Accesses& a, int warp, int lane);
  Entry merged(Entry old, int warp, int lane) const;

  size_t granule_ = 1;
  int warps_ = 0;
  uint32_t generation_ = 1;
  std::vector<Granule> granules_;
  std::vector<std::array<Entry, kWarps>> rows_;
  std::array<Clocks, kAgents> seen_{}, fenced_{};
};

}  // namespace ptx
