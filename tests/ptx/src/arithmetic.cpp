// Integers, bits, f32 and f64. Source: PTX ISA 8.x, sections 9.7.1 to 9.7.8.
#include <algorithm>
#include <cmath>
#include <utility>

#include "lanes.h"

namespace ptx {

template <class T>
constexpr int kBits = 8 * sizeof(T);
template <class T>
using Wide = std::conditional_t<
    sizeof(T) == 2, std::conditional_t<std::is_signed_v<T>, int32_t, uint32_t>,
    std::conditional_t<sizeof(T) == 4, std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>,
                       std::conditional_t<std::is_signed_v<T>, __int128, unsigned __int128>>>;
template <class T>
using Unsigned = std::make_unsigned_t<T>;

template <class T>
T high(T x, T y) {
  return T(Wide<T>(x) * Wide<T>(y) >> kBits<T>);
}

template <class T>
T saturated(Wide<T> x) {
  return T(std::clamp<Wide<T>>(x, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
}

template <class T>
T divided(T x, T y) {
  if (y == 0) throw Fault("a thread divides an integer by zero");
  if constexpr (std::is_signed_v<T>) {
    if (y == -1) return T(-Unsigned<T>(x));
  }
  return T(x / y);
}

template <class T>
T rest(T x, T y) {
  return T(Unsigned<T>(x) - Unsigned<T>(divided(x, y)) * Unsigned<T>(y));
}

template <class T>
T field(T x, uint32_t start, uint32_t length) {  // bfe
  using U = Unsigned<T>;
  start &= 255, length &= 255;
  const U whole = U(x);
  U found = start < kBits<T> ? U(whole >> start) : U(0);
  if (length < kBits<T>) found &= (U(1) << length) - 1;
  if (std::is_signed_v<T> && length) {
    const int last = int(std::min<uint32_t>(start + length - 1, kBits<T> - 1));
    const int valid = std::min<int>(int(length), std::max<int>(kBits<T> - int(start), 0));
    if (whole >> last & 1 && valid < kBits<T>) found |= U(-1) << valid;
  }
  return T(found);
}

template <class U>
U inserted(U from, U into, uint32_t start, uint32_t length) {  // bfi
  start &= 255, length &= 255;
  if (start >= kBits<U> || !length) return into;
  const U ones = length < kBits<U> ? U((U(1) << length) - 1) : U(-1);
  const U mask = U(ones << start);
  return U((into & ~mask) | (U(from << start) & mask));
}

static uint32_t funnel(uint32_t low, uint32_t high, uint32_t by, bool left) {
  const uint64_t whole = uint64_t{high} << 32 | low;
  return uint32_t(left ? whole << by >> 32 : whole >> by);
}

static uint32_t permuted(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t whole = uint64_t{b} << 32 | a;
  uint32_t out = 0;
  for (int k = 0; k < 4; ++k) {
    const uint32_t pick = selector >> 4 * k & 15;
    uint32_t byte = uint32_t(whole >> 8 * (pick & 7)) & 255;
    if (pick & 8) byte = byte & 128 ? 255 : 0;
    out |= byte << 8 * k;
  }
  return out;
}

static uint32_t logic3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
  uint32_t out = 0;
  for (int k = 0; k < 8; ++k) {
    if (table >> k & 1) out |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
  }
  return out;
}

template <class A, class B>
uint32_t dot4(uint32_t a, uint32_t b, uint32_t c) {
  for (int k = 0; k < 32; k += 8) c += uint32_t(int32_t(A(a >> k)) * int32_t(B(b >> k)));
  return c;
}

template <class U>
U reversed(U x) {
  U out = 0;
  for (int k = 0; k < kBits<U>; ++k) out |= U(x >> k & 1) << (kBits<U> - 1 - k);
  return out;
}

template <class T>
void add_compares(Table& t, const std::string& type, bool is_float) {
  const auto both = [&](const std::string& name, auto compare) {
    define<bool, T, T>(t, "setp." + name + "." + type, compare);
    using F = decltype(compare);
    if (is_float) {
      define<bool, T, T>(t, "setp." + name + "u." + type,
                         [](T x, T y) { return is_nan(x) || is_nan(y) || F{}(x, y); });
    }
  };
  both("eq", [](T x, T y) { return x == y; });
  both("ne", [](T x, T y) { return x != y && !is_nan(x) && !is_nan(y); });
  both("lt", [](T x, T y) { return x < y; });
  both("le", [](T x, T y) { return x <= y; });
  both("gt", [](T x, T y) { return x > y; });
  both("ge", [](T x, T y) { return x >= y; });
  if (is_float) {
    define<bool, T, T>(t, "setp.num.", type, [](T x, T y) { return x == x && y == y; });
    define<bool, T, T>(t, "setp.nan.", type, [](T x, T y) { return x != x || y != y; });
  } else {
    t["setp.lo." + type] = t["setp.lt." + type];
    t["setp.ls." + type] = t["setp.le." + type];
    t["setp.hi." + type] = t["setp.gt." + type];
    t["setp.hs." + type] = t["setp.ge." + type];
  }
}

template <class T>
void add_integers(Table& t, const std::string& type) {
  using U = Unsigned<T>;
  define<T, T, T>(t, "add.", type, [](T x, T y) { return U(x) + U(y); });
  define<T, T, T>(t, "sub.", type, [](T x, T y) { return U(x) - U(y); });
  define<T, T, T>(t, "mul.lo.", type, [](T x, T y) { return U(uint64_t(x) * uint64_t(y)); });
  define<T, T, T>(t, "mul.hi.", type, [](T x, T y) { return high(x, y); });
  define<T, T, T, T>(t, "mad.lo.", type,
                     [](T x, T y, T z) { return U(uint64_t(x) * uint64_t(y) + uint64_t(z)); });
  define<T, T, T, T>(t, "mad.hi.", type, [](T x, T y, T z) { return U(high(x, y)) + U(z); });
  if constexpr (sizeof(T) < 8) {
    using W = Wide<T>;
    define<W, T, T>(t, "mul.wide.", type, [](T x, T y) { return W(x) * W(y); });
    define<W, T, T, W>(t, "mad.wide.", type, [](T x, T y, W z) {
      return Unsigned<W>(W(x) * W(y)) + Unsigned<W>(z);
    });
  }
  define<T, T, T>(t, "div.", type, [](T x, T y) { return divided(x, y); });
  define<T, T, T>(t, "rem.", type, [](T x, T y) { return rest(x, y); });
  define<T, T, T>(t, "min.", type, [](T x, T y) { return std::min(x, y); });
  define<T, T, T>(t, "max.", type, [](T x, T y) { return std::max(x, y); });
  define<T, T, uint32_t>(t, "shr.", type, [](T x, uint32_t by) {
    return by < kBits<T> ? T(x >> by) : std::is_signed_v<T> && x < 0 ? T(-1) : T(0);
  });
  define<T, T, uint32_t, uint32_t>(t, "bfe.", type, [](T x, uint32_t s, uint32_t n) {
    return field(x, s, n);
  });
  define<uint32_t, T>(t, "bfind.", type, [](T x) {
    const U v = std::is_signed_v<T> && x < 0 ? U(~U(x)) : U(x);
    return v ? uint32_t(kBits<T> - 1 - (std::countl_zero(uint64_t(v)) - (64 - kBits<T>))) : ~0u;
  });
  define<uint32_t, T>(t, "bfind.shiftamt.", type, [](T x) {
    const U v = std::is_signed_v<T> && x < 0 ? U(~U(x)) : U(x);
    return v ? uint32_t(std::countl_zero(uint64_t(v)) - (64 - kBits<T>)) : ~0u;
  });
  if constexpr (std::is_signed_v<T>) {
    define<T, T>(t, "neg.", type, [](T x) { return -U(x); });
    define<T, T>(t, "abs.", type, [](T x) { return x < 0 ? T(-U(x)) : x; });
  }
  if constexpr (sizeof(T) == 4) {
    define<T, T, T>(t, "add.sat.", type, [](T x, T y) {
      return saturated<T>(Wide<T>(x) + Wide<T>(y));
    });
    define<T, T, T>(t, "sub.sat.", type, [](T x, T y) {
      return saturated<T>(Wide<T>(x) - Wide<T>(y));
    });
  }
  define<T, T, T, T>(t, "sad.", type, [](T x, T y, T z) {
    return U(z) + (x < y ? U(y) - U(x) : U(x) - U(y));
  });
  add_compares<T>(t, type, false);
}

template <class U>
void add_bits(Table& t, const std::string& bits) {
  const std::string b = "b" + bits;
  define<U, U>(t, "mov.", b, [](U x) { return x; });
  define<U, U>(t, "not.", b, [](U x) { return U(~x); });
  define<U, U>(t, "cnot.", b, [](U x) { return U(x == 0); });
  define<U, U, U>(t, "and.", b, [](U x, U y) { return U(x & y); });
  define<U, U, U>(t, "or.", b, [](U x, U y) { return U(x | y); });
  define<U, U, U>(t, "xor.", b, [](U x, U y) { return U(x ^ y); });
  define<U, U, uint32_t>(t, "shl.", b, [](U x, uint32_t by) {
    return by < kBits<U> ? U(x << by) : U(0);
  });
  t["shr." + b] = t["shr.u" + bits];
  define<U, U, U, bool>(t, "selp.", b, [](U x, U y, bool p) { return p ? x : y; });
  define<U, U, U, int32_t>(t, "slct." + b + ".s32", [](U x, U y, int32_t c) {
    return c >= 0 ? x : y;
  });
  define<U, U, U, float>(t, "slct." + b + ".f32", [](U x, U y, float c) {
    return c >= 0 ? x : y;
  });
  define<bool, U, U>(t, "setp.eq.", b, [](U x, U y) { return x == y; });
  define<bool, U, U>(t, "setp.ne.", b, [](U x, U y) { return x != y; });
  if constexpr (sizeof(U) >= 4) {
    define<uint32_t, U>(t, "popc.", b, [](U x) { return uint32_t(std::popcount(x)); });
    define<uint32_t, U>(t, "clz.", b, [](U x) { return uint32_t(std::countl_zero(x)); });
    define<U, U>(t, "brev.", b, [](U x) { return reversed(x); });
    define<U, U, U, uint32_t, uint32_t>(t, "bfi.", b, [](U x, U y, uint32_t s, uint32_t n) {
      return inserted(x, y, s, n);
    });
  }
  for (const char* kind : {"u", "s", "f"}) {
    for (const char* name : {"mov.", "selp."}) t[name + (kind + bits)] = t[name + b];
    for (const char* c : {".s32", ".f32"}) t["slct." + (kind + bits) + c] = t["slct." + b + c];
  }
}

// All instructions take their name, and ".ftz" of f32 takes what F does with flushed operands.
template <class T, class... A, class F>
void floats(Table& t, const std::string& name, const std::string& type, F f) {
  define<T, A...>(t, name + "." + type, f);
  if constexpr (sizeof(T) == 4) {
    define<T, A...>(t, name + ".ftz." + type, [](A... a) { return flushed(F{}(flushed(a)...)); });
  }
}

template <class T>
void add_floats(Table& t, const std::string& type) {
  floats<T, T, T>(t, "add", type, [](T x, T y) { return canonical(x + y); });
  floats<T, T, T>(t, "sub", type, [](T x, T y) { return canonical(x - y); });
  floats<T, T, T>(t, "mul", type, [](T x, T y) { return canonical(x * y); });
  floats<T, T, T>(t, "div", type, [](T x, T y) { return canonical(x / y); });
  floats<T, T>(t, "rcp", type, [](T x) { return canonical(1 / x); });
  floats<T, T>(t, "sqrt", type, [](T x) { return canonical(std::sqrt(x)); });
  floats<T, T, T, T>(t, "fma", type, [](T x, T y, T z) { return canonical(std::fma(x, y, z)); });
  floats<T, T, T>(t, "min", type, [](T x, T y) { return smaller(x, y); });
  floats<T, T, T>(t, "max", type, [](T x, T y) { return larger(x, y); });
  floats<T, T, T>(t, "min.NaN", type, [](T x, T y) {
    return is_nan(x) || is_nan(y) ? canonical(x + y) : smaller(x, y);
  });
  floats<T, T, T>(t, "max.NaN", type, [](T x, T y) {
    return is_nan(x) || is_nan(y) ? canonical(x + y) : larger(x, y);
  });
  floats<T, T>(t, "neg", type, [](T x) { return -x; });
  floats<T, T>(t, "abs", type, [](T x) { return std::fabs(x); });
  define<T, T, T>(t, "copysign.", type, [](T sign, T x) { return std::copysign(x, sign); });
  define<bool, T>(t, "testp.finite.", type, [](T x) { return std::isfinite(x); });
  define<bool, T>(t, "testp.infinite.", type, [](T x) { return std::isinf(x); });
  define<bool, T>(t, "testp.number.", type, [](T x) { return !is_nan(x); });
  define<bool, T>(t, "testp.notanumber.", type, [](T x) { return is_nan(x); });
  define<bool, T>(t, "testp.normal.", type, [](T x) { return std::isnormal(x); });
  define<bool, T>(t, "testp.subnormal.", type, [](T x) {
    return std::fpclassify(x) == FP_SUBNORMAL;
  });
  add_compares<T>(t, type, true);
}

// Approximations are as good as they can be: computed in f64, rounded once.
template <class F>
void approximate(Table& t, const std::string& name, F) {
  floats<float, float>(t, name + ".approx", "f32", [](float x) {
    return canonical(float(F{}(double(x))));
  });
}

// add.cc, addc, sub.cc, ... : operands, imm[0]: 1 reads the carry, 2 writes it.
template <class U, bool Minus, int Product>
Flow with_carry(Warp& w, const Instr& in, Mask m) {
  using W = Wide<U>;
  Slot* to = w.out(in, 0);
  each(m, [&](int l) {
    const W x = get<U>(w.arg(in, 1), l), y = get<U>(w.arg(in, 2), l);
    const W carry = in.imm[0] & 1 ? W(w.carry[l]) : W(0);
    W total = Minus ? x - y - carry : x + y + carry;
    if (Product) {
      const W part = Product == 1 ? W(U(x * y)) : W(x * y >> kBits<U>);
      total = part + W(get<U>(w.arg(in, 3), l)) + carry;
    }
    if (in.imm[0] & 2) w.carry[l] = Slot(total >> kBits<U> & 1);
    put<U>(to, l, U(total));
  });
  return Flow::next;
}

template <class U>
void add_carries(Table& t, const std::string& type) {
  t["carry.add." + type] = with_carry<U, false, 0>;
  t["carry.sub." + type] = with_carry<U, true, 0>;
  t["carry.mad.lo." + type] = with_carry<U, false, 1>;
  t["carry.mad.hi." + type] = with_carry<U, false, 2>;
}

// mov.b64 {a, b}, x: imm[0] bits a part; `_` is written to a register that nothing reads.
static Flow unpack(Warp& w, const Instr& in, Mask m) {
  const int bits = int(in.imm[0]), parts = in.count - 1;
  const Slot* from = w.arg(in, parts);
  for (int k = 0; k < parts; ++k) {
    Slot* to = w.out(in, k);
    const Slot ones = bits == 64 ? ~Slot{0} : (Slot{1} << bits) - 1;
    each(m, [&](int l) { to[l] = from[l] >> (k * bits) & ones; });
  }
  return Flow::next;
}

static Flow pack(Warp& w, const Instr& in, Mask m) {
  const int bits = int(in.imm[0]);
  const Slot ones = (Slot{1} << bits) - 1;
  Slot* to = w.out(in, 0);
  each(m, [&](int l) {
    Slot whole = 0;
    for (int k = 1; k < in.count; ++k) whole |= (w.arg(in, k)[l] & ones) << ((k - 1) * bits);
    to[l] = whole;
  });
  return Flow::next;
}

void add_arithmetic(Table& t) {
  add_integers<uint16_t>(t, "u16");
  add_integers<int16_t>(t, "s16");
  add_integers<uint32_t>(t, "u32");
  add_integers<int32_t>(t, "s32");
  add_integers<uint64_t>(t, "u64");
  add_integers<int64_t>(t, "s64");
  add_bits<uint16_t>(t, "16");
  add_bits<uint32_t>(t, "32");
  add_bits<uint64_t>(t, "64");
  add_floats<float>(t, "f32");
  add_floats<double>(t, "f64");
  add_carries<uint32_t>(t, "32");
  add_carries<uint64_t>(t, "64");
  t["unpack"] = unpack;
  t["pack"] = pack;
  define<bool, bool>(t, "mov.pred", [](bool x) { return x; });
  define<bool, bool>(t, "not.pred", [](bool x) { return !x; });
  define<bool, bool, bool>(t, "and.pred", [](bool x, bool y) { return x && y; });
  define<bool, bool, bool>(t, "or.pred", [](bool x, bool y) { return x || y; });
  define<bool, bool, bool>(t, "xor.pred", [](bool x, bool y) { return x != y; });
  using U = uint32_t;
  define<U, U, U, U>(t, "shf.l.wrap.b32", [](U a, U b, U c) { return funnel(a, b, c & 31, true); });
  define<U, U, U, U>(t, "shf.r.wrap.b32",
                     [](U a, U b, U c) { return funnel(a, b, c & 31, false); });
  define<U, U, U, U>(t, "shf.l.clamp.b32",
                     [](U a, U b, U c) { return funnel(a, b, std::min(c, 32u), true); });
  define<U, U, U, U>(t, "shf.r.clamp.b32",
                     [](U a, U b, U c) { return funnel(a, b, std::min(c, 32u), false); });
  define<U, U, U, U>(t, "prmt.b32", [](U a, U b, U c) { return permuted(a, b, c); });
  define<U, U, U, U, U>(t, "lop3.b32", [](U a, U b, U c, U f) { return logic3(a, b, c, f); });
  define<U, U, U, U>(t, "dp4a.u32.u32", [](U a, U b, U c) { return dot4<uint8_t, uint8_t>(a, b, c); });
  define<U, U, U, U>(t, "dp4a.u32.s32", [](U a, U b, U c) { return dot4<uint8_t, int8_t>(a, b, c); });
  define<U, U, U, U>(t, "dp4a.s32.u32", [](U a, U b, U c) { return dot4<int8_t, uint8_t>(a, b, c); });
  define<U, U, U, U>(t, "dp4a.s32.s32", [](U a, U b, U c) { return dot4<int8_t, int8_t>(a, b, c); });
  approximate(t, "ex2", [](double x) { return std::exp2(x); });
  approximate(t, "lg2", [](double x) { return std::log2(x); });
  approximate(t, "rcp", [](double x) { return 1 / x; });
  approximate(t, "rsqrt", [](double x) { return 1 / std::sqrt(x); });
  approximate(t, "sqrt", [](double x) { return std::sqrt(x); });
  approximate(t, "sin", [](double x) { return std::sin(x); });
  approximate(t, "cos", [](double x) { return std::cos(x); });
  approximate(t, "tanh", [](double x) { return std::tanh(x); });
  for (const char* form : {"approx", "full"}) {
    floats<float, float, float>(t, std::string("div.") + form, "f32",
                                [](float x, float y) { return canonical(x / y); });
  }
  define<double, double>(t, "rsqrt.approx.f64", [](double x) { return canonical(1 / std::sqrt(x)); });
}

}  // namespace ptx
