// How lengths of transforms are factored, by a model of what passes cost.
#ifndef SHLO_DISC_RAL_FFT_FACTORS_H_
#define SHLO_DISC_RAL_FFT_FACTORS_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace shlo_disc::fft {

// The radices of the passes of a transform of n elements; a prime above kMaxRadix comes last.
std::vector<int64_t> radices(int64_t n);
bool is_smooth(int64_t n);  // has no prime factor above kMaxRadix

// (n1, n2) of a smooth n > 1 that cost least in rows of a multiple of `lanes`; n1 <= n2.
std::pair<int64_t, int64_t> split(int64_t n, int64_t lanes);

// The cheapest length of a convolution for a chirp of n elements: >= 2 n - 1.
int64_t convolution_length(int64_t n, int64_t lanes);

}  // namespace shlo_disc::fft

#endif  // SHLO_DISC_RAL_FFT_FACTORS_H_
