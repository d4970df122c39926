#include "fft_planner.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <tuple>
#include <utility>
#include <vector>

#include "fft_factors.h"
#include "fft_roots.h"

namespace shlo_disc::fft {
namespace {

// The tables of a plan.
template <typename T>
class Tables {
 public:
  T* take(int64_t elements) {
    constexpr int64_t kAlignment = 64;
    const int64_t bytes = (elements * static_cast<int64_t>(sizeof(T)) / kAlignment + 1) * kAlignment;
    blocks_.emplace_back(nullptr, &std::free);
    blocks_.back().reset(std::aligned_alloc(kAlignment, static_cast<size_t>(bytes)));
    if (blocks_.back() == nullptr) throw std::bad_alloc();
    bytes_ += static_cast<size_t>(bytes);
    return static_cast<T*>(blocks_.back().get());
  }
  size_t bytes() const { return bytes_; }

 private:
  std::vector<std::unique_ptr<void, decltype(&std::free)>> blocks_;
  size_t bytes_ = 0;
};

int64_t blocks_of(int64_t count, int64_t of) { return (count + of - 1) / of; }
int64_t rounded(int64_t count, int64_t to) { return blocks_of(count, to) * to; }

template <typename T>
struct Owner {
  Plan<T> plan;
  Tables<T> tables;
};

// The transform of one row in double, by the kernels that every CPU has: tables are the same on all.
void transform_in_double(int64_t n, double* re, double* im, double* to_re, double* to_im);

template <typename T>
class Planner {
 public:
  explicit Planner(Owner<T>& owner) : plan_(owner.plan), tables_(owner.tables) {}

  void make(Kind kind, int64_t n) {
    plan_.kind = kind;
    plan_.n = n;
    plan_.halved = kind != Kind::kComplex && n % 2 == 0;
    plan_core(plan_.halved ? n / 2 : n);
    plan_.within_lanes = !plan_.core.smooth.split;
    if (plan_.halved) {
      const Roots<T> roots(n);
      const int64_t count = n / 4 + 1;
      T* const re = tables_.take(count);
      T* const im = tables_.take(count);
      for (int64_t k = 0; k < count; ++k) roots(k, re + k, im + k);
      plan_.real_re = re;
      plan_.real_im = im;
    }
    if (!plan_.within_lanes) plan_steps();
  }

 private:
  static constexpr int64_t kTileLanes = 64 / static_cast<int64_t>(sizeof(T));

  void plan_core(int64_t n) {
    Core<T>& core = plan_.core;
    core.n = n;
    core.chirped = !is_smooth(n);
    plan_smooth(core.chirped ? convolution_length(n, kTileLanes) : n);
    if (core.chirped) plan_chirp();
  }

  void plan_smooth(int64_t n) {
    Smooth<T>& smooth = plan_.core.smooth;
    smooth.n = n;
    smooth.split = n > kMaxWithin;
    if (!smooth.split) {
      plan_stockham(smooth.first, n);
      return;
    }
    const auto [n1, n2] = split(n, kTileLanes);
    plan_stockham(smooth.first, n1);
    plan_stockham(smooth.second, n2);
    smooth.columns1 = columns(n1, n2);
    smooth.columns2 = columns(n2, n1);
    smooth.table_row = rounded(smooth.columns1, kRowAlign);
    smooth.table_rows = rounded(n1, kRowAlign);
    const int64_t blocks = blocks_of(n2, smooth.columns1);
    const Roots<T> roots(n);
    const auto table = [&](int64_t rows, int64_t row, auto exponent) {
      T* const re = tables_.take(rows * row);
      T* const im = tables_.take(rows * row);
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < row; ++j) {
          roots(exponent(i, j) % n, re + i * row + j, im + i * row + j);
        }
      }
      return std::pair<const T*, const T*>{re, im};
    };
    std::tie(smooth.near_re, smooth.near_im) =
        table(smooth.table_rows, smooth.table_row, [](int64_t k, int64_t c) { return k * c; });
    std::tie(smooth.far_re, smooth.far_im) = table(
        blocks, smooth.table_rows, [&](int64_t b, int64_t k) { return k * b * smooth.columns1; });
  }

