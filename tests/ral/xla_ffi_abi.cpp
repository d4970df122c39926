// Compiled by test_ffi.py with the header of the installed jaxlib: our declarations are XLA's.
#include "xla_ffi_abi.h"

#include "xla/ffi/api/c_api.h"

namespace ours = shlo_disc::xla_ffi;

#define SAME(ours_type, ours_field, theirs_type, theirs_field)                        \
  static_assert(offsetof(ours::ours_type, ours_field) ==                              \
                        offsetof(theirs_type, theirs_field) &&                        \
                    sizeof(ours::ours_type::ours_field) ==                            \
                        sizeof(theirs_type::theirs_field),                            \
                #ours_type "." #ours_field)
#define VALUE(ours_value, theirs_value) \
  static_assert(static_cast<int>(ours::ours_value) == static_cast<int>(theirs_value), #ours_value)

static_assert(ours::kMajor == XLA_FFI_API_MAJOR && ours::kMinor <= XLA_FFI_API_MINOR, "version");

SAME(Version, major_version, XLA_FFI_Api_Version, major_version);
SAME(Version, minor_version, XLA_FFI_Api_Version, minor_version);
SAME(Metadata, api_version, XLA_FFI_Metadata, api_version);
SAME(Metadata, traits, XLA_FFI_Metadata, traits);
SAME(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);
SAME(ErrorCreateArgs, message, XLA_FFI_Error_Create_Args, message);
SAME(ErrorCreateArgs, code, XLA_FFI_Error_Create_Args, errc);
SAME(Api, api_version, XLA_FFI_Api, api_version);
SAME(Api, create_error, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(Api, register_type, XLA_FFI_Api, XLA_FFI_Type_Register);
SAME(Api, set_state, XLA_FFI_Api, XLA_FFI_State_Set);
SAME(Api, get_state, XLA_FFI_Api, XLA_FFI_State_Get);
SAME(TypeId, type_id, XLA_FFI_TypeId, type_id);
SAME(TypeInfo, deleter, XLA_FFI_TypeInfo, deleter);
SAME(TypeRegisterArgs, name, XLA_FFI_Type_Register_Args, name);
SAME(TypeRegisterArgs, type_id, XLA_FFI_Type_Register_Args, type_id);
SAME(TypeRegisterArgs, type_info, XLA_FFI_Type_Register_Args, type_info);
SAME(StateSetArgs, context, XLA_FFI_State_Set_Args, ctx);
SAME(StateSetArgs, stage, XLA_FFI_State_Set_Args, stage);
SAME(StateSetArgs, type_id, XLA_FFI_State_Set_Args, type_id);
SAME(StateSetArgs, state, XLA_FFI_State_Set_Args, state);
SAME(StateGetArgs, context, XLA_FFI_State_Get_Args, ctx);
SAME(StateGetArgs, stage, XLA_FFI_State_Get_Args, stage);
SAME(StateGetArgs, type_id, XLA_FFI_State_Get_Args, type_id);
SAME(StateGetArgs, state, XLA_FFI_State_Get_Args, state);
SAME(Buffer, dtype, XLA_FFI_Buffer, dtype);
SAME(Buffer, data, XLA_FFI_Buffer, data);
SAME(Buffer, rank, XLA_FFI_Buffer, rank);
SAME(Buffer, dims, XLA_FFI_Buffer, dims);
SAME(ByteSpan, ptr, XLA_FFI_ByteSpan, ptr);
SAME(ByteSpan, len, XLA_FFI_ByteSpan, len);
SAME(Scalar, dtype, XLA_FFI_Scalar, dtype);
SAME(Scalar, value, XLA_FFI_Scalar, value);
SAME(Array, dtype, XLA_FFI_Array, dtype);
SAME(Array, size, XLA_FFI_Array, size);
SAME(Array, data, XLA_FFI_Array, data);
SAME(Args, size, XLA_FFI_Args, size);
SAME(Args, values, XLA_FFI_Args, args);
SAME(Args, size, XLA_FFI_Rets, size);
SAME(Args, values, XLA_FFI_Rets, rets);
SAME(Attributes, size, XLA_FFI_Attrs, size);
SAME(Attributes, types, XLA_FFI_Attrs, types);
SAME(Attributes, names, XLA_FFI_Attrs, names);
SAME(Attributes, values, XLA_FFI_Attrs, attrs);
SAME(CallFrame, extension_start, XLA_FFI_CallFrame, extension_start);
SAME(CallFrame, api, XLA_FFI_CallFrame, api);
SAME(CallFrame, context, XLA_FFI_CallFrame, ctx);
SAME(CallFrame, stage, XLA_FFI_CallFrame, stage);
SAME(CallFrame, args, XLA_FFI_CallFrame, args);
SAME(CallFrame, rets, XLA_FFI_CallFrame, rets);
SAME(CallFrame, attrs, XLA_FFI_CallFrame, attrs);

VALUE(Stage::kInstantiate, XLA_FFI_ExecutionStage_INSTANTIATE);
VALUE(Stage::kExecute, XLA_FFI_ExecutionStage_EXECUTE);
VALUE(kMetadataExtension, XLA_FFI_Extension_Metadata);
VALUE(ErrorCode::kInvalidArgument, XLA_FFI_Error_Code_INVALID_ARGUMENT);
VALUE(ErrorCode::kNotFound, XLA_FFI_Error_Code_NOT_FOUND);
VALUE(ErrorCode::kResourceExhausted, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
VALUE(ErrorCode::kInternal, XLA_FFI_Error_Code_INTERNAL);
VALUE(AttributeType::kArray, XLA_FFI_AttrType_ARRAY);
VALUE(AttributeType::kScalar, XLA_FFI_AttrType_SCALAR);
VALUE(DataType::kPred, XLA_FFI_DataType_PRED);
VALUE(DataType::kS8, XLA_FFI_DataType_S8);
VALUE(DataType::kS16, XLA_FFI_DataType_S16);
VALUE(DataType::kS32, XLA_FFI_DataType_S32);
VALUE(DataType::kS64, XLA_FFI_DataType_S64);
VALUE(DataType::kU8, XLA_FFI_DataType_U8);
VALUE(DataType::kU16, XLA_FFI_DataType_U16);
VALUE(DataType::kU32, XLA_FFI_DataType_U32);
VALUE(DataType::kU64, XLA_FFI_DataType_U64);
VALUE(DataType::kF16, XLA_FFI_DataType_F16);
VALUE(DataType::kF32, XLA_FFI_DataType_F32);
VALUE(DataType::kF64, XLA_FFI_DataType_F64);
VALUE(DataType::kC64, XLA_FFI_DataType_C64);
VALUE(DataType::kBF16, XLA_FFI_DataType_BF16);
VALUE(DataType::kC128, XLA_FFI_DataType_C128);
