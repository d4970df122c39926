// Groups of transforms, one a lane. Included inside the namespace of an
// instruction set by fft_kernels.h only.

// Element j of `count` rows becomes lane i of row j; `to` has room for whole tiles.
template <typename T>
static void gather_lanes(const T* from, int64_t from_row, int64_t elements, int64_t count, T* to) {
  constexpr int n = static_cast<int>(kLanes<T>);
  for (int64_t j = 0; j < elements; j += n) {
    const int64_t j0 = most(least(j, elements - n), 0);  // the last tile takes some once more
    V<T> tile[n];
    if (count == n && elements - j0 >= n) {
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) tile[i] = load(from + i * from_row + j0);
    } else {
      for (int i = 0; i < n; ++i) {
        tile[i] = i < count ? load_upto(from + i * from_row + j0, elements - j0) : V<T>{};
      }
    }
    transpose<T>(tile);
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) store(to + (j0 + i) * n, tile[i]);
  }
}
template <typename T>
static void scatter_lanes(const T* from, int64_t elements, int64_t count, T* to, int64_t to_row) {
  constexpr int n = static_cast<int>(kLanes<T>);
  for (int64_t first = 0; first < elements; first += n) {
    const int64_t j0 = most(least(first, elements - n), 0);
    V<T> tile[n];
#pragma GCC unroll 16
    for (int j = 0; j < n; ++j) tile[j] = load(from + (j0 + j) * n);
    transpose<T>(tile);
    if (count == n && elements - j0 >= n) {
#pragma GCC unroll 16
      for (int i = 0; i < n; ++i) store(to + i * to_row + j0, tile[i]);
    } else {
      for (int i = 0; i < count; ++i) store_upto(to + i * to_row + j0, tile[i], elements - j0);
    }
  }
}

template <typename T>
struct GroupPlanes {
  T* in[2];
  T* out[2];
  T* chirped[2];
  T* a[2];
  T* b[2];

  static int64_t rows(const Plan<T>& plan) {
    return rounded<T>(most(plan.n + 2, plan.core.smooth.n) + 1);
  }
  static int64_t elements(const Plan<T>& plan) {
    return 10 * Arena<T>::plane(rows(plan) * kLanes<T>);
  }
  GroupPlanes(const Plan<T>& plan, T* scratch) {
    Arena<T> arena{scratch};
    const int64_t size = rows(plan) * kLanes<T>;
    T** const all[] = {in, out, chirped, a, b};
    for (T** const pair : all) {
      for (int i = 0; i < 2; ++i) pair[i] = arena.take(size);
    }
  }
};

// Rows of lanes of complex numbers: two planes, or, of pairs, rows of real and imaginary parts in
// turn, which fill both planes.
template <typename T>
struct Rows {
  T *re, *im, *first;
  int64_t row;
  int parts;  // of a row of elements

  Rows(const Slot<T>& slot, T* const* planes)
      : re(planes[0]), im(planes[1]), first(planes[0]), row(kLanes<T>), parts(1) {
    if (slot.stride == 1) return;
    const bool swapped = slot.im < slot.re;
    re = first + (swapped ? kLanes<T> : 0);
    im = first + (swapped ? 0 : kLanes<T>);
    row = 2 * kLanes<T>;
    parts = 2;
  }
  void gather(const Slot<T>& from, int64_t from_row, int64_t elements, int64_t count) const {
    gather_lanes<T>(begin(from), from_row, parts * elements, count, first);
    if (parts == 1) gather_lanes<T>(from.im, from_row, elements, count, im);
  }
  void scatter(const Slot<T>& to, int64_t to_row, int64_t elements, int64_t count) const {
    scatter_lanes<T>(first, parts * elements, count, begin(to), to_row);
    if (parts == 1) scatter_lanes<T>(im, elements, count, to.im, to_row);
  }

 private:
  T* begin(const Slot<T>& slot) const {
    return parts == 2 && slot.im < slot.re ? slot.im : slot.re;
  }
};

