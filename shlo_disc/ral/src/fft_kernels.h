// Runs plans of Fourier transforms with the vectors of one instruction set. Included once by each
// of fft_baseline.cpp, fft_avx2.cpp and fft_avx512.cpp, which define SHLO_DISC_FFT_NAME (a
// namespace) and SHLO_DISC_FFT_BYTES (of a vector).
#include <cstdint>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "fft_plan.h"

namespace shlo_disc::fft::SHLO_DISC_FFT_NAME {

#include "fft_vector.h"

#include "fft_passes.h"

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
template <typename T>
INLINE int64_t rounded(int64_t count) {
  return (count + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}
template <typename T>
INLINE Slot<T> slot_of(const Slot<T>& slot, bool swapped) {
  return swapped ? Slot<T>{slot.im, slot.re, slot.stride} : slot;
}

// Planes of scratch, one behind the other. A plane begins three cache lines off the sizes that
// are powers of two: stores would seem to meet loads of the other plane otherwise.
template <typename T>
struct Arena {
  T* next;
  static int64_t plane(int64_t elements) { return rounded<T>(elements) + 192 / sizeof(T); }
  T* take(int64_t elements) {
    T* const taken = next;
    next += plane(elements);
    return taken;
  }
};

// Neighbouring pairs (re, im), the first 1 <= count of a vector's.
template <typename T>
INLINE Complex<T> load_pairs(const T* from, int64_t count) {
  const V<T> a = load_upto(from, 2 * count);
  const V<T> b = 2 * count > kLanes<T> ? load_upto(from + kLanes<T>, 2 * count - kLanes<T>) : V<T>{};
  return {unzip(a, b, 0, Lanes<T>()), unzip_odd(a, b, Lanes<T>())};
}
template <typename T>
INLINE void store_pairs(T* to, Complex<T> value, int64_t count) {
  store_upto(to, zip_low(value.re, value.im, Lanes<T>()), 2 * count);
  if (2 * count <= kLanes<T>) return;
  store_upto(to + kLanes<T>, zip_high(value.re, value.im, Lanes<T>()), 2 * count - kLanes<T>);
}

// Elements at, at + 1, ... of a slot: `count` of them, zeros behind.
template <typename T>
INLINE Complex<T> read(const Slot<T>& slot, int64_t at, int64_t count) {
  if (slot.stride == 1) {
    const V<T> im = slot.im == nullptr ? V<T>{} : load_upto<T>(slot.im + at, count);
    return {load_upto<T>(slot.re + at, count), im};
  }
  if (slot.re < slot.im) return load_pairs<T>(slot.re + 2 * at, count);
  const Complex<T> pair = load_pairs<T>(slot.im + 2 * at, count);
  return {pair.im, pair.re};
}
template <typename T>
INLINE void write(const Slot<T>& slot, int64_t at, Complex<T> value, int64_t count) {
  if (slot.stride == 1) {
    store_upto<T>(slot.re + at, value.re, count);
    store_upto<T>(slot.im + at, value.im, count);
  } else if (slot.re < slot.im) {
    store_pairs<T>(slot.re + 2 * at, value, count);
  } else {
    store_pairs<T>(slot.im + 2 * at, Complex<T>{value.im, value.re}, count);
  }
}

// ---- columns of a split transform --------------------------------------------------------------

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

// ---- element-wise steps: a unit is kChunk elements ---------------------------------------------

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

template <typename T>
static void run_step(const Plan<T>& plan, const Step& step, const Slot<T>* slots, T scale,
                     int64_t lo, int64_t hi, T* scratch) {
  const Core<T>& core = plan.core;
  const Slot<T> from = slot_of(slots[step.from], step.swapped_from);
  const Slot<T> to = slot_of(slots[step.to], step.swapped_to);
  const T by = step.scaled ? scale : T(1);
  const auto chunk = [&](int64_t limit) {
    return std::pair<int64_t, int64_t>{least(lo * kChunk, limit), least(hi * kChunk, limit)};
  };
  switch (step.kind) {
    case StepKind::kColumns:
      for (int64_t u = lo; u < hi; ++u) column_block<T>(core.smooth, from, to, u, scratch);
      return;
    case StepKind::kRows:
      for (int64_t u = lo; u < hi; ++u) row_block<T>(core.smooth, from, to, u, by, scratch);
      return;
    case StepKind::kChirpIn: {
      const auto [begin, end] = chunk(core.smooth.n);
      return chirp_in<T>(core, from, to, begin, end);
    }
    case StepKind::kFilter: {
      const auto [begin, end] = chunk(core.smooth.n);
      return filter<T>(core, to, begin, end);
    }
    case StepKind::kChirpOut: {
      const auto [begin, end] = chunk(core.n);
      return chirp_out<T>(core, from, to, by, begin, end);
    }
    case StepKind::kPostReal:
    case StepKind::kPreReal: {
      const bool post = step.kind == StepKind::kPostReal;
      const auto [begin, end] = chunk(plan.n / 4 + 1);
      if (begin == 0) real_ends<T>(plan, from, to, post);
      if (post) real_pairs<T, true>(plan, from, to, most(begin, 1), end);
      else real_pairs<T, false>(plan, from, to, most(begin, 1), end);
      return;
    }
    case StepKind::kExpand: {
      const auto [begin, end] = chunk(plan.n / 2 + 1);
      return expand<T>(plan, from, to, begin, end);
    }
    case StepKind::kCropReal: {
      const auto [begin, end] = chunk(plan.n);
      for (int64_t k = begin; k < end; ++k) to.re[k] = from.re[k];
      return;
    }
    case StepKind::kCropHalf: {
      const auto [begin, end] = chunk(plan.n / 2 + 1);
      for (int64_t k = begin; k < end; ++k) {
        to.re[k] = from.re[k];
        to.im[k] = k == 0 ? T(0) : from.im[k];
      }
      return;
    }
  }
}

// ---- groups: a transform a lane ----------------------------------------------------------------

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
  const int64_t elements = plan.in_elements(), half = plan.n / 2;
  gather_lanes<T>(from.re, from_row, elements, count, g.in[0]);
  if (plan.kind != Kind::kRealToComplex) {
    gather_lanes<T>(from.im, from_row, elements, count, g.in[1]);
  }
  if (plan.kind == Kind::kComplex) {
    group_core<T>(plan.core, g.in[0], g.in[1], n, g.out[0], g.out[1], n, scale, g);
  } else if (plan.kind == Kind::kRealToComplex && !plan.halved) {
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
static int64_t scratch_elements(const Plan<T>& plan) {
  return plan.within_lanes ? GroupPlanes<T>::elements(plan) : block_elements(plan.core.smooth);
}

const Kernels<float> kernels_float = {kLanes<float>, &scratch_elements<float>,
                                             &group<float>, &run_step<float>};
const Kernels<double> kernels_double = {kLanes<double>, &scratch_elements<double>,
                                               &group<double>, &run_step<double>};

}  // namespace shlo_disc::fft::SHLO_DISC_FFT_NAME
