// Columns of split transforms, in blocks. Included inside the namespace of an
// instruction set by fft_kernels.h only.

// The row that `count` columns take in the passes: whole vectors where they are fewer than one, or
// where a pass may be in place.
template <typename T>
INLINE int64_t row_of(const Stockham<T>& f, int64_t count) {
  return count >= kLanes<T> && f.passes > 1 ? count : rounded<T>(count);
}

// Passes over `count` neighbouring columns that begin at `at`, of rows `row` elements apart.
// Results are rows of row_of() elements in `result`, or go to `to` where that is not null.
template <typename T>
static void run_columns(const Stockham<T>& f, const Slot<T>& from, int64_t at, int64_t row,
                        int64_t count, T scale, const Slot<T>* to, T* const* result, T* const* a,
                        T* const* b) {
  const int64_t lanes = row_of(f, count);
  const bool whole = count == lanes;
  const T* xr = nullptr;
  const T* xi = nullptr;
  int64_t x_row = row;
  if (whole && from.stride == 1 && from.im != nullptr) {
    xr = from.re + at;
    xi = from.im + at;
  } else {
    for (int64_t j = 0; j < f.n; ++j) {  // what is stored behind a row, the next one overwrites
      for (int64_t t = 0; t < lanes; t += kLanes<T>) {
        const Complex<T> x = read(from, at + j * row + t, count - t);
        store(b[0] + j * lanes + t, x.re);
        store(b[1] + j * lanes + t, x.im);
      }
    }
    xr = b[0];
    xi = b[1];
    x_row = lanes;
  }
  if (to != nullptr && whole && to->stride == 1) {
    run_stockham<T>(f, xr, xi, x_row, to->re + at, to->im + at, row, lanes, scale, a, b);
    return;
  }
  run_stockham<T>(f, xr, xi, x_row, result[0], result[1], lanes, lanes, scale, a, b);
  if (to == nullptr) return;
  for (int64_t j = 0; j < f.n; ++j) {
    for (int64_t t = 0; t < lanes; t += kLanes<T>) {
      const Complex<T> x = {load(result[0] + j * lanes + t), load(result[1] + j * lanes + t)};
      write(*to, at + j * row + t, x, count - t);
    }
  }
}

template <typename T>
static int64_t block_elements(const Smooth<T>& f) {
  const int64_t one = rounded<T>(f.first.n) * rounded<T>(f.columns1);  // of whole tiles
  const int64_t two = f.second.n * rounded<T>(f.columns2);
  return 6 * Arena<T>::plane(most(one, two));
}

template <typename T>
struct BlockPlanes {
  T* a[2];
  T* b[2];
  T* result[2];
  BlockPlanes(const Smooth<T>& f, T* scratch) {
    const int64_t plane = block_elements(f) / 6;
    T** const all[] = {a, b, result};
    for (T** const pair : all) {
      for (int i = 0; i < 2; ++i, scratch += plane) pair[i] = scratch;
    }
  }
};

template <typename T, bool Far>
INLINE void twiddle_tile(const Smooth<T>& f, int64_t block, int64_t k0, int64_t c0, int64_t lanes,
                         T* const* x, V<T>* re, V<T>* im) {
#pragma GCC unroll 16
  for (int i = 0; i < static_cast<int>(kLanes<T>); ++i) {
    const int64_t near = (k0 + i) * f.table_row + c0, far = block * f.table_rows + k0 + i;
    Complex<T> w = {load(f.near_re + near), load(f.near_im + near)};
    if (Far) w = times(w, splat(f.far_re[far]), splat(f.far_im[far]));
    const int64_t at = (k0 + i) * lanes + c0;
    const Complex<T> y = times(Complex<T>{load(x[0] + at), load(x[1] + at)}, w.re, w.im);
    re[i] = y.re;
    im[i] = y.im;
  }
}

template <typename T>
static void column_block(const Smooth<T>& f, const Slot<T>& from, const Slot<T>& to, int64_t block,
                         T* scratch) {
  const BlockPlanes<T> planes(f, scratch);
  const int64_t n1 = f.first.n, n2 = f.second.n, begin = block * f.columns1;
  const int64_t count = least(f.columns1, n2 - begin), lanes = row_of(f.first, count);
  run_columns<T>(f.first, from, begin, n2, count, T(1), nullptr, planes.result, planes.a, planes.b);
  // Tiles at the end take some elements once more where there are enough.
  for (int64_t c = 0; c < count; c += kLanes<T>) {
    const int64_t c0 = most(least(c, count - kLanes<T>), 0), rows = least(kLanes<T>, count - c0);
    for (int64_t k = 0; k < n1; k += kLanes<T>) {
      const int64_t k0 = most(least(k, n1 - kLanes<T>), 0), width = n1 - k0;
      V<T> re[kLanes<T>], im[kLanes<T>];
      if (block == 0) {
        twiddle_tile<T, false>(f, block, k0, c0, lanes, planes.result, re, im);
      } else {
        twiddle_tile<T, true>(f, block, k0, c0, lanes, planes.result, re, im);
      }
      transpose<T>(re);
      transpose<T>(im);
      const int64_t at = (begin + c0) * n1 + k0;
      if (rows == kLanes<T> && width >= kLanes<T>) {
#pragma GCC unroll 16
        for (int j = 0; j < static_cast<int>(kLanes<T>); ++j) {
          store(to.re + at + j * n1, re[j]);
          store(to.im + at + j * n1, im[j]);
        }
        continue;
      }
      for (int64_t j = 0; j < rows; ++j) {
        store_upto<T>(to.re + at + j * n1, re[j], width);
        store_upto<T>(to.im + at + j * n1, im[j], width);
      }
    }
  }
}

