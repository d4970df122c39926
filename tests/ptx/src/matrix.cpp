// ldmatrix, stmatrix, mma.sync. Source: PTX ISA 8.x, sections 9.7.14.4 and 9.7.14.5.
//
// A product's sum is exact to f64: terms in the order of k, then c, rounded once to the type of d.
#include <algorithm>

#include "elements.h"
#include "memory.h"

namespace ptx {

void gather(Warp& w, const Instr& in, int first, int count, int element, bool is_tall, Matrix& to) {
  const int side = std::max(1, 32 / bits_of(element));
  for (int r = 0; r < count; ++r) {
    const Slot* from = w.arg(in, first + r);
    const int row = is_tall ? 8 * (r & 1) : 0, block = is_tall ? r >> 1 : r;
    for (int l = 0; l < kLanes; ++l) {
      for (int j = 0; j < side; ++j) {
        const int k = block * 4 * side + l % 4 * side + j;
        to.at[row + l / 4][k] = unpacked(element, from[l], j);
      }
    }
  }
}

static Flow mma(Warp& w, const Instr& in, Mask m) {
  if (m != ~Mask{0}) throw Fault("a matrix instruction without a whole warp");
  const auto byte = [](int64_t x, int k) { return int(x >> 8 * k & 255); };
  const int rows = byte(in.imm[0], 0), columns = byte(in.imm[0], 1), depth = byte(in.imm[0], 2);
  const int d = byte(in.imm[1], 0), e = byte(in.imm[1], 1), f = byte(in.imm[1], 2),
            c = byte(in.imm[1], 3);
  const int out = byte(in.imm[2], 0), na = byte(in.imm[2], 1), nb = byte(in.imm[2], 2),
            nc = byte(in.imm[2], 3);
  const int bits = e == F64 ? 64 : 32;
  const auto expected = [&](int sides, int type) {
    return sides * bits_of(type) / kLanes / (type == F64 ? 64 : 32);
  };
  if (columns != 8 || (rows != 8 && rows != 16) || depth > 32 || d != c || bits_of(e) != bits_of(f) ||
      na != rows * depth * bits_of(e) / kLanes / bits || nb != expected(columns * depth, f) ||
      nc != expected(rows * columns, c) || out != nc) {
    throw Unknown("a matrix instruction of this shape");
  }
  Matrix x, y;
  gather(w, in, out, na, e, rows == 16, x);
  gather(w, in, out + na, nb, f, false, y);
  const int side = c == F16 ? 2 : 1;
  Slot made[4][kLanes] = {};
  for (int r = 0; r < nc; ++r) {
    const Slot* add = w.arg(in, out + na + nb + r);
    for (int l = 0; l < kLanes; ++l) {
      for (int j = 0; j < side; ++j) {
        const int row = l / 4 + 8 * (side == 2 ? r : r >> 1);
        const int column = l % 4 * 2 + (side == 2 ? j : r & 1);
        double sum = 0;
        for (int k = 0; k < depth; ++k) sum += x.at[row][k] * y.at[column][k];
        sum += unpacked(c, add[l], j);
        if (c == S32 && in.imm[3]) sum = std::clamp(sum, -2147483648.0, 2147483647.0);
        made[r][l] |= packed(d, sum) << 16 * j;
      }
    }
  }
  for (int r = 0; r < out; ++r) std::copy_n(made[r], kLanes, w.out(in, r));
  return Flow::next;
}

// Of matrix k lane 8k + row has the address of a row: 8 elements of 16 bits.
template <bool IsLoad>
Flow matrix_access(Warp& w, const Instr& in, Mask m) {
  if (m != ~Mask{0}) throw Fault("a matrix instruction without a whole warp");
  const int count = int(in.imm[1]);
  const Slot* base = w.arg(in, count);
  uint16_t rows[8][8];
  for (int k = 0; k < count; ++k) {
    uint8_t* host[8];
    for (int r = 0; r < 8; ++r) {
      const int l = 8 * k + r;
      const uint32_t at = shared_offset(w, base[l] + uint64_t(in.imm[0]), 16, 16);
      w.block->order.note(at, 16, w.thread(l), IsLoad ? Access::read : Access::write);
      host[r] = &w.block->shared_memory[at];
      if (IsLoad) std::memcpy(rows[r], host[r], 16);
    }
    Slot* lanes = w.out(in, k);
    for (int l = 0; l < kLanes; ++l) {
      Slot whole = 0;
      for (int j = 0; j < 2; ++j) {
        const int row = in.imm[2] ? 2 * (l % 4) + j : l / 4;
        const int column = in.imm[2] ? l / 4 : 2 * (l % 4) + j;
        if (IsLoad) {
          whole |= Slot(rows[row][column]) << 16 * j;
        } else {
          rows[row][column] = uint16_t(lanes[l] >> 16 * j);
        }
      }
      if (IsLoad) lanes[l] = whole;
    }
    if (!IsLoad) {
      for (int r = 0; r < 8; ++r) std::memcpy(host[r], rows[r], 16);
    }
  }
  w.block->order.step(w.number);
  return Flow::next;
}

void add_matrix(Table& t) {
  t["mma"] = mma;
  t["ldmatrix"] = matrix_access<true>;
  t["stmatrix"] = matrix_access<false>;
}

}  // namespace ptx
