// Special registers, and what the lanes of a warp do together. Source: PTX ISA 8.x, 9.7.13, 10.
#include <algorithm>

#include "lanes.h"

namespace ptx {

static Flow special(Warp& w, const Instr& in, Mask m) {  // imm[0]: see assembler.py
  Slot* to = w.out(in, 0);
  const Launch& launch = w.block->launch;
  each(m, [&](int l) {
    const uint32_t t = uint32_t(w.thread(l));
    const uint32_t bx = launch.block[0], by = launch.block[1];
    switch (in.imm[0]) {
      case 0: to[l] = t % bx; break;
      case 1: to[l] = t / bx % by; break;
      case 2: to[l] = t / bx / by; break;
      case 3: case 4: case 5: to[l] = launch.block[in.imm[0] - 3]; break;
      case 6: case 7: case 8: to[l] = w.block->id[in.imm[0] - 6]; break;
      case 9: case 10: case 11: to[l] = launch.grid[in.imm[0] - 9]; break;
      case 12: to[l] = uint32_t(l); break;
      case 13: to[l] = uint32_t(w.number); break;
      case 14: to[l] = w.block->warps.size(); break;
      case 15: to[l] = Mask{1} << l; break;
      case 16: to[l] = (Mask{1} << l) - 1; break;
      case 17: to[l] = Mask((uint64_t{2} << l) - 1); break;
      case 18: to[l] = ~Mask((uint64_t{2} << l) - 1); break;
      case 19: to[l] = ~((Mask{1} << l) - 1); break;
      default: throw Unknown("a special register");
    }
  });
  return Flow::next;
}

// Calls f(lanes, first lane) for the lanes that name the same mask in imm[3].
template <class F>
void each_group(Warp& w, const Instr& in, Mask m, F f) {
  const Slot* names = w.arg(in, int(in.imm[3]));
  while (m) {
    const int first = std::countr_zero(m);
    Mask lanes = 0;
    each(m, [&](int l) { lanes |= Mask(Mask(names[l]) == Mask(names[first])) << l; });
    f(lanes, first);
    m &= ~lanes;
  }
  w.block->order.step(w.number);
}

// Operands: result, whether the source is in range, value, lane or its step, clamp, mask.
enum Shuffle { Up, Down, Butterfly, Index };

template <Shuffle How>
Flow shuffle(Warp& w, const Instr& in, Mask m) {
  Slot *to = w.out(in, 0), *valid = w.out(in, 1);
  Slot from[kLanes];
  std::copy_n(w.arg(in, 2), kLanes, from);
  Slot step[kLanes], clamps[kLanes];
  std::copy_n(w.arg(in, 3), kLanes, step);
  std::copy_n(w.arg(in, 4), kLanes, clamps);
  each_group(w, in, m, [&](Mask lanes, int) {
    each(lanes, [&](int l) {
      const int b = int(step[l] & 31), clamp = int(clamps[l] & 31);
      const int segment = int(clamps[l] >> 8 & 31);
      const int least = l & segment, most = least | (clamp & ~segment);
      int source = 0;
      bool is_inside = false;
      switch (How) {
        case Up: source = l - b; is_inside = source >= most; break;
        case Down: source = l + b; is_inside = source <= most; break;
        case Butterfly: source = l ^ b; is_inside = source <= most; break;
        case Index: source = least | (b & ~segment); is_inside = source <= most; break;
      }
      if (!is_inside) source = l;
      const uint64_t undefined = w.block->launch.fill * 0x01010101u;
      to[l] = lanes >> source & 1 ? uint32_t(from[source]) : undefined;
      valid[l] = is_inside;
    });
  });
  return Flow::next;
}

// Operands: result, predicate, mask.
template <class F>
Flow vote(Warp& w, const Instr& in, Mask m) {
  Slot* to = w.out(in, 0);
  each_group(w, in, m, [&](Mask lanes, int) {
    Mask ayes = 0;
    each(lanes, [&](int l) { ayes |= Mask(w.arg(in, 1)[l] & 1) << l; });
    each(lanes, [&](int l) { to[l] = F{}(ayes, lanes); });
  });
  return Flow::next;
}

// Operands: result, value, mask.
template <class T, class F>
Flow reduce(Warp& w, const Instr& in, Mask m) {
  Slot* to = w.out(in, 0);
  each_group(w, in, m, [&](Mask lanes, int first) {
    const Slot* from = w.arg(in, 1);
    T all = get<T>(from, first);
    each(lanes & (lanes - 1), [&](int l) { all = F{}(all, get<T>(from, l)); });
    each(lanes, [&](int l) { put<T>(to, l, all); });
  });
  return Flow::next;
}

template <class T, class F>
void add_reduce(Table& t, const std::string& name, F) {
  t["redux.sync." + name] = reduce<T, F>;
}

// Operands: result, value, mask; match.all: result, predicate, value, mask.
template <class U>
Flow match_any(Warp& w, const Instr& in, Mask m) {
  Slot values[kLanes];
  std::copy_n(w.arg(in, 1), kLanes, values);
  each_group(w, in, m, [&](Mask lanes, int) {
    each(lanes, [&](int l) {
      Mask same = 0;
      each(lanes, [&](int k) { same |= Mask(U(values[k]) == U(values[l])) << k; });
      w.out(in, 0)[l] = same;
    });
  });
  return Flow::next;
}

template <class U>
Flow match_all(Warp& w, const Instr& in, Mask m) {
  Slot values[kLanes];
  std::copy_n(w.arg(in, 2), kLanes, values);
  each_group(w, in, m, [&](Mask lanes, int first) {
    bool is_same = true;
    each(lanes, [&](int l) { is_same &= U(values[l]) == U(values[first]); });
    each(lanes, [&](int l) {
      w.out(in, 0)[l] = is_same ? lanes : 0;
      w.out(in, 1)[l] = is_same;
    });
  });
  return Flow::next;
}

static Flow elect(Warp& w, const Instr& in, Mask m) {  // lane, predicate, mask
  each_group(w, in, m, [&](Mask lanes, int first) {
    each(lanes, [&](int l) {
      w.out(in, 0)[l] = uint32_t(first);
      w.out(in, 1)[l] = l == first;
    });
  });
  return Flow::next;
}

static Flow active(Warp& w, const Instr& in, Mask m) {
  each(m, [&](int l) { w.out(in, 0)[l] = m; });
  return Flow::next;
}

void add_warp(Table& t) {
  t["special"] = special;
  t["shfl.sync.up.b32"] = shuffle<Up>;
  t["shfl.sync.down.b32"] = shuffle<Down>;
  t["shfl.sync.bfly.b32"] = shuffle<Butterfly>;
  t["shfl.sync.idx.b32"] = shuffle<Index>;
  const auto add_vote = [&](const char* name, auto f) { t[name] = vote<decltype(f)>; };
  add_vote("vote.sync.all.pred", [](Mask ayes, Mask lanes) { return Slot(ayes == lanes); });
  add_vote("vote.sync.any.pred", [](Mask ayes, Mask) { return Slot(ayes != 0); });
  add_vote("vote.sync.uni.pred", [](Mask ayes, Mask lanes) {
    return Slot(ayes == 0 || ayes == lanes);
  });
  add_vote("vote.sync.ballot.b32", [](Mask ayes, Mask) { return Slot(ayes); });
  using U = uint32_t;
  add_reduce<U>(t, "add.u32", [](U x, U y) { return x + y; });
  add_reduce<U>(t, "min.u32", [](U x, U y) { return std::min(x, y); });
  add_reduce<U>(t, "max.u32", [](U x, U y) { return std::max(x, y); });
  add_reduce<int32_t>(t, "min.s32", [](int32_t x, int32_t y) { return std::min(x, y); });
  add_reduce<int32_t>(t, "max.s32", [](int32_t x, int32_t y) { return std::max(x, y); });
  add_reduce<U>(t, "and.b32", [](U x, U y) { return x & y; });
  add_reduce<U>(t, "or.b32", [](U x, U y) { return x | y; });
  add_reduce<U>(t, "xor.b32", [](U x, U y) { return x ^ y; });
  t["redux.sync.add.s32"] = t["redux.sync.add.u32"];
  t["match.any.sync.b32"] = match_any<uint32_t>;
  t["match.any.sync.b64"] = match_any<uint64_t>;
  t["match.all.sync.b32"] = match_all<uint32_t>;
  t["match.all.sync.b64"] = match_all<uint64_t>;
  t["elect.sync"] = elect;
  t["activemask.b32"] = active;
}

}  // namespace ptx
