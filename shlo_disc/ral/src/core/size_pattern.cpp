#include "size_pattern.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "small_vector.h"

namespace shlo_disc {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

// `a op b`; kNo for a division by 0.
Fit apply(int64_t operation, int64_t a, int64_t b, int64_t* out) {
  switch (operation) {
    case SizePattern::kAdd: return __builtin_add_overflow(a, b, out) ? Fit::kUnknown : Fit::kYes;
    case SizePattern::kMultiply:
      return __builtin_mul_overflow(a, b, out) ? Fit::kUnknown : Fit::kYes;
    case SizePattern::kMin: *out = std::min(a, b); return Fit::kYes;
    case SizePattern::kMax: *out = std::max(a, b); return Fit::kYes;
    default: break;
  }
  if (b == 0) return Fit::kNo;
  if (b == -1 && a == kLeast) return Fit::kUnknown;
  const int64_t rest = a % b;
  const bool rounds_up = rest != 0 && (rest < 0) != (b < 0);  // C++ rounds towards 0
  if (operation == SizePattern::kFloorDivide) *out = a / b - (rounds_up ? 1 : 0);
  else *out = rest + (rounds_up ? b : 0);
  return Fit::kYes;
}

Fit evaluate(const SizePattern::Code& code, const int64_t* values, int64_t* stack, int64_t* out) {
  int64_t* top = stack;
  for (size_t i = 0; i < code.size(); ++i) {
    if (code[i] == SizePattern::kConstant) {
      *top++ = code[++i];
    } else if (code[i] == SizePattern::kSymbol) {
      *top++ = values[code[++i]];
    } else {
      --top;
      const Fit fit = apply(code[i], top[-1], top[0], &top[-1]);
      if (fit != Fit::kYes) return fit;
    }
  }
  *out = *stack;
  return Fit::kYes;
}

bool holds(int64_t relation, int64_t a, int64_t b) {
  switch (relation) {
    case SizePattern::kEqual: return a == b;
    case SizePattern::kNotEqual: return a != b;
    case SizePattern::kLess: return a < b;
    case SizePattern::kLessEqual: return a <= b;
    case SizePattern::kGreater: return a > b;
    default: return a >= b;
  }
}

}  // namespace

SizePattern::SizePattern(std::vector<int64_t> ranks, int64_t symbols, std::vector<Step> steps,
                         std::vector<Guard> guards)
    : ranks_(std::move(ranks)),
      symbols_(static_cast<size_t>(symbols)),
      steps_(std::move(steps)),
      guards_(std::move(guards)) {
  require(symbols >= 0, "symbols must not be negative");
  for (const int64_t rank : ranks_) {
    require(rank >= 0, "a rank must not be negative");
    sizes_ += static_cast<size_t>(rank);
  }
  std::vector<bool> known(symbols_);
  for (const Step& step : steps_) {
    require(step.size < sizes_, "a step names a size that does not exist");
    check(step.code, known);
    if (step.symbol == -1) continue;
    require(step.symbol >= 0 && step.symbol < symbols, "a step solves no symbol of the pattern");
    require(step.factor >= 1, "a factor must be positive");
    known[static_cast<size_t>(step.symbol)] = true;
  }
  require(std::find(known.begin(), known.end(), false) == known.end(),
          "a symbol is solved by no step");
  for (const Guard& guard : guards_) {
    require(guard.relation >= 0 && guard.relation < kRelations, "no such relation");
    check(guard.left, known);
    check(guard.right, known);
  }
}

void SizePattern::check(const Code& code, const std::vector<bool>& known) {
  size_t depth = 0;
  for (size_t i = 0; i < code.size(); ++i) {
    require(code[i] >= 0 && code[i] < kOperations, "no such operation");
    if (code[i] > kSymbol) {
      require(depth >= 2, "an operation lacks operands");
      --depth;
      continue;
    }
    require(i + 1 < code.size(), "a value is missing");
    const bool is_symbol = code[i++] == kSymbol;
    require(!is_symbol || (code[i] >= 0 && static_cast<size_t>(code[i]) < symbols_ &&
                           known[static_cast<size_t>(code[i])]),
            "an expression reads a symbol that is not solved yet");
    depth_ = std::max(depth_, ++depth);
  }
  require(depth == 1, "an expression must have one result");
}

Fit SizePattern::solve(const int64_t* sizes, int64_t* values) const {
  SmallVector<int64_t, 32> stack(depth_);
  for (const Step& step : steps_) {
    int64_t rest = 0;
    Fit fit = evaluate(step.code, values, stack.data(), &rest);
    if (fit != Fit::kYes) return fit;
    const int64_t size = sizes[step.size];
    if (step.symbol == -1) {
      if (size != rest) return Fit::kNo;
      continue;
    }
    int64_t multiple = 0;
    if (__builtin_sub_overflow(size, rest, &multiple)) return Fit::kUnknown;
    if (multiple < step.factor || multiple % step.factor != 0) return Fit::kNo;
    values[step.symbol] = multiple / step.factor;
  }
  for (const Guard& guard : guards_) {
    int64_t left = 0, right = 0;
    Fit fit = evaluate(guard.left, values, stack.data(), &left);
    if (fit == Fit::kYes) fit = evaluate(guard.right, values, stack.data(), &right);
    if (fit != Fit::kYes) return fit;
    if (!holds(guard.relation, left, right)) return Fit::kNo;
  }
  return Fit::kYes;
}

}  // namespace shlo_disc
