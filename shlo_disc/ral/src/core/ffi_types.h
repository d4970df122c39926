// The element types of XLA's FFI as ours.
#ifndef SHLO_DISC_RAL_FFI_TYPES_H_
#define SHLO_DISC_RAL_FFI_TYPES_H_

#include "executable.h"
#include "xla_ffi_abi.h"

namespace shlo_disc {

// By DType; kInvalid: XLA has no handlers of such elements.
constexpr xla_ffi::DataType kDataTypes[] = {
    xla_ffi::DataType::kPred, xla_ffi::DataType::kS8, xla_ffi::DataType::kS16,
    xla_ffi::DataType::kS32, xla_ffi::DataType::kS64, xla_ffi::DataType::kU8,
    xla_ffi::DataType::kU16, xla_ffi::DataType::kU32, xla_ffi::DataType::kU64,
    xla_ffi::DataType::kF16, xla_ffi::DataType::kBF16, xla_ffi::DataType::kF32,
    xla_ffi::DataType::kF64, xla_ffi::DataType::kC64, xla_ffi::DataType::kC128,
    xla_ffi::DataType::kF4E2M1FN, xla_ffi::DataType::kInvalid, xla_ffi::DataType::kInvalid,
    xla_ffi::DataType::kF8E3M4, xla_ffi::DataType::kF8E4M3, xla_ffi::DataType::kF8E4M3B11FNUZ,
    xla_ffi::DataType::kF8E4M3FN, xla_ffi::DataType::kF8E4M3FNUZ, xla_ffi::DataType::kF8E5M2,
    xla_ffi::DataType::kF8E5M2FNUZ, xla_ffi::DataType::kF8E8M0FNU, xla_ffi::DataType::kS2,
    xla_ffi::DataType::kS4, xla_ffi::DataType::kU2, xla_ffi::DataType::kU4,
};
static_assert(sizeof(kDataTypes) / sizeof(kDataTypes[0]) == kDTypeCount, "one per DType");

constexpr xla_ffi::DataType data_type(DType dtype) {
  return dtype == DType::kOther ? xla_ffi::DataType::kInvalid
                                : kDataTypes[static_cast<size_t>(dtype)];
}

DType dtype_of(xla_ffi::DataType type);  // kOther for what a program never takes

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FFI_TYPES_H_