  // Columns of a block: what its passes touch stays in a second level cache, and rows are whole
  // cache lines. Measured on an EPYC of 1 MiB (2026-11): half and double lose 5 to 10 %.
  static int64_t columns(int64_t rows, int64_t of) {
    constexpr int64_t kBlockBytes = 256 << 10, kMost = 64;
    const int64_t fit = kBlockBytes / (rows * 2 * static_cast<int64_t>(sizeof(T)));
    const int64_t wanted = std::clamp(fit / kRowAlign * kRowAlign, kRowAlign, kMost);
    return std::min(wanted, of);
  }

  void plan_stockham(Stockham<T>& f, int64_t n) {
    f.n = n;
    int64_t rest = n, s = 1;
    const Roots<T> roots(n);
    for (const int64_t radix : radices(n)) {
      Pass<T>& pass = f.pass[f.passes++];
      pass.radix = radix;
      pass.m = rest / radix;
      pass.s = s;
      T* const twiddles = tables_.take(2 * (radix - 1) * pass.m);
      for (int64_t p = 0; p < pass.m; ++p) {
        for (int64_t k = 1; k < radix; ++k) {
          T* const w = twiddles + 2 * ((radix - 1) * p + k - 1);
          roots(p * k * s, w, w + 1);  // of order rest = n / s
        }
      }
      pass.twiddles = twiddles;
      pass.roots = nullptr;
      if (radix % 2 == 1) {
        const Roots<T> small(radix);
        T* const table = tables_.take(2 * radix);
        for (int64_t j = 0; j < radix; ++j) {
          small(j, table + j, table + radix + j);
          table[radix + j] = -table[radix + j];
        }
        pass.roots = table;
      }
      rest = pass.m;
      s *= radix;
    }
  }

  void plan_chirp() {
    Core<T>& core = plan_.core;
    const int64_t n = core.n, m = core.smooth.n;
    T* const re = tables_.take(n);
    T* const im = tables_.take(n);
    const Roots<T> roots(2 * n);
    int64_t square = 0;  // j^2 mod 2 n
    for (int64_t j = 0; j < n; ++j) {
      roots(square, re + j, im + j);
      square = (square + 2 * j + 1) % (2 * n);
    }
    core.chirp_re = re;
    core.chirp_im = im;
    Tables<double> temporary;
    double* planes[4];
    for (double*& plane : planes) plane = temporary.take(m);
    square = 0;
    std::fill_n(planes[0], m, 0.0);
    std::fill_n(planes[1], m, 0.0);
    for (int64_t j = 0; j < n; ++j) {  // the conjugate chirp, at j and at -j
      double* const at_re = planes[0] + j;
      double* const at_im = planes[1] + j;
      roots(square, at_re, at_im);
      *at_im = -*at_im;
      if (j > 0) {
        planes[0][m - j] = *at_re;
        planes[1][m - j] = *at_im;
      }
      square = (square + 2 * j + 1) % (2 * n);
    }
    transform_in_double(m, planes[0], planes[1], planes[2], planes[3]);
    T* const filter_re = tables_.take(m);
    T* const filter_im = tables_.take(m);
    for (int64_t j = 0; j < m; ++j) {
      filter_re[j] = static_cast<T>(planes[2][j] / static_cast<double>(m));
      filter_im[j] = static_cast<T>(planes[3][j] / static_cast<double>(m));
    }
    core.filter_re = filter_re;
    core.filter_im = filter_im;
  }

  // ---- steps ----

  Step& add(StepKind kind, SlotName from, SlotName to, int64_t units) {
    Step& step = plan_.step[plan_.steps++];
    step.kind = kind;
    step.from = from;
    step.to = to;
    step.units = units;
    return step;
  }

  void need(SlotName slot, int64_t elements) {
    plan_.work_elements[slot] = std::max(plan_.work_elements[slot], elements);
  }

  // Columns and rows, by way of `middle`.
  Step& add_smooth(SlotName from, SlotName middle, SlotName to, bool inverse) {
    const Smooth<T>& smooth = plan_.core.smooth;
    Step& one = add(StepKind::kColumns, from, middle, blocks_of(smooth.second.n, smooth.columns1));
    Step& two = add(StepKind::kRows, middle, to, blocks_of(smooth.first.n, smooth.columns2));
    one.swapped_from = one.swapped_to = two.swapped_from = two.swapped_to = inverse;
    return two;
  }

