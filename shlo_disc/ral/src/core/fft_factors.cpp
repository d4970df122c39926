#include "fft_factors.h"

#include <cmath>

#include "fft_plan.h"

namespace shlo_disc::fft {
namespace {

// Cycles of a pass for a vector of complex elements: a load, a store and a twiddle cost as much as
// the butterflies of small radices; those of a large odd radix cost as much as it is large.
double pass_cost(int64_t radix) {
  switch (radix) {
    case 2: return 6;
    case 4: return 8;
    case 8: return 11;
    default: return 6 + 1.2 * static_cast<double>(radix);
  }
}

double cost(int64_t n) {
  double total = 0;
  for (const int64_t radix : radices(n)) total += pass_cost(radix);
  return total * static_cast<double>(n);
}

double rounded(int64_t n, int64_t lanes) { return static_cast<double>((n + lanes - 1) / lanes * lanes); }

double split_cost(int64_t n1, int64_t n2, int64_t lanes) {
  return cost(n1) * rounded(n2, lanes) + cost(n2) * rounded(n1, lanes);
}

double smooth_cost(int64_t n, int64_t lanes) {
  if (n <= kMaxWithin) return cost(n) * static_cast<double>(lanes);
  const auto [n1, n2] = split(n, lanes);
  return split_cost(n1, n2, lanes);
}

}  // namespace

std::vector<int64_t> radices(int64_t n) {
  std::vector<int64_t> found;
  int twos = 0;
  for (; n % 2 == 0; n /= 2) ++twos;
  for (; twos % 3 != 0 && twos > 1; twos -= 2) found.push_back(4);
  for (; twos >= 3; twos -= 3) found.push_back(8);
  if (twos == 1) found.push_back(2);
  for (int64_t prime = 3; prime * prime <= n; prime += 2) {
    for (; n % prime == 0; n /= prime) found.push_back(prime);
  }
  if (n > 1) found.push_back(n);
  return found;
}

bool is_smooth(int64_t n) {
  for (int64_t prime = 2; prime <= kMaxRadix; ++prime) {
    while (n % prime == 0) n /= prime;
  }
  return n == 1;
}

std::pair<int64_t, int64_t> split(int64_t n, int64_t lanes) {
  constexpr int kTried = 16;  // divisors next to the root: others have rows too long for a cache
  auto d = static_cast<int64_t>(std::sqrt(static_cast<double>(n)));
  while (d * d > n) --d;
  std::pair<int64_t, int64_t> best{1, n};
  double least = -1;
  for (int tried = 0; d > 1 && tried < kTried; --d) {
    if (n % d != 0) continue;
    ++tried;
    const double now = split_cost(d, n / d, lanes);
    // The first one is nearest to the root: another must be better by more than the model's error.
    if (least >= 0 && now >= 0.95 * least) continue;
    best = {d, n / d};
    least = now;
  }
  return best;
}

int64_t convolution_length(int64_t n, int64_t lanes) {
  const int64_t shortest = 2 * n - 1;
  int64_t power = 1;
  while (power < shortest) power *= 2;
  int64_t best = power;
  double least = smooth_cost(power, lanes);
  for (int64_t fives = 1; fives <= 25; fives *= 5) {
    for (int64_t odd = fives; odd <= 81 * fives; odd *= 3) {
      int64_t m = odd;
      while (m < shortest) m *= 2;
      if (m >= power) continue;
      const double now = smooth_cost(m, lanes);
      if (now >= least) continue;
      best = m;
      least = now;
    }
  }
  return best;
}

}  // namespace shlo_disc::fft
