// XLA's FFI C ABI (versions 0.3 to 0.5), as far as we need it: to be a handler
// (`ffi_handler.cpp`) and to call handlers (`foreign_call.cpp`).
//
// Declared here because the names in XLA's header change between jaxlib releases (0.10 and 0.12 do
// not compile each other's handlers) while the ABI only grows: one build serves them all.
// tests/ral/test_ffi.py compares offsets and values with the header of the installed jaxlib.
// Source: xla/ffi/api/c_api.h.
#ifndef SHLO_DISC_RAL_XLA_FFI_ABI_H_
#define SHLO_DISC_RAL_XLA_FFI_ABI_H_

#include <stddef.h>
#include <stdint.h>

namespace shlo_disc::xla_ffi {

constexpr int kMajor = 0;
constexpr int kMinor = 3;        // our handlers need no later one
constexpr int kLatestMinor = 5;  // our table serves handlers up to this one

// Opaque to handlers: each belongs to the caller that made it (XLA, or foreign_call.cpp).
struct Error;
struct Context;  // of one execution
struct Future;   // of an asynchronous handler

enum class Stage : int { kInstantiate = 0, kPrepare = 1, kInitialize = 2, kExecute = 3 };
constexpr int kStages = 4;

enum class ErrorCode : int {
  kInvalidArgument = 3,
  kNotFound = 5,
  kAlreadyExists = 6,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
};

enum class DataType : int {
  kInvalid = 0,
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
  kS4 = 21,
  kU4 = 22,
  kF8E4M3B11FNUZ = 23,
  kF8E5M2FNUZ = 24,
  kF8E4M3FNUZ = 25,
  kS2 = 26,
  kU2 = 27,
  kF8E4M3 = 28,
  kF8E3M4 = 29,
  kF4E2M1FN = 32,
  kF8E8M0FNU = 33,
};

constexpr int kBufferArgument = 1;  // the one type of arguments and results

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

struct TypeId {  // 0: not registered yet
  int64_t type_id;
};

struct Metadata {
  size_t struct_size;
  Version api_version;
  uint32_t traits;
  TypeId state_type_id;  // later than the rest; struct_size does not count it
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

struct ErrorDetailsArgs {
  size_t struct_size;
  Extension* extension_start;
  Error* error;
  const char* message;  // out
  ErrorCode code;       // out; since 0.4
};

struct ErrorDestroyArgs {
  size_t struct_size;
  Extension* extension_start;
  Error* error;
};

struct ByteSpan {
  const char* ptr;
  size_t len;
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

struct ContextGetArgs {  // user data of an execution
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  TypeId* type_id;
  void* data;  // out
};

struct StreamGetArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  void* stream;  // out: CUstream, hipStream_t
};

struct MemoryAllocateArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  size_t size;
  size_t alignment;
  void* data;  // out
};

struct MemoryFreeArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  size_t size;
  void* data;
};

struct ScheduleArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  void (*task)(void* data);
  void* data;
};

struct NumThreadsArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  int64_t* num_threads;  // out
};

struct FutureCreateArgs {
  size_t struct_size;
  Extension* extension_start;
  Future* future;  // out
};

struct FutureSetAvailableArgs {
  size_t struct_size;
  Extension* extension_start;
  Future* future;
};

struct FutureSetErrorArgs {
  size_t struct_size;
  Extension* extension_start;
  Future* future;
  Error* error;  // taken over
};

struct RunIdArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  int64_t run_id;  // out
};

struct DeviceOrdinalArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  int32_t device_ordinal;  // out
};

struct FindExtensionArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  int64_t extension_type;
  const void* extension;  // out; null: the execution has none of this type
};

struct Attributes;

struct CustomOptionsArgs {
  size_t struct_size;
  Extension* extension_start;
  Context* context;
  const Attributes* options;  // out
};

using Refused = Error*(void* args);  // a function of the table that only says no

struct Api {  // more functions may follow
  size_t struct_size;
  Extension* extension_start;
  Version api_version;
  const void* internal_api;
  Error* (*create_error)(ErrorCreateArgs* args);
  void (*error_details)(ErrorDetailsArgs* args);  // Error_GetMessage before 0.4
  void (*destroy_error)(ErrorDestroyArgs* args);
  Refused* register_handler;
  Error* (*get_stream)(StreamGetArgs* args);
  Error* (*register_type)(TypeRegisterArgs* args);
  Error* (*get_context)(ContextGetArgs* args);
  Error* (*set_state)(StateSetArgs* args);
  Error* (*get_state)(StateGetArgs* args);
  Error* (*allocate_memory)(MemoryAllocateArgs* args);
  Error* (*free_memory)(MemoryFreeArgs* args);
  Error* (*schedule)(ScheduleArgs* args);
  Error* (*num_threads)(NumThreadsArgs* args);
  Error* (*create_future)(FutureCreateArgs* args);
  Error* (*set_future_available)(FutureSetAvailableArgs* args);
  Error* (*set_future_error)(FutureSetErrorArgs* args);
  Error* (*get_run_id)(RunIdArgs* args);
  Error* (*get_device_ordinal)(DeviceOrdinalArgs* args);
  Error* (*find_extension)(FindExtensionArgs* args);      // since 0.4
  Error* (*get_custom_options)(CustomOptionsArgs* args);  // since 0.5
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
  Future* future;  // out; struct_size does not count it
};

using Handler = Error*(CallFrame* frame);

// XLA counts a struct's size up to its last field, without padding.
template <typename Struct, typename Field>
size_t size_up_to(Field Struct::*last) {
  const Struct value{};
  return static_cast<size_t>(reinterpret_cast<const char*>(&(value.*last)) -
                             reinterpret_cast<const char*>(&value)) +
         sizeof(Field);
}

}  // namespace shlo_disc::xla_ffi

#endif  // SHLO_DISC_RAL_XLA_FFI_ABI_H_
