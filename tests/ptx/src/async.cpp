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
        std::memcpy(&t.bytes[k], find(w, l, global, from + k, step, false).host, step);
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

void add_async(Table& t) {
  t["cp.async"] = copy;
  t["cp.async.commit_group"] = commit;
  t["cp.async.wait_group"] = wait;
  t["cp.async.wait_all"] = wait_all;
}

}  // namespace ptx
