// Room for a call's sizes and pointers: on the stack for ordinary programs, on the heap beyond.
#ifndef SHLO_DISC_RAL_SMALL_VECTOR_H_
#define SHLO_DISC_RAL_SMALL_VECTOR_H_

#include <cstddef>
#include <memory>
#include <type_traits>

namespace shlo_disc {

// `size` uninitialised elements, fixed for its life; throws std::bad_alloc.
template <typename T, size_t kInline>
class SmallVector {
  static_assert(std::is_trivial_v<T>, "elements are left uninitialised");

 public:
  explicit SmallVector(size_t size) : size_(size) {
    if (size > kInline) heap_.reset(new T[size]);
  }
  SmallVector(const SmallVector&) = delete;
  SmallVector& operator=(const SmallVector&) = delete;

  T* data() { return heap_ ? heap_.get() : inline_; }
  size_t size() const { return size_; }
  T& operator[](size_t i) { return data()[i]; }
  T* begin() { return data(); }
  T* end() { return data() + size_; }

 private:
  const size_t size_;
  std::unique_ptr<T[]> heap_;
  T inline_[kInline];
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_SMALL_VECTOR_H_
