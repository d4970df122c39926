// Elements of matrix instructions: how registers and shared memory hold them.
#pragma once

#include "lanes.h"

namespace ptx {

enum Element : int { F16, BF16, TF32, F64, S8, U8, F32, S32 };

inline int bits_of(int element) {
  constexpr int bits[] = {16, 16, 32, 64, 8, 8, 32, 32};
  return bits[element];
}

// Element `k` of a register.
inline double unpacked(int element, Slot raw, int k) {
  raw >>= k * bits_of(element) % 64;
  switch (element) {
    case F16: return wide(std::bit_cast<Half>(uint16_t(raw)));
    case BF16: return wide(Brain{uint16_t(raw)});
    case TF32: return std::bit_cast<float>(uint32_t(raw) & 0xFFFFE000u);  // it reads no more
    case F64: return std::bit_cast<double>(raw);
    case S8: return int8_t(raw);
    case U8: return uint8_t(raw);
    case F32: return std::bit_cast<float>(uint32_t(raw));
    default: return int32_t(raw);
  }
}

inline Slot packed(int element, double x) {
  switch (element) {
    case F16: return std::bit_cast<uint16_t>(to_half(x));
    case F64: return std::bit_cast<uint64_t>(canonical(x));
    case S32: return uint32_t(int64_t(x));
    default: return std::bit_cast<uint32_t>(canonical(float(x)));
  }
}

struct Matrix {
  double at[16][32];
};

// Operand a (rows of k) or b (columns of k) of a warp, from registers: lane / 4 is the row, elements
// of k lie side by side.
void gather(Warp& w, const Instr& in, int first, int count, int element, bool is_tall, Matrix& to);

}  // namespace ptx