template <typename T>
static void row_block(const Smooth<T>& f, const Slot<T>& from, const Slot<T>& to, int64_t block,
                      T scale, T* scratch) {
  const BlockPlanes<T> planes(f, scratch);
  const int64_t n1 = f.first.n, begin = block * f.columns2;
  const int64_t count = least(f.columns2, n1 - begin);
  run_columns<T>(f.second, from, begin, n1, count, scale, &to, planes.result, planes.a, planes.b);
}

// ---- many split transforms, one a lane -----------------------------------------------------------

// Neighbouring columns of the first step that are transformed together: they stay in the L1 cache.
constexpr int64_t kTogether = 4;

template <typename T>
struct LanePlanes {
  T* middle[2];  // all elements, between the steps
  T* x[2];       // of a part of a step, and temporary ones
  T* a[2];
  T* b[2];

  static int64_t part(const Smooth<T>& f) {
    return most(f.first.n * kTogether, f.second.n) * kLanes<T>;
  }
  static int64_t elements(const Smooth<T>& f) {
    return 2 * Arena<T>::plane(f.n * kLanes<T>) + 6 * Arena<T>::plane(part(f));
  }
  LanePlanes(const Smooth<T>& f, T* scratch) {
    Arena<T> arena{scratch};
    for (T*& plane : middle) plane = arena.take(f.n * kLanes<T>);
    T** const all[] = {x, a, b};
    for (T** const pair : all) {
      for (int i = 0; i < 2; ++i) pair[i] = arena.take(part(f));
    }
  }
};

// Transforms of `count` <= lanes neighbouring elements of rows that are `inner` apart. Each has the
// operations of column_block and row_block, so its bits are the same; no element is transposed.
template <typename T>
static void split_lanes(const Smooth<T>& f, const Slot<T>& from, const Slot<T>& to, int64_t inner,
                        int64_t count, T scale, T* scratch) {
  constexpr int64_t n = kLanes<T>;
  const LanePlanes<T> planes(f, scratch);
  const int64_t n1 = f.first.n, n2 = f.second.n;
  for (int64_t c0 = 0; c0 < n2; c0 += kTogether) {
    const int64_t together = least(kTogether, n2 - c0), lanes = together * n;
    for (int64_t k = 0; k < n1; ++k) {
      for (int64_t c = 0; c < together; ++c) {
        const Complex<T> x = read(from, (k * n2 + c0 + c) * inner, count);
        store(planes.b[0] + k * lanes + c * n, x.re);
        store(planes.b[1] + k * lanes + c * n, x.im);
      }
    }
    run_stockham<T>(f.first, planes.b[0], planes.b[1], lanes, planes.x[0], planes.x[1], lanes, lanes,
                    T(1), planes.a, planes.b);
    for (int64_t c = 0; c < together; ++c) {
      const int64_t block = (c0 + c) / f.columns1, column = (c0 + c) % f.columns1;
      for (int64_t k = 0; k < n1; ++k) {
        const int64_t near = k * f.table_row + column, far = block * f.table_rows + k;
        Complex<T> w = {splat(f.near_re[near]), splat(f.near_im[near])};
        if (block != 0) w = times(w, splat(f.far_re[far]), splat(f.far_im[far]));
        const int64_t at = k * lanes + c * n, to_at = (k * n2 + c0 + c) * n;
        const Complex<T> y =
            times(Complex<T>{load(planes.x[0] + at), load(planes.x[1] + at)}, w.re, w.im);
        store(planes.middle[0] + to_at, y.re);
        store(planes.middle[1] + to_at, y.im);
      }
    }
  }
  const bool writes = count == n && to.stride == 1;
  for (int64_t k = 0; k < n1; ++k) {
    const int64_t at = k * n2 * n;
    run_stockham<T>(f.second, planes.middle[0] + at, planes.middle[1] + at, n,
                    writes ? to.re + k * inner : planes.x[0],
                    writes ? to.im + k * inner : planes.x[1], writes ? n1 * inner : n, n, scale,
                    planes.a, planes.b);
    if (writes) continue;
    for (int64_t j = 0; j < n2; ++j) {
      write(to, (k + j * n1) * inner,
            Complex<T>{load(planes.x[0] + j * n), load(planes.x[1] + j * n)}, count);
    }
  }
}
