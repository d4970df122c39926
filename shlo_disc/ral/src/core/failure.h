// Why a call failed, for whoever tells the caller: Python, XLA, C.
#ifndef SHLO_DISC_RAL_FAILURE_H_
#define SHLO_DISC_RAL_FAILURE_H_

#include <cstdint>
#include <string>
#include <utility>

namespace shlo_disc {

// Why an argument does not fit.
enum class Mismatch { kNone, kDType, kRank, kSize };

struct Failure {
  enum class Kind {
    kNone,
    kArgument,  // argument `index`, named by `where`, does not fit
    kGuard,     // guard `index` does not hold
    kOutOfMemory,
    kDevice,    // a GPU or its driver
    kForeign,   // a handler of XLA FFI, at `where`; its error has `code` (XLA_FFI_Error_Code)
    kInternal,  // a mistake of ours
  };
  Kind kind = Kind::kNone;
  Mismatch mismatch = Mismatch::kNone;
  int code = 0;
  int64_t index = -1;
  std::string where;
  std::string message;  // for users

  bool failed() const { return kind != Kind::kNone; }

  // Keeps the first failure; always false.
  bool set(Kind what, std::string text) {
    if (!failed()) {
      kind = what;
      message = std::move(text);
    }
    return false;
  }

  // The same where nothing may be thrown: generated code cannot be unwound.
  void set_out_of_memory() noexcept {
    if (!failed()) kind = Kind::kOutOfMemory;
  }

  // All of it, of a call of `program`.
  std::string text(const std::string& program) const {
    if (!where.empty()) return where + ": " + message;
    return kind == Kind::kArgument || kind == Kind::kGuard ? message : program + ": " + message;
  }
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FAILURE_H_
