#include "ffi_call.h"

#include <algorithm>
#include <new>
#include <string>

#include "ffi_types.h"

namespace shlo_disc {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

Error* ffi_error(const CallFrame* frame, ErrorCode code, const std::string& message) {
  ErrorCreateArgs args{size_up_to(&ErrorCreateArgs::code), nullptr, message.c_str(), code};
  return frame->api->create_error(&args);
}

Error* ffi_invalid(const CallFrame* frame, const std::string& message) {
  return ffi_error(frame, ErrorCode::kInvalidArgument, "shlo_disc: " + message);
}

Error* ffi_failed(const CallFrame* frame, const Executable& executable, const Failure& failure) {
  const std::string text = failure.text(executable.spec().name);
  switch (failure.kind) {
    case Failure::Kind::kForeign: return ffi_error(frame, static_cast<ErrorCode>(failure.code), text);
    case Failure::Kind::kOutOfMemory:
      return ffi_error(frame, ErrorCode::kResourceExhausted, "shlo_disc: " + text);
    case Failure::Kind::kArgument:
    case Failure::Kind::kGuard: return ffi_invalid(frame, text);
    default: return ffi_error(frame, ErrorCode::kInternal, "shlo_disc: " + text);
  }
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

void* FrameMemory::new_copy(int64_t bytes) {
  unpacked_.emplace_back(pool_acquire(static_cast<size_t>(bytes), Hold::kCall));
  if (unpacked_.back().get() == nullptr) throw std::bad_alloc();
  return unpacked_.back().data();
}

bool FrameMemory::read() {
  const ProgramSpec& spec = call_.executable.spec();
  const auto* const carrier =
      static_cast<const Array*>(ffi_attribute(frame_, "sizes", AttributeType::kArray));
  const auto buffers = static_cast<size_t>(frame_->args.size);
  const size_t given = buffers + (carrier != nullptr ? 1 : 0);
  if (given != spec.arguments.size() ||
      static_cast<size_t>(frame_->rets.size) != spec.results.size()) {
    return refuse(spec.name + " takes " + std::to_string(spec.arguments.size()) +
                  " arguments and has " + std::to_string(spec.results.size()) +
                  " results, the custom call has " + std::to_string(given) + " and " +
                  std::to_string(frame_->rets.size));
  }
  for (size_t i = 0; i < buffers; ++i) {
    const auto& buffer = *static_cast<const Buffer*>(frame_->args.values[i]);
    const DType dtype = dtype_of(buffer.dtype);
    void* data = buffer.data;
    if (const int bits = packed_bits(dtype); bits != 0) {
      if (place_ != nullptr) {
        return refuse("argument " + std::to_string(i) + " has elements of " + std::to_string(bits) +
                      " bits, which XLA packs; convert it to int8");
      }
      const int64_t count = array_bytes(dtype, buffer.rank, buffer.dims);
      data = new_copy(count);
      unpack_elements(bits, buffer.data, count, data);
    }
    if (!call_.take(data, dtype, buffer.rank, buffer.dims)) return false;
  }
  if (carrier == nullptr) return true;
  if (carrier->dtype != DataType::kS64) return refuse("the attribute 'sizes' is not an array of i64");
  return call_.take(nullptr, spec.arguments.back().dtype, static_cast<int64_t>(carrier->size),
                    static_cast<const int64_t*>(carrier->data));
}

bool FrameMemory::result(size_t i, const int64_t* sizes, int64_t bytes, void** data) {
  const auto& [dtype, rank] = call_.executable.spec().results[i];
  const auto& buffer = *static_cast<const Buffer*>(frame_->rets.values[i]);
  if (dtype_of(buffer.dtype) != dtype || buffer.rank != rank ||
      !std::equal(sizes, sizes + rank, buffer.dims)) {
    return refuse("result " + std::to_string(i) + " is " + array_text(dtype, rank, sizes) +
                  ", the custom call says " +
                  array_text(dtype_of(buffer.dtype), buffer.rank, buffer.dims));
  }
  const bool is_packed = packed_bits(dtype) != 0;
  if (is_packed && place_ != nullptr) {
    return refuse("result " + std::to_string(i) +
                  " has elements that XLA packs; convert it to int8");
  }
  *data = is_packed ? new_copy(bytes) : buffer.data;
  return true;
}

void FrameMemory::pack_results() {
  const std::vector<ResultSpec>& specs = call_.executable.spec().results;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (const int bits = packed_bits(specs[i].dtype); bits != 0) {
      pack_elements(bits, call_.results()[i], call_.bytes(i),
                    static_cast<const Buffer*>(frame_->rets.values[i])->data);
    }
  }
}

Error* execute_on_cpu(CallFrame* frame, const Executable& executable) {
  Call call(executable);
  FrameMemory memory(frame, call, nullptr);
  if (!memory.read()) return ffi_failed(frame, executable, call.failure);
  call.read_size_elements(call.arguments());
  if (!call.prepare() || !call.run(memory)) return ffi_failed(frame, executable, call.failure);
  memory.pack_results();
  return nullptr;
}

}  // namespace shlo_disc
