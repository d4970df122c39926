// Plans that this process keeps.
#ifndef SHLO_DISC_RAL_FFT_PLANS_H_
#define SHLO_DISC_RAL_FFT_PLANS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fft_plan.h"

namespace shlo_disc::fft {

// Tables of the most recently used plans stay in memory up to this, and at most so many plans.
constexpr size_t kKeptBytes = size_t{64} << 20;
constexpr size_t kKeptPlans = 1024;

// The plan for transforms of `n` >= 1 elements. Thread-safe. Throws std::bad_alloc.
template <typename T>
std::shared_ptr<const Plan<T>> plan_of(Kind kind, int64_t n);

struct PlanStats {
  size_t plans;
  size_t bytes;
};
PlanStats plan_stats();
void forget_plans();

}  // namespace shlo_disc::fft

#endif  // SHLO_DISC_RAL_FFT_PLANS_H_
