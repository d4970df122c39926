// All functions are called by one interpreter over a table of their arguments: in Fortran each argument is an address.
#include "lapack.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "ffi_types.h"

namespace shlo_disc {
namespace {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

// A target and its function. Sizes are those of one matrix, m x n, of operand `matrix`; those of a batch follow
// each other.
//
// `operands` and `results` have two letters for each array. Its elements: T as the function's, R their real parts, C
// complex numbers of them, I int32. Its sizes: A: m x n; G: g x g; H: g x k or more columns; U: m rows, V: n columns
// of singular vectors; m; n; k, the last size of operand 1; s: min(m, n); e: n - 1; 1: a number.
//
// `copied`: pairs of an operand and the result that it is copied to, unless they are in one place.
//
// `arguments`, a letter each. A digit: a result; a, b: operands 0 and 1; p: result 1, whose int32 are the library's
// integers; +: result 0 from its second element on; x: a copy of operand 0; l, r: room for packed eigenvectors,
// which become results 2 and 3. m, n, k: sizes; g: m, or n where the side is not L; v: rows of result 3. S, U, X, D, M,
// Y, L, R: attributes of one character, H and Q such of a bool, E and F numbers (see `attribute_of`). o: one; z: null.
// w, W: working memory and its length; c, C: real one; j, J: integers. i, q: the last results, one int32.
struct Row {
  const char* types;  // of elements, as LAPACK's names begin
  const char* name;
  size_t matrix;
  const char* operands;
  const char* results;
  const char* copied;
  const char* arguments;
};

constexpr Row kRows[] = {
    {"sdcz", "trsm", 1, "TGTA", "TA", "10", "SUXDmnoag0m"},
    {"sdcz", "getrf", 0, "TA", "TAIsI1", "00", "mn0mpi"},
    {"sdcz", "geqrf", 0, "TA", "TATs", "00", "mn0m1wWi"},
    {"sd", "geqp3", 0, "TAIn", "TAInTs", "0011", "mn0mp2wWi"},
    {"cz", "geqp3", 0, "TAIn", "TAInTs", "0011", "mn0mp2wWci"},
    {"sd", "orgqr", 0, "TATk", "TA", "00", "mnk0mbwWi"},
    {"cz", "ungqr", 0, "TATk", "TA", "00", "mnk0mbwWi"},
    {"sd", "ormqr", 2, "THTkTA", "TA", "20", "HQmnkagb0mwWi"},
    {"cz", "unmqr", 2, "THTkTA", "TA", "20", "HQmnkagb0mwWi"},
    {"sdcz", "potrf", 0, "TA", "TAI1", "00", "Un0ni"},
    {"sd", "gesdd", 0, "TA", "TARsTUTVI1", "00", "Mmn0m12m3vwWji"},
    {"cz", "gesdd", 0, "TA", "TARsTUTVI1", "00", "Mmn0m12m3vwWcji"},
    {"sd", "gesvd", 0, "TA", "TARsTUTVI1", "00", "MMmn0m12m3vwWi"},
    {"cz", "gesvd", 0, "TA", "TARsTUTVI1", "00", "MMmn0m12m3vwWci"},
    {"sd", "syevd", 0, "TA", "TARnI1", "00", "MUn0n1wWjJi"},
    {"cz", "heevd", 0, "TA", "TARnI1", "00", "MUn0n1wWcCjJi"},
    {"sd", "geev", 0, "TA", "TnTnCACAI1", "", "LRnxn01lnrnwWi"},
    {"cz", "geev", 0, "TA", "TnTATAI1", "", "LRnxn01n2nwWci"},
    {"sd", "gees", 0, "TA", "TATATnTnI1I1", "00", "MYzn0nq231nwWzi"},
    {"cz", "gees", 0, "TA", "TATATnI1I1", "00", "MYzn0nq21nwWczi"},
    {"sdcz", "gehrd", 0, "TA", "TATeI1", "00", "nEF0n1wWi"},
    {"sd", "sytrd", 0, "TA", "TARnReTeI1", "00", "Un0n123wWi"},
    {"cz", "hetrd", 0, "TA", "TARnReTeI1", "00", "Un0n123wWi"},
    {"sdcz", "gtsv", 3, "TmTmTmTA", "TmTmTmTAI1", "00112233", "mn+123mi"},
};

constexpr std::string_view kLibraries[] = {"liblapack.so.3", "libopenblas.so.0", "libmkl_rt.so.2",
                                           "libflexiblas.so.3"};

// Names of functions: of LAPACK, OpenBLAS as SciPy and NumPy bundle it, and both with integers of 64 bits.
struct Form {
  const char *before, *behind;
  size_t integer_bytes;
};
constexpr Form kForms[] = {{"", "_", 4}, {"scipy_", "_", 4}, {"scipy_", "_64_", 8}, {"", "_64_", 8}};

// What the handler finds in an attribute of ours.
struct Target {
  const Row* row;
  void* function;
  size_t integer_bytes;
  DType element, real;
};
constexpr char kTarget[] = "disc.lapack";

bool has(const char* letters, char letter) { return std::strchr(letters, letter) != nullptr; }

bool is_complex(const Target& target) { return target.element != target.real; }

DType element_of(const Target& target, char letter) {
  if (letter == 'I') return DType::kInt32;
  if (letter == 'C') return target.real == DType::kFloat32 ? DType::kComplex64 : DType::kComplex128;
  return letter == 'R' ? target.real : target.element;
}

// Of what a letter of sizes tells, less than a matrix has.
int64_t missing_rank(char letter) { return letter == '1' ? 2 : letter < 'a' ? 0 : 1; }

[[noreturn]] void refuse(const std::string& why) { throw std::runtime_error(why); }

const char* attribute_of(char letter) {
  switch (letter) {
    case 'S': return "side";
    case 'U': return "uplo";
    case 'X': return "trans_x";
    case 'D': return "diag";
    case 'M': return "mode";
    case 'Y': return "sort";
    case 'L': return "compute_left";
    case 'R': return "compute_right";
    case 'H': return "left";
    case 'Q': return "transpose";
    case 'E': return "low";
    case 'F': return "high";
    default: return nullptr;
  }
}

template <typename Real>
bool all_finite(const void* data, int64_t count) {
  const auto* const numbers = static_cast<const Real*>(data);
  return std::all_of(numbers, numbers + count, [](Real x) { return std::isfinite(x); });
}

// Of a pair of conjugate eigenvectors LAPACK gives the real part, then the imaginary one.
template <typename Real>
void unpack_vectors(int64_t n, const void* imaginary, const void* packed, void* out) {
  const auto* const values = static_cast<const Real*>(imaginary);
  const auto* const columns = static_cast<const Real*>(packed);
  auto* const vectors = static_cast<Real*>(out);
  for (int64_t j = 0; j < n; ++j) {
    const bool is_pair = values[j] != 0 && !std::isnan(values[j]) && j + 1 < n;
    for (int64_t i = 0; i < n; ++i) {
      const Real real = columns[j * n + i], other = is_pair ? columns[(j + 1) * n + i] : 0;
      Real* const at = vectors + 2 * (j * n + i);
      at[0] = real;
      at[1] = other;
      if (!is_pair) continue;
      at[2 * n] = real;
      at[2 * n + 1] = -other;
    }
    j += is_pair;
  }
}

// One call of a handler.
class LapackCall {
 public:
  explicit LapackCall(const CallFrame& frame) : frame_(frame) {
    std::memcpy(&target_, static_cast<const ByteSpan*>(attribute(kTarget))->ptr, sizeof target_);
  }

