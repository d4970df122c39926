// Calls of XLA FFI handlers from compiled programs: LAPACK as jaxlib registers it, and targets of
// the user's. The ABI is XLA's (xla_ffi_abi.h); here we are the caller.
#ifndef SHLO_DISC_RAL_FOREIGN_CALL_H_
#define SHLO_DISC_RAL_FOREIGN_CALL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executable.h"
#include "gpu_device.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {

// The value of an attribute. `bytes` holds the elements of scalars and arrays, or a string.
struct ForeignAttribute {
  std::string name;
  xla_ffi::AttributeType type;
  xla_ffi::DataType dtype{};
  size_t size = 0;  // elements of an array
  std::string bytes;
  std::vector<ForeignAttribute> entries;  // of a dictionary
};

struct ForeignBuffer {
  DType dtype;
  int64_t rank;
};

// By stage; null: nothing to do.
using ForeignHandlers = std::array<xla_ffi::Handler*, xla_ffi::kStages>;

struct ForeignSpec {
  // The first result of LAPACK's functions is a matrix, and with it everything is empty.
  bool is_lapack() const { return target.rfind("lapack_", 0) == 0; }

  std::string target;
  std::string where;  // the source line of the op, for messages
  ForeignHandlers handlers{};
  std::vector<ForeignBuffer> operands;
  std::vector<ForeignBuffer> results;
  std::vector<ForeignAttribute> attributes;
  std::vector<size_t> size_attributes;  // scalars among them that every call gives
  bool is_on_device = false;  // the handlers are of a GPU's platform: they take its memory
};

// How the runtime itself reaches the memory that handlers are given.
class ForeignMemory {
 public:
  ForeignMemory() = default;
  virtual ~ForeignMemory() = default;
  ForeignMemory(const ForeignMemory&) = delete;
  ForeignMemory& operator=(const ForeignMemory&) = delete;

  // Room at an address that handlers may rely on, as long as this object lives. Null: out of memory.
  virtual void* acquire(size_t bytes) = 0;
  // False: it has failed, and the call with it. No bytes are fine.
  virtual bool copy(void* to, const void* from, size_t bytes) = 0;
  virtual bool zero(void* at, size_t bytes) = 0;
};

// One op of a program that calls a handler. Immutable, so any number of threads may run it at once.
class ForeignCall : public ForeignCode {
 public:
  // Checks the version of the handler's headers and runs its `instantiate` stage. Throws
  // std::runtime_error where one of them fails.
  explicit ForeignCall(ForeignSpec spec);
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;
  ~ForeignCall() override;

  const ForeignSpec& spec() const { return spec_; }
  size_t buffer_count() const { return spec_.operands.size() + spec_.results.size(); }
  const ForeignBuffer& buffer(size_t i) const {
    const size_t operands = spec_.operands.size();
    return i < operands ? spec_.operands[i] : spec_.results[i - operands];
  }

  // Runs the other stages on buffers of the host. `buffers`: the operands, then the results; `sizes`:
  // the logical sizes of each in turn, then the size attributes.
  bool run(void* const* buffers, const int64_t* sizes, Failure* failure) const override;
  // Of the device. A handler of the host is waited for, as is all work in front of it.
  bool run_on(const GpuPlace& place, void* const* buffers, const int64_t* sizes,
              Failure* failure) const override;
  void clear_results(void* const* buffers, const int64_t* sizes) const override;

  // "linalg.py:7: @lapack_spotrf_ffi"
  std::string title() const { return spec_.where + ": @" + spec_.target; }

 private:
  class Attributes;

  // As `run`, on buffers that `memory` reaches. `place`: what a handler of a GPU is given its stream
  // and memory of; null for the host's.
  bool run_in(ForeignMemory& memory, const GpuPlace* place, void* const* buffers,
              const int64_t* sizes, Failure* failure) const;

  const ForeignSpec spec_;
  const std::shared_ptr<const Attributes> attributes_;
  void* state_ = nullptr;  // that the instantiate stage has left
  int64_t state_type_ = 0;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FOREIGN_CALL_H_