// The complex transform of rows of lanes.
template <typename T>
static void group_core(const Core<T>& core, const T* xr, const T* xi, int64_t x_row, T* yr, T* yi,
                       int64_t y_row, T scale, const GroupPlanes<T>& planes) {
  constexpr int64_t n = kLanes<T>;
  if (!core.chirped) {
    run_stockham<T>(core.smooth.first, xr, xi, x_row, yr, yi, y_row, n, scale, planes.a, planes.b);
    return;
  }
  T* const* const c = planes.chirped;
  T* const* const b = planes.b;
  const int64_t m = core.smooth.n;
  for (int64_t j = 0; j < m; ++j) {
    Complex<T> x = {};
    if (j < core.n) {
      x = times(Complex<T>{load(xr + j * x_row), load(xi + j * x_row)}, splat(core.chirp_re[j]),
                splat(core.chirp_im[j]));
    }
    store(b[0] + j * n, x.re);
    store(b[1] + j * n, x.im);
  }
  run_stockham<T>(core.smooth.first, b[0], b[1], n, c[0], c[1], n, n, T(1), planes.a, b);
  for (int64_t j = 0; j < m; ++j) {
    const Complex<T> x = times(Complex<T>{load(c[0] + j * n), load(c[1] + j * n)},
                               splat(core.filter_re[j]), splat(core.filter_im[j]));
    store(b[0] + j * n, x.re);
    store(b[1] + j * n, x.im);
  }
  run_stockham<T>(core.smooth.first, b[1], b[0], n, c[1], c[0], n, n, T(1), planes.a, b);
  for (int64_t j = 0; j < core.n; ++j) {
    const Complex<T> y = times(Complex<T>{load(c[0] + j * n), load(c[1] + j * n)},
                               splat(core.chirp_re[j]), splat(core.chirp_im[j]));
    store(yr + j * y_row, y.re * splat(scale));
    store(yi + j * y_row, y.im * splat(scale));
  }
}

template <typename T>
static void clear_lanes(T* row) {
  store(row, V<T>{});
}

template <typename T>
static void group(const Plan<T>& plan, const Slot<T>& from, int64_t from_row, const Slot<T>& to,
                  int64_t to_row, int64_t count, T scale, T* scratch) {
  constexpr int64_t n = kLanes<T>;
  const GroupPlanes<T> g(plan, scratch);
  if (plan.kind == Kind::kComplex) {
    const Rows<T> x(from, g.in), y(to, g.out);
    x.gather(from, from_row, plan.n, count);
    group_core<T>(plan.core, x.re, x.im, x.row, y.re, y.im, y.row, scale, g);
    y.scatter(to, to_row, plan.n, count);
    return;
  }
  const int64_t elements = plan.in_elements(), half = plan.n / 2;
  gather_lanes<T>(from.re, from_row, elements, count, g.in[0]);
  if (plan.kind != Kind::kRealToComplex) {
    gather_lanes<T>(from.im, from_row, elements, count, g.in[1]);
  }
  if (plan.kind == Kind::kRealToComplex && !plan.halved) {
    for (int64_t j = 0; j < plan.n; ++j) clear_lanes(g.in[1] + j * n);
    group_core<T>(plan.core, g.in[0], g.in[1], n, g.out[0], g.out[1], n, T(1), g);
    clear_lanes(g.out[1]);
  } else if (plan.kind == Kind::kRealToComplex) {
    group_core<T>(plan.core, g.in[0], g.in[0] + n, 2 * n, g.out[0], g.out[1], n, T(1), g);
    const V<T> re = load(g.out[0]), im = load(g.out[1]);
    store(g.out[0], re + im);
    store(g.out[0] + half * n, re - im);
    clear_lanes(g.out[1]);
    clear_lanes(g.out[1] + half * n);
    for (int64_t k = 1; k <= half / 2; ++k) {
      T* const p[] = {g.out[0] + k * n, g.out[1] + k * n, g.out[0] + (half - k) * n,
                      g.out[1] + (half - k) * n};
      Complex<T> a = {load(p[0]), load(p[1])}, b = {load(p[2]), load(p[3])};
      post_real<T>(a, b, {splat(plan.real_re[k]), splat(plan.real_im[k])});
      store(p[0], a.re);
      store(p[1], a.im);
      store(p[2], b.re);
      store(p[3], b.im);
    }
  } else if (!plan.halved) {
    clear_lanes(g.in[1]);
    for (int64_t k = 1; k < elements; ++k) {
      store(g.in[0] + (plan.n - k) * n, load(g.in[0] + k * n));
      store(g.in[1] + (plan.n - k) * n, -load(g.in[1] + k * n));
    }
    group_core<T>(plan.core, g.in[1], g.in[0], n, g.out[1], g.out[0], n, scale, g);
  } else {
    const V<T> first = load(g.in[0]), last = load(g.in[0] + half * n);
    store(g.in[0], first + last);
    store(g.in[1], first - last);
    for (int64_t k = 1; k <= half / 2; ++k) {
      T* const p[] = {g.in[0] + k * n, g.in[1] + k * n, g.in[0] + (half - k) * n,
                      g.in[1] + (half - k) * n};
      Complex<T> a = {load(p[0]), load(p[1])}, b = {load(p[2]), load(p[3])};
      pre_real<T>(a, b, {splat(plan.real_re[k]), splat(plan.real_im[k])});
      store(p[0], a.re);
      store(p[1], a.im);
      store(p[2], b.re);
      store(p[3], b.im);
    }
    // Rows 2 j are real parts, rows 2 j + 1 imaginary parts.
    group_core<T>(plan.core, g.in[1], g.in[0], n, g.out[0] + n, g.out[0], 2 * n, scale, g);
  }
  scatter_lanes<T>(g.out[0], plan.out_elements(), count, to.re, to_row);
  if (plan.kind != Kind::kComplexToReal) {
    scatter_lanes<T>(g.out[1], plan.out_elements(), count, to.im, to_row);
  }
}

