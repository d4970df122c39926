#include "dlpack_result.h"

namespace shlo_disc {
namespace {

struct DTypeCode {
  DType dtype;
  dlpack::DataType type;
};

constexpr DTypeCode kCodes[] = {
    {DType::kFloat32, {dlpack::kFloat, 32, 1}},
    {DType::kInt64, {dlpack::kInt, 64, 1}},
    {DType::kBFloat16, {dlpack::kBfloat, 16, 1}},
    {DType::kFloat16, {dlpack::kFloat, 16, 1}},
    {DType::kBool, {dlpack::kBool, 8, 1}},
    {DType::kInt32, {dlpack::kInt, 32, 1}},
    {DType::kFloat64, {dlpack::kFloat, 64, 1}},
    {DType::kInt8, {dlpack::kInt, 8, 1}},
    {DType::kInt16, {dlpack::kInt, 16, 1}},
    {DType::kUInt8, {dlpack::kUInt, 8, 1}},
    {DType::kUInt16, {dlpack::kUInt, 16, 1}},
    {DType::kUInt32, {dlpack::kUInt, 32, 1}},
    {DType::kUInt64, {dlpack::kUInt, 64, 1}},
    {DType::kComplex64, {dlpack::kComplex, 64, 1}},
    {DType::kComplex128, {dlpack::kComplex, 128, 1}},
    {DType::kFloat8E3M4, {dlpack::kFloat8E3M4, 8, 1}},
    {DType::kFloat8E4M3, {dlpack::kFloat8E4M3, 8, 1}},
    {DType::kFloat8E4M3B11FNUZ, {dlpack::kFloat8E4M3B11FNUZ, 8, 1}},
    {DType::kFloat8E4M3FN, {dlpack::kFloat8E4M3FN, 8, 1}},
    {DType::kFloat8E4M3FNUZ, {dlpack::kFloat8E4M3FNUZ, 8, 1}},
    {DType::kFloat8E5M2, {dlpack::kFloat8E5M2, 8, 1}},
    {DType::kFloat8E5M2FNUZ, {dlpack::kFloat8E5M2FNUZ, 8, 1}},
    {DType::kFloat8E8M0FNU, {dlpack::kFloat8E8M0FNU, 8, 1}},
};  // fewer bits than 8 may be packed, so they are no arguments

}  // namespace

namespace dlpack {

std::optional<DataType> code_of(DType dtype) {
  for (const DTypeCode& row : kCodes) {
    if (row.dtype == dtype) return row.type;
  }
  return std::nullopt;
}

}  // namespace dlpack

DType dtype_of(const dlpack::DataType& type) {
  for (const DTypeCode& row : kCodes) {
    if (row.type.code == type.code && row.type.bits == type.bits && row.type.lanes == type.lanes) {
      return row.dtype;
    }
  }
  return DType::kOther;
}

}  // namespace shlo_disc
