// Runs plans of Fourier transforms with the vectors of one instruction set. Included once by each
// of fft_baseline.cpp, fft_avx2.cpp and fft_avx512.cpp, which define SHLO_DISC_FFT_NAME (a
// namespace) and SHLO_DISC_FFT_BYTES (of a vector).
#include <cstdint>
#include <utility>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "fft_plan.h"

namespace shlo_disc::fft::SHLO_DISC_FFT_NAME {

#include "fft_vector.h"
#include "fft_passes.h"
#include "fft_slots.h"
#include "fft_columns.h"
#include "fft_elements.h"
#include "fft_groups.h"

struct Range {
  int64_t begin, end;
};

template <typename T>
static void run_step(const Plan<T>& plan, const Step& step, const Slot<T>* slots, T scale,
                     int64_t lo, int64_t hi, T* scratch) {
  const Core<T>& core = plan.core;
  const Slot<T> from = slot_of(slots[step.from], step.swapped_from);
  const Slot<T> to = slot_of(slots[step.to], step.swapped_to);
  const T by = step.scaled ? scale : T(1);
  const auto chunk = [&](int64_t limit) {
    return Range{least(lo * kChunk, limit), least(hi * kChunk, limit)};
  };
  switch (step.kind) {
    case StepKind::kColumns:
      for (int64_t u = lo; u < hi; ++u) column_block<T>(core.smooth, from, to, u, scratch);
      return;
    case StepKind::kRows:
      for (int64_t u = lo; u < hi; ++u) row_block<T>(core.smooth, from, to, u, by, scratch);
      return;
    case StepKind::kChirpIn: {
      const auto [begin, end] = chunk(core.smooth.n);
      return chirp_in<T>(core, from, to, begin, end);
    }
    case StepKind::kFilter: {
      const auto [begin, end] = chunk(core.smooth.n);
      return filter<T>(core, to, begin, end);
    }
    case StepKind::kChirpOut: {
      const auto [begin, end] = chunk(core.n);
      return chirp_out<T>(core, from, to, by, begin, end);
    }
    case StepKind::kPostReal:
    case StepKind::kPreReal: {
      const bool post = step.kind == StepKind::kPostReal;
      const auto [begin, end] = chunk(plan.n / 4 + 1);
      if (begin == 0) real_ends<T>(plan, from, to, post);
      if (post) real_pairs<T, true>(plan, from, to, most(begin, 1), end);
      else real_pairs<T, false>(plan, from, to, most(begin, 1), end);
      return;
    }
    case StepKind::kExpand: {
      const auto [begin, end] = chunk(plan.n / 2 + 1);
      return expand<T>(plan, from, to, begin, end);
    }
    case StepKind::kCropReal: {
      const auto [begin, end] = chunk(plan.n);
      for (int64_t k = begin; k < end; ++k) to.re[k] = from.re[k];
      return;
    }
    case StepKind::kCropHalf: {
      const auto [begin, end] = chunk(plan.n / 2 + 1);
      for (int64_t k = begin; k < end; ++k) {
        to.re[k] = from.re[k];
        to.im[k] = k == 0 ? T(0) : from.im[k];
      }
      return;
    }
  }
}

template <typename T>
static int64_t scratch_elements(const Plan<T>& plan) {
  return plan.within_lanes ? GroupPlanes<T>::elements(plan) : block_elements(plan.core.smooth);
}

// 0: such columns are copied to rows.
template <typename T>
static int64_t column_elements(const Plan<T>& plan) {
  if (plan.within_lanes) return GroupPlanes<T>::elements(plan);
  return plan.core.chirped ? 0 : LanePlanes<T>::elements(plan.core.smooth);
}

const Kernels<float> kernels_float = {kLanes<float>, &scratch_elements<float>,
                                             &column_elements<float>, &group<float>,
                                             &columns<float>, &turn<float>, &run_step<float>};
const Kernels<double> kernels_double = {kLanes<double>, &scratch_elements<double>,
                                               &column_elements<double>, &group<double>,
                                               &columns<double>, &turn<double>, &run_step<double>};

}  // namespace shlo_disc::fft::SHLO_DISC_FFT_NAME
