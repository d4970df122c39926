// Transforms with AVX-512; see fft_kernels.h.
#if defined(__x86_64__)
#define SHLO_DISC_FFT_NAME avx512
#define SHLO_DISC_FFT_BYTES 64
#include "fft_kernels.h"
#endif
