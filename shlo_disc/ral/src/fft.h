// Discrete Fourier transforms of the last dimension, on planes of real and imaginary parts.
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
constexpr int64_t kFftVectorShift = 3;   // above: the most bytes of a vector; 0: as many as the CPU has

enum class FftResult { kDone, kNoMemory };

// Transforms `batch` rows of `length` elements. `buffers`: operands, then results, dense; no result
// overlaps an operand. The bits of a row's results depend on the row and `length` alone. Uses
// the thread pool. 0 elements of a row transform to zeros.
[[nodiscard]] FftResult fft_transform(int64_t options, int64_t batch, int64_t length,
                                      void* const* buffers);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FFT_H_
