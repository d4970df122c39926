#include "ffi_call.h"

#include <algorithm>
#include <new>
#include <string>

namespace shlo_disc {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

DType dtype_of(DataType type) {
  switch (type) {
    case DataType::kPred: return DType::kBool;
    case DataType::kS8: return DType::kInt8;
    case DataType::kS16: return DType::kInt16;
    case DataType::kS32: return DType::kInt32;
    case DataType::kS64: return DType::kInt64;
    case DataType::kU8: return DType::kUInt8;
    case DataType::kU16: return DType::kUInt16;
    case DataType::kU32: return DType::kUInt32;
    case DataType::kU64: return DType::kUInt64;
    case DataType::kF16: return DType::kFloat16;
    case DataType::kBF16: return DType::kBFloat16;
    case DataType::kF32: return DType::kFloat32;
    case DataType::kF64: return DType::kFloat64;
    case DataType::kC64: return DType::kComplex64;
    case DataType::kF8E3M4: return DType::kFloat8E3M4;
    case DataType::kF8E4M3: return DType::kFloat8E4M3;
    case DataType::kF8E4M3B11FNUZ: return DType::kFloat8E4M3B11FNUZ;
    case DataType::kF8E4M3FN: return DType::kFloat8E4M3FN;
    case DataType::kF8E4M3FNUZ: return DType::kFloat8E4M3FNUZ;
    case DataType::kF8E5M2: return DType::kFloat8E5M2;
    case DataType::kF8E5M2FNUZ: return DType::kFloat8E5M2FNUZ;
    case DataType::kF8E8M0FNU: return DType::kFloat8E8M0FNU;
    case DataType::kC128: return DType::kComplex128;
    case DataType::kS2: return DType::kInt2;
    case DataType::kS4: return DType::kInt4;
    case DataType::kU2: return DType::kUInt2;
    case DataType::kU4: return DType::kUInt4;
    case DataType::kF4E2M1FN: return DType::kFloat4E2M1FN;
    default: return DType::kOther;
  }
}

namespace {

std::string sizes_text(int64_t rank, const int64_t* sizes) {
  std::string text = "(";
  for (int64_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + ")";
}

const Buffer& result_of(const CallFrame* frame, size_t i) {
  return *static_cast<const Buffer*>(frame->rets.values[i]);
}

}  // namespace

Error* ffi_error(const CallFrame* frame, ErrorCode code, const std::string& message) {
  ErrorCreateArgs args{size_up_to(&ErrorCreateArgs::code), nullptr, message.c_str(), code};
  return frame->api->create_error(&args);
}

Error* ffi_invalid(const CallFrame* frame, const std::string& message) {
  return ffi_error(frame, ErrorCode::kInvalidArgument, "shlo_disc: " + message);
}

const void* ffi_attribute(const CallFrame* frame, std::string_view name,
                          AttributeType type) {
  for (int64_t i = 0; i < frame->attrs.size; ++i) {
    const ByteSpan* const span = frame->attrs.names[i];
    if (std::string_view(span->ptr, span->len) != name) continue;
    return frame->attrs.types[i] == type ? frame->attrs.values[i] : nullptr;
  }
  return nullptr;
}

FfiCall::FfiCall(CallFrame* frame, const Executable& executable)
    : frame_(frame),
      executable_(executable),
      carrier_(static_cast<const Array*>(ffi_attribute(frame, "sizes", AttributeType::kArray))),
      arguments_(executable.spec().arguments.size()),
      sizes_(static_cast<size_t>(executable.prepared_numbers())),
      symbols_(static_cast<size_t>(executable.spec().symbols)),
      result_sizes_(static_cast<size_t>(executable.result_ranks())),
      results_(executable.spec().results.size()),
      next_size_(sizes_.data()) {}

void* FfiCall::new_copy(int64_t bytes) {
  unpacked_.emplace_back(pool_acquire(static_cast<size_t>(bytes), Hold::kCall));
  if (unpacked_.back().get() == nullptr) throw std::bad_alloc();
  return unpacked_.back().get()->data;
}

Error* FfiCall::read(bool unpacks) {
  const ProgramSpec& spec = executable_.spec();
  const size_t given = static_cast<size_t>(frame_->args.size) + (carrier_ != nullptr ? 1 : 0);
  if (given != spec.arguments.size() ||
      static_cast<size_t>(frame_->rets.size) != spec.results.size()) {
    return ffi_invalid(frame_, spec.name + " takes " + std::to_string(spec.arguments.size()) +
                                   " arguments and has " + std::to_string(spec.results.size()) +
                                   " results, the custom call has " + std::to_string(given) +
                                   " and " + std::to_string(frame_->rets.size));
  }
  for (size_t i = 0; i < given; ++i) {
    const int64_t* dims = nullptr;
    int64_t rank = 0;
    DType dtype = spec.arguments[i].dtype;
    if (i < static_cast<size_t>(frame_->args.size)) {
      const auto* const buffer = static_cast<const Buffer*>(frame_->args.values[i]);
      dims = buffer->dims;
      rank = buffer->rank;
      dtype = dtype_of(buffer->dtype);
      arguments_[i] = buffer->data;
      if (const int bits = packed_bits(dtype); bits != 0) {
        if (!unpacks) {
          return ffi_error(frame_, ErrorCode::kUnimplemented,
                           "shlo_disc: argument " + std::to_string(i) + " has elements of " +
                               std::to_string(bits) + " bits, which XLA packs; convert it to int8");
        }
        const int64_t count = array_bytes(dtype, rank, dims);
        arguments_[i] = new_copy(count);
        unpack_elements(bits, buffer->data, count, arguments_[i]);
      }
    } else {
      if (carrier_->dtype != DataType::kS64) {
        return ffi_invalid(frame_, "the attribute 'sizes' is not an array of i64");
      }
      dims = static_cast<const int64_t*>(carrier_->data);
      rank = static_cast<int64_t>(carrier_->size);
      arguments_[i] = nullptr;
    }
    const Mismatch mismatch = executable_.check(i, dtype, rank, dims);
    if (mismatch != Mismatch::kNone) {
      return ffi_invalid(frame_, executable_.describe(mismatch, i, dtype, rank, dims, true));
    }
    next_size_ = std::copy_n(dims, rank, next_size_);
  }
  for (size_t i = 0; !unpacks && i < spec.results.size(); ++i) {
    if (packed_bits(spec.results[i].dtype) == 0) continue;
    return ffi_error(frame_, ErrorCode::kUnimplemented,
                     "shlo_disc: result " + std::to_string(i) +
                         " has elements that XLA packs; convert it to int8");
  }
  return nullptr;
}

void FfiCall::read_size_elements(void* const* host_arguments) {
  executable_.read_size_elements(host_arguments, next_size_);
}

Error* FfiCall::prepare() {
  const ProgramSpec& spec = executable_.spec();
  const int64_t status = executable_.prepare(sizes_.data(), symbols_.data(), result_sizes_.data(),
                                             &arena_bytes_);
  if (status != 0) return ffi_invalid(frame_, executable_.describe_guard(status - 1));
  const int64_t* want = result_sizes_.data();
  for (size_t i = 0; i < spec.results.size(); ++i) {
    const Buffer& buffer = result_of(frame_, i);
    const ResultSpec& result = spec.results[i];
    if (dtype_of(buffer.dtype) != result.dtype || buffer.rank != result.rank ||
        !std::equal(want, want + result.rank, buffer.dims)) {
      return ffi_invalid(frame_, "result " + std::to_string(i) + " is " + dtype_name(result.dtype) +
                                     sizes_text(result.rank, want) + ", the custom call says " +
                                     dtype_name(dtype_of(buffer.dtype)) +
                                     sizes_text(buffer.rank, buffer.dims));
    }
    results_[i] = packed_bits(result.dtype) == 0
                      ? buffer.data
                      : new_copy(array_bytes(result.dtype, result.rank, want));
    want += result.rank;
  }
  return nullptr;
}

void FfiCall::pack_results() {
  const ProgramSpec& spec = executable_.spec();
  for (size_t i = 0; i < spec.results.size(); ++i) {
    const Buffer& buffer = result_of(frame_, i);
    if (const int bits = packed_bits(spec.results[i].dtype); bits != 0) {
      const int64_t count = array_bytes(spec.results[i].dtype, buffer.rank, buffer.dims);
      pack_elements(bits, results_[i], count, buffer.data);
    }
  }
}

Error* told_error(const CallFrame* frame, const Executable& executable,
                     const RunFailure& failure) {
  const auto code = failure.foreign < 0 ? ErrorCode::kInternal : static_cast<ErrorCode>(failure.code);
  return ffi_error(frame, code,
                   executable.describe(failure) + ": " + failure.message);
}

Error* execute_on_cpu(CallFrame* frame, const Executable& executable) {
  FfiCall call(frame, executable);
  if (Error* const failed = call.read(true)) return failed;
  call.read_size_elements(call.arguments());
  if (Error* const failed = call.prepare()) return failed;
  const ScopedBlock arena(
      pool_acquire(static_cast<size_t>(call.arena_bytes()), Hold::kCall));
  RunFailure failure;
  if (arena.get() == nullptr || !executable.run(call.arguments(), call.results(), call.symbols(),
                                                arena.get()->data, nullptr, &failure)) {
    if (failure.is_told()) return told_error(frame, executable, failure);
    return ffi_error(frame, ErrorCode::kResourceExhausted,
                     "shlo_disc: out of memory (" + std::to_string(call.arena_bytes()) +
                         " bytes of temporaries)");
  }
  call.pack_results();
  return nullptr;
}

}  // namespace shlo_disc
