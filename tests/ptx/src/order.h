// Data races in shared memory: vector clocks of warps, last writer and readers of every granule.
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

  // A read by the asynchronous proxy (wgmma): what ordinary stores wrote must have been fenced.
  void fenced_read(uint32_t offset, uint32_t bytes, int warp) const;
  void fence(int warp);

  void step(int warp) { ++seen_[warp][warp]; }
  const Clocks& seen(int agent) const { return seen_[agent]; }
  static void merge(Clocks& into, const Clocks& from);
  void acquire(int agent, const Clocks& from) { merge(seen_[agent], from); }
  void all_met();  // a barrier of every warp: no earlier access can race any more

 private:
  struct Reader {
    uint32_t clock = 0;
    uint8_t lane = 0;
  };
  struct Granule {
    uint32_t write_clock = 0;  // 0: never written
    uint8_t write_warp = 0, write_lane = 0;
    bool write_atomic = false, is_away = false;
    uint32_t generation = 0;  // of the readers
    int32_t many = -1;        // readers of several warps: a row of `shared_`
    uint8_t read_warp = 0;
    Reader reader;  // clock 0: none
  };

  bool ordered(uint32_t clock, int warp, uint8_t lane, int by_warp, int by_lane) const {
    if (warp != by_warp) return clock <= seen_[by_warp][warp];
    return lane == by_lane || clock < seen_[warp][warp];
  }
  void check_write(const Granule& g, int warp, int lane, Access access) const;
  void check_readers(const Granule& g, int warp, int lane) const;
  void add_reader(Granule& g, int warp, int lane);
  Reader merged(Reader old, int warp, int lane) const;

  size_t granule_ = 1;
  int warps_ = 0;
  uint32_t generation_ = 1;
  std::vector<Granule> granules_;
  std::vector<std::array<Reader, kWarps>> shared_;
  std::array<Clocks, kAgents> seen_{}, fenced_{};
};

}  // namespace ptx