  void run() {
    measure();
    check();
    copy_operands();
    make_room();
    for (int64_t i = 0; i < batch_; ++i) run_one(i);
  }

 private:
  static constexpr size_t kMost = 20;  // arguments, and behind them the lengths of those that are characters

  const Row& row() const { return *target_.row; }
  size_t bytes_of(char letter) const { return static_cast<size_t>(dtype_bytes(element_of(target_, letter))); }

  static const Buffer& at(const Args& args, size_t index) { return *static_cast<const Buffer*>(args.values[index]); }
  const Buffer& operand(size_t i) const { return at(frame_.args, i); }
  const Buffer& result(size_t i) const { return at(frame_.rets, i); }
  size_t results() const { return static_cast<size_t>(frame_.rets.size); }

  // A size from the last one on.
  static int64_t size(const Buffer& buffer, int64_t from_last) { return buffer.dims[buffer.rank - 1 - from_last]; }
  static int64_t bytes(const Buffer& buffer) { return array_bytes(dtype_of(buffer.dtype), buffer.rank, buffer.dims); }
  void* matrix(const Buffer& buffer, int64_t i) const {
    return static_cast<char*>(buffer.data) + bytes(buffer) / batch_ * i;
  }

  const void* attribute(std::string_view name) const {
    for (int64_t i = frame_.attrs.size; i-- > 0;) {  // ours is the last one
      const ByteSpan& found = *frame_.attrs.names[i];
      if (std::string_view(found.ptr, found.len) == name) return frame_.attrs.values[i];
    }
    refuse("the call lacks the attribute " + std::string(name));
  }

