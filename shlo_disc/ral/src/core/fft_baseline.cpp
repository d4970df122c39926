// Transforms with the vectors that every x86-64 (or other) CPU has; see fft_kernels.h.
#define SHLO_DISC_FFT_NAME baseline
#define SHLO_DISC_FFT_BYTES 16
#include "fft_kernels.h"
