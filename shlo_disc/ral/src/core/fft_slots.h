// Slots and scratch memory of transforms. Included inside the namespace of an
// instruction set by fft_kernels.h only.

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
template <typename T>
INLINE int64_t rounded(int64_t count) {
  return (count + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
}
template <typename T>
INLINE Slot<T> slot_of(const Slot<T>& slot, bool swapped) {
  return swapped ? Slot<T>{slot.im, slot.re, slot.stride} : slot;
}

// Planes of scratch, one behind the other. A plane begins three cache lines off the sizes that
// are powers of two: stores would seem to meet loads of the other plane otherwise.
template <typename T>
struct Arena {
  T* next;
  static int64_t plane(int64_t elements) { return rounded<T>(elements) + 192 / sizeof(T); }
  T* take(int64_t elements) {
    T* const taken = next;
    next += plane(elements);
    return taken;
  }
};

// Neighbouring pairs (re, im), the first 1 <= count of a vector's.
template <typename T>
INLINE Complex<T> load_pairs(const T* from, int64_t count) {
  const V<T> a = load_upto(from, 2 * count);
  const V<T> b = 2 * count > kLanes<T> ? load_upto(from + kLanes<T>, 2 * count - kLanes<T>) : V<T>{};
  return {unzip(a, b, 0, Lanes<T>()), unzip_odd(a, b, Lanes<T>())};
}
template <typename T>
INLINE void store_pairs(T* to, Complex<T> value, int64_t count) {
  store_upto(to, zip_low(value.re, value.im, Lanes<T>()), 2 * count);
  if (2 * count <= kLanes<T>) return;
  store_upto(to + kLanes<T>, zip_high(value.re, value.im, Lanes<T>()), 2 * count - kLanes<T>);
}

// Elements at, at + 1, ... of a slot: `count` of them, zeros behind.
template <typename T>
INLINE Complex<T> read(const Slot<T>& slot, int64_t at, int64_t count) {
  if (slot.stride == 1) {
    const V<T> im = slot.im == nullptr ? V<T>{} : load_upto<T>(slot.im + at, count);
    return {load_upto<T>(slot.re + at, count), im};
  }
  if (slot.re < slot.im) return load_pairs<T>(slot.re + 2 * at, count);
  const Complex<T> pair = load_pairs<T>(slot.im + 2 * at, count);
  return {pair.im, pair.re};
}
template <typename T>
INLINE void write(const Slot<T>& slot, int64_t at, Complex<T> value, int64_t count) {
  if (slot.stride == 1) {
    store_upto<T>(slot.re + at, value.re, count);
    store_upto<T>(slot.im + at, value.im, count);
  } else if (slot.re < slot.im) {
    store_pairs<T>(slot.re + 2 * at, value, count);
  } else {
    store_pairs<T>(slot.im + 2 * at, Complex<T>{value.im, value.re}, count);
  }
}
