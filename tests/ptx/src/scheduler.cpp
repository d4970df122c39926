// Which lanes run next. Within a warp the lowest instruction first, so that lanes that diverged
// meet again where their paths join; a warp runs until it waits, warps in an order drawn at random.
#include <algorithm>
#include <bit>
#include <numeric>

#include "machine.h"

namespace ptx {

constexpr uint64_t kSlice = 1 << 16;

// The lanes of `mask` that may run `in` now; the others wait for the rest of their warp.
Mask Warp::gathered(const Instr& in, Mask& mask) {
  Mask joined = 0;
  each(syncing, [&](int l) { joined |= Mask(pc[l] == here) << l; });
  syncing &= ~joined;
  running |= joined;
  mask |= joined;
  Mask chosen = mask;
  if (in.guard >= 0) {
    const Slot* p = &registers[size_t(in.guard >> 1) * kLanes];
    each(mask, [&](int l) { chosen &= ~(Mask((p[l] & 1) == (in.guard & 1)) << l); });
  }
  Mask ready = 0;
  if (in.together == Together::aligned) {
    ready = (live() & ~chosen) == 0 ? chosen : 0;
  } else {
    const Slot* names = arg(in, int(in.imm[3]));
    each(chosen, [&](int l) {
      const Mask named = Mask(names[l]);
      if (!(named >> l & 1)) throw Fault("a lane is not in its own mask of lanes");
      if ((named & live() & ~chosen) == 0) ready |= Mask{1} << l;
    });
  }
  const Mask rest = chosen & ~ready;
  each(rest, [&](int l) { pc[l] = here; });
  syncing |= rest;
  running &= ~rest;
  mask &= ~rest;
  return ready;
}

void Warp::run(uint64_t slice) {
  const std::vector<Instr>& code = block->program.code;
  Launch& launch = block->launch;
  const uint64_t stop = launch.steps + slice;
  while (running && launch.steps < stop) {
    uint32_t at = kNowhere, next = kNowhere;
    each(running, [&](int l) {
      const uint32_t p = pc[l];
      if (p < at) {
        next = at;
        at = p;
      } else if (p > at && p < next) {
        next = p;
      }
    });
    Mask mask = 0;
    each(running, [&](int l) { mask |= Mask(pc[l] == at) << l; });
    while (mask && at < next && launch.steps < stop) {
      const Instr& in = code[at];
      here = at;
      ++launch.steps;
      Mask m = mask;
      if (in.together != Together::none) {
        m = gathered(in, mask);
      } else if (in.guard >= 0) {
        const Slot* p = &registers[size_t(in.guard >> 1) * kLanes];
        const Slot off = in.guard & 1;
        each(mask, [&](int l) { m &= ~(Mask((p[l] & 1) == off) << l); });
      }
      ++at;
      if (!m) continue;
      switch (in.run(*this, in, m)) {
        case Flow::next:
          break;
        case Flow::jump: {
          const uint32_t to = uint32_t(in.imm[0]);
          if (m == mask && next == kNowhere) {
            at = to;
            break;
          }
          each(m, [&](int l) { pc[l] = to; });
          each(mask & ~m, [&](int l) { pc[l] = at; });
          mask = 0;
          break;
        }
        case Flow::set:
          each(mask & ~m, [&](int l) { pc[l] = at; });
          mask = 0;
          break;
        case Flow::exit:
          running &= ~m;
          exited |= m;
          mask &= ~m;
          running |= syncing;  // they may have waited for these
          each(syncing, [&](int l) { next = std::min(next, pc[l]); });
          syncing = 0;
          block->live -= uint32_t(std::popcount(m));
          for (auto& [number, barrier] : block->barriers) block->barrier_check(number);
          ++block->events;
          if (next < at) {
            each(mask, [&](int l) { pc[l] = at; });
            mask = 0;
          }
          break;
      }
      mask &= ~parked;
      parked = 0;
    }
    each(mask, [&](int l) { pc[l] = at; });
  }
  if (launch.steps - block->first_step > launch.limit) throw Fault("the block does not end");
}

Block::Block(Launch& launch, const Program& program, Conflicts& conflicts)
    : launch(launch),
      program(program),
      conflicts(conflicts),
      threads(launch.block[0] * launch.block[1] * launch.block[2]),
      random(launch.seed) {
  for (uint64_t k = 0; k < launch.local_count; ++k) {
    local_bytes = std::max(local_bytes, launch.local[k].begin + launch.local[k].bytes);
  }
  local_bytes = (local_bytes + 15) / 16 * 16;
  warps.resize((threads + kLanes - 1) / kLanes);
  for (size_t w = 0; w < warps.size(); ++w) {
    warps[w].block = this;
    warps[w].number = int(w);
    warps[w].registers.assign(size_t(program.registers) * kLanes,
                              launch.fill * 0x0101010101010101u);
  }
}

void Block::run(uint64_t which) {
  number = which;
  id[0] = uint32_t(which % launch.grid[0]);
  id[1] = uint32_t(which / launch.grid[0] % launch.grid[1]);
  id[2] = uint32_t(which / launch.grid[0] / launch.grid[1]);
  is_informed = false;
  first_step = launch.steps;
  live = threads;
  uint64_t bytes = 0;
  for (uint64_t k = 0; k < launch.shared_count; ++k) {
    bytes = std::max(bytes, launch.shared[k].begin + launch.shared[k].bytes);
  }
  shared_memory.assign(bytes, uint8_t(launch.fill));
  local_memory.assign(local_bytes * threads, uint8_t(launch.fill));
  barriers.clear();
  phases.clear();
  bulk.clear();
  order.start(bytes, launch.granule, int(warps.size()));
  for (Warp& w : warps) {
    const int lanes = std::min<int>(kLanes, int(threads) - w.number * kLanes);
    w.running = lanes == kLanes ? ~Mask{0} : (Mask{1} << lanes) - 1;
    w.exited = ~w.running;
    w.syncing = w.barred = w.polling = w.parked = 0;
    std::fill(w.pc, w.pc + kLanes, 0);
    for (int l = 0; l < kLanes; ++l) {
      w.groups[l].clear();
      w.open[l].clear();
      w.stores[l].clear();
      w.open_stores[l].clear();
    }
    w.reads.clear();
    w.open_reads.clear();
    w.is_fenced = false;
  }
  std::vector<int> turn(warps.size());
  std::iota(turn.begin(), turn.end(), 0);
  while (live) {
    for (size_t k = turn.size(); k > 1; --k) std::swap(turn[k - 1], turn[draw() % k]);
    bool moved = false;
    for (const int w : turn) {
      Warp& warp = warps[w];
      if (warp.polling && warp.polled_at != events) {
        warp.running |= warp.polling;
        warp.polling = 0;
      }
      if (!warp.running) continue;
      moved = true;
      launch.at = w;  // of a fault: see launch()
      warp.run(kSlice);
    }
    if (moved || !live || land_one()) continue;
    for (const Warp& warp : warps) {
      if (const Mask stuck = warp.syncing | warp.barred | warp.polling) {
        launch.at = warp.number;
        const int l = std::countr_zero(stuck);
        const_cast<Warp&>(warp).here = warp.barred >> l & 1 ? warp.pc[l] - 1 : warp.pc[l];
        throw Fault("thread " + std::to_string(warp.thread(l)) +
                    " waits for threads or bytes that never come");
      }
    }
    throw std::logic_error("threads that neither run nor wait");
  }
}

// Whether a bulk copy on its way could be brought: the last moment, for no lane can run.
bool Block::land_one() {
  if (bulk.empty()) return false;
  const size_t k = draw() % bulk.size();
  const BulkLoad copy = std::move(bulk[k]);
  bulk.erase(bulk.begin() + long(k));
  order.step(kCopier);
  for (const Transfer& part : copy.parts) {
    std::memcpy(&shared_memory[part.offset], part.bytes.data(), part.bytes.size());
    order.arrive(part.offset, uint32_t(part.bytes.size()), 0, true);
  }
  PhaseBarrier& phase = phases[copy.barrier];
  Order::merge(phase.clocks, order.seen(kCopier));
  phase.bytes -= copy.bytes;
  phase.pending -= copy.arrivals;
  phase_check(phase);
  ++events;
  return true;
}

void Block::phase_check(PhaseBarrier& phase) {
  if (!phase.done()) return;
  ++phase.phase;
  phase.pending = phase.count;
  phase.released = phase.clocks;
  ++events;
}

void Block::barrier_check(uint32_t number) {
  Barrier& b = barriers[number];
  if (!b.arrived || b.arrived < (b.expected ? b.expected : live)) return;
  Clocks all{};
  for (auto& [w, lanes] : b.joined) Order::merge(all, order.seen(w));
  bool is_whole = true;
  for (const Warp& w : warps) is_whole &= !w.live() || b.joined[w.number] == w.live();
  for (auto& [w, lanes] : b.waiting) {
    order.acquire(w, all);
    warps[w].barred &= ~lanes;
    warps[w].running |= lanes;
  }
  for (const auto& [to, how] : b.results) {
    *to = how == 0 ? b.ayes : how == 1 ? b.ayes == b.arrived : b.ayes != 0;
  }
  for (auto& [w, lanes] : b.joined) order.step(w);
  if (is_whole) order.all_met();
  b = Barrier{};
  ++events;
}

// ------------------------------------------------------------------ instructions of control

static Flow branch(Warp&, const Instr&, Mask) { return Flow::jump; }
static Flow leave(Warp&, const Instr&, Mask) { return Flow::exit; }
static Flow nothing(Warp&, const Instr&, Mask) { return Flow::next; }
static Flow trap(Warp&, const Instr&, Mask) { throw Fault("a trap"); }

static Flow branch_indexed(Warp& w, const Instr& in, Mask m) {  // index, targets as constants
  const Slot* index = w.arg(in, 0);
  each(m, [&](int l) {
    const uint32_t k = uint32_t(index[l]);
    if (k + 1 >= uint32_t(in.count)) throw Fault("brx.idx with an index behind its list");
    w.pc[l] = uint32_t(w.arg(in, int(k) + 1)[l]);
  });
  return Flow::set;
}

static Flow warp_barrier(Warp& w, const Instr&, Mask) {
  w.block->order.step(w.number);
  return Flow::next;
}

// Operands: number; threads if imm[0]; predicate and result if imm[2]. imm[1]: whether the lanes
// wait. imm[3]: the result is the count of true predicates (0), whether all (1) or any (2) are.
static Flow barrier(Warp& w, const Instr& in, Mask m) {
  const uint32_t number = uint32_t(w.arg(in, 0)[std::countr_zero(m)]);
  if (number > 15) throw Fault("a barrier's number is above 15");
  Barrier& b = w.block->barriers[number];
  each(m, [&](int l) {
    if (uint32_t(w.arg(in, 0)[l]) != number) throw Unknown("lanes at several barriers");
    if (in.imm[0]) {
      const uint32_t expected = uint32_t(w.arg(in, 1)[l]);
      if (expected == 0 || expected % kLanes) {
        throw Fault("a barrier for threads that are no whole warps");
      }
      if (b.arrived && b.expected != expected) throw Fault("a barrier with several counts");
      b.expected = expected;
    } else if (b.arrived && b.expected) {
      throw Fault("a barrier with and without a count");
    }
    ++b.arrived;
    if (in.imm[2]) {
      b.ayes += uint32_t(w.arg(in, in.count - 2)[l] & 1);
      b.results.emplace_back(&w.out(in, in.count - 1)[l], in.imm[3]);
    }
  });
  b.joined[w.number] |= m;
  if (in.imm[1]) {
    each(m, [&](int l) { w.pc[l] = w.here + 1; });
    b.waiting[w.number] |= m;
    w.barred |= m;
    w.running &= ~m;
    w.parked |= m;
  }
  w.block->barrier_check(number);  // it may let the lanes go on at once
  return Flow::next;
}

void add_control(Table& t) {
  t["bra"] = branch;
  t["brx.idx"] = branch_indexed;
  t["ret"] = t["exit"] = leave;
  t["nop"] = nothing;
  t["trap"] = trap;
  t["bar"] = barrier;
  t["bar.warp.sync"] = warp_barrier;
}

}  // namespace ptx
