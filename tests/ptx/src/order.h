// Data races in shared memory: vector clocks of warps; of every granule the last write, and what has
// read it or changed it atomically since all warps met.
//
// An access happens before another one if the same thread made it, if a barrier lies between them,
// or if both are of one warp and its lanes have met in between. Source: PTX ISA, memory
// consistency model; FastTrack (Flanagan and Freund, 2009).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ptx {

constexpr int kWarps = 32;
constexpr int kCopier = kWarps;  // the agent of bulk copies, as a warp
constexpr int kAgents = kWarps + 1;
using Clocks = std::array<uint32_t, kAgents>;

enum class Access { read, write, atomic };

// A lane of a warp at a time: the warp's clock and the lane. 0: never.
class Moment {
 public:
  static constexpr uint32_t kManyLanes = 63;
  Moment() = default;
  Moment(uint32_t clock, uint32_t lane) : bits_(clock << 6 | lane) {}
  uint32_t clock() const { return bits_ >> 6; }
  uint32_t lane() const { return bits_ & 63; }
  explicit operator bool() const { return bits_; }
  bool operator==(const Moment&) const = default;

 private:
  uint32_t bits_ = 0;
};

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

  void step(int warp) { ++seen_[size_t(warp)][size_t(warp)]; }
  const Clocks& seen(int agent) const { return seen_[size_t(agent)]; }
  static void merge(Clocks& into, const Clocks& from);
  void acquire(int agent, const Clocks& from) { merge(seen_[size_t(agent)], from); }
  void all_met();  // a barrier of every warp: no earlier access can race any more

  // Whether an access of `warp` at a moment is ordered before those of another lane now.
  bool ordered(Moment m, int warp, int by_warp, int by_lane) const {
    const uint32_t seen = seen_[size_t(by_warp)][size_t(warp)];
    if (warp != by_warp) return m.clock() <= seen;
    return m.clock() < seen || m.lane() == uint32_t(by_lane);
  }

 private:
  struct Accesses {  // the latest of every warp since all met
    uint32_t generation = 0;
    int32_t row = -1;  // of several warps: where their moments are in `rows_`
    Moment last;       // of one warp
    int32_t warp = 0;
  };
  struct Granule {
    Moment write;
    uint8_t write_warp = 0;
    bool is_away = false;
    uint16_t lent = 0;
    Accesses reads;
  };

  void check(Moment m, int by, const char* did, int warp, int lane, Access access) const;
  void check(const Accesses& a, const char* did, int warp, int lane, Access access) const;
  void check_all(size_t k, int warp, int lane, Access access) const;
  void add(Accesses& a, int warp, int lane);
  Moment merged(Moment old, int warp, int lane) const;

  size_t granule_ = 1;
  int warps_ = 0;
  uint32_t generation_ = 1;
  std::vector<Granule> granules_;
  std::vector<Accesses> atomics_;  // of every granule, once one was changed atomically
  std::vector<Moment> rows_;
  std::array<Clocks, kAgents> seen_{}, fenced_{};
};

}  // namespace ptx
