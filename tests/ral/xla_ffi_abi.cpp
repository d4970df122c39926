// Compiled by test_ffi.py with the header of the installed jaxlib: our declarations are XLA's.
#include "xla_ffi_abi.h"

#include "xla/ffi/api/c_api.h"

namespace ours = shlo_disc::xla_ffi;

// Names that 0.4 changed.
#if XLA_FFI_API_MINOR >= 4
using ErrorDetailsArgs = XLA_FFI_Error_GetDetails_Args;
using ContextGetArgs = XLA_FFI_InvokeContext_Get_Args;
#define ERROR_DETAILS XLA_FFI_Error_GetDetails
#define CONTEXT_GET XLA_FFI_InvokeContext_Get
#else
using ErrorDetailsArgs = XLA_FFI_Error_GetMessage_Args;
using ContextGetArgs = XLA_FFI_ExecutionContext_Get_Args;
#define ERROR_DETAILS XLA_FFI_Error_GetMessage
#define CONTEXT_GET XLA_FFI_ExecutionContext_Get
#endif

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
VALUE(DataType::kF8E5M2, XLA_FFI_DataType_F8E5M2);
VALUE(DataType::kF8E4M3FN, XLA_FFI_DataType_F8E4M3FN);
VALUE(DataType::kF8E4M3B11FNUZ, XLA_FFI_DataType_F8E4M3B11FNUZ);
VALUE(DataType::kF8E5M2FNUZ, XLA_FFI_DataType_F8E5M2FNUZ);
VALUE(DataType::kF8E4M3FNUZ, XLA_FFI_DataType_F8E4M3FNUZ);
VALUE(DataType::kF8E4M3, XLA_FFI_DataType_F8E4M3);
VALUE(DataType::kF8E3M4, XLA_FFI_DataType_F8E3M4);
VALUE(DataType::kF8E8M0FNU, XLA_FFI_DataType_F8E8M0FNU);
VALUE(DataType::kInvalid, XLA_FFI_DataType_INVALID);
VALUE(Stage::kPrepare, XLA_FFI_ExecutionStage_PREPARE);
VALUE(Stage::kInitialize, XLA_FFI_ExecutionStage_INITIALIZE);
VALUE(ErrorCode::kAlreadyExists, XLA_FFI_Error_Code_ALREADY_EXISTS);
VALUE(ErrorCode::kUnimplemented, XLA_FFI_Error_Code_UNIMPLEMENTED);
VALUE(AttributeType::kDictionary, XLA_FFI_AttrType_DICTIONARY);
VALUE(AttributeType::kString, XLA_FFI_AttrType_STRING);
VALUE(kBufferArgument, XLA_FFI_ArgType_BUFFER);
VALUE(kBufferArgument, XLA_FFI_RetType_BUFFER);
SAME(Api, error_details, XLA_FFI_Api, ERROR_DETAILS);
SAME(Api, destroy_error, XLA_FFI_Api, XLA_FFI_Error_Destroy);
SAME(Api, register_handler, XLA_FFI_Api, XLA_FFI_Handler_Register);
SAME(Api, get_stream, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME(Api, get_context, XLA_FFI_Api, CONTEXT_GET);
SAME(Api, allocate_memory, XLA_FFI_Api, XLA_FFI_DeviceMemory_Allocate);
SAME(Api, free_memory, XLA_FFI_Api, XLA_FFI_DeviceMemory_Free);
SAME(Api, schedule, XLA_FFI_Api, XLA_FFI_ThreadPool_Schedule);
SAME(Api, num_threads, XLA_FFI_Api, XLA_FFI_ThreadPool_NumThreads);
SAME(Api, create_future, XLA_FFI_Api, XLA_FFI_Future_Create);
SAME(Api, set_future_available, XLA_FFI_Api, XLA_FFI_Future_SetAvailable);
SAME(Api, set_future_error, XLA_FFI_Api, XLA_FFI_Future_SetError);
SAME(Api, get_run_id, XLA_FFI_Api, XLA_FFI_RunId_Get);
SAME(Api, get_device_ordinal, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
SAME(ErrorDetailsArgs, error, ::ErrorDetailsArgs, error);
SAME(ErrorDetailsArgs, message, ::ErrorDetailsArgs, message);
SAME(ErrorDestroyArgs, error, XLA_FFI_Error_Destroy_Args, error);
SAME(MemoryAllocateArgs, size, XLA_FFI_DeviceMemory_Allocate_Args, size);
SAME(MemoryAllocateArgs, alignment, XLA_FFI_DeviceMemory_Allocate_Args, alignment);
SAME(MemoryAllocateArgs, data, XLA_FFI_DeviceMemory_Allocate_Args, data);
SAME(MemoryFreeArgs, size, XLA_FFI_DeviceMemory_Free_Args, size);
SAME(MemoryFreeArgs, data, XLA_FFI_DeviceMemory_Free_Args, data);
SAME(ScheduleArgs, task, XLA_FFI_ThreadPool_Schedule_Args, task);
SAME(ScheduleArgs, data, XLA_FFI_ThreadPool_Schedule_Args, data);
SAME(NumThreadsArgs, num_threads, XLA_FFI_ThreadPool_NumThreads_Args, num_threads);
SAME(StreamGetArgs, context, XLA_FFI_Stream_Get_Args, ctx);
SAME(StreamGetArgs, stream, XLA_FFI_Stream_Get_Args, stream);
SAME(FutureCreateArgs, future, XLA_FFI_Future_Create_Args, future);
SAME(FutureSetAvailableArgs, future, XLA_FFI_Future_SetAvailable_Args, future);
SAME(FutureSetErrorArgs, future, XLA_FFI_Future_SetError_Args, future);
SAME(FutureSetErrorArgs, error, XLA_FFI_Future_SetError_Args, error);
SAME(RunIdArgs, run_id, XLA_FFI_RunId_Get_Args, run_id);
SAME(DeviceOrdinalArgs, device_ordinal, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);
SAME(CallFrame, future, XLA_FFI_CallFrame, future);
SAME(ContextGetArgs, type_id, ::ContextGetArgs, type_id);
SAME(ContextGetArgs, data, ::ContextGetArgs, data);

#if XLA_FFI_API_MINOR >= 4
SAME(ErrorDetailsArgs, code, ::ErrorDetailsArgs, errc);
SAME(FindExtensionArgs, extension_type, XLA_FFI_InvokeContext_FindExtension_Args, extension_type);
SAME(FindExtensionArgs, extension, XLA_FFI_InvokeContext_FindExtension_Args, extension);
SAME(Api, find_extension, XLA_FFI_Api, XLA_FFI_InvokeContext_FindExtension);
#endif
#if XLA_FFI_API_MINOR >= 5
SAME(CustomOptionsArgs, context, XLA_FFI_CustomOptions_Get_Args, ctx);
SAME(CustomOptionsArgs, options, XLA_FFI_CustomOptions_Get_Args, attrs);
SAME(Api, get_custom_options, XLA_FFI_Api, XLA_FFI_CustomOptions_Get);
#endif
static_assert(XLA_FFI_API_MINOR > ours::kLatestMinor || sizeof(XLA_FFI_Api) <= sizeof(ours::Api),
              "the table lacks functions");
