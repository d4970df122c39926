// wgmma: every warp of a group computes its 16 rows. Source: PTX ISA 8.x, section 9.7.15.
//
// Sums come at the wait: their registers hold NaN until then. What is read of shared memory, and of
// registers, is lent until the wait. Sums are exact to f64, as those of mma.sync.
#include <algorithm>

#include "elements.h"
#include "memory.h"

namespace ptx {

constexpr int kMost = 256;  // columns
constexpr uint32_t kChunk = 16;
constexpr Slot kOnTheirWay = 0x7FFFFFFF;  // NaN, of f32 and of two f16

struct Tile {
  double at[kMost][32];
};

// Reads rows (first .. first + count) of k elements that a descriptor describes.
static void read_tile(Warp& w, uint64_t descriptor, int element, int first, int count, int depth,
                      bool is_transposed, Tile& to) {
  Block& b = *w.block;
  const uint32_t start = uint32_t(descriptor & 0x3FFF) << 4;
  const uint32_t leading = uint32_t(descriptor >> 16 & 0x3FFF) << 4;
  const uint32_t stride = uint32_t(descriptor >> 32 & 0x3FFF) << 4;
  const int mode = int(descriptor >> 62);  // none, 128, 64, 32 bytes
  if (descriptor >> 49 & 7) throw Unknown("a matrix descriptor with a base offset");
  const uint32_t size = uint32_t(bits_of(element)) / 8, side = kChunk / size;
  constexpr uint32_t spans[] = {16, 128, 64, 32}, lines[] = {0, 7, 3, 1};
  const uint32_t span = spans[mode];
  const auto chunk = [&](uint32_t offset, auto put) {
    offset ^= (offset >> 7 & lines[mode]) << 4;
    const uint32_t at = shared_offset(w, offset, kChunk, kChunk);
    b.order.lend(at, kChunk, w.thread(0));
    w.open_reads.push_back({at, kChunk});
    for (uint32_t j = 0; j < side; ++j) {
      Slot raw = 0;
      std::memcpy(&raw, &b.shared_memory[at + j * size], size);
      put(int(j), unpacked(element, raw, 0));
    }
  };
  if (is_transposed) {  // rows side by side
    if (size != 2 || mode != 1) throw Unknown("a transposed matrix without a 128-byte swizzle");
    for (int k = 0; k < depth; ++k) {
      for (int x = first; x < first + count; x += int(side)) {
        const uint32_t u = uint32_t(x), v = uint32_t(k);
        chunk(start + u / 64 * leading + v / 8 * stride + v % 8 * 128 + u % 64 * 2,
              [&](int j, double value) { to.at[x - first + j][k] = value; });
      }
    }
    return;
  }
  for (int x = first; x < first + count; ++x) {
    for (int k = 0; k < depth; k += int(side)) {
      const uint32_t u = uint32_t(x), byte = uint32_t(k) * size;
      const uint32_t column = mode ? byte : byte / 16 * leading;
      chunk(start + u / 8 * stride + u % 8 * span + column,
            [&](int j, double value) { to.at[x - first][k + j] = value; });
    }
  }
}

// d..., a (a descriptor or four registers), descriptor of b, whether d is added. imm: columns |
// k << 16, elements of d | a << 8 | b << 16, registers of d | of a << 8, signs and transposes.
static Flow mma(Warp& w, const Instr& in, Mask m) {
  if (m != ~Mask{0}) throw Fault("a matrix instruction without a whole warp");
  const int group = w.number / 4 * 4;
  if (size_t(group) + 4 > w.block->warps.size()) throw Fault("wgmma without four whole warps");
  if (!w.is_fenced) throw Fault("wgmma.mma_async before any wgmma.fence");
  const int columns = int(in.imm[0] & 0xFFFF), depth = int(in.imm[0] >> 16);
  const int d = int(in.imm[1] & 255), e = int(in.imm[1] >> 8 & 255);
  const int out = int(in.imm[2] & 255), na = int(in.imm[2] >> 8);
  const bool minus_a = in.imm[3] & 1, minus_b = in.imm[3] & 2;
  const int side = d == F16 ? 2 : 1;
  if (columns % 8 || columns > kMost || depth * bits_of(e) != 256 || out * side != columns / 2) {
    throw Unknown("wgmma of this shape");
  }
  static thread_local Tile x, y;
  if (na == 1) {
    read_tile(w, w.arg(in, out)[0], e, 16 * (w.number - group), 16, depth, in.imm[3] & 4, x);
  } else {
    static thread_local Matrix held;
    gather(w, in, out, na, e, true, held);
    for (int r = 0; r < 16; ++r) std::copy_n(held.at[r], depth, x.at[r]);
    for (int k = out; k < out + na; ++k) {
      const Slot* from = w.arg(in, k);
      if (in.operand[k] >= 0) w.open_lent.push_back({in.operand[k], {from, from + kLanes}});
    }
  }
  read_tile(w, w.arg(in, out + na)[0], e, 0, columns, depth, in.imm[3] & 8, y);
  const bool is_added = w.arg(in, out + na + 1)[0];
  const double sign = minus_a != minus_b ? -1 : 1;
  for (int r = 0; r < out; ++r) {
    Slot* to = w.out(in, r);
    Flying& sums = w.flying[in.operand[r]];
    if (sums.lanes.empty()) sums.lanes.assign(to, to + kLanes);
    sums.group = w.committed;
    for (int l = 0; l < kLanes; ++l) {
      Slot made = 0;
      for (int j = 0; j < side; ++j) {
        const int i = side == 2 ? r * 2 + j : r;
        const int row = l / 4 + 8 * (i / 2 % 2), column = i / 4 * 8 + l % 4 * 2 + i % 2;
        double sum = 0;
        for (int k = 0; k < depth; ++k) sum += x.at[row][k] * y.at[column][k];
        sum *= sign;
        if (is_added) sum += unpacked(d, sums.lanes[l], j);
        made |= packed(d, sum) << 16 * j;
      }
      sums.lanes[l] = made;
      to[l] = kOnTheirWay;
    }
  }
  return Flow::next;
}

static Flow fence(Warp& w, const Instr&, Mask) {
  w.is_fenced = true;
  return Flow::next;
}

static Flow commit(Warp& w, const Instr&, Mask) {
  w.reads.push_back(std::move(w.open_reads));
  w.open_reads.clear();
  w.lent.push_back(std::move(w.open_lent));
  w.open_lent.clear();
  ++w.committed;
  return Flow::next;
}

// The sums of the oldest group are there, and what it has read may change.
static void finish(Warp& w) {
  for (const Lent& lent : w.lent.front()) {
    const Slot* now = &w.registers[size_t(lent.number) * kLanes];
    if (!std::equal(lent.lanes.begin(), lent.lanes.end(), now)) {
      throw Fault("a register that wgmma reads was written before wgmma.wait_group");
    }
  }
  w.lent.erase(w.lent.begin());
  for (auto at = w.flying.begin(); at != w.flying.end();) {
    if (at->second.group != w.done) {
      ++at;
      continue;
    }
    Slot* to = &w.registers[size_t(at->first) * kLanes];
    if (std::any_of(to, to + kLanes, [](Slot x) { return x != kOnTheirWay; })) {
      throw Fault("a sum of wgmma was written before wgmma.wait_group");
    }
    std::copy(at->second.lanes.begin(), at->second.lanes.end(), to);
    at = w.flying.erase(at);
  }
  ++w.done;
}

static Flow wait(Warp& w, const Instr& in, Mask) {  // imm[0]: groups that may be on their way
  while (w.reads.size() > size_t(in.imm[0])) {
    for (const Array& a : w.reads.front()) {
      w.block->order.give_back(uint32_t(a.begin), uint32_t(a.bytes), w.thread(0));
    }
    w.reads.erase(w.reads.begin());
    finish(w);
  }
  w.block->order.step(w.number);
  return Flow::next;
}

void add_wgmma(Table& t) {
  t["wgmma.mma_async"] = mma;
  t["wgmma.fence"] = fence;
  t["wgmma.commit_group"] = commit;
  t["wgmma.wait_group"] = wait;
}

}  // namespace ptx
