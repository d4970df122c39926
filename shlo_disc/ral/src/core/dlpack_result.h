// Results as tensors of DLPack, over memory that goes with the last of its owners.
#ifndef SHLO_DISC_RAL_DLPACK_RESULT_H_
#define SHLO_DISC_RAL_DLPACK_RESULT_H_

#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <utility>

#include "dlpack_abi.h"
#include "executable.h"

namespace shlo_disc {

DType dtype_of(const dlpack::DataType& type);  // kOther for what a program never takes

namespace dlpack {

std::optional<DataType> code_of(DType dtype);  // none: DLPack has no code for it

// A result as a framework owns it; its sizes and strides lie behind it. `Owner` has `data()`.
template <typename Managed, typename Owner>
struct Result {
  Managed managed;
  Owner owner;

  static_assert(alignof(Managed) >= alignof(int64_t), "numbers follow");

  // Called by any thread, with or without the GIL.
  static void destroy(Managed* self) {
    auto* const result = static_cast<Result*>(self->manager);
    result->~Result();
    std::free(result);
  }

  // Dense and row-major. Null: out of memory.
  static Result* make(Owner owner, Device device, DType dtype, int64_t rank,
                      const int64_t* sizes) {
    const size_t numbers = 2 * static_cast<size_t>(rank) * sizeof(int64_t);
    void* const memory = std::malloc(sizeof(Result) + numbers);
    if (memory == nullptr) return nullptr;
    auto* const result = new (memory) Result{{}, std::move(owner)};
    auto* const shape = reinterpret_cast<int64_t*>(result + 1);
    int64_t stride = 1;
    for (int64_t i = rank - 1; i >= 0; --i) {
      shape[i] = sizes[i];
      shape[rank + i] = stride;
      stride *= sizes[i] > 0 ? sizes[i] : 1;  // no stride is 0, as frameworks have it
    }
    result->managed.manager = result;
    result->managed.deleter = &destroy;
    result->managed.tensor = {result->owner.data(), device, static_cast<int32_t>(rank),
                              *code_of(dtype), shape, shape + rank, 0};
    return result;
  }
};

}  // namespace dlpack
}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_DLPACK_RESULT_H_
