// The floating-point control state that compiled programs are entitled to: round to nearest,
// denormals honoured, nothing trapped.
#ifndef SHLO_DISC_RAL_FP_ENV_H_
#define SHLO_DISC_RAL_FP_ENV_H_

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#include <cfenv>
#endif

namespace shlo_disc {

#if defined(__x86_64__)
// Generated code uses SSE/AVX only, so MXCSR is all of the state that matters.
class DefaultFpEnv {
 public:
  DefaultFpEnv() : saved_(_mm_getcsr()) {
    if (saved_ != kDefault) _mm_setcsr(kDefault);
  }
  ~DefaultFpEnv() { _mm_setcsr(saved_); }
  DefaultFpEnv(const DefaultFpEnv&) = delete;
  DefaultFpEnv& operator=(const DefaultFpEnv&) = delete;

  // For threads we own: a new thread inherits the control word of its creator.
  static void set() { _mm_setcsr(kDefault); }

 private:
  static constexpr unsigned kDefault = 0x1F80;
  unsigned saved_;
};
#elif defined(__aarch64__)
// FPCR has the rounding, flushes denormals, and traps. FPSR only counts what happened.
class DefaultFpEnv {
 public:
  DefaultFpEnv() : saved_(get()) {
    if (saved_ != 0) put(0);
  }
  ~DefaultFpEnv() {
    if (saved_ != 0) put(saved_);
  }
  DefaultFpEnv(const DefaultFpEnv&) = delete;
  DefaultFpEnv& operator=(const DefaultFpEnv&) = delete;

  static void set() { put(0); }

 private:
  static uint64_t get() {
    uint64_t value;
    __asm__ volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void put(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value) : "memory"); }

  uint64_t saved_;
};
#else
class DefaultFpEnv {
 public:
  DefaultFpEnv() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFpEnv() { std::fesetenv(&saved_); }
  DefaultFpEnv(const DefaultFpEnv&) = delete;
  DefaultFpEnv& operator=(const DefaultFpEnv&) = delete;

  static void set() { std::fesetenv(FE_DFL_ENV); }

 private:
  std::fenv_t saved_;
};
#endif

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FP_ENV_H_