  // The complex transform; an inverse one is that of swapped parts, swapped. `planes`: what is
  // between the steps may be where the results go, which are planes.
  void add_core(SlotName from, SlotName to, bool inverse, bool planes) {
    const Core<T>& core = plan_.core;
    const int64_t m = core.smooth.n;
    if (!core.chirped) {
      if (!planes) need(kWork1, m);
      add_smooth(from, planes ? to : kWork1, to, inverse).scaled = true;
      return;
    }
    need(kWork1, m);
    need(kWork2, m);
    add(StepKind::kChirpIn, from, kWork1, blocks_of(m, kChunk)).swapped_from = inverse;
    add_smooth(kWork1, kWork2, kWork2, false);
    add(StepKind::kFilter, kWork2, kWork2, blocks_of(m, kChunk));
    add_smooth(kWork2, kWork1, kWork1, true);
    Step& last = add(StepKind::kChirpOut, kWork1, to, blocks_of(core.n, kChunk));
    last.swapped_to = inverse;
    last.scaled = true;
  }

  void plan_steps() {
    const int64_t n = plan_.n;
    switch (plan_.kind) {
      case Kind::kComplex:  // the results may be pairs
        add_core(kIn, kOut, false, false);
        return;
      case Kind::kRealToComplex:
        if (plan_.halved) {
          add_core(kIn, kOut, false, true);
          add(StepKind::kPostReal, kOut, kOut, blocks_of(n / 4 + 1, kChunk));
          return;
        }
        need(kFull, n);
        add_core(kIn, kFull, false, true);
        add(StepKind::kCropHalf, kFull, kOut, blocks_of(n / 2 + 1, kChunk));
        return;
      case Kind::kComplexToReal:
        if (plan_.halved) {
          need(kHalf, n / 2);
          add(StepKind::kPreReal, kIn, kHalf, blocks_of(n / 4 + 1, kChunk));
          add_core(kHalf, kOut, true, false);
          return;
        }
        need(kFull, n);
        need(kHalf, n);
        add(StepKind::kExpand, kIn, kFull, blocks_of(n / 2 + 1, kChunk));
        add_core(kFull, kHalf, true, true);
        add(StepKind::kCropReal, kHalf, kOut, blocks_of(n, kChunk));
        return;
    }
  }

  Plan<T>& plan_;
  Tables<T>& tables_;
};

void transform_in_double(int64_t n, double* re, double* im, double* to_re, double* to_im) {
  Owner<double> owner;
  Planner<double>(owner).make(Kind::kComplex, n);
  const Plan<double>& plan = owner.plan;
  const Kernels<double>& kernels = baseline::kernels_double;
  Tables<double> temporary;
  double* const scratch = temporary.take(kernels.scratch_elements(plan));
  Slot<double> slots[kSlots];
  slots[kIn] = {re, im, 1};
  slots[kOut] = {to_re, to_im, 1};
  if (plan.within_lanes) {
    kernels.group(plan, slots[kIn], n, slots[kOut], n, 1, 1.0, scratch);
    return;
  }
  for (int slot = kHalf; slot < kSlots; ++slot) {
    const int64_t elements = plan.work_elements[slot];
    if (elements > 0) slots[slot] = {temporary.take(elements), temporary.take(elements), 1};
  }
  for (int i = 0; i < plan.steps; ++i) {
    kernels.run_step(plan, plan.step[i], slots, 1.0, 0, plan.step[i].units, scratch);
  }
}

}  // namespace

template <typename T>
MadePlan<T> make_plan(Kind kind, int64_t n) {
  auto owner = std::make_shared<Owner<T>>();
  Planner<T>(*owner).make(kind, n);
  return {{owner, &owner->plan}, sizeof(Owner<T>) + owner->tables.bytes()};
}
template MadePlan<float> make_plan<float>(Kind kind, int64_t n);
template MadePlan<double> make_plan<double>(Kind kind, int64_t n);

}  // namespace shlo_disc::fft
