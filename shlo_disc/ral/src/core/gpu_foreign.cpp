// Calls of XLA FFI handlers in programs for GPUs: handlers of the GPU's platform get its memory and the
// stream, those of the host copies of it.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "buffer_pool.h"
#include "foreign_call.h"
#include "small_vector.h"

namespace shlo_disc {
namespace {

constexpr size_t kAlignment = 64;  // of what handlers of the host get, as XLA's

std::string title_of(const ForeignCall& foreign) {
  return "@" + foreign.spec().target + " (" + foreign.spec().where + ")";
}

// The memory of a device, in the order of a stream.
class DeviceMemory : public ForeignMemory {
 public:
  DeviceMemory(const ForeignCall& foreign, const GpuPlace& place, Failure* failure)
      : foreign_(foreign), place_(place), failure_(failure) {}

  void* acquire(size_t bytes) override {
    blocks_.emplace_back(place_.device->acquire(static_cast<int64_t>(bytes), Hold::kCall,
                                                place_.stream, nullptr,
                                                "an aligned copy for " + title_of(foreign_),
                                                failure_));
    return blocks_.back().data();
  }
  bool copy(void* to, const void* from, size_t bytes) override {
    return bytes == 0 ||
           check(place_.device->call().copy_on_device(to, from, bytes, place_.stream));
  }
  bool zero(void* at, size_t bytes) override {
    return bytes == 0 || check(place_.device->call().fill8(at, 0, bytes, place_.stream));
  }

 private:
  bool check(int error) {
    return place_.device->driver().check(
        error, "a copy for " + title_of(foreign_) + " is refused on " + place_.device->title(),
        failure_);
  }

  const ForeignCall& foreign_;
  const GpuPlace& place_;
  Failure* const failure_;
  std::vector<ScopedGpuBlock> blocks_;  // used again by later work of the stream
};

// Copies of the buffers of a call in one block of the host, and the call on them.
class StagedCall {
 public:
  StagedCall(const ForeignCall& foreign, const GpuPlace& place, void* const* buffers,
             const int64_t* sizes)
      : foreign_(foreign),
        place_(place),
        buffers_(buffers),
        sizes_(sizes),
        operands_(foreign.spec().operands.size()),
        copies_(foreign.buffer_count()),
        bytes_(foreign.buffer_count()) {}

  bool run(Failure* failure) {
    size_t total = 0;
    const int64_t* sizes = sizes_;
    SmallVector<size_t, 16> offsets(copies_.size());
    for (size_t i = 0; i < copies_.size(); ++i) {
      const ForeignBuffer& of = foreign_.buffer(i);
      bytes_[i] = static_cast<size_t>(array_bytes(of.dtype, of.rank, sizes));
      sizes += of.rank;
      const size_t first = first_with_memory_of(i);
      offsets[i] = first < i ? offsets[first] : total;
      if (first == i) total += (bytes_[i] + kAlignment - 1) / kAlignment * kAlignment;
    }
    const ScopedBlock block(pool_acquire(total, Hold::kCall));
    if (block.get() == nullptr) {
      return failure->set(Failure::Kind::kOutOfMemory,
                          "copies for " + title_of(foreign_) + " take " + std::to_string(total) +
                              " bytes, which cannot be allocated");
    }
    for (size_t i = 0; i < copies_.size(); ++i) {
      copies_[i] = static_cast<char*>(block.get()->data) + offsets[i];
    }
    // What has been enqueued writes to the block: it is waited for also where something fails.
    const bool is_given = copy_in(failure);
    const std::string when = "when operands of " + title_of(foreign_) + " are copied to the host";
    if (!place_.device->wait(place_.stream, when.c_str(), failure) || !is_given) return false;
    return foreign_.run(copies_.data(), sizes_, failure) && copy_out(failure);
  }

 private:
  // The first buffer in the memory of buffer `i`: a result may be where an operand is.
  size_t first_with_memory_of(size_t i) {
    if (bytes_[i] == 0) return i;
    size_t first = 0;
    while (bytes_[first] == 0 || buffers_[first] != buffers_[i]) ++first;
    return first;
  }

  bool copy_in(Failure* failure) {
    for (size_t i = 0; i < operands_; ++i) {
      if (bytes_[i] == 0) continue;
      if (!check(place_.device->call().copy_to_host(copies_[i], buffers_[i], bytes_[i],
                                                    place_.stream),
                 "an operand of ", failure)) {
        return false;
      }
    }
    return true;
  }

  // The driver has read memory that it does not know when the functions return.
  bool copy_out(Failure* failure) {
    for (size_t i = operands_; i < copies_.size(); ++i) {
      if (bytes_[i] == 0) continue;
      if (!check(place_.device->call().copy_to_device(buffers_[i], copies_[i], bytes_[i],
                                                      place_.stream),
                 "a result of ", failure)) {
        return false;
      }
    }
    return true;
  }

  bool check(int error, const char* what, Failure* failure) const {
    if (error == kGpuSuccess) return true;
    return place_.device->driver().check(
        error, what + title_of(foreign_) + " cannot be copied on " + place_.device->title(),
        failure);
  }

  const ForeignCall& foreign_;
  const GpuPlace& place_;
  void* const* const buffers_;
  const int64_t* const sizes_;
  const size_t operands_;
  SmallVector<void*, 16> copies_;
  SmallVector<size_t, 16> bytes_;
};

}  // namespace

bool ForeignCall::run_on(const GpuPlace& place, void* const* buffers, const int64_t* sizes,
                         Failure* failure) const {
  if (!spec_.is_on_device) return StagedCall(*this, place, buffers, sizes).run(failure);
  DeviceMemory memory(*this, place, failure);
  if (!run_in(memory, &place, buffers, sizes, failure)) return false;
  if (!gpu_waits_for_launches()) return true;
  const std::string when = "behind " + title_of(*this);
  return place.device->wait(place.stream, when.c_str(), failure);
}

}  // namespace shlo_disc
