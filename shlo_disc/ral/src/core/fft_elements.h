// Element-wise steps: chirps, filters, real halves; a unit is kChunk elements.
// Included inside the namespace of an instruction set by fft_kernels.h only.

template <typename T>
static void chirp_in(const Core<T>& core, const Slot<T>& from, const Slot<T>& to, int64_t begin,
                     int64_t end) {
  const int64_t known = most(begin, least(end, core.n));
  for (int64_t j = begin; j < known; j += kLanes<T>) {
    const int64_t count = known - j;
    const Complex<T> w = {load_upto(core.chirp_re + j, count), load_upto(core.chirp_im + j, count)};
    write(to, j, times(read(from, j, count), w.re, w.im), count);
  }
  for (int64_t j = known; j < end; j += kLanes<T>) write(to, j, Complex<T>{}, end - j);
}

template <typename T>
static void filter(const Core<T>& core, const Slot<T>& at, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; j += kLanes<T>) {
    const int64_t count = end - j;
    const Complex<T> w = {load_upto(core.filter_re + j, count),
                          load_upto(core.filter_im + j, count)};
    write(at, j, times(read(at, j, count), w.re, w.im), count);
  }
}

template <typename T>
static void chirp_out(const Core<T>& core, const Slot<T>& from, const Slot<T>& to, T scale,
                      int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; j += kLanes<T>) {
    const int64_t count = end - j;
    const Complex<T> w = {load_upto(core.chirp_re + j, count), load_upto(core.chirp_im + j, count)};
    const Complex<T> y = times(read(from, j, count), w.re, w.im);
    write(to, j, Complex<T>{y.re * splat(scale), y.im * splat(scale)}, count);
  }
}

// Of Z[k] and Z[h - k], where Z is the transform of x[2 j] + i x[2 j + 1]: X[k] and X[h - k].
template <typename T>
INLINE void post_real(Complex<T>& a, Complex<T>& b, Complex<T> w) {
  const V<T> half = splat<T>(T(0.5));
  const Complex<T> even = {(a.re + b.re) * half, (a.im - b.im) * half};
  const Complex<T> odd = {(a.im + b.im) * half, (b.re - a.re) * half};
  const Complex<T> turn = times(odd, w.re, w.im);
  a = even + turn;
  b = {even.re - turn.re, turn.im - even.im};
}
// The other way, twice as large: Z[k] and Z[h - k] of X[k] and X[h - k].
template <typename T>
INLINE void pre_real(Complex<T>& a, Complex<T>& b, Complex<T> w) {
  const Complex<T> sum = {a.re + b.re, a.im - b.im};
  const Complex<T> turn = times(Complex<T>{a.re - b.re, a.im + b.im}, w.re, -w.im);
  a = {sum.re - turn.im, sum.im + turn.re};
  b = {sum.re + turn.im, turn.re - sum.im};
}

// Pairs k and h - k for begin <= k < end, 1 <= begin, end <= h / 2 + 1; `from` may be `to`.
template <typename T, bool Post>
static void real_pairs(const Plan<T>& plan, const Slot<T>& from, const Slot<T>& to, int64_t begin,
                       int64_t end) {
  const int64_t h = plan.n / 2;
  for (int64_t k = begin; k < end; k += kLanes<T>) {
    const int64_t count = least(kLanes<T>, end - k), mirror = h - k - count + 1;
    Complex<T> a = read(from, k, count), b = read(from, mirror, count);
    const Complex<T> w = {load_upto(plan.real_re + k, count), load_upto(plan.real_im + k, count)};
    // The last of `count` lanes comes first, and back.
    T turned_re[2 * kLanes<T>] = {}, turned_im[2 * kLanes<T>] = {};
    const auto turn = [&](Complex<T> x) {
      if (count == kLanes<T>) return Complex<T>{reverse(x.re, Lanes<T>()), reverse(x.im, Lanes<T>())};
      store(turned_re, reverse(x.re, Lanes<T>()));
      store(turned_im, reverse(x.im, Lanes<T>()));
      return Complex<T>{load(turned_re + kLanes<T> - count), load(turned_im + kLanes<T> - count)};
    };
    b = turn(b);
    if (Post) post_real(a, b, w);
    else pre_real(a, b, w);
    write(to, k, a, count);
    write(to, mirror, turn(b), count);
  }
}

template <typename T>
static void real_ends(const Plan<T>& plan, const Slot<T>& from, const Slot<T>& to, bool post) {
  const int64_t h = plan.n / 2;
  if (post) {
    const T re = from.re[0], im = from.im[0];
    to.re[0] = re + im;
    to.re[h] = re - im;
    to.im[0] = to.im[h] = 0;
  } else {
    const T first = from.re[0], last = from.re[h];
    to.re[0] = first + last;
    to.im[0] = first - last;
  }
}

template <typename T>
static void expand(const Plan<T>& plan, const Slot<T>& from, const Slot<T>& to, int64_t begin,
                   int64_t end) {
  for (int64_t k = begin; k < end; ++k) {
    to.re[k] = from.re[k];
    to.im[k] = k == 0 ? T(0) : from.im[k];
    if (k == 0) continue;
    to.re[plan.n - k] = from.re[k];
    to.im[plan.n - k] = -from.im[k];
  }
}
