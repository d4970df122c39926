// Chooses the kernels of this CPU and splits the work of transforms over the thread pool.
#include "fft.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "buffer_pool.h"
#include "fft_plan.h"
#include "fft_plans.h"
#include "thread_pool.h"

namespace shlo_disc {
namespace {

using fft::Kernels;
using fft::Kind;
using fft::Plan;
using fft::Slot;

constexpr int64_t kChunkNs = 6000;              // as CHUNK_NS of the host program
constexpr int64_t kSplitElements = 1 << 14;     // from here on threads share one transform
constexpr int64_t kScratchBytes = 4 << 20;      // most that a thread keeps for whole transforms

int64_t cpu_vector_bytes() {
#if defined(__x86_64__)
  static const int64_t bytes = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      return 64;
    }
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 32 : 16;
  }();
  return bytes;
#else
  return 16;
#endif
}

template <typename T>
const Kernels<T>& kernels_of([[maybe_unused]] int64_t vector_bytes);
#if defined(__x86_64__)
#define SHLO_DISC_FFT_KERNELS(type)                                        \
  template <>                                                              \
  const Kernels<type>& kernels_of<type>(int64_t vector_bytes) {            \
    if (vector_bytes >= 64) return fft::avx512::kernels_##type;            \
    if (vector_bytes >= 32) return fft::avx2::kernels_##type;              \
    return fft::baseline::kernels_##type;                                  \
  }
#else
#define SHLO_DISC_FFT_KERNELS(type)                                        \
  template <>                                                              \
  const Kernels<type>& kernels_of<type>(int64_t) {                         \
    return fft::baseline::kernels_##type;                                  \
  }
#endif
SHLO_DISC_FFT_KERNELS(float)
SHLO_DISC_FFT_KERNELS(double)
#undef SHLO_DISC_FFT_KERNELS

template <typename T>
struct Call {
  const Plan<T>& plan;
  const Kernels<T>& kernels;
  int64_t batch;
  int64_t inner;  // above 1: transforms are columns
  Slot<T> in;   // of row 0
  Slot<T> out;
  int64_t in_apart;  // from an element to its neighbour: 2 where elements are pairs
  int64_t out_apart;
  T scale;
  const fft::Step* step;  // of the one transform that threads share
  const Slot<T>* slots;
};

template <typename T>
const Call<T>& call_of(void* const* args) {
  return *static_cast<const Call<T>*>(args[0]);
}

template <typename T>
Slot<T> moved(const Slot<T>& slot, int64_t by) {
  return {slot.re + by, slot.im == nullptr ? nullptr : slot.im + by, slot.stride};
}

template <typename T>
void run_groups(void* const* args, const int64_t*, int64_t lo, int64_t hi, void* scratch) {
  const Call<T>& call = call_of<T>(args);
  const int64_t in_row = call.plan.in_elements() * call.in_apart;
  const int64_t out_row = call.plan.out_elements() * call.out_apart;
  for (int64_t group = lo; group < hi; ++group) {
    const int64_t first = group * call.kernels.lanes;
    call.kernels.group(call.plan, moved(call.in, first * in_row), in_row,
                       moved(call.out, first * out_row), out_row,
                       std::min(call.kernels.lanes, call.batch - first), call.scale,
                       static_cast<T*>(scratch));
  }
}

// The slots of transform `row`; temporary ones begin at `work`.
template <typename T>
void place_slots(const Call<T>& call, int64_t row, T* work, Slot<T>* slots) {
  slots[fft::kIn] = moved(call.in, row * call.plan.in_elements() * call.in_apart);
  slots[fft::kOut] = moved(call.out, row * call.plan.out_elements() * call.out_apart);
  for (int slot = fft::kHalf; slot < fft::kSlots; ++slot) {
    const int64_t elements = fft::padded(call.plan.work_elements[slot]);
    slots[slot] = {work, work + elements, 1};
    work += 2 * elements;
  }
}

template <typename T>
int64_t work_elements(const Plan<T>& plan) {
  int64_t total = 0;
  for (const int64_t elements : plan.work_elements) total += 2 * fft::padded(elements);
  return total;
}