  // The character or the number of an argument that is an attribute.
  int64_t value_of(char letter) const {
    const auto& scalar = *static_cast<const Scalar*>(attribute(attribute_of(letter)));
    int64_t value = 0;
    std::memcpy(&value, scalar.value, has("EF", letter) ? 4 : 1);
    if (letter == 'H') return value != 0 ? 'L' : 'R';
    if (letter == 'Q') return value == 0 ? 'N' : is_complex(target_) ? 'C' : 'T';
    return value;
  }

  void measure() {
    const Buffer& main = operand(row().matrix);
    batch_ = 1;
    for (int64_t i = 0; i < main.rank - 2; ++i) batch_ *= main.dims[i];
    m_ = size(main, 1);
    n_ = size(main, 0);
    least_ = std::min(m_, n_);
    if (frame_.args.size > 1) k_ = size(operand(1), 0);
    const char* const arguments = row().arguments;
    if (has(arguments, 'M')) mode_ = static_cast<char>(value_of('M'));
    const char side = has("SH", arguments[0]) ? static_cast<char>(value_of(arguments[0])) : 'L';
    g_ = side == 'L' ? m_ : n_;
    if (has(arguments, 'v')) v_ = std::max<int64_t>(1, size(result(3), 1));
  }

  // Whether the sizes of a buffer are those of its letter.
  bool fits(const Buffer& buffer, char letter) const {
    const int64_t vectors = mode_ == 'A' ? std::max(m_, n_) : mode_ == 'S' ? least_ : 0;
    int64_t count = 1;
    switch (letter) {
      case 'A': return size(buffer, 1) == m_ && size(buffer, 0) == n_ && has_batch(buffer, m_ * n_);
      case 'G': return size(buffer, 1) == g_ && size(buffer, 0) == g_ && has_batch(buffer, g_ * g_);
      case 'H': return size(buffer, 1) == g_ && size(buffer, 0) >= k_ && has_batch(buffer, g_ * size(buffer, 0));
      case 'U':
        return size(buffer, 1) == m_ && size(buffer, 0) >= std::min(vectors, m_) &&
               has_batch(buffer, m_ * size(buffer, 0));
      case 'V':
        return size(buffer, 0) == n_ && size(buffer, 1) >= std::min(vectors, n_) &&
               has_batch(buffer, n_ * size(buffer, 1));
      case 'm': count = m_; break;
      case 'n': count = n_; break;
      case 'k': count = k_; break;
      case 's': count = least_; break;
      case 'e': count = n_ - 1; break;
      default: break;
    }
    return has_batch(buffer, count);
  }
  bool has_batch(const Buffer& buffer, int64_t count) const {
    return bytes(buffer) == batch_ * count * dtype_bytes(dtype_of(buffer.dtype));
  }

  void check() const {
    const auto all_fit = [this](const Args& args, const char* letters) {
      for (size_t i = 0; i < static_cast<size_t>(args.size); ++i) {
        if (!fits(at(args, i), letters[2 * i + 1])) return false;
      }
      return true;
    };
    const char* const arguments = row().arguments;
    const bool must_be_square = !has(arguments, 'm');
    if (!all_fit(frame_.args, row().operands) || !all_fit(frame_.rets, row().results) || (must_be_square && m_ != n_)) {
      refuse("the sizes of operands and results do not fit together");
    }
    if (has("O", mode_) || (has(arguments, 'Y') && value_of('Y') != 'N')) refuse("the mode is not supported");
    for (const int64_t number : {m_, n_, k_}) check_integer(number);
  }
  void check_integer(int64_t number) const {
    if (target_.integer_bytes == 4 && number > std::numeric_limits<int32_t>::max()) {
      refuse("a size is too large for the integers of this LAPACK");
    }
  }

