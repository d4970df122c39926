// Size classes of recycled memory: powers of two and their quarters (256, 320, 384, 448, 512, ...), so
// at most a fifth of a block is unused.
#ifndef SHLO_DISC_RAL_SIZE_CLASSES_H_
#define SHLO_DISC_RAL_SIZE_CLASSES_H_

#include <algorithm>
#include <cstddef>
#include <limits>

namespace shlo_disc {

constexpr int kMinShift = 8;  // smallest class: 256 bytes
constexpr int kClassesPerDoubling = 4;
constexpr int kClasses = (48 - kMinShift) * kClassesPerDoubling;

// How long a block will be held decides how much larger than asked for it may be.
enum class Hold {
  kCall,    // an arena: given back when the call ends, so up to 16 times as large
  kResult,  // lives as long as an array: at most twice as large
};

// Smallest class whose blocks hold `bytes`; kClasses when none does.
inline int class_of(size_t bytes) {
  if (bytes > std::numeric_limits<size_t>::max() / 2) return kClasses;
  if (bytes <= (size_t{1} << kMinShift)) return 0;
  const int shift = 63 - __builtin_clzll(bytes - 1);  // 2^shift < bytes <= 2^(shift+1)
  const size_t quarter = size_t{1} << (shift - 2);
  const size_t base = size_t{1} << shift;
  const int step = static_cast<int>((bytes - base + quarter - 1) / quarter);  // 1..4
  return std::min((shift - kMinShift) * kClassesPerDoubling + step, kClasses);
}

inline size_t bytes_of(int size_class) {
  const size_t base = size_t{1} << (kMinShift + size_class / kClassesPerDoubling);
  return base + base / 4 * static_cast<size_t>(size_class % kClassesPerDoubling);
}

// The largest class whose blocks may serve a request of class `wanted`.
inline int largest_class(int wanted, Hold hold) {
  const int doublings = hold == Hold::kCall ? 4 : 1;
  return std::min(wanted + doublings * kClassesPerDoubling, kClasses - 1);
}

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_SIZE_CLASSES_H_
