// Pairs of 16-bit integers and of f32, and f32 with operands of 16 bits. Source: PTX ISA 8.6,
// sections 9.7.1 (integers), 9.7.3 (f32x2) and 9.7.5 (mixed precision).
#include <algorithm>
#include <cmath>

#include "lanes.h"

namespace ptx {

// `F` on the parts of type T of words of type W.
template <class T, class W, class F, class... A>
W of_parts(A... words) {
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  constexpr int kBits = 8 * sizeof(T);
  W out = 0;
  for (int k = 0; k < int(sizeof(W) / sizeof(T)); ++k) {
    const T made = F{}(std::bit_cast<T>(Bits(words >> kBits * k))...);
    out |= W(std::bit_cast<Bits>(made)) << kBits * k;
  }
  return out;
}

template <class T, class W, class F>
void pair2(Table& t, const std::string& name, F) {
  define<W, W, W>(t, name, [](W x, W y) { return of_parts<T, W, F>(x, y); });
}
template <class T, class W, class F>
void pair3(Table& t, const std::string& name, F) {
  define<W, W, W, W>(t, name, [](W x, W y, W z) { return of_parts<T, W, F>(x, y, z); });
}

template <class T>
void add_pairs(Table& t, const std::string& type) {
  pair2<T, uint32_t>(t, "add." + type, [](T x, T y) { return T(uint16_t(x) + uint16_t(y)); });
  pair2<T, uint32_t>(t, "min." + type, [](T x, T y) { return std::min(x, y); });
  pair2<T, uint32_t>(t, "max." + type, [](T x, T y) { return std::max(x, y); });
}

template <class T>
void add_mixed(Table& t, const std::string& type) {
  define<float, T, float>(t, "add.f32." + type, [](T x, float y) { return canonical(wide(x) + y); });
  define<float, T, float>(t, "sub.f32." + type, [](T x, float y) { return canonical(wide(x) - y); });
  define<float, T, T, float>(t, "fma.f32." + type, [](T x, T y, float z) {
    return canonical(std::fma(wide(x), wide(y), z));
  });
}

void add_packed(Table& t) {
  add_pairs<uint16_t>(t, "u16x2");
  add_pairs<int16_t>(t, "s16x2");
  pair2<int16_t, uint32_t>(t, "min.relu.s16x2", [](int16_t x, int16_t y) {
    return std::max<int16_t>(std::min(x, y), 0);
  });
  pair2<int16_t, uint32_t>(t, "max.relu.s16x2", [](int16_t x, int16_t y) {
    return std::max<int16_t>(std::max(x, y), 0);
  });
  define<int32_t, int32_t, int32_t>(t, "min.relu.s32", [](int32_t x, int32_t y) {
    return std::max(std::min(x, y), 0);
  });
  define<int32_t, int32_t, int32_t>(t, "max.relu.s32", [](int32_t x, int32_t y) {
    return std::max(std::max(x, y), 0);
  });
  pair2<float, uint64_t>(t, "add.f32x2", [](float x, float y) { return canonical(x + y); });
  pair2<float, uint64_t>(t, "sub.f32x2", [](float x, float y) { return canonical(x - y); });
  pair2<float, uint64_t>(t, "mul.f32x2", [](float x, float y) { return canonical(x * y); });
  pair3<float, uint64_t>(t, "fma.f32x2", [](float x, float y, float z) {
    return canonical(std::fma(x, y, z));
  });
  add_mixed<Half>(t, "f16");
  add_mixed<Brain>(t, "bf16");
}

}  // namespace ptx