  void copy_operands() const {
    for (const char* pair = row().copied; *pair != '\0'; pair += 2) {
      const Buffer& from = operand(static_cast<size_t>(pair[0] - '0'));
      void* const to = result(static_cast<size_t>(pair[1] - '0')).data;
      if (from.data != to) std::memcpy(to, from.data, static_cast<size_t>(bytes(from)));
    }
  }

  void make_room() {
    const char* const arguments = row().arguments;
    const auto room = [&](char letter, int64_t count, size_t item) {
      if (has(arguments, letter)) {
        room_of(letter) = std::make_unique<char[]>(static_cast<size_t>(std::max<int64_t>(1, count)) * item);
      }
    };
    const bool has_vectors = mode_ == 'V';
    const int64_t most = std::max(m_, n_);
    if (has(arguments, 'J')) {  // as jaxlib gives them: the length decides how work is cut, and the last bits
      const bool complex = is_complex(target_);
      work_ = has_vectors ? (complex ? 2 * n_ + n_ * n_ : 1 + 6 * n_ + 2 * n_ * n_) : (complex ? n_ : 2 * n_) + 1;
      real_work_ = has_vectors ? 1 + 5 * n_ + 2 * n_ * n_ : n_;
      integers_ = has_vectors ? 3 + 5 * n_ : 1;
    } else {
      integers_ = 8 * least_;
      real_work_ = 5 * most;
      if (has(arguments, 'j')) {  // gesdd
        real_work_ = mode_ == 'N' ? 7 * least_
                                  : least_ * std::max(5 * least_ + 5, 2 * most + 2 * least_ + 1);
      }
    }
    room('c', real_work_, bytes_of('R'));
    room('j', integers_, target_.integer_bytes);
    if (target_.integer_bytes == 8) room('p', std::max(m_, n_), sizeof(int64_t));
    for (const char letter : {'x', 'l', 'r'}) room(letter, n_ * n_, bytes_of('T'));
    if (!has(arguments, 'w')) return;
    if (!has(arguments, 'J')) {
      work_ = -1;
      room('w', 1, bytes_of('T'));
      call(0);
      if (info_ != 0) refuse("LAPACK refuses argument " + std::to_string(-info()));
      const void* const found = room_of('w').get();
      work_ = static_cast<int64_t>(target_.real == DType::kFloat32 ? *static_cast<const float*>(found)
                                                                    : *static_cast<const double*>(found));
      work_ = std::max<int64_t>(1, work_);
    }
    for (const int64_t number : {work_, real_work_, integers_}) check_integer(number);
    room('w', work_, bytes_of('T'));
  }

  std::unique_ptr<char[]>& room_of(char letter) { return rooms_[static_cast<size_t>(letter - 'a')]; }
  int32_t info() const { return static_cast<int32_t>(info_); }

  void call(int64_t i) {
    info_ = selected_ = 0;
    std::array<void*, kMost> arguments;
    arguments.fill(reinterpret_cast<void*>(uintptr_t{1}));
    std::array<int64_t, kMost> values;
    size_t count = 0;
    for (const char* letter = row().arguments; *letter != '\0'; ++letter, ++count) {
      arguments[count] = argument(*letter, i, &values[count]);
    }
    invoke(arguments, std::make_index_sequence<kMost>());
  }

