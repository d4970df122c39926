// The stable part of the DLPack C ABI (unversioned capsules named "dltensor"), and the table of C
// functions that a type of tensors offers since DLPack 1.3.
// Source: https://dmlc.github.io/dlpack/latest/c_api.html
#ifndef SHLO_DISC_RAL_DLPACK_ABI_H_
#define SHLO_DISC_RAL_DLPACK_ABI_H_

#include <cstdint>

namespace shlo_disc::dlpack {

constexpr char kCapsuleName[] = "dltensor";
constexpr int32_t kCpu = 1;
constexpr int32_t kCuda = 2;
constexpr int32_t kRocm = 10;

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

struct Version {
  uint32_t major;
  uint32_t minor;
};
constexpr Version kVersion = {1, 3};  // whose structures these are

struct ManagedTensorVersioned {
  Version version;
  void* manager;
  void (*deleter)(ManagedTensorVersioned* self);  // may be null
  uint64_t flags;
  Tensor tensor;
};

// An attribute of a type of tensors: a capsule of the second name with an ExchangeApi, which lives as
// long as the process.
constexpr char kExchangeAttribute[] = "__dlpack_c_exchange_api__";
constexpr char kExchangeCapsule[] = "dlpack_exchange_api";

struct ExchangeHeader {
  Version version;
  const ExchangeHeader* previous;  // a table of an older version; null: there is none
};

// The functions need the GIL. They return 0, or -1 with a Python error set.
struct ExchangeApi {
  ExchangeHeader header;
  int (*allocate)(Tensor* prototype, ManagedTensorVersioned** out, void* error_context,
                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_from_object)(void* object, ManagedTensorVersioned** out);
  int (*object_from_managed)(ManagedTensorVersioned* tensor, void** out);  // takes the tensor over
  int (*tensor_from_object)(void* object, Tensor* out);  // may be null; what it gives is borrowed
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

}  // namespace shlo_disc::dlpack

#endif  // SHLO_DISC_RAL_DLPACK_ABI_H_
