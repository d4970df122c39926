// mbarrier objects. Source: PTX ISA 8.x, section 9.7.13.15.
//
// A wait suspends the lane until the phase is complete: it never gives false.
#include "memory.h"

namespace ptx {

// The offset of the object of a lane; operand k is its base, imm[0] an offset.
static uint32_t object_at(Warp& w, const Instr& in, int k, int lane, Access access) {
  const uint32_t at = shared_offset(w, w.arg(in, k)[lane] + uint64_t(in.imm[0]), 8, 8);
  w.block->order.note(at, 8, w.thread(lane), access);
  return at;
}

static PhaseBarrier& known(Warp& w, uint32_t at) {
  const auto found = w.block->phases.find(at);
  if (found == w.block->phases.end()) throw Fault("an mbarrier that nothing has initialised");
  return found->second;
}

static Flow init(Warp& w, const Instr& in, Mask m) {  // base, count
  each(m, [&](int l) {
    const uint32_t at = object_at(w, in, 0, l, Access::write);
    const uint32_t count = uint32_t(w.arg(in, 1)[l]);
    if (!count || count >= 1 << 20) throw Fault("an mbarrier of " + std::to_string(count));
    if (w.block->phases.count(at)) throw Fault("an mbarrier is initialised twice");
    PhaseBarrier& p = w.block->phases[at];
    p.count = p.pending = count;
  });
  return Flow::next;
}

static Flow invalidate(Warp& w, const Instr& in, Mask m) {  // base
  each(m, [&](int l) {
    const uint32_t at = object_at(w, in, 0, l, Access::write);
    known(w, at);
    w.block->phases.erase(at);
  });
  return Flow::next;
}

// State, base, count, bytes. imm[1]: whether it arrives, imm[2]: whether later phases lose count.
static Flow arrive(Warp& w, const Instr& in, Mask m) {
  Order& order = w.block->order;
  each(m, [&](int l) {
    PhaseBarrier& p = known(w, object_at(w, in, 1, l, Access::atomic));
    const int64_t count = in.imm[1] ? int64_t(uint32_t(w.arg(in, 2)[l])) : 0;
    p.bytes += uint32_t(w.arg(in, 3)[l]);
    Order::merge(p.clocks, order.seen(w.number));
    w.out(in, 0)[l] = p.phase;
    if (count > p.pending) throw Fault("more threads arrive at an mbarrier than it expects");
    p.pending -= count;
    if (in.imm[2]) p.count -= count;
    if (count) w.block->phase_check(p);
  });
  order.step(w.number);
  return Flow::next;
}

// Predicate, base, state or parity. imm[1]: whether it is a parity.
static Flow wait(Warp& w, const Instr& in, Mask m) {
  each(m, [&](int l) {
    PhaseBarrier& p = known(w, object_at(w, in, 1, l, Access::atomic));
    const uint32_t given = uint32_t(w.arg(in, 2)[l]);
    const bool is_complete = in.imm[1] ? (p.phase & 1) != (given & 1) : p.phase != given;
    if (is_complete) {
      w.block->order.acquire(w.number, p.released);
      w.out(in, 0)[l] = 1;
    } else {
      w.pc[l] = w.here;
      w.polling |= Mask{1} << l;
    }
  });
  const Mask stopped = w.polling & m;
  w.running &= ~stopped;
  w.parked |= stopped;
  w.polled_at = w.block->events;
  return Flow::next;
}

static Flow fence(Warp& w, const Instr&, Mask) {
  w.block->order.fence(w.number);
  return Flow::next;
}

void add_phases(Table& t) {
  t["mbarrier.init"] = init;
  t["mbarrier.inval"] = invalidate;
  t["mbarrier.arrive"] = arrive;
  t["mbarrier.wait"] = wait;
  t["fence.proxy.async"] = fence;
}

}  // namespace ptx
