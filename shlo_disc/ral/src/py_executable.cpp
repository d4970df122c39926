#include "py_executable.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "ffi_handler.h"
#include "py_arguments.h"
#include "small_vector.h"

namespace shlo_disc {
namespace {

// From here on JAX is asked to drop dead buffers before new ones are taken: a recycled block saves
// page faults (0.25 µs for each 4 KiB), asking costs 0.1 µs.
constexpr int64_t kWorthCollecting = 64 << 10;

// Blocks of the results, given back unless they are taken.
class ResultBlocks {
 public:
  explicit ResultBlocks(size_t count) : blocks_(count) {
    for (Block*& block : blocks_) block = nullptr;
  }
  ~ResultBlocks() {
    for (Block* block : blocks_) pool_release(block);
  }
  ResultBlocks(const ResultBlocks&) = delete;
  ResultBlocks& operator=(const ResultBlocks&) = delete;

  bool acquire(size_t i, int64_t bytes) {
    blocks_[i] = pool_acquire(static_cast<size_t>(bytes), Hold::kResult);
    return blocks_[i] != nullptr;
  }
  void* data(size_t i) { return blocks_[i]->data; }
  ScopedBlock take(size_t i) { return ScopedBlock(std::exchange(blocks_[i], nullptr)); }

 private:
  SmallVector<Block*, 16> blocks_;
};

class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

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

PyObject* raise_foreign_error(const Executable& executable, const RunFailure& failure) {
  const std::string where = executable.describe_foreign(failure.foreign);
  const PyRef message(PyUnicode_DecodeUTF8(failure.message.data(),
                                           static_cast<Py_ssize_t>(failure.message.size()),
                                           "backslashreplace"));
  if (!message) return nullptr;
  const PyRef args(Py_BuildValue("(s#Oi)", where.data(), static_cast<Py_ssize_t>(where.size()),
                                 message.get(), failure.code));
  if (args) PyErr_SetObject(errors().foreign, args.get());
  return nullptr;
}

PyObject* raise_no_memory_for_result(const ProgramSpec& spec, size_t result, const int64_t* shape) {
  const ResultSpec& of = spec.results[result];
  std::string text = std::string(dtype_name(of.dtype)) + "[";
  for (int64_t i = 0; i < of.rank; ++i) text += (i == 0 ? "" : ",") + std::to_string(shape[i]);
  const int64_t bytes = array_bytes(of.dtype, of.rank, shape);
  const std::string size = bytes < 0 ? "2^63 bytes or more" : std::to_string(bytes) + " bytes";
  return PyErr_Format(PyExc_MemoryError,
                      "%s: result %zu is %s] and takes %s, which cannot be allocated; call with "
                      "smaller arrays or return less",
                      spec.name.c_str(), result, text.c_str(), size.c_str());
}

// What `over` makes of a donated tensor for a result of these sizes. Null with a Python error set.
PyObject* tensor_over(PyObject* over, PyObject* tensor, int64_t rank, const int64_t* sizes) {
  const PyRef shape(PyTuple_New(static_cast<Py_ssize_t>(rank)));
  if (!shape) return nullptr;
  for (int64_t i = 0; i < rank; ++i) {
    PyObject* const size = PyLong_FromLongLong(sizes[i]);
    if (size == nullptr) return nullptr;
    PyTuple_SET_ITEM(shape.get(), static_cast<Py_ssize_t>(i), size);
  }
  return PyObject_CallFunctionObjArgs(over, tensor, shape.get(), nullptr);
}

}  // namespace

PyObject* PyExecutable::call(disc_run host, Marks* marks, JaxBridge* bridge, PyObject* leaves,
                             const TensorBridge* tensors, const WeightVersions* weights,
                             PyObject* over) const {
  const ProgramSpec& spec = executable_->spec();
  CallArguments arguments(*executable_, argument_descrs_, memory_, bridge, weights);
  if (!arguments.read(leaves)) return nullptr;

  SmallVector<int64_t, 64> symbols(static_cast<size_t>(spec.symbols));
  SmallVector<int64_t, 64> sizes(static_cast<size_t>(executable_->result_ranks()));
  int64_t arena_bytes = 0;
  const int64_t status =
      executable_->prepare(arguments.sizes(), symbols.data(), sizes.data(), &arena_bytes);
  if (status != 0) return raise_guard_error(*executable_, status - 1, arguments);

  const size_t count = results_.size();
  SmallVector<int64_t, 16> bytes(count);
  int64_t total_bytes = 0;
  const int64_t* shape = sizes.data();
  for (size_t i = 0; i < count; ++i) {
    bytes[i] = array_bytes(spec.results[i].dtype, spec.results[i].rank, shape);
    const bool possible = std::all_of(shape, shape + spec.results[i].rank,
                                      [](int64_t size) { return size >= 0; });
    if (possible && bytes[i] < 0) return raise_no_memory_for_result(spec, i, shape);
    if (!possible || arena_bytes < 0) {
      return PyErr_Format(PyExc_RuntimeError,
                          "%s computed an impossible size for result %zu; this is a bug of "
                          "shlo_disc: a guard is missing",
                          spec.name.c_str(), i);
    }
    total_bytes += bytes[i];
    shape += spec.results[i].rank;
  }
  if (bridge != nullptr && total_bytes >= kWorthCollecting && !bridge->collect_garbage()) {
    return nullptr;
  }

  std::vector<PyRef> reused;  // by result: the owner of a donated argument's memory; or empty
  if (spec.donates) {
    if (!arguments.take_donated()) return nullptr;
    reused.resize(count);
    for (const auto& [argument, result] : spec.reuses) {
      if (!reused[result]) reused[result] = arguments.owner_of_donated(argument);
    }
  }
  if (spec.donates && over != nullptr) {
    if (!arguments.are_donated_apart()) return nullptr;
    for (const auto& [argument, result] : spec.reuses) {
      if (PyObject* const tensor = arguments.donated_tensor(argument)) {
        reused[result] = PyRef::borrow(tensor);
      }
    }
  }
  ResultBlocks blocks(count);
  SmallVector<void*, 16> pointers(count);
  for (size_t i = 0; i < count; ++i) pointers[i] = nullptr;
  for (const auto& [argument, result] : spec.reuses) {
    if (reused[result]) pointers[result] = arguments.pointers()[argument];
  }
  bool done = true, has_arena = false;
  RunFailure failure;
  size_t refused = count;  // the result there is no memory for
  {
    const WithoutGil without_gil;
    for (size_t i = 0; done && i < count; ++i) {
      if (pointers[i] != nullptr) continue;
      done = blocks.acquire(i, bytes[i]);
      if (done) pointers[i] = blocks.data(i);
      else refused = i;
    }
    const ScopedBlock arena(done ? pool_acquire(static_cast<size_t>(arena_bytes), Hold::kCall)
                                 : nullptr);
    has_arena = arena.get() != nullptr;
    done = has_arena &&
           executable_->run(host, marks, arguments.pointers(), pointers.data(), symbols.data(),
                            arena.get()->data, arguments.owners(), &failure);
  }
  if (refused != count) {
    shape = sizes.data();
    for (size_t i = 0; i < refused; ++i) shape += spec.results[i].rank;
    return raise_no_memory_for_result(spec, refused, shape);
  }
  if (failure.foreign >= 0) return raise_foreign_error(*executable_, failure);
  if (!done) {
    return has_arena ? PyErr_Format(PyExc_MemoryError,
                                    "%s: the working memory of a kernel cannot be allocated",
                                    spec.name.c_str())
                     : PyErr_Format(PyExc_MemoryError,
                                    "%s: temporary values take %lld bytes, which cannot be "
                                    "allocated; call with smaller arrays",
                                    spec.name.c_str(), static_cast<long long>(arena_bytes));
  }
  if (!arguments.have_kept_memory()) return nullptr;
  if (spec.donates && !arguments.forget_foreign()) return nullptr;

  PyRef list(PyList_New(static_cast<Py_ssize_t>(count)));
  if (!list) return nullptr;
  shape = sizes.data();
  for (size_t i = 0; i < count; ++i) {
    const ResultSpec& result = spec.results[i];
    if (tensors != nullptr) {
      PyObject* const tensor =
          !reused.empty() && reused[i]
              ? tensor_over(over, reused[i].get(), result.rank, shape)
              : tensors->wrap(blocks.take(i), result.dtype, result.rank, shape);
      if (tensor == nullptr) return nullptr;
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), tensor);
      shape += result.rank;
      continue;
    }
    auto* const descr = reinterpret_cast<PyArray_Descr*>(results_[i].descr.get());
    PyRef owner = !reused.empty() && reused[i] ? std::move(reused[i]) : owner_of(blocks.take(i));
    PyObject* const array =
        bridge == nullptr
            ? array_over(std::move(owner), descr, result.rank, shape)
            : bridge->wrap(std::move(owner), descr, result.dtype, results_[i].weak_type,
                           result.rank, shape, arguments.device());
    if (array == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), array);
    shape += result.rank;
  }
  return list.release();
}

void PyExecutable::register_ffi(int64_t fingerprint) const {
  ffi_register(fingerprint, executable_);
}

}  // namespace shlo_disc
