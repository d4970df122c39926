// Discrete Fourier transforms of one dimension, on planes of real and imaginary parts or on pairs.
#ifndef SHLO_DISC_RAL_FFT_H_
#define SHLO_DISC_RAL_FFT_H_

#include <cstdint>

namespace shlo_disc {

// The bits of `options`; generated code has the same (lower/cpu/fft.py).
constexpr int64_t kFftForward = 0;   // (re, im) -> (re, im)
constexpr int64_t kFftInverse = 1;   // the same, divided by the length
constexpr int64_t kFftToComplex = 2;  // (x) -> (re, im) of length / 2 + 1
constexpr int64_t kFftToReal = 3;    // the inverse of that: (re, im) -> (x)
constexpr int64_t kFftKind = 3;
constexpr int64_t kFftDouble = 4;        // f64; otherwise f32
constexpr int64_t kFftPairsIn = 8;       // of forward and inverse: the operand is one array of pairs
constexpr int64_t kFftPairsOut = 16;     // (re, im), and so is the result
constexpr int64_t kFftVectorShift = 5;   // above: the most bytes of a vector; 0: as many as the CPU has

enum class FftResult { kDone, kNoMemory };

// Transforms the middle dimension of arrays of `batch` x `length` x `inner` elements; `inner` is 1
// unless both sides are complex. `buffers`: operands, then results, dense; no result overlaps an
// operand. The bits of a transform depend on its elements alone. Uses the thread pool.
// Transforms of reals of 0 elements are zeros.
[[nodiscard]] FftResult fft_transform(int64_t options, int64_t batch, int64_t length, int64_t inner,
                                      void* const* buffers);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FFT_H_
