// Makes plans: factors, tables and the steps of a transform.
#ifndef SHLO_DISC_RAL_FFT_PLANNER_H_
#define SHLO_DISC_RAL_FFT_PLANNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "fft_plan.h"

namespace shlo_disc::fft {

template <typename T>
struct MadePlan {
  std::shared_ptr<const Plan<T>> plan;  // owns its tables
  size_t bytes;
};

// A plan for transforms of `n` >= 1 elements. Throws std::bad_alloc.
template <typename T>
MadePlan<T> make_plan(Kind kind, int64_t n);

}  // namespace shlo_disc::fft

#endif  // SHLO_DISC_RAL_FFT_PLANNER_H_
