// Vectors of the instruction set that a file is compiled for. Included inside its namespace by
// fft_kernels.h only: no function here may be shared between files of different instruction sets.

template <typename T>
struct Vector;

template <>
struct Vector<float> {
  typedef float V __attribute__((vector_size(SHLO_DISC_FFT_BYTES)));
  typedef float U __attribute__((vector_size(SHLO_DISC_FFT_BYTES), aligned(4), may_alias));
};
template <>
struct Vector<double> {
  typedef double V __attribute__((vector_size(SHLO_DISC_FFT_BYTES)));
  typedef double U __attribute__((vector_size(SHLO_DISC_FFT_BYTES), aligned(8), may_alias));
};

template <typename T>
using V = typename Vector<T>::V;
template <typename T>
constexpr int64_t kLanes = SHLO_DISC_FFT_BYTES / static_cast<int64_t>(sizeof(T));

#define INLINE static inline __attribute__((always_inline))

template <typename T>
INLINE V<T> load(const T* from) {
  return *reinterpret_cast<const typename Vector<T>::U*>(from);
}
template <typename T>
INLINE void store(T* to, V<T> value) {
  *reinterpret_cast<typename Vector<T>::U*>(to) = value;
}
template <typename T>
INLINE V<T> splat(T value) {
  return V<T>{} + value;
}

// a b + c and a b - c: rounded once where the instruction set can, and the same way everywhere.
#if defined(__AVX512F__)
INLINE V<float> fma(V<float> a, V<float> b, V<float> c) { return _mm512_fmadd_ps(a, b, c); }
INLINE V<float> fms(V<float> a, V<float> b, V<float> c) { return _mm512_fmsub_ps(a, b, c); }
INLINE V<double> fma(V<double> a, V<double> b, V<double> c) { return _mm512_fmadd_pd(a, b, c); }
INLINE V<double> fms(V<double> a, V<double> b, V<double> c) { return _mm512_fmsub_pd(a, b, c); }
#elif defined(__FMA__)
INLINE V<float> fma(V<float> a, V<float> b, V<float> c) { return _mm256_fmadd_ps(a, b, c); }
INLINE V<float> fms(V<float> a, V<float> b, V<float> c) { return _mm256_fmsub_ps(a, b, c); }
INLINE V<double> fma(V<double> a, V<double> b, V<double> c) { return _mm256_fmadd_pd(a, b, c); }
INLINE V<double> fms(V<double> a, V<double> b, V<double> c) { return _mm256_fmsub_pd(a, b, c); }
#elif defined(__aarch64__)
INLINE V<float> fma(V<float> a, V<float> b, V<float> c) { return vfmaq_f32(c, a, b); }
INLINE V<float> fms(V<float> a, V<float> b, V<float> c) { return vfmaq_f32(-c, a, b); }
INLINE V<double> fma(V<double> a, V<double> b, V<double> c) { return vfmaq_f64(c, a, b); }
INLINE V<double> fms(V<double> a, V<double> b, V<double> c) { return vfmaq_f64(-c, a, b); }
#else
template <typename X>
INLINE X fma(X a, X b, X c) {
  return a * b + c;
}
template <typename X>
INLINE X fms(X a, X b, X c) {
  return a * b - c;
}
#endif

// The first `count` elements, 0 <= count < lanes; zeros behind them.
template <typename T>
INLINE V<T> load_first(const T* from, int64_t count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), from);
  } else {
    return _mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1), from);
  }
#else
  V<T> value = {};
  for (int64_t i = 0; i < count; ++i) value[i] = from[i];
  return value;
#endif
}
template <typename T>
INLINE void store_first(T* to, V<T> value, int64_t count) {
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == 4) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), value);
  } else {
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>((1u << count) - 1), value);
  }
#else
  for (int64_t i = 0; i < count; ++i) to[i] = value[i];
#endif
}
// As above; all lanes where there are as many.
template <typename T>
INLINE V<T> load_upto(const T* from, int64_t count) {
  return count >= kLanes<T> ? load(from) : load_first(from, count);
}
template <typename T>
INLINE void store_upto(T* to, V<T> value, int64_t count) {
  if (count >= kLanes<T>) store(to, value);
  else store_first(to, value, count);
}

template <typename X, int... I>
INLINE X zip_low(X a, X b, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return __builtin_shufflevector(a, b, (I % 2 == 0 ? I / 2 : n + I / 2)...);
}
template <typename X, int... I>
INLINE X zip_high(X a, X b, std::integer_sequence<int, I...>) {
  constexpr int n = sizeof...(I);
  return __builtin_shufflevector(a, b, ((I % 2 == 0 ? I / 2 : n + I / 2) + n / 2)...);
}
template <typename X, int... I>
INLINE X unzip(X a, X b, int, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (2 * I)...);
}
template <typename X, int... I>
INLINE X unzip_odd(X a, X b, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, b, (2 * I + 1)...);
}
template <typename X, int... I>
INLINE X reverse(X a, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(a, a, (static_cast<int>(sizeof...(I)) - 1 - I)...);
}
template <typename T>
using Lanes = std::make_integer_sequence<int, static_cast<int>(kLanes<T>)>;

// Transposes a tile of lanes x lanes elements: every round shifts the bits of (row, lane) by one.
template <typename T>
INLINE void transpose(V<T>* tile) {
  constexpr int n = static_cast<int>(kLanes<T>);
  V<T> other[n];
#pragma GCC unroll 8
  for (int width = 1; width < n; width *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < n / 2; ++i) {
      other[2 * i] = zip_low(tile[i], tile[i + n / 2], Lanes<T>());
      other[2 * i + 1] = zip_high(tile[i], tile[i + n / 2], Lanes<T>());
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) tile[i] = other[i];
  }
}