  // `value`: where it may be.
  void* argument(char letter, int64_t i, int64_t* value) {
    if (letter >= '0' && letter <= '9') return matrix(result(static_cast<size_t>(letter - '0')), i);
    if (attribute_of(letter) != nullptr) {
      *value = value_of(letter);
      return value;
    }
    const auto number = [value](int64_t what) {
      *value = what;
      return value;
    };
    switch (letter) {
      case 'a':
      case 'b': return matrix(operand(static_cast<size_t>(letter - 'a')), i);
      case '+': return static_cast<char*>(matrix(result(0), i)) + bytes_of('T');
      case 'm': return number(m_);
      case 'n': return number(n_);
      case 'k': return number(k_);
      case 'g': return number(g_);
      case 'v': return number(v_);
      case 'W': return number(work_);
      case 'C': return number(real_work_);
      case 'J': return number(integers_);
      case 'i': return &info_;
      case 'q': return &selected_;
      case 'o': return target_.real == DType::kFloat32 ? static_cast<void*>(ones_) : double_ones_;
      case 'z': return nullptr;
      case 'p':
        if (target_.integer_bytes == 4) return matrix(result(1), i);
        break;
      default: break;
    }
    return room_of(letter).get();
  }

  template <size_t... index>
  void invoke(const std::array<void*, kMost>& arguments, std::index_sequence<index...>) const {
    using Function = void (*)(decltype(static_cast<void>(index), static_cast<void*>(nullptr))...);
    reinterpret_cast<Function>(target_.function)(arguments[index]...);
  }

  void run_one(int64_t i) {
    const char* const arguments = row().arguments;
    const bool is_single = target_.real == DType::kFloat32;
    bool runs = true;
    if (has(arguments, 'x')) {
      const int64_t count = n_ * n_ * (is_complex(target_) ? 2 : 1);
      void* const copy = room_of('x').get();
      std::memcpy(copy, matrix(operand(0), i), static_cast<size_t>(n_ * n_) * bytes_of('T'));
      runs = is_single ? all_finite<float>(copy, count) : all_finite<double>(copy, count);
      info_ = -4;  // as jaxlib says; geev may run for ever
    }
    const bool has_wide = has(arguments, 'p') && target_.integer_bytes == 8;
    auto* const wide = reinterpret_cast<int64_t*>(room_of('p').get());
    auto* const narrow = has_wide ? static_cast<int32_t*>(matrix(result(1), i)) : nullptr;
    const int64_t pivots = has_wide ? size(result(1), 0) : 0;
    std::copy_n(narrow, pivots, wide);
    if (runs) call(i);
    std::transform(wide, wide + pivots, narrow, [](int64_t x) { return static_cast<int32_t>(x); });
    const size_t letters = std::strlen(row().results);
    if (has(arguments, 'q')) *static_cast<int32_t*>(matrix(result(results() - 2), i)) = static_cast<int32_t>(selected_);
    if (row().results[letters - 1] == '1') *static_cast<int32_t*>(matrix(result(results() - 1), i)) = info();
    if (!has(arguments, 'l') || info() != 0) return;
    const auto unpack = is_single ? unpack_vectors<float> : unpack_vectors<double>;
    unpack(n_, matrix(result(1), i), room_of('l').get(), matrix(result(2), i));
    unpack(n_, matrix(result(1), i), room_of('r').get(), matrix(result(3), i));
  }

