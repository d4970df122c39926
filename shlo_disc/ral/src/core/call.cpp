#include "call.h"

#include <algorithm>
#include <string>

#include "gpu_call.h"

namespace shlo_disc {
namespace {

// "rank is 2, the program takes 1"
std::string mismatch_text(const ArgumentSpec& want, Mismatch mismatch, DType dtype, int64_t rank,
                          const int64_t* sizes) {
  const auto text = [](const std::string& what, const std::string& have, const std::string& takes) {
    return what + " is " + have + ", the program takes " + takes;
  };
  if (mismatch == Mismatch::kDType) return text("dtype", dtype_name(dtype), dtype_name(want.dtype));
  if (mismatch == Mismatch::kRank) {
    return text("rank", std::to_string(rank), std::to_string(want.sizes.size()));
  }
  size_t i = 0;
  while (want.sizes[i] < 0 || want.sizes[i] == sizes[i]) ++i;
  return text("dimension " + std::to_string(i), std::to_string(sizes[i]),
              std::to_string(want.sizes[i]));
}

Mismatch mismatch_of(const ArgumentSpec& want, DType dtype, int64_t rank, const int64_t* sizes) {
  if (dtype != want.dtype) return Mismatch::kDType;
  if (rank != static_cast<int64_t>(want.sizes.size())) return Mismatch::kRank;
  for (int64_t i = 0; i < rank; ++i) {
    if (want.sizes[i] >= 0 && want.sizes[i] != sizes[i]) return Mismatch::kSize;
  }
  return Mismatch::kNone;
}

}  // namespace

bool Call::take(void* data, DType dtype, int64_t rank, const int64_t* sizes) {
  const ArgumentSpec& want = executable.spec().arguments[taken_];
  const Mismatch mismatch = mismatch_of(want, dtype, rank, sizes);
  if (mismatch != Mismatch::kNone) {
    failure.index = static_cast<int64_t>(taken_);
    failure.mismatch = mismatch;
    failure.where = "argument " + std::to_string(taken_);
    if (!want.name.empty()) failure.where += " ('" + want.name + "')";
    return failure.set(Failure::Kind::kArgument, mismatch_text(want, mismatch, dtype, rank, sizes));
  }
  arguments_[taken_++] = data;
  next_size_ = std::copy_n(sizes, rank, next_size_);
  return true;
}

bool Call::prepare() {
  const ProgramSpec& spec = executable.spec();
  const disc_prepare prepare = spec.prepare();
  if (prepare == nullptr) {
    return failure.set(Failure::Kind::kDevice,
                       "the program has code for another machine: save it, and load it there");
  }
  const int64_t status =
      prepare(sizes_.data(), symbols_.data(), result_sizes_.data(), &arena_bytes_);
  if (status != 0) {
    failure.index = status - 1;
    const auto guard = static_cast<size_t>(failure.index);
    return failure.set(Failure::Kind::kGuard, guard < spec.guards.size()
                                                  ? spec.guards[guard]
                                                  : "guard " + std::to_string(guard) + " does not hold");
  }
  const int64_t* sizes = result_sizes_.data();
  for (size_t i = 0; i < spec.results.size(); ++i) {
    const int64_t rank = spec.results[i].rank;
    bytes_[i] = array_bytes(spec.results[i].dtype, rank, sizes);
    if (bytes_[i] < 0 || arena_bytes_ < 0) {
      const bool possible = std::all_of(sizes, sizes + rank, [](int64_t size) { return size >= 0; });
      if (possible && bytes_[i] < 0) return refuse_result(i, sizes);
      return failure.set(Failure::Kind::kInternal,
                         "an impossible size was computed for result " + std::to_string(i) +
                             "; this is a bug of shlo_disc: a guard is missing");
    }
    total_bytes_ += bytes_[i];
    sizes += rank;
  }
  return true;
}

bool Call::refuse_result(size_t index, const int64_t* sizes) {
  const auto& [dtype, rank] = executable.spec().results[index];
  return failure.set(Failure::Kind::kOutOfMemory,
                     "result " + std::to_string(index) + " is " + array_text(dtype, rank, sizes) +
                         " and takes " +
                         (bytes_[index] < 0 ? "2^63" : std::to_string(bytes_[index])) + " bytes" +
                         (bytes_[index] < 0 ? " or more" : "") +
                         ", which cannot be allocated; call with smaller arrays or return less");
}

bool Call::run(CallMemory& memory) {
  const int64_t* sizes = result_sizes_.data();
  for (size_t i = 0; i < bytes_.size(); ++i) {
    if (!memory.result(i, sizes, bytes_[i], &results_[i])) return refuse_result(i, sizes);
    sizes += executable.spec().results[i].rank;
  }
  const GpuPlace* const place = memory.place();
  void* arena = nullptr;
  if (!memory.arena(arena_bytes_, &arena)) {
    return failure.set(Failure::Kind::kOutOfMemory,
                       "temporary values take " + std::to_string(arena_bytes_) +
                           " bytes, which cannot be allocated; call with smaller arrays");
  }
  if (place == nullptr ? executable.run(*this, arena) : run_on_gpu(*this, *place, arena)) return true;
  if (failure.message.empty()) failure.message = "the working memory of a kernel cannot be allocated";
  return false;
}

}  // namespace shlo_disc
