// Transforms with AVX2 and FMA; see fft_kernels.h.
#if defined(__x86_64__)
#define SHLO_DISC_FFT_NAME avx2
#define SHLO_DISC_FFT_BYTES 32
#include "fft_kernels.h"
#endif