  const CallFrame& frame_;
  Target target_;
  int64_t batch_ = 1, m_ = 0, n_ = 0, least_ = 0, k_ = 0, g_ = 0, v_ = 1;
  char mode_ = ' ';
  int64_t work_ = 1, real_work_ = 1, integers_ = 1;  // lengths
  // Integers of 32 bits are the first bytes of these.
  int64_t info_ = 0, selected_ = 0;
  float ones_[2] = {1, 0};
  double double_ones_[2] = {1, 0};
  std::array<std::unique_ptr<char[]>, 26> rooms_;  // by letter
};

Error* handler(CallFrame* frame) {
  if (frame->extension_start != nullptr && frame->extension_start->type == kMetadataExtension) {
    Version& version = reinterpret_cast<MetadataExtension*>(frame->extension_start)->metadata->api_version;
    version.major_version = kMajor;
    version.minor_version = kMinor;
    return nullptr;
  }
  const auto failed = [frame](ErrorCode code, const char* message) {
    ErrorCreateArgs args{size_up_to(&ErrorCreateArgs::code), nullptr, message, code};
    return frame->api->create_error(&args);
  };
  try {
    LapackCall(*frame).run();
    return nullptr;
  } catch (const std::bad_alloc&) {
    return failed(ErrorCode::kResourceExhausted, "the working memory of LAPACK cannot be allocated");
  } catch (const std::exception& error) {
    return failed(ErrorCode::kInvalidArgument, error.what());
  }
}

// The function of LAPACK `name`.
void find_function(const std::string& name, const std::string& library, Target* target) {
  std::vector<std::string> names(std::begin(kLibraries), std::end(kLibraries));
  const char* const named = std::getenv("DISC_LAPACK");
  if (!library.empty()) {
    names.assign(1, library);
  } else if (named != nullptr && *named != '\0') {
    names.assign(1, named);
  }
  std::string why;
  for (const std::string& one : names) {
    void* const handle = dlopen(one.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      const char* const error = dlerror();
      why += std::string("; ") + (error == nullptr ? one.c_str() : error);
      continue;
    }
    for (const Form& form : kForms) {
      target->function = dlsym(handle, (form.before + name + form.behind).c_str());
      target->integer_bytes = form.integer_bytes;
      if (target->function != nullptr) return;
    }
    why += "; " + one + " has no function " + name;
  }
  refuse("it needs LAPACK, and no library with " + name +
         " was found: name one by disc_options.lapack (lapack= in Python) or the environment variable DISC_LAPACK" + why);
}

// Whether the arrays of a call have the elements and ranks of their letters.
bool are_as_told(const std::vector<ForeignBuffer>& buffers, const char* letters, const Target& target, int64_t rank) {
  if (buffers.size() != std::strlen(letters) / 2) return false;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const char kind = letters[2 * i], sizes = letters[2 * i + 1];
    if (buffers[i].dtype != element_of(target, kind) || buffers[i].rank != rank - missing_rank(sizes)) return false;
  }
  return true;
}

}  // namespace

void use_lapack(ForeignSpec* spec, const std::string& library) {
  constexpr std::string_view kBefore = "lapack_", kBehind = "_ffi";
  const std::string_view whole = spec->target;
  std::string_view name;
  if (whole.size() > kBefore.size() + kBehind.size() && whole.substr(whole.size() - kBehind.size()) == kBehind) {
    name = whole.substr(kBefore.size(), whole.size() - kBefore.size() - kBehind.size());
  }
  const Row* const found = std::find_if(std::begin(kRows), std::end(kRows), [name](const Row& row) {
    return !name.empty() && has(row.types, name[0]) && name.substr(1) == row.name;
  });
  if (found == std::end(kRows)) refuse("it is none of the functions of LAPACK that this runtime knows: give its handler");
  Target target{found, nullptr, 0, DType::kOther, DType::kOther};
  const bool is_single = has("sc", name[0]);
  target.real = is_single ? DType::kFloat32 : DType::kFloat64;
  target.element = has("sd", name[0]) ? target.real : is_single ? DType::kComplex64 : DType::kComplex128;
  const int64_t rank = found->matrix < spec->operands.size() ? spec->operands[found->matrix].rank : 0;
  if (rank < 2 || spec->is_on_device || !are_as_told(spec->operands, found->operands, target, rank) ||
      !are_as_told(spec->results, found->results, target, rank)) {
    refuse("it has operands or results of other types than LAPACK's");
  }
  for (const char* letter = found->arguments; *letter != '\0'; ++letter) {
    const char* const attribute = attribute_of(*letter);
    const auto is_it = [&](const ForeignAttribute& one) {
      return one.name == attribute && one.type == AttributeType::kScalar &&
             one.bytes.size() == (has("EF", *letter) ? 4 : 1);
    };
    if (attribute != nullptr && std::none_of(spec->attributes.begin(), spec->attributes.end(), is_it)) {
      refuse(std::string("it lacks the attribute ") + attribute);
    }
  }
  find_function(std::string(name), library, &target);
  ForeignAttribute own{kTarget, AttributeType::kString, {}, 0, std::string(sizeof target, '\0'), {}};
  std::memcpy(own.bytes.data(), &target, sizeof target);
  spec->attributes.push_back(std::move(own));
  spec->handlers[static_cast<int>(Stage::kExecute)] = &handler;
}

}  // namespace shlo_disc
