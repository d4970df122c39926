// Roots of unity, each rounded once from a wider type.
#ifndef SHLO_DISC_RAL_FFT_ROOTS_H_
#define SHLO_DISC_RAL_FFT_ROOTS_H_

#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace shlo_disc::fft {

// exp(-2 pi i e / n) for any 0 <= e < n < 2^59. Angles are reduced to [0, pi / 4] in integers, where
// they are a sum of two of which there are about sqrt(n) each: the angles' sines and cosines have an
// error of a few ULP of the wider type, and multiples of pi / 4 are exact.
template <typename T>
class Roots {
 public:
  using Wide = std::conditional_t<sizeof(T) == 4, double, long double>;

  explicit Roots(int64_t n) : n_(n), step_(1) {
    while (step_ * step_ < n + 1) step_ *= 2;
    const Wide unit = std::acos(Wide(-1)) / (4 * static_cast<Wide>(n));
    for (int64_t a = 0; a < step_; ++a) fine_.push_back(at(unit * static_cast<Wide>(a)));
    for (int64_t a = 0; a <= n; a += step_) coarse_.push_back(at(unit * static_cast<Wide>(a)));
  }

  template <typename To>
  void operator()(int64_t e, To* re, To* im) const {
    int64_t a = 8 * e;  // an angle of pi a / (4 n)
    Wide sine_sign = -1, cosine_sign = 1;
    if (a > 4 * n_) {
      a = 8 * n_ - a;
      sine_sign = 1;
    }
    if (a > 2 * n_) {
      a = 4 * n_ - a;
      cosine_sign = -1;
    }
    const bool swapped = a > n_;
    if (swapped) a = 2 * n_ - a;
    const Point p = coarse_[static_cast<size_t>(a / step_)];
    const Point q = fine_[static_cast<size_t>(a % step_)];
    Wide cosine = p.cosine * q.cosine - p.sine * q.sine;
    Wide sine = p.sine * q.cosine + p.cosine * q.sine;
    if (swapped) std::swap(cosine, sine);
    *re = static_cast<To>(cosine_sign * cosine);
    *im = static_cast<To>(sine_sign * sine);
  }

 private:
  struct Point {
    Wide cosine, sine;
  };
  static Point at(Wide angle) { return {std::cos(angle), std::sin(angle)}; }

  int64_t n_;
  int64_t step_;
  std::vector<Point> fine_;
  std::vector<Point> coarse_;
};

}  // namespace shlo_disc::fft

#endif  // SHLO_DISC_RAL_FFT_ROOTS_H_
