// The part of XLA's FFI C ABI (version 0.3) that one CPU handler needs.
//
// Declared here because the names in XLA's header change between jaxlib releases (0.10 and 0.12 do
// not compile each other's handlers) while the ABI does not: one build serves them all.
// tests/ral/test_ffi.py compares offsets and values with the header of the installed jaxlib.
// Source: xla/ffi/api/c_api.h.
#ifndef SHLO_DISC_RAL_XLA_FFI_ABI_H_
#define SHLO_DISC_RAL_XLA_FFI_ABI_H_

#include <stddef.h>
#include <stdint.h>

namespace shlo_disc::xla_ffi {

constexpr int kMajor = 0;
constexpr int kMinor = 3;

struct Error;    // owned by XLA
struct Context;  // of one execution

enum class Stage : int { kInstantiate = 0, kExecute = 3 };

enum class ErrorCode : int {
  kInvalidArgument = 3,
  kNotFound = 5,
  kResourceExhausted = 8,
  kInternal = 13,
};

enum class DataType : int {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBF16 = 16,
  kC128 = 18,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
  kF8E4M3B11FNUZ = 23,
  kF8E5M2FNUZ = 24,
  kF8E4M3FNUZ = 25,
  kF8E4M3 = 28,
  kF8E3M4 = 29,
  kF8E8M0FNU = 33,
};

enum class AttributeType : int { kArray = 1, kDictionary = 2, kScalar = 3, kString = 4 };

struct Extension {
  size_t struct_size;
  int type;
  Extension* next;
};
constexpr int kMetadataExtension = 1;

struct Version {
  size_t struct_size;
  Extension* extension_start;
  int major_version;
  int minor_version;
};

struct Metadata {
  size_t struct_size;
  Version api_version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct ErrorCreateArgs {
  size_t struct_size;
  Extension* extension_start;
  const char* message;
  ErrorCode code;
};

struct ByteSpan {
  const char* ptr;
  size_t len;
};

struct TypeId {  // 0: not registered yet
  int64_t type_id;
};

struct TypeInfo {
  size_t struct_size;
  Extension* extension_start;
  void (*deleter)(void* object);
};

struct TypeRegisterArgs {
  size_t struct_size;
  Extension* extension_start;
  ByteSpan name;
  TypeId* type_id;  // in and out
  const TypeInfo* type_info;
};

struct StateSetArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  Stage stage;
  TypeId* type_id;
  void* state;
};

struct StateGetArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  Stage stage;
  TypeId* type_id;
  void* state;  // out
};

struct Api {  // more functions follow
  size_t struct_size;
  Extension* extension_start;
  Version api_version;
  void* internal_api;
  Error* (*create_error)(ErrorCreateArgs* args);
  void* unused[4];  // message of an error, destroy one, register a handler, get the stream
  Error* (*register_type)(TypeRegisterArgs* args);
  void* get_context;
  Error* (*set_state)(StateSetArgs* args);
  Error* (*get_state)(StateGetArgs* args);
};

struct Buffer {
  size_t struct_size;
  Extension* extension_start;
  DataType dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct Scalar {
  DataType dtype;
  void* value;
};

struct Array {
  DataType dtype;
  size_t size;
  void* data;
};

struct Args {  // arguments and results alike
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  int* types;
  void** values;
};

struct Attributes {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  AttributeType* types;
  ByteSpan** names;
  void** values;
};

struct CallFrame {
  size_t struct_size;
  Extension* extension_start;
  const Api* api;
  Context* context;
  Stage stage;
  Args args;
  Args rets;
  Attributes attrs;
};

}  // namespace shlo_disc::xla_ffi

#endif  // SHLO_DISC_RAL_XLA_FFI_ABI_H_
