// f16 and bf16, single and in pairs. Source: PTX ISA 8.x, section 9.7.4.
#include <cmath>

#include "lanes.h"

namespace ptx {

template <class T>
T packed(uint32_t x, int k) {
  return std::bit_cast<T>(uint16_t(x >> 16 * k));
}
template <class T>
uint32_t bits_of(T x) {
  return std::bit_cast<uint16_t>(x);
}

// `F` on single values, and on both halves of a pair.
template <class T, class... A, class F>
void halves(Table& t, const std::string& name, const std::string& type, F f) {
  define<T, A...>(t, name + "." + type, f);
  define<uint32_t, std::conditional_t<true, uint32_t, A>...>(
      t, name + "." + type + "x2", [](std::conditional_t<true, uint32_t, A>... a) {
        return bits_of(F{}(packed<A>(a, 0)...)) | bits_of(F{}(packed<A>(a, 1)...)) << 16;
      });
}

template <class T, class F>
void compared(Table& t, const std::string& name, const std::string& type, F) {
  define<bool, T, T>(t, "setp." + name + "." + type,
                     [](T x, T y) { return F{}(wide(x), wide(y)); });
  define<bool, T, T>(t, "setp." + name + "u." + type, [](T x, T y) {
    return is_nan(wide(x)) || is_nan(wide(y)) || F{}(wide(x), wide(y));
  });
}

template <class T>
void add_type(Table& t, const std::string& type) {
  halves<T, T, T>(t, "add", type, [](T x, T y) {
    return narrow<T>(double(wide(x)) + double(wide(y)));
  });
  halves<T, T, T>(t, "sub", type, [](T x, T y) {
    return narrow<T>(double(wide(x)) - double(wide(y)));
  });
  halves<T, T, T>(t, "mul", type, [](T x, T y) {
    return narrow<T>(double(wide(x)) * double(wide(y)));
  });
  halves<T, T, T, T>(t, "fma", type, [](T x, T y, T z) {
    return narrow<T>(odd_fma(wide(x), wide(y), wide(z)));
  });
  halves<T, T, T, T>(t, "fma.relu", type, [](T x, T y, T z) {
    const double r = odd_fma(wide(x), wide(y), wide(z));
    return narrow<T>(r > 0 || is_nan(r) ? r : 0.0);
  });
  halves<T, T, T>(t, "min", type, [](T x, T y) { return narrow<T>(smaller(wide(x), wide(y))); });
  halves<T, T, T>(t, "max", type, [](T x, T y) { return narrow<T>(larger(wide(x), wide(y))); });
  halves<T, T, T>(t, "min.NaN", type, [](T x, T y) {
    const float a = wide(x), b = wide(y);
    return narrow<T>(is_nan(a) || is_nan(b) ? a + b : smaller(a, b));
  });
  halves<T, T, T>(t, "max.NaN", type, [](T x, T y) {
    const float a = wide(x), b = wide(y);
    return narrow<T>(is_nan(a) || is_nan(b) ? a + b : larger(a, b));
  });
  halves<T, T>(t, "neg", type, [](T x) {
    return std::bit_cast<T>(uint16_t(std::bit_cast<uint16_t>(x) ^ 0x8000));
  });
  halves<T, T>(t, "abs", type, [](T x) {
    return std::bit_cast<T>(uint16_t(std::bit_cast<uint16_t>(x) & 0x7FFF));
  });
  const std::string ftz = type == "bf16" ? ".ftz" : "";  // the ISA has ex2 of bf16 with it only
  halves<T, T>(t, "ex2.approx" + ftz, type, [](T x) { return narrow<T>(std::exp2(double(wide(x)))); });
  halves<T, T>(t, "tanh.approx", type, [](T x) { return narrow<T>(std::tanh(double(wide(x)))); });
  compared<T>(t, "eq", type, [](float x, float y) { return x == y; });
  compared<T>(t, "ne", type, [](float x, float y) { return x < y || x > y; });
  compared<T>(t, "lt", type, [](float x, float y) { return x < y; });
  compared<T>(t, "le", type, [](float x, float y) { return x <= y; });
  compared<T>(t, "gt", type, [](float x, float y) { return x > y; });
  compared<T>(t, "ge", type, [](float x, float y) { return x >= y; });
  define<bool, T, T>(t, "setp.num.", type, [](T x, T y) {
    return !is_nan(wide(x)) && !is_nan(wide(y));
  });
  define<bool, T, T>(t, "setp.nan.", type, [](T x, T y) {
    return is_nan(wide(x)) || is_nan(wide(y));
  });
}

void add_halves(Table& t) {
  add_type<Half>(t, "f16");
  add_type<Brain>(t, "bf16");
}

}  // namespace ptx
