// disc.hpp - disc.h for C++17: errors are exceptions, arrays have types, and memory has owners.
//
// `disc-dump model.disc --header` writes a class for the arguments and results of one artifact over this.
#ifndef DISC_HPP
#define DISC_HPP
#include <disc.h>

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace disc {

class Error : public std::runtime_error {
 public:
  Error(disc_code code_, const std::string& message, int64_t argument_ = -1, int64_t result_ = -1)
      : std::runtime_error(message), code(code_), argument(argument_), result(result_) {}

  const disc_code code;
  const int64_t argument, result;  // what does not fit; -1: the error is of none
};

// Throws what a function of disc.h gave, unless that is null.
inline void check(disc_error* error) {
  if (error == nullptr) return;
  const std::unique_ptr<disc_error, void (*)(disc_error*)> owner(error, &disc_error_free);
  throw Error(disc_error_code(error), disc_error_message(error), disc_error_argument(error),
              disc_error_result(error));
}

// An element of a type that C++17 lacks.
template <disc_dtype dtype, typename Bits>
struct Element {
  Bits bits;
};
using Float16 = Element<DISC_FLOAT16, uint16_t>;
using BFloat16 = Element<DISC_BFLOAT16, uint16_t>;

template <typename T>
struct DTypeOf;
template <disc_dtype dtype, typename Bits>
struct DTypeOf<Element<dtype, Bits>> {
  static constexpr disc_dtype value = dtype;
};
#define DISC_DTYPE_OF(type, dtype)           \
  template <>                                \
  struct DTypeOf<type> {                     \
    static constexpr disc_dtype value = dtype; \
  }
DISC_DTYPE_OF(bool, DISC_BOOL);
DISC_DTYPE_OF(int8_t, DISC_INT8);
DISC_DTYPE_OF(int16_t, DISC_INT16);
DISC_DTYPE_OF(int32_t, DISC_INT32);
DISC_DTYPE_OF(int64_t, DISC_INT64);
DISC_DTYPE_OF(uint8_t, DISC_UINT8);
DISC_DTYPE_OF(uint16_t, DISC_UINT16);
DISC_DTYPE_OF(uint32_t, DISC_UINT32);
DISC_DTYPE_OF(uint64_t, DISC_UINT64);
DISC_DTYPE_OF(float, DISC_FLOAT32);
DISC_DTYPE_OF(double, DISC_FLOAT64);
DISC_DTYPE_OF(std::complex<float>, DISC_COMPLEX64);
DISC_DTYPE_OF(std::complex<double>, DISC_COMPLEX128);
#undef DISC_DTYPE_OF

// An argument: dense, row-major elements of the caller, which live as long as the call.
template <typename T, size_t rank>
struct Array {
  using Sizes = std::array<int64_t, rank>;

  Array() = default;
  Array(const T* elements, const Sizes& their_sizes) : data(elements), sizes(their_sizes) {}
  // All elements of a container with contiguous memory. Throws Error if the sizes tell of another number.
  template <typename Elements, typename = decltype(std::data(std::declval<const Elements&>()))>
  Array(const Elements& elements, const Sizes& their_sizes) : data(std::data(elements)), sizes(their_sizes) {
    size_t count = 1;
    bool fits = true;
    for (const int64_t size : sizes) {
      fits = fits && size >= 0 && (size == 0 || count <= SIZE_MAX / static_cast<size_t>(size));
      if (fits) count *= static_cast<size_t>(size);
    }
    if (fits && count == std::size(elements)) return;
    std::string text;
    for (const int64_t size : sizes) text += (text.empty() ? "" : ", ") + std::to_string(size);
    throw Error(DISC_SIZE, std::to_string(std::size(elements)) + " elements are no array of sizes [" + text + "]");
  }

  disc_array untyped() const {
    return {data, sizes.data(), nullptr, DTypeOf<T>::value, static_cast<int32_t>(rank), weight};
  }

  const T* data = nullptr;
  Sizes sizes{};
  disc_weight* weight = nullptr;  // see disc_weight_create
};

// A result, in memory of the library. Given to another call, its memory is used again if it is large enough.
template <typename T, size_t rank>
class Result {
 public:
  Result() = default;
  // In memory of the caller, which has `count` elements and begins at a multiple of 64.
  Result(T* memory, size_t count) : buffer_{memory, count * sizeof(T), nullptr, nullptr} {
    capacity_ = buffer_.bytes;
  }
  ~Result() { disc_memory_release(buffer_.memory); }
  Result(Result&& other) noexcept
      : buffer_(std::exchange(other.buffer_, disc_buffer{})),
        capacity_(std::exchange(other.capacity_, 0)),
        sizes_(other.sizes_) {}
  Result& operator=(Result&& other) noexcept {
    std::swap(buffer_, other.buffer_);
    std::swap(capacity_, other.capacity_);
    std::swap(sizes_, other.sizes_);
    return *this;
  }

  T* data() { return static_cast<T*>(buffer_.data); }
  const T* data() const { return static_cast<const T*>(buffer_.data); }
  size_t size() const { return buffer_.bytes / sizeof(T); }  // the number of elements
  const std::array<int64_t, rank>& sizes() const { return sizes_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](size_t index) const { return data()[index]; }

  // What disc_program_run takes, and what it filled.
  disc_buffer untyped() {
    disc_buffer out = buffer_;
    out.bytes = capacity_;
    out.sizes = sizes_.data();
    return out;
  }
  void take(const disc_buffer& filled) {
    if (filled.memory != buffer_.memory) capacity_ = filled.bytes;
    buffer_ = filled;
  }

 private:
  disc_buffer buffer_{};
  size_t capacity_ = 0;  // bytes of the memory
  std::array<int64_t, rank> sizes_{};
};

// The type of an argument or result.
struct Type {
  const char* name;
  disc_dtype dtype;
  std::vector<int64_t> sizes;  // -1: any, or computed
};

// An artifact that is open. Any number of threads may run it at once.
class Program {
 public:
  // Throws Error.
  explicit Program(const std::string& path, const disc_options* options = nullptr) {
    disc_program* opened = nullptr;
    check(disc_program_open(path.c_str(), options, &opened));
    program_.reset(opened);
  }
  // In memory, see disc_program_open_memory. Throws Error.
  Program(const void* data, size_t bytes, const disc_options* options) {
    disc_program* opened = nullptr;
    check(disc_program_open_memory(data, bytes, options, &opened));
    program_.reset(opened);
  }

  const disc_program* get() const { return program_.get(); }
  std::string name() const { return disc_program_name(get()); }
  std::string target() const { return disc_program_target(get()); }

 protected:
  // Throws Error unless the artifact takes and gives just these.
  void expect(const std::vector<Type>& arguments, const std::vector<Type>& results) const {
    expect("argument", arguments, disc_program_arguments(get()), &disc_program_argument);
    expect("result", results, disc_program_results(get()), &disc_program_result);
  }

 private:
  using Ask = disc_error* (*)(const disc_program*, size_t, disc_spec*);

  void expect(const std::string& what, const std::vector<Type>& types, size_t count, Ask ask) const {
    if (types.size() != count) {
      throw Error(DISC_MISUSE, name() + " has " + std::to_string(count) + " " + what + "s, its header " +
                                   std::to_string(types.size()));
    }
    for (size_t i = 0; i < count; ++i) {
      disc_spec spec = {};
      spec.struct_size = sizeof spec;
      check(ask(get(), i, &spec));
      const Type& type = types[i];
      if (type.name == std::string(spec.name) && type.dtype == spec.dtype &&
          type.sizes == std::vector<int64_t>(spec.sizes, spec.sizes + spec.rank)) {
        continue;
      }
      throw Error(DISC_MISUSE, name() + ": " + what + " " + std::to_string(i) + " ('" + spec.name +
                                   "') is not as in its header, which is of another artifact");
    }
  }

  struct Close {
    void operator()(disc_program* program) const { disc_program_close(program); }
  };
  std::unique_ptr<disc_program, Close> program_;
};

}  // namespace disc
#endif  // DISC_HPP