template <typename T>
static void columns(const Plan<T>& plan, const Slot<T>& from, const Slot<T>& to, int64_t inner,
                    int64_t count, T scale, T* scratch) {
  constexpr int64_t n = kLanes<T>;
  if (!plan.within_lanes) {
    split_lanes<T>(plan.core.smooth, from, to, inner, count, scale, scratch);
    return;
  }
  const GroupPlanes<T> g(plan, scratch);
  const bool reads = count == n && from.stride == 1;  // rows of lanes as they are
  const bool writes = count == n && to.stride == 1;
  if (!reads) {
    for (int64_t j = 0; j < plan.n; ++j) {
      const Complex<T> x = read(from, j * inner, count);
      store(g.in[0] + j * n, x.re);
      store(g.in[1] + j * n, x.im);
    }
  }
  group_core<T>(plan.core, reads ? from.re : g.in[0], reads ? from.im : g.in[1],
                reads ? inner : n, writes ? to.re : g.out[0], writes ? to.im : g.out[1],
                writes ? inner : n, scale, g);
  if (writes) return;
  for (int64_t j = 0; j < plan.n; ++j) {
    write(to, j * inner, Complex<T>{load(g.out[0] + j * n), load(g.out[1] + j * n)}, count);
  }
}

template <typename T>
static void turn(const Slot<T>& columns, int64_t inner, int64_t elements, int64_t count,
                 const Slot<T>& rows, bool back) {
  constexpr int64_t n = kLanes<T>;
  for (int64_t j0 = 0; j0 < elements; j0 += n) {
    const int64_t there = least(n, elements - j0);
    V<T> re[n] = {}, im[n] = {};
    for (int64_t i = 0; i < (back ? count : there); ++i) {
      const Complex<T> x = back ? read(rows, i * elements + j0, there)
                                : read(columns, (j0 + i) * inner, count);
      re[i] = x.re;
      im[i] = x.im;
    }
    transpose<T>(re);
    transpose<T>(im);
    for (int64_t i = 0; i < (back ? there : count); ++i) {
      const Complex<T> x = {re[i], im[i]};
      if (back) write(columns, (j0 + i) * inner, x, count);
      else write(rows, i * elements + j0, x, there);
    }
  }
}
