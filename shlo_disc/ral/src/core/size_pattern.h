// What a version of a function assumes of the sizes of its arguments, and the test of a call.
#ifndef SHLO_DISC_RAL_SIZE_PATTERN_H_
#define SHLO_DISC_RAL_SIZE_PATTERN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shlo_disc {

// Whether sizes fit a pattern.
enum class Fit {
  kYes,
  kNo,
  kUnknown,  // a number of 64 bits is too narrow for an intermediate result
};

// Sizes of arguments as expressions of symbols, and guards. A symbol is at least 1. Immutable.
class SizePattern {
 public:
  // An expression in postfix form: kConstant and kSymbol are followed by a value, the others take
  // the two results before them.
  using Code = std::vector<int64_t>;
  enum Operation : int64_t {
    kConstant,
    kSymbol,
    kAdd,
    kMultiply,
    kFloorDivide,  // rounds down; by 0 it has no value, and no sizes fit
    kModulo,       // has the divisor's sign
    kMin,
    kMax,
    kOperations,
  };
  enum Relation : int64_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kRelations };

  // One size of one argument. Steps run in order, so `code` reads only symbols solved before.
  struct Step {
    size_t size;     // its place among all sizes of all arguments
    int64_t symbol;  // to be solved from size = factor * symbol + code; -1: size must equal code
    int64_t factor;
    Code code;
  };
  struct Guard {
    Code left;
    int64_t relation;
    Code right;
  };

  // `ranks`: one for each argument. Throws std::invalid_argument for anything out of range.
  SizePattern(std::vector<int64_t> ranks, int64_t symbols, std::vector<Step> steps,
              std::vector<Guard> guards);

  // Solves `symbols()` values from the sizes of all arguments, one after the other.
  Fit solve(const int64_t* sizes, int64_t* values) const;

  const std::vector<int64_t>& ranks() const { return ranks_; }
  size_t sizes() const { return sizes_; }
  size_t symbols() const { return symbols_; }

 private:
  void check(const Code& code, const std::vector<bool>& known);

  std::vector<int64_t> ranks_;
  size_t sizes_ = 0;
  size_t symbols_;
  size_t depth_ = 0;  // the most results that wait in one expression
  std::vector<Step> steps_;
  std::vector<Guard> guards_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_SIZE_PATTERN_H_
