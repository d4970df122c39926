// Stockham passes over rows of lanes. Included inside the namespace of an instruction set by
// fft_kernels.h only.

template <typename T>
struct Complex {
  V<T> re, im;
};
template <typename T>
INLINE Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.re + b.re, a.im + b.im};
}
template <typename T>
INLINE Complex<T> operator-(Complex<T> a, Complex<T> b) {
  return {a.re - b.re, a.im - b.im};
}
template <typename T>
INLINE Complex<T> times(Complex<T> a, V<T> re, V<T> im) {
  return {fms(a.re, re, a.im * im), fma(a.re, im, a.im * re)};
}
// -i a
template <typename T>
INLINE Complex<T> turned(Complex<T> a) {
  return {a.im, -a.re};
}

template <typename T>
INLINE void dft4(Complex<T>* x) {
  const Complex<T> a = x[0] + x[2], b = x[0] - x[2], c = x[1] + x[3], d = turned(x[1] - x[3]);
  x[0] = a + c;
  x[1] = b + d;
  x[2] = a - c;
  x[3] = b - d;
}

template <typename T>
INLINE void dft8(Complex<T>* x) {
  const V<T> h = splat<T>(static_cast<T>(0.70710678118654752440L));
  Complex<T> even[4], odd[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    even[k] = x[k] + x[k + 4];
    odd[k] = x[k] - x[k + 4];
  }
  odd[1] = {(odd[1].re + odd[1].im) * h, (odd[1].im - odd[1].re) * h};
  odd[2] = turned(odd[2]);
  odd[3] = {(odd[3].im - odd[3].re) * h, (odd[3].re + odd[3].im) * -h};
  dft4(even);
  dft4(odd);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    x[2 * k] = even[k];
    x[2 * k + 1] = odd[k];
  }
}

// Odd radix r, by pairs (k, r - k): with c and s cosine and sine of 2 pi j k / r,
// X[j] = x0 + sum c (x[k] + x[r-k]) - i sum s (x[k] - x[r-k]), and X[r-j] has + i.
template <typename T>
INLINE void dft_odd(Complex<T>* x, int radix, const T* roots) {
  constexpr int kMost = static_cast<int>(kMaxRadix) / 2;
  Complex<T> sum[kMost], difference[kMost];
  const int pairs = radix / 2;
  const Complex<T> first = x[0];
  Complex<T> total = first;
#pragma GCC unroll 6
  for (int k = 0; k < pairs; ++k) {
    sum[k] = x[k + 1] + x[radix - 1 - k];
    difference[k] = x[k + 1] - x[radix - 1 - k];
    total = total + sum[k];
  }
  x[0] = total;
#pragma GCC unroll 6
  for (int j = 1; j <= pairs; ++j) {
    Complex<T> a = first, b = {};
    int at = 0;
#pragma GCC unroll 6
    for (int k = 0; k < pairs; ++k) {
      at += j;
      if (at >= radix) at -= radix;
      const V<T> c = splat(roots[at]), s = splat(roots[radix + at]);
      a = {fma(sum[k].re, c, a.re), fma(sum[k].im, c, a.im)};
      b = k == 0 ? Complex<T>{difference[k].re * s, difference[k].im * s}
                 : Complex<T>{fma(difference[k].re, s, b.re), fma(difference[k].im, s, b.im)};
    }
    b = turned(b);
    x[j] = a + b;
    x[radix - j] = a - b;
  }
}

enum Mode { kPlain, kTwiddled, kScaled };

// Butterflies of `count` neighbouring lanes, at least those of a vector. Where they are no multiple,
// the last vector takes some once more, which gives the same bits. Rows are `x_row` and `y_row`
// apart. R: the radix, 0 where only the pass knows.
template <typename T, int R, Mode M>
INLINE void butterflies(const Pass<T>& pass, const T* xr, const T* xi, int64_t x_row, T* yr, T* yi,
                        int64_t y_row, int64_t count, const T* w, T scale) {
  const int radix = R == 0 ? static_cast<int>(pass.radix) : R;
  for (int64_t next = 0; next < count; next += kLanes<T>) {
    const int64_t t = next + kLanes<T> <= count ? next : count - kLanes<T>;
    Complex<T> x[R == 0 ? kMaxRadix : R];
    x[0] = {load(xr + t), load(xi + t)};
#pragma GCC unroll 16
    for (int k = 1; k < radix; ++k) x[k] = {load(xr + k * x_row + t), load(xi + k * x_row + t)};
    if constexpr (R == 2) {
      const Complex<T> a = x[0], b = x[1];
      x[0] = a + b;
      x[1] = a - b;
    } else if constexpr (R == 4) {
      dft4(x);
    } else if constexpr (R == 8) {
      dft8(x);
    } else {
      dft_odd(x, radix, pass.roots);
    }
#pragma GCC unroll 16
    for (int k = 0; k < radix; ++k) {
      Complex<T> y = x[k];
      if (M == kTwiddled && k > 0) y = times(y, splat(w[2 * k - 2]), splat(w[2 * k - 1]));
      if (M == kScaled) y = {y.re * splat(scale), y.im * splat(scale)};
      store(yr + k * y_row + t, y.re);
      store(yi + k * y_row + t, y.im);
    }
  }
}

