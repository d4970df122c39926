// cvt. Source: PTX ISA 8.x, section 9.7.9.21.
#include <algorithm>
#include <cmath>
#include <limits>

#include "lanes.h"

namespace ptx {

// As assembler.py numbers them.
enum Type : int64_t { U8, U16, U32, U64, S8, S16, S32, S64, F16, BF16, F32, F64, TF32 };
enum Rounding : int64_t { None, RN, RZ, RM, RP, RNA, RNI, RZI, RMI, RPI };
enum Flag : int64_t { Saturate = 1, Relu = 2, Finite = 4, Flush = 8 };

static double as_double(Type type, Slot raw) {
  switch (type) {
    case F16: return wide(std::bit_cast<Half>(uint16_t(raw)));
    case BF16: return wide(Brain{uint16_t(raw)});
    case F32: return std::bit_cast<float>(uint32_t(raw));
    case F64: return std::bit_cast<double>(raw);
    default: throw Unknown("a conversion from this type");
  }
}

static __int128 as_integer(Type type, Slot raw) {
  switch (type) {
    case U8: return uint8_t(raw);
    case U16: return uint16_t(raw);
    case U32: return uint32_t(raw);
    case U64: return raw;
    case S8: return int8_t(raw);
    case S16: return int16_t(raw);
    case S32: return int32_t(raw);
    case S64: return int64_t(raw);
    default: throw Unknown("a conversion from this type");
  }
}

struct Limits {
  __int128 low, high;
};

static Limits limits(Type type) {
  const bool is_signed = type >= S8;
  const int bits = 8 << (type - (is_signed ? S8 : U8));
  const __int128 one = 1;
  if (is_signed) return {-(one << (bits - 1)), (one << (bits - 1)) - 1};
  return {0, (one << bits) - 1};
}

// A float of `digits` binary digits and the least exponent `least` of its last digit.
static double rounded(double x, int digits, int least, Rounding how) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent;
  std::frexp(x, &exponent);
  const double unit = std::ldexp(1.0, std::max(exponent - digits, least));
  const double whole = x / unit;  // exact: a power of two
  switch (how) {
    case RZ: return std::trunc(whole) * unit;
    case RM: return std::floor(whole) * unit;
    case RP: return std::ceil(whole) * unit;
    case RNA: return std::copysign(std::floor(std::fabs(whole) + 0.5), x) * unit;
    default: return std::nearbyint(whole) * unit;
  }
}

struct Format {
  int digits, least;
  double largest;
};

static Format format(Type type) {
  switch (type) {
    case F16: return {11, -24, 65504};
    case BF16: return {8, -133, 0x1.fep127};
    case TF32: return {11, -136, 0x1.ffcp127};
    default: return {24, -149, std::numeric_limits<float>::max()};
  }
}

static Slot bits_of(Type type, double x) {
  switch (type) {
    case F16: return std::bit_cast<uint16_t>(to_half(x));
    case BF16: return to_brain(x).bits;
    case F64: return std::bit_cast<uint64_t>(canonical(x));
    default: return std::bit_cast<uint32_t>(canonical(float(x)));
  }
}

static Slot to_float(Type type, double x, Rounding how, int64_t flags) {
  if (how <= RN && !flags && type != TF32) return bits_of(type, x);
  if (type != F64 && x == x) {
    const Format f = format(type);
    const double exact = x;
    x = rounded(x, f.digits, f.least, how);
    if (std::fabs(x) > f.largest) {
      const bool stays = how == RZ || (how == RM && x > 0) || (how == RP && x < 0);
      const double beyond = std::isfinite(exact) && stays ? f.largest : INFINITY;
      x = std::copysign(flags & Finite ? f.largest : beyond, x);
    }
  }
  if (flags & Saturate) x = x == x ? std::clamp(x, 0.0, 1.0) + 0.0 : 0.0;
  if (flags & Relu && x <= 0) x = 0.0;
  if (flags & Flush && type == F32) x = flushed(float(x));
  return bits_of(type, x);
}