template <typename T>
void run_rows(const Call<T>& call, int64_t lo, int64_t hi, T* work) {
  Slot<T> slots[fft::kSlots];
  T* const rest = work + work_elements(call.plan);
  for (int64_t row = lo; row < hi; ++row) {
    place_slots(call, row, work, slots);
    for (int i = 0; i < call.plan.steps; ++i) {
      const fft::Step& step = call.plan.step[i];
      call.kernels.run_step(call.plan, step, slots, call.scale, 0, step.units, rest);
    }
  }
}

template <typename T>
void run_whole(void* const* args, const int64_t*, int64_t lo, int64_t hi, void* scratch) {
  run_rows(call_of<T>(args), lo, hi, static_cast<T*>(scratch));
}

// True if columns are transformed where they are, one a lane; others are copied to rows.
template <typename T>
bool in_lanes(const Call<T>& call) {
  const int64_t bytes = call.kernels.column_elements(call.plan) * static_cast<int64_t>(sizeof(T));
  return bytes > 0 && bytes <= kScratchBytes;
}

// Columns of a task: as many as lanes, fewer where their copies were too large.
template <typename T>
int64_t columns_of(const Call<T>& call) {
  if (in_lanes(call)) return call.kernels.lanes;
  const int64_t copies = 4 * call.plan.n * static_cast<int64_t>(sizeof(T));
  return std::clamp<int64_t>(kScratchBytes / copies, 1, call.kernels.lanes);
}

template <typename T>
void run_columns(void* const* args, const int64_t*, int64_t lo, int64_t hi, void* scratch) {
  const Call<T>& call = call_of<T>(args);
  const int64_t n = call.plan.n, inner = call.inner, width = columns_of(call);
  const int64_t blocks = (inner + width - 1) / width;
  for (int64_t task = lo; task < hi; ++task) {
    const int64_t first = task % blocks * width, count = std::min(width, inner - first);
    const int64_t at = task / blocks * n * inner + first;
    const Slot<T> in = moved(call.in, at * call.in_apart);
    const Slot<T> out = moved(call.out, at * call.out_apart);
    T* rows = static_cast<T*>(scratch);
    if (in_lanes(call)) {
      call.kernels.columns(call.plan, in, out, inner, count, call.scale, rows);
      continue;
    }
    Call<T> turned = call;
    turned.in_apart = turned.out_apart = 1;
    for (Slot<T>* const slot : {&turned.in, &turned.out}) {
      *slot = {rows, rows + fft::padded(width * n), 1};
      rows += 2 * fft::padded(width * n);
    }
    call.kernels.turn(in, inner, n, count, turned.in, false);
    run_rows(turned, 0, count, rows);
    call.kernels.turn(out, inner, n, count, turned.out, true);
  }
}

template <typename T>
void run_units(void* const* args, const int64_t*, int64_t lo, int64_t hi, void* scratch) {
  const Call<T>& call = call_of<T>(args);
  call.kernels.run_step(call.plan, *call.step, call.slots, call.scale, lo, hi,
                        static_cast<T*>(scratch));
}

int64_t grain_of(int64_t task_ns) { return (kChunkNs + task_ns - 1) / std::max<int64_t>(task_ns, 1); }

// Every step of one transform after the other, its units shared by threads.
template <typename T>
bool run_shared(Call<T>& call, int64_t scratch_bytes) {
  const ScopedBlock block(
      pool_acquire(static_cast<size_t>(work_elements(call.plan)) * sizeof(T), Hold::kCall));
  if (block.get() == nullptr) return false;
  Slot<T> slots[fft::kSlots];
  call.slots = slots;
  void* args[] = {&call};
  for (int64_t row = 0; row < call.batch; ++row) {
    place_slots(call, row, static_cast<T*>(block.get()->data), slots);
    for (int i = 0; i < call.plan.steps; ++i) {
      call.step = &call.plan.step[i];
      const int64_t unit_ns = call.plan.n / call.step->units / 2 + 1;
      if (!parallel_for(&run_units<T>, args, nullptr, call.step->units, grain_of(unit_ns),
                        scratch_bytes)) {
        return false;
      }
    }
  }
  return true;
}

