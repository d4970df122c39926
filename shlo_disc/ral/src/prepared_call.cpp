#include "prepared_call.h"

#include <algorithm>
#include <string>

namespace shlo_disc {
namespace {

PyObject* raise_guard_error(const Executable& executable, int64_t guard, CallArguments& arguments) {
  const std::string what = executable.describe_guard(guard);
  const PyRef shapes(arguments.shapes());
  if (!shapes) return nullptr;
  PyRef args(Py_BuildValue("(Ls#O)", static_cast<long long>(guard), what.data(),
                           static_cast<Py_ssize_t>(what.size()), shapes.get()));
  if (args && executable.size_elements() != 0) {
    const PyRef elements(arguments.size_elements());
    const PyRef more(elements ? PyTuple_Pack(1, elements.get()) : nullptr);
    args = PyRef(more ? PySequence_Concat(args.get(), more.get()) : nullptr);
  }
  if (args) PyErr_SetObject(errors().guard, args.get());
  return nullptr;
}

}  // namespace

bool PreparedCall::prepare(CallArguments& arguments) {
  const ProgramSpec& spec = executable_.spec();
  const int64_t status =
      executable_.prepare(arguments.sizes(), symbols_.data(), sizes_.data(), &arena_bytes_);
  if (status != 0) return raise_guard_error(executable_, status - 1, arguments) != nullptr;
  const int64_t* shape = sizes_.data();
  for (size_t i = 0; i < spec.results.size(); ++i) {
    const int64_t rank = spec.results[i].rank;
    bytes_[i] = array_bytes(spec.results[i].dtype, rank, shape);
    const bool possible =
        std::all_of(shape, shape + rank, [](int64_t size) { return size >= 0; });
    if (possible && bytes_[i] < 0) return raise_no_memory_for_result(i) != nullptr;
    if (!possible || arena_bytes_ < 0) {
      PyErr_Format(PyExc_RuntimeError,
                   "%s computed an impossible size for result %zu; this is a bug of "
                   "shlo_disc: a guard is missing",
                   spec.name.c_str(), i);
      return false;
    }
    total_bytes_ += bytes_[i];
    shape += rank;
  }
  return true;
}

const int64_t* PreparedCall::sizes(size_t result) {
  const int64_t* shape = sizes_.data();
  for (size_t i = 0; i < result; ++i) shape += executable_.spec().results[i].rank;
  return shape;
}

std::string PreparedCall::describe(size_t result) {
  const ResultSpec& of = executable_.spec().results[result];
  const int64_t* const shape = sizes(result);
  std::string text = "result " + std::to_string(result) + " is " + dtype_name(of.dtype) + "[";
  for (int64_t i = 0; i < of.rank; ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  const int64_t bytes = array_bytes(of.dtype, of.rank, shape);
  return text + "] and takes " +
         (bytes < 0 ? "2^63 bytes or more" : std::to_string(bytes) + " bytes");
}

PyObject* PreparedCall::raise_no_memory_for_result(size_t result) {
  return PyErr_Format(PyExc_MemoryError,
                      "%s: %s, which cannot be allocated; call with smaller arrays or return less",
                      executable_.spec().name.c_str(), describe(result).c_str());
}

}  // namespace shlo_disc