static Slot to_integer(Type type, Type from, double x, Rounding how) {
  const Limits range = limits(type);
  if (x != x) return type >= U64 && (type == U64 || type == S64) && from == F64 ? Slot{1} << 63 : 0;
  switch (how) {
    case RZI: x = std::trunc(x); break;
    case RMI: x = std::floor(x); break;
    case RPI: x = std::ceil(x); break;
    default: x = std::nearbyint(x); break;
  }
  if (x >= double(range.high)) return Slot(int64_t(range.high));
  if (x <= double(range.low)) return Slot(int64_t(range.low));
  return Slot(int64_t(__int128(x)));
}

static bool is_float(Type type) { return type >= F16; }

static Slot integer_to_float(Type type, __int128 x, Rounding how) {
  if (how == RN || how == None) {  // once, from all bits
    switch (type) {
      case F32: return std::bit_cast<uint32_t>(float(x));
      case F64: return std::bit_cast<uint64_t>(double(x));
      default: break;
    }
  }
  if (type == F64 || (x > (__int128{1} << 53)) || (x < -(__int128{1} << 53))) {
    if (type == F16 && how == RN) return to_float(type, x > 0 ? 1e30 : -1e30, how, 0);
    throw Unknown("a conversion of wide integers with this rounding");
  }
  return to_float(type, double(x), how, 0);
}

static Slot convert(Type to, Type from, Slot raw, Rounding how, int64_t flags) {
  if (!is_float(from)) {
    __int128 x = as_integer(from, raw);
    if (is_float(to)) return integer_to_float(to, x, how);
    if (flags & Saturate) x = std::clamp(x, limits(to).low, limits(to).high);
    const Slot low = Slot(uint64_t(x));
    return Slot(int64_t(as_integer(to, low)));
  }
  double x = as_double(from, raw);
  if (flags & Flush && from == F32) x = flushed(float(x));
  if (!is_float(to)) return to_integer(to, from, x, how);
  switch (how) {  // to a whole number, in the same format
    case RNI: x = std::nearbyint(x); break;
    case RZI: x = std::trunc(x); break;
    case RMI: x = std::floor(x); break;
    case RPI: x = std::ceil(x); break;
    default: break;
  }
  return to_float(to, x, how, flags);
}

// imm: types (to, from << 8), rounding, flags.
static Flow run_cvt(Warp& w, const Instr& in, Mask m) {
  const Type to = Type(in.imm[0] & 255), from = Type(in.imm[0] >> 8);
  const Rounding how = Rounding(in.imm[1]);
  Slot* d = w.out(in, 0);
  const Slot* a = w.arg(in, 1);
  if (!is_float(to) && !is_float(from) && !in.imm[2]) {  // the common case
    const int bits = 8 << (from & 3), out = 8 << (to & 3);
    each(m, [&](int l) {
      Slot x = a[l] << (64 - bits);
      x = from >= S8 ? Slot(int64_t(x) >> (64 - bits)) : x >> (64 - bits);
      x <<= 64 - out;
      d[l] = to >= S8 ? Slot(int64_t(x) >> (64 - out)) : x >> (64 - out);
    });
    return Flow::next;
  }
  each(m, [&](int l) { d[l] = convert(to, from, a[l], how, in.imm[2]); });
  return Flow::next;
}

// cvt.f16x2.f32 d, a, b: `a` becomes the upper half.
static Flow run_pair(Warp& w, const Instr& in, Mask m) {
  const Type to = Type(in.imm[0] & 255), from = Type(in.imm[0] >> 8);
  const Rounding how = Rounding(in.imm[1]);
  Slot* d = w.out(in, 0);
  const Slot *a = w.arg(in, 1), *b = w.arg(in, 2);
  each(m, [&](int l) {
    d[l] = convert(to, from, a[l], how, in.imm[2]) << 16 | convert(to, from, b[l], how, in.imm[2]);
  });
  return Flow::next;
}

void add_conversions(Table& t) {
  t["cvt"] = run_cvt;
  t["cvt.pair"] = run_pair;
}

}  // namespace ptx