template <typename T>
bool run(Call<T>& call) {
  const Plan<T>& plan = call.plan;
  const auto bytes = static_cast<int64_t>(sizeof(T));
  const int64_t scratch_bytes = call.kernels.scratch_elements(plan) * bytes;
  void* args[] = {&call};
  if (call.inner > 1) {
    const int64_t width = columns_of(call), blocks = (call.inner + width - 1) / width;
    const int64_t copies = 4 * fft::padded(width * plan.n) + work_elements(plan);
    const int64_t column_bytes = in_lanes(call) ? call.kernels.column_elements(plan) * bytes
                                                : copies * bytes + scratch_bytes;
    return parallel_for(&run_columns<T>, args, nullptr, call.batch * blocks,
                        grain_of(2 * plan.n * width + 100), column_bytes);
  }
  if (plan.within_lanes) {
    const int64_t lanes = call.kernels.lanes;
    return parallel_for(&run_groups<T>, args, nullptr, (call.batch + lanes - 1) / lanes,
                        grain_of(plan.n * lanes + 100), scratch_bytes);
  }
  const int64_t work_bytes = work_elements(plan) * bytes;
  const bool shared = plan.n >= kSplitElements && call.batch < 2 * num_threads();
  if (!shared && work_bytes <= kScratchBytes) {
    return parallel_for(&run_whole<T>, args, nullptr, call.batch, grain_of(2 * plan.n),
                        work_bytes + scratch_bytes);
  }
  return run_shared(call, scratch_bytes);
}

template <typename T>
FftResult transform(int64_t options, int64_t batch, int64_t n, int64_t inner,
                    void* const* buffers) {
  const int64_t which = options & kFftKind;
  const Kind kind = which == kFftToComplex ? Kind::kRealToComplex
                    : which == kFftToReal  ? Kind::kComplexToReal
                                           : Kind::kComplex;
  const auto next = [&buffers] { return static_cast<T*>(*buffers++); };
  const auto side = [&next](bool is_pairs) {
    T* const re = next();
    return is_pairs ? Slot<T>{re, re + 1, 2} : Slot<T>{re, next(), 1};
  };
  const auto reals = [&next] { return Slot<T>{next(), nullptr, 1}; };
  const bool halved = n % 2 == 0;
  Slot<T> in = kind == Kind::kRealToComplex ? reals() : side((options & kFftPairsIn) != 0);
  Slot<T> out = kind == Kind::kComplexToReal ? reals() : side((options & kFftPairsOut) != 0);
  const int64_t in_apart = in.stride, out_apart = out.stride;
  if (which == kFftInverse) {
    std::swap(in.re, in.im);
    std::swap(out.re, out.im);
  }
  try {
    const std::shared_ptr<const Plan<T>> plan = fft::plan_of<T>(kind, n);
    if (kind != Kind::kComplex && halved && !plan->within_lanes) {
      Slot<T>& pairs = kind == Kind::kRealToComplex ? in : out;
      pairs = {pairs.re, pairs.re + 1, 2};
    }
    int64_t vector_bytes = options >> kFftVectorShift;
    if (vector_bytes == 0 || vector_bytes > cpu_vector_bytes()) vector_bytes = cpu_vector_bytes();
    const bool inverse = which == kFftInverse || which == kFftToReal;
    Call<T> call{*plan, kernels_of<T>(vector_bytes), batch, inner, in, out, in_apart, out_apart,
                 inverse ? T(1) / static_cast<T>(n) : T(1), nullptr, nullptr};
    return run(call) ? FftResult::kDone : FftResult::kNoMemory;
  } catch (const std::bad_alloc&) {
    return FftResult::kNoMemory;
  }
}

}  // namespace

FftResult fft_transform(int64_t options, int64_t batch, int64_t length, int64_t inner,
                        void* const* buffers) {
  if (batch <= 0 || inner <= 0) return FftResult::kDone;
  const bool wide = (options & kFftDouble) != 0;
  if (length <= 0) {
    if ((options & kFftKind) == kFftToComplex) {
      const size_t bytes = static_cast<size_t>(batch) * (wide ? sizeof(double) : sizeof(float));
      std::memset(buffers[1], 0, bytes);
      std::memset(buffers[2], 0, bytes);
    }
    return FftResult::kDone;
  }
  return wide ? transform<double>(options, batch, length, inner, buffers)
              : transform<float>(options, batch, length, inner, buffers);
}

}  // namespace shlo_disc