// One pass over rows of `lanes` elements, at least those of a vector. Where they are no multiple of
// that, x and y may not overlap.
template <typename T, int R>
static void run_pass(const Pass<T>& pass, const T* xr, const T* xi, int64_t x_row, T* yr, T* yi,
                     int64_t y_row, int64_t lanes, T scale) {
  int64_t s = pass.s;
  const int64_t m = pass.m, radix = R == 0 ? pass.radix : R;
  if (x_row == lanes && y_row == lanes) {  // rows of q follow each other
    lanes *= s;
    x_row = y_row = lanes;
    s = 1;
  }
  const int64_t x_step = s * m * x_row, y_step = s * y_row;
  for (int64_t q = 0; q < s; ++q) {
    const T* const fr = xr + q * x_row;
    const T* const fi = xi + q * x_row;
    T* const tr = yr + q * y_row;
    T* const ti = yi + q * y_row;
    if (scale != 1) {
      butterflies<T, R, kScaled>(pass, fr, fi, x_step, tr, ti, y_step, lanes, nullptr, scale);
    } else {
      butterflies<T, R, kPlain>(pass, fr, fi, x_step, tr, ti, y_step, lanes, nullptr, scale);
    }
    for (int64_t p = 1; p < m; ++p) {
      const int64_t x_at = s * p * x_row, y_at = s * radix * p * y_row;
      butterflies<T, R, kTwiddled>(pass, fr + x_at, fi + x_at, x_step, tr + y_at, ti + y_at, y_step,
                                   lanes, pass.twiddles + 2 * (radix - 1) * p, scale);
    }
  }
}

template <typename T>
static void dispatch_pass(const Pass<T>& pass, const T* xr, const T* xi, int64_t x_row, T* yr,
                          T* yi, int64_t y_row, int64_t lanes, T scale) {
  switch (pass.radix) {
#define CASE(r) \
  case r: return run_pass<T, r>(pass, xr, xi, x_row, yr, yi, y_row, lanes, scale)
    CASE(2);
    CASE(3);
    CASE(4);
    CASE(5);
    CASE(7);
    CASE(8);
    CASE(11);
    CASE(13);
#undef CASE
    default: return run_pass<T, 0>(pass, xr, xi, x_row, yr, yi, y_row, lanes, scale);
  }
}

// All passes, from x to y, by way of `a` and `b` (pairs of planes, rows of `lanes`). x may be y or
// `b`, y none of the two.
template <typename T>
static void run_stockham(const Stockham<T>& f, const T* xr, const T* xi, int64_t x_row, T* yr,
                         T* yi, int64_t y_row, int64_t lanes, T scale, T* const* a, T* const* b) {
  if (f.passes == 0) {
    for (int64_t t = 0; t < lanes; t += kLanes<T>) {
      const V<T> re = load(xr + t) * splat(scale), im = load(xi + t) * splat(scale);
      store(yr + t, re);
      store(yi + t, im);
    }
    return;
  }
  for (int i = 0; i < f.passes; ++i) {
    const bool last = i == f.passes - 1;
    T* const to_re = last ? yr : a[0];
    T* const to_im = last ? yi : a[1];
    const int64_t to_row = last ? y_row : lanes;
    dispatch_pass<T>(f.pass[i], xr, xi, x_row, to_re, to_im, to_row, lanes, last ? scale : T(1));
    xr = to_re;
    xi = to_im;
    x_row = to_row;
    T* const* const used = a;
    a = b;
    b = used;
  }
}
