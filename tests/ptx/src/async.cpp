// cp.async: what a thread copies arrives when it waits. Source: PTX ISA 8.x, section 9.7.9.25.3.
#include <algorithm>

#include "lanes.h"
#include "memory.h"

namespace ptx {

// Operands: destination, source, bytes of the source (the rest are zeros). imm: offsets, bytes.
static Flow copy(Warp& w, const Instr& in, Mask m) {
  const uint64_t bytes = uint64_t(in.imm[2]);
  each(m, [&](int l) {
    const uint32_t to = shared_offset(w, w.arg(in, 0)[l] + uint64_t(in.imm[0]), bytes, bytes);
    const uint64_t given = uint32_t(w.arg(in, 2)[l]);
    if (given > bytes) throw Fault("cp.async of more bytes than it writes");
    Transfer t{to, std::vector<uint8_t>(bytes)};
    if (given) {
      const uint64_t from = w.arg(in, 1)[l] + uint64_t(in.imm[1]);
      if (from % bytes) throw Fault("cp.async from an address that is not aligned");
      if (base_of(shared) <= from) throw Fault("cp.async from memory that is not global");
      const uint64_t step = given == bytes ? bytes : 1;
      for (uint64_t k = 0; k < given; k += step) {
        const Place place = find(w, l, global, from + k, step, false);
        note_read(w, l, place, step, false);
        std::memcpy(&t.bytes[k], place.host, step);
      }
    }
    w.block->order.depart(to, uint32_t(bytes), w.thread(l));
    w.open[l].push_back(std::move(t));
  });
  return Flow::next;
}

static void land(Warp& w, int lane, const std::vector<Transfer>& group) {
  for (const Transfer& t : group) {
    std::memcpy(&w.block->shared_memory[t.offset], t.bytes.data(), t.bytes.size());
    w.block->order.arrive(t.offset, uint32_t(t.bytes.size()), w.thread(lane), false);
  }
}

static Flow commit(Warp& w, const Instr&, Mask m) {
  each(m, [&](int l) {
    w.groups[l].push_back(std::move(w.open[l]));
    w.open[l].clear();
  });
  return Flow::next;
}

// At most imm[0] groups may be on their way behind it.
static Flow wait(Warp& w, const Instr& in, Mask m) {
  each(m, [&](int l) {
    auto& groups = w.groups[l];
    const size_t count = groups.size() - std::min(groups.size(), size_t(in.imm[0]));
    for (size_t k = 0; k < count; ++k) land(w, l, groups[k]);
    groups.erase(groups.begin(), groups.begin() + long(count));
  });
  return Flow::next;
}

static Flow wait_all(Warp& w, const Instr& in, Mask m) {
  commit(w, in, m);
  Instr all = in;
  all.imm[0] = 0;
  return wait(w, all, m);
}

// The end of all copies of a lane so far is an arrival at an mbarrier: base. imm: offset, whether
// that arrival was expected from the start.
static Flow arrive(Warp& w, const Instr& in, Mask m) {
  Block& b = *w.block;
  each(m, [&](int l) {
    const uint32_t at = shared_offset(w, w.arg(in, 0)[l] + uint64_t(in.imm[0]), 8, 8);
    b.order.note(at, 8, w.thread(l), Access::atomic);
    const auto found = b.phases.find(at);
    if (found == b.phases.end()) throw Fault("an mbarrier that nothing has initialised");
    BulkLoad load{at, std::move(w.open[l]), 0, 1};
    w.open[l].clear();
    for (auto& group : w.groups[l]) {
      load.parts.insert(load.parts.end(), group.begin(), group.end());
      group.clear();  // a later wait for it has nothing to bring
    }
    if (!in.imm[1]) ++found->second.pending;
    Order::merge(found->second.clocks, b.order.seen(w.number));
    b.bulk.push_back(std::move(load));
  });
  b.order.step(w.number);
  return Flow::next;
}

void add_async(Table& t) {
  t["cp.async.mbarrier.arrive"] = arrive;
  t["cp.async"] = copy;
  t["cp.async.commit_group"] = commit;
  t["cp.async.wait_group"] = wait;
  t["cp.async.wait_all"] = wait_all;
}

}  // namespace ptx
