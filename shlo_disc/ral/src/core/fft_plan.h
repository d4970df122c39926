// Plans of discrete Fourier transforms: how a length is factored, and its tables. No code of an
// instruction set here: fft_kernels.h runs plans.
//
// A transform of length n is one of
//   Stockham    passes of small radices over rows of independent lanes; no reordering of elements
//               (T. Stockham, "High-speed convolution and correlation", 1966);
//   split       n = n1 * n2: columns of length n1, twiddles and a transposition, columns of length
//               n2, each by Stockham passes (D. Bailey, "FFTs in external or hierarchical memory",
//               1990);
//   chirp       a convolution of length m >= 2n - 1 by either, where n has a prime factor above
//               kMaxRadix (L. Bluestein, 1970).
// A plan depends on the length and the element type only, and so do the operations that compute
// one transform: results have the same bits for every batch size and number of threads.
#ifndef SHLO_DISC_RAL_FFT_PLAN_H_
#define SHLO_DISC_RAL_FFT_PLAN_H_

#include <cstdint>

namespace shlo_disc::fft {

constexpr int64_t kMaxRadix = 61;     // larger primes cost less as a convolution
constexpr int64_t kMaxWithin = 256;   // longer transforms are split; shorter ones run in lanes
constexpr int kMaxPasses = 24;
constexpr int64_t kRowAlign = 16;     // rows of tables: a multiple of the lanes of every vector
constexpr int64_t kChunk = 4096;      // elements of a unit of element-wise steps

// Elements between planes of temporary memory: whole cache lines, off powers of two.
constexpr int64_t padded(int64_t elements) {
  return elements == 0 ? 0 : (elements + kRowAlign - 1) / kRowAlign * kRowAlign + 3 * kRowAlign;
}

enum class Kind : int32_t { kComplex, kRealToComplex, kComplexToReal };

// One Stockham pass: x[q + s (p + m k)] -> y[q + s (radix p + k)], p < m, q < s, k < radix.
template <typename T>
struct Pass {
  int64_t radix, m, s;
  const T* twiddles;  // [m][radix - 1] pairs (re, im) of exp(-2 pi i p k / (radix m)), k from 1
  const T* roots;     // odd radix: [radix] cosines, then [radix] sines, of 2 pi j / radix
};

template <typename T>
struct Stockham {
  int64_t n = 1;
  int passes = 0;  // 0: n is 1
  Pass<T> pass[kMaxPasses];
};

// A complex transform whose length has small prime factors only.
template <typename T>
struct Smooth {
  int64_t n = 1;
  bool split = false;
  Stockham<T> first;   // of n1, or of n where not split
  Stockham<T> second;  // of n2
  int64_t columns1 = 0, columns2 = 0;  // of a block of the two steps
  int64_t table_row = 0, table_rows = 0;
  // exp(-2 pi i k c / n), k < n1, c < columns1: [table_rows][table_row] each
  const T* near_re = nullptr;
  const T* near_im = nullptr;
  // exp(-2 pi i k b columns1 / n) of block b: [blocks][table_rows] each
  const T* far_re = nullptr;
  const T* far_im = nullptr;
};

// A complex transform of any length.
template <typename T>
struct Core {
  int64_t n = 1;
  bool chirped = false;
  Smooth<T> smooth;  // of m where chirped
  const T* chirp_re = nullptr;  // [n] exp(-pi i j^2 / n)
  const T* chirp_im = nullptr;
  const T* filter_re = nullptr;  // [m] the transform of the conjugate chirp, divided by m
  const T* filter_im = nullptr;
};

// Memory of one transform. `im` null: zeros to read. Elements are `stride` apart.
template <typename T>
struct Slot {
  T* re = nullptr;
  T* im = nullptr;
  int64_t stride = 1;
};

enum SlotName : int8_t { kIn, kOut, kHalf, kFull, kWork1, kWork2, kSlots };

enum class StepKind : int8_t {
  kColumns,    // of n1, twiddles, transposed; a unit is a block of columns
  kRows,       // columns of n2 of what kColumns left
  kChirpIn,    // times the chirp, zeros behind
  kFilter,     // times the filter, in place
  kChirpOut,   // times the chirp
  kPostReal,   // of half a complex transform: that of reals, in place
  kPreReal,    // the inverse of kPostReal
  kExpand,     // Hermitian halves to the whole
  kCropReal,   // elements of the real part
  kCropHalf,   // the first n / 2 + 1 elements; the first one is real
};

struct Step {
  StepKind kind;
  SlotName from, to;
  bool swapped_from = false, swapped_to = false;  // real and imaginary parts change places
  bool scaled = false;                            // by the factor of the call
  int64_t units = 0;
};

constexpr int kMaxSteps = 12;

template <typename T>
struct Plan {
  Kind kind = Kind::kComplex;
  int64_t n = 1;
  bool halved = false;  // reals of even length: a complex transform of n / 2
  Core<T> core;
  const T* real_re = nullptr;  // halved: [n / 4 + 1] exp(-2 pi i k / n)
  const T* real_im = nullptr;
  bool within_lanes = false;  // runs as groups of transforms, one a lane; otherwise in steps
  int steps = 0;
  Step step[kMaxSteps];
  int64_t work_elements[kSlots] = {};  // of one plane of every slot that is temporary

  // Inlined wherever they are called: a copy of one instruction set is not for all CPUs.
  __attribute__((always_inline)) int64_t in_elements() const { return kind == Kind::kComplexToReal ? n / 2 + 1 : n; }
  __attribute__((always_inline)) int64_t out_elements() const { return kind == Kind::kRealToComplex ? n / 2 + 1 : n; }
};

// What is compiled once for every instruction set.
template <typename T>
struct Kernels {
  int64_t lanes;
  // Elements of scratch that the others need.
  int64_t (*scratch_elements)(const Plan<T>& plan);
  // Elements of scratch that `columns` needs; 0: it cannot transform such columns.
  int64_t (*column_elements)(const Plan<T>& plan);
  // Transforms of `count` <= lanes rows: row i begins at `from_row` * i.
  void (*group)(const Plan<T>& plan, const Slot<T>& from, int64_t from_row, const Slot<T>& to,
                int64_t to_row, int64_t count, T scale, T* scratch);
  // The same of `count` neighbouring columns, whose elements are `inner` apart.
  void (*columns)(const Plan<T>& plan, const Slot<T>& from, const Slot<T>& to, int64_t inner,
                  int64_t count, T scale, T* scratch);
  // Copies columns of `elements` elements, `inner` apart, to rows or, where `back`, rows to columns.
  void (*turn)(const Slot<T>& columns, int64_t inner, int64_t elements, int64_t count,
               const Slot<T>& rows, bool back);
  // Units lo <= u < hi of a step of one transform.
  void (*run_step)(const Plan<T>& plan, const Step& step, const Slot<T>* slots, T scale, int64_t lo,
                   int64_t hi, T* scratch);
};

#define SHLO_DISC_FFT_ISA(name)                  \
  namespace name {                               \
  extern const Kernels<float> kernels_float;     \
  extern const Kernels<double> kernels_double;   \
  }
SHLO_DISC_FFT_ISA(baseline)
SHLO_DISC_FFT_ISA(avx2)
SHLO_DISC_FFT_ISA(avx512)
#undef SHLO_DISC_FFT_ISA

}  // namespace shlo_disc::fft

#endif  // SHLO_DISC_RAL_FFT_PLAN_H_
