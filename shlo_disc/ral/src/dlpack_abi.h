// The stable part of the DLPack C ABI (unversioned capsules named "dltensor").
// Source: https://dmlc.github.io/dlpack/latest/c_api.html
#ifndef SHLO_DISC_RAL_DLPACK_ABI_H_
#define SHLO_DISC_RAL_DLPACK_ABI_H_

#include <cstdint>

namespace shlo_disc::dlpack {

constexpr char kCapsuleName[] = "dltensor";
constexpr int32_t kCpu = 1;

enum Code : uint8_t {
  kInt = 0,
  kUInt = 1,
  kFloat = 2,
  kBfloat = 4,
  kComplex = 5,
  kBool = 6,
  kFloat8E3M4 = 7,
  kFloat8E4M3 = 8,
  kFloat8E4M3B11FNUZ = 9,
  kFloat8E4M3FN = 10,
  kFloat8E4M3FNUZ = 11,
  kFloat8E5M2 = 12,
  kFloat8E5M2FNUZ = 13,
  kFloat8E8M0FNU = 14,
};

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t rank;
  DataType dtype;
  int64_t* sizes;
  int64_t* strides;  // in elements; null: dense, row-major
  uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* manager;
  void (*deleter)(ManagedTensor* self);
};

}  // namespace shlo_disc::dlpack

#endif  // SHLO_DISC_RAL_DLPACK_ABI_H_
