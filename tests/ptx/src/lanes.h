// A handler for every function of values: each lane applies it to its own operands.
#pragma once

#include <cmath>
#include <utility>

#include "machine.h"

namespace ptx {

template <class D, class F, class... A, size_t... K>
Flow apply(Warp& w, const Instr& in, Mask m, std::index_sequence<K...>) {
  Slot* to = w.out(in, 0);
  const Slot* from[] = {w.arg(in, int(K) + 1)...};
  each(m, [&](int l) { put<D>(to, l, D(F{}(get<A>(from[K], l)...))); });
  return Flow::next;
}

template <class D, class F, class... A>
Flow map_lanes(Warp& w, const Instr& in, Mask m) {
  return apply<D, F, A...>(w, in, m, std::index_sequence_for<A...>{});
}

[[gnu::noinline]] inline void add_handler(Table& table, const char* name, const std::string& type,
                                          Handler run) {
  table[name + type] = run;
}

// The instruction `name` + `type`, of one result of type D and operands of types A.
template <class D, class... A, class F>
void define(Table& table, const char* name, const std::string& type, F) {
  add_handler(table, name, type, map_lanes<D, F, A...>);
}
template <class D, class... A, class F>
void define(Table& table, const std::string& name, F) {
  add_handler(table, "", name, map_lanes<D, F, A...>);
}

// NaN as PTX arithmetic gives it: positive, all bits of the fraction set.
inline float canonical(float x) {
  return x == x ? x : std::bit_cast<float>(uint32_t{0x7FFFFFFF});
}
inline double canonical(double x) {
  return x == x ? x : std::bit_cast<double>(uint64_t{0x7FFFFFFFFFFFFFFF});
}

template <class T>
inline bool is_nan(T x) {
  return x != x;
}

// A number wins over NaN; -0 is below +0.
template <class T>
T larger(T x, T y) {
  if (is_nan(x)) return canonical(y);
  if (is_nan(y)) return x;
  if (x == y) return std::signbit(x) ? y : x;
  return x > y ? x : y;
}
template <class T>
T smaller(T x, T y) {
  if (is_nan(x)) return canonical(y);
  if (is_nan(y)) return x;
  if (x == y) return std::signbit(x) ? x : y;
  return x < y ? x : y;
}

// x * y + z before its last rounding, rounded to odd: narrower formats round it once more, exactly.
// Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums" (2008).
inline double odd_fma(double x, double y, double z) {
  const double product = x * y;  // exact for factors of 24 bits
  const double sum = product + z;
  const double part = sum - product;
  const double error = (product - (sum - part)) + (z - part);
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (error != 0 && sum - sum == 0 && !(bits & 1)) {
    bits += (error > 0) == (sum > 0) ? 1 : -1;
  }
  return std::bit_cast<double>(bits);
}

using Half = _Float16;
struct Brain {  // bfloat16
  uint16_t bits;
};

// To the nearest, ties to even; NaN is 0x7FFF in both.
inline Half to_half(double x) {
  return is_nan(x) ? std::bit_cast<Half>(uint16_t{0x7FFF}) : Half(x);
}
inline Brain to_brain(float x) {
  if (is_nan(x)) return {0x7FFF};
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return {uint16_t((u + 0x7FFF + (u >> 16 & 1)) >> 16)};
}
inline Brain to_brain(double x) {
  float narrow = float(x);  // then to odd
  if (double(narrow) != x && !is_nan(x) && narrow - narrow == 0) {
    uint32_t u = std::bit_cast<uint32_t>(narrow);
    if (!(u & 1)) u += std::fabs(x) > std::fabs(narrow) ? 1 : -1;
    narrow = std::bit_cast<float>(u);
  }
  return to_brain(narrow);
}
inline float wide(Half x) { return float(x); }
inline float wide(Brain x) { return std::bit_cast<float>(uint32_t(x.bits) << 16); }
inline float wide(float x) { return x; }
inline double wide(double x) { return x; }

template <class T>
T narrow(double x) {
  if constexpr (std::is_same_v<T, Half>) {
    return to_half(x);
  } else if constexpr (std::is_same_v<T, Brain>) {
    return to_brain(x);
  } else {
    return T(x);
  }
}

// Denormals become zeros of their sign.
inline float flushed(float x) { return std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; }

}  // namespace ptx
