#include "py_callback.h"

#include <cstring>
#include <string>

#include "ffi_call.h"
#include "ffi_handler.h"
#include "ffi_types.h"
#include "py_support.h"

namespace shlo_disc {
namespace {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

PyRef sizes_of(const Buffer& buffer) {
  PyRef sizes(PyTuple_New(static_cast<Py_ssize_t>(buffer.rank)));
  for (int64_t i = 0; sizes && i < buffer.rank; ++i) {
    PyObject* const size = PyLong_FromLongLong(buffer.dims[i]);
    if (size == nullptr) return PyRef();
    PyTuple_SET_ITEM(sizes.get(), static_cast<Py_ssize_t>(i), size);
  }
  return sizes;
}

// (memory, sizes) of every buffer; null with a Python error set.
template <typename Wrap>
PyRef described(int64_t count, void** values, Wrap wrap) {
  PyRef rows(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (int64_t i = 0; rows && i < count; ++i) {
    const Buffer& buffer = *static_cast<const Buffer*>(values[i]);
    const PyRef memory(wrap(static_cast<char*>(buffer.data),
                            static_cast<Py_ssize_t>(array_bytes(
                                dtype_of(buffer.dtype), buffer.rank, buffer.dims))));
    const PyRef sizes = memory ? sizes_of(buffer) : PyRef();
    PyObject* const row =
        sizes ? PyTuple_Pack(2, memory.get(), sizes.get()) : nullptr;
    if (row == nullptr) return PyRef();
    PyTuple_SET_ITEM(rows.get(), static_cast<Py_ssize_t>(i), row);
  }
  return rows;
}

// Of no elements at all there may be no address.
PyObject* copied(char* data, Py_ssize_t bytes) {
  return PyBytes_FromStringAndSize(bytes == 0 ? nullptr : data, bytes);
}

PyObject* viewed(char* data, Py_ssize_t bytes) {
  static char nothing;
  return PyMemoryView_FromMemory(bytes == 0 ? &nothing : data, bytes, PyBUF_WRITE);
}

Error* failed(const CallFrame* frame, const std::string& message) {
  return ffi_error(frame, ErrorCode::kInternal, message);
}

Error* call_python(CallFrame* frame) {
  const auto* const which = static_cast<const Scalar*>(
      ffi_attribute(frame, "callback", AttributeType::kScalar));
  if (which == nullptr) return failed(frame, "shlo_disc: the call does not name its callback");
  PyObject* callback = nullptr;
  std::memcpy(&callback, which->value, sizeof(callback));
  const WithGil gil;
  const PyRef operands = described(frame->args.size, frame->args.values, copied);
  const PyRef results =
      operands ? described(frame->rets.size, frame->rets.values, viewed) : PyRef();
  const PyRef answer(results ? PyObject_CallFunctionObjArgs(callback, operands.get(), results.get(),
                                                            nullptr)
                             : nullptr);
  if (!answer) return failed(frame, take_error_text());
  return answer.get() == Py_None ? nullptr : failed(frame, text_of(answer.get()));
}

Error* handler(CallFrame* frame) {
  return ffi_answers_metadata(frame) ? nullptr : call_python(frame);
}

}  // namespace

void* python_callback_address() { return reinterpret_cast<void*>(&handler); }

}  // namespace shlo_disc
