// The Python module shlo_disc.ral._ral; documented in _ral.pyi.
#define SHLO_DISC_IMPORT_NUMPY
#include "py_support.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dispatcher.h"
#include "ffi_handler.h"
#include "fft.h"
#include "fft_plans.h"
#include "foreign_api.h"
#include "foreign_call.h"
#include "jax_bridge.h"
#include "module_code.h"
#include "module_gpu.h"
#include "pack_cache.h"
#include "py_callback.h"
#include "py_executable.h"
#include "size_pattern.h"
#include "small_vector.h"
#include "tensor_bridge.h"
#include "tensor_call.h"
#include "thread_pool.h"
#include "weights.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shlo_disc {
namespace {

using ArgumentRow = std::tuple<nb::object, std::vector<int64_t>, std::string>;
using ResultRow = std::tuple<nb::object, int64_t, bool>;

template <typename Function>
Function function_at(uint64_t address) {
  return reinterpret_cast<Function>(static_cast<uintptr_t>(address));
}

PyRef owned(const nb::object& object) { return PyRef::borrow(object.ptr()); }

DType checked_dtype(const nb::object& descr) {
  if (!PyArray_DescrCheck(descr.ptr())) throw nb::type_error("dtypes must be numpy.dtype objects");
  const DType dtype = dtype_of(reinterpret_cast<PyArray_Descr*>(descr.ptr()));
  if (dtype == DType::kOther) {
    throw nb::type_error(("dtype " + text_of(descr.ptr()) + " is not supported").c_str());
  }
  return dtype;
}

// A dense array, and what keeps it.
struct HeldArray {
  const void* data;
  size_t bytes;
  std::shared_ptr<const void> owner;
};

HeldArray held_array(const nb::object& value) {
  PyRef dense(PyArray_FromAny(value.ptr(), nullptr, 0, 0, NPY_ARRAY_CARRAY_RO, nullptr));
  if (!dense) throw nb::python_error();
  auto* const array = reinterpret_cast<PyArrayObject*>(dense.get());
  const void* const data = PyArray_DATA(array);
  const auto bytes = static_cast<size_t>(PyArray_NBYTES(array));
  const std::shared_ptr<const void> owner(dense.release(), [](PyObject* object) {
    if (!Py_IsInitialized()) return;
    const WithGil gil;
    Py_DECREF(object);
  });
  return {data, bytes, owner};
}

void add_constant(Executable& executable, const nb::object& value) {
  const HeldArray array = held_array(value);
  if (!executable.add_constant(array.data, array.bytes, array.owner)) throw std::bad_alloc();
}

void add_pack(const PyExecutable& self, size_t constant, size_t slot, const nb::object& value) {
  const Executable& executable = self.executable();
  if (constant >= executable.constants() || slot >= executable.spec().pack_layouts.size()) {
    throw nb::index_error("there is no such constant or slot");
  }
  const HeldArray array = held_array(value);
  if (reinterpret_cast<uintptr_t>(array.data) % 64 != 0) throw nb::value_error("a pack is not aligned");
  executable.add_pack(constant, slot, array.data, array.bytes, array.owner);
}

nb::list packs(const PyExecutable& self) {
  const Executable& executable = self.executable();
  nb::list out;
  for (size_t constant = 0; constant < executable.constants(); ++constant) {
    for (size_t slot = 0; slot < executable.spec().pack_layouts.size(); ++slot) {
      const auto [data, bytes] = executable.pack(constant, slot);
      if (data != nullptr) out.append(nb::make_tuple(constant, slot, nb::bytes(data, bytes)));
    }
  }
  return out;
}

// A ForeignCall as Python holds it.
struct SharedForeignCall {
  std::shared_ptr<const ForeignCall> call;
};

using BufferRow = std::pair<nb::object, int64_t>;

ForeignBuffer foreign_buffer(const BufferRow& row) {
  if (row.second < 0) throw nb::value_error("a rank must not be negative");
  return {checked_dtype(row.first), row.second};
}

// Rows (name, type, dtype, elements, bytes), of dictionaries (name, type, rows).
std::vector<ForeignAttribute> foreign_attributes(nb::handle rows) {
  std::vector<ForeignAttribute> attributes;
  for (const nb::handle row : rows) {
    ForeignAttribute attribute;
    attribute.name = nb::cast<std::string>(row[0]);
    attribute.type = static_cast<xla_ffi::AttributeType>(nb::cast<int>(row[1]));
    if (attribute.type == xla_ffi::AttributeType::kDictionary) {
      attribute.entries = foreign_attributes(row[2]);
    } else {
      attribute.dtype = static_cast<xla_ffi::DataType>(nb::cast<int>(row[2]));
      attribute.size = nb::cast<size_t>(row[3]);
      const nb::bytes bytes = nb::cast<nb::bytes>(row[4]);
      attribute.bytes.assign(bytes.c_str(), bytes.size());
    }
    attributes.push_back(std::move(attribute));
  }
  return attributes;
}

// handlers: addresses by stage, 0 where there is none.
void init_foreign_call(SharedForeignCall* self, std::string target, std::string where,
                       const std::vector<uint64_t>& handlers, const std::vector<BufferRow>& operands,
                       const std::vector<BufferRow>& results, nb::list attributes,
                       const std::vector<size_t>& size_attributes,
                       const std::vector<std::pair<uint64_t, uint64_t>>& state_types,
                       bool on_device) {
  if (handlers.size() != xla_ffi::kStages) throw nb::value_error("one handler for every stage");
  for (const auto& [id, info] : state_types) {
    know_state_type(*function_at<const xla_ffi::TypeId*>(id),
                    *function_at<const xla_ffi::TypeInfo*>(info), on_device);
  }
  ForeignSpec spec;
  spec.is_on_device = on_device;
  spec.target = std::move(target);
  spec.where = std::move(where);
  for (size_t i = 0; i < handlers.size(); ++i) {
    spec.handlers[i] = handlers[i] == 0 ? nullptr : function_at<xla_ffi::Handler*>(handlers[i]);
  }
  for (const BufferRow& row : operands) spec.operands.push_back(foreign_buffer(row));
  for (const BufferRow& row : results) spec.results.push_back(foreign_buffer(row));
  spec.attributes = foreign_attributes(attributes);
  for (const size_t position : size_attributes) {
    if (position >= spec.attributes.size() ||
        spec.attributes[position].type != xla_ffi::AttributeType::kScalar) {
      throw nb::value_error("a size attribute must be a scalar");
    }
    spec.size_attributes.push_back(position);
  }
  std::shared_ptr<const ForeignCall> call;
  {
    const nb::gil_scoped_release without_gil;
    call = std::make_shared<const ForeignCall>(std::move(spec));
  }
  new (self) SharedForeignCall{std::move(call)};
}

// `make` is called with the index of a kernel, and fills its cell or raises.
MakeKernel kernel_maker(const nb::object& make) {
  return [owner = shared_reference(make.ptr())](int64_t index, bool at_other_sizes,
                                                std::string* message) {
    const WithGil gil;
    PyObject* const function = static_cast<PyObject*>(const_cast<void*>(owner.get()));
    const PyRef made(PyObject_CallFunction(function, "LO", static_cast<long long>(index),
                                           at_other_sizes ? Py_True : Py_False));
    if (!made) *message = take_error_text();
    return static_cast<bool>(made);
  };
}

void init_executable(
    PyExecutable* self, std::string name, const HostCell* prepare, const HostCell* run,
    const std::vector<KernelCell*>& kernels,
    const std::vector<nb::object>& constants, std::vector<ArgumentRow> arguments,
    std::vector<ResultRow> results, int64_t symbols, std::vector<std::string> pack_layouts,
    const std::vector<int64_t>& packable, std::vector<std::string> guards,
    const std::vector<int64_t>& donated, const std::vector<std::pair<int64_t, int64_t>>& reuses,
    const nb::object& keep_alive, const std::vector<int64_t>& size_arguments,
    const std::vector<int64_t>& unread, const std::vector<SharedForeignCall>& foreign,
    const SharedGpuProgram* gpu, const nb::object& make_kernel, const nb::object& pack_later) {
  // A program for another machine has no code here, and its calls are refused.
  if ((prepare->load() == nullptr) != (run->load() == nullptr)) {
    throw nb::value_error("prepare and run have their code");
  }
  drop_waiting_references();
  if (symbols < 0) throw nb::value_error("symbols must not be negative");
  ProgramSpec spec;
  spec.name = std::move(name);
  spec.host_prepare = prepare;
  spec.host_run = run;
  spec.code = shared_reference(keep_alive.ptr());
  spec.symbols = symbols;
  spec.pack_layouts = std::move(pack_layouts);
  spec.guards = std::move(guards);
  for (const SharedForeignCall& call : foreign) {
    if (gpu == nullptr && call.call->spec().is_on_device) {
      throw nb::value_error("a program for the CPU calls no handlers of GPUs");
    }
    spec.foreign.push_back(call.call);
  }
  if (gpu != nullptr) {
    if (!kernels.empty() || !spec.pack_layouts.empty()) {
      throw nb::value_error("a program for a GPU has neither kernels nor packs of the CPU");
    }
    spec.gpu = gpu->program;
  }
  for (KernelCell* const kernel : kernels) {
    if (kernel == nullptr) throw nb::type_error("kernels are cells");
    if (kernel->load() == nullptr && make_kernel.is_none()) {
      throw nb::value_error("without make_kernel every kernel has its code");
    }
    spec.kernels.push_back(kernel);
  }
  if (!make_kernel.is_none()) spec.make_kernel = kernel_maker(make_kernel);
  spec.packs_later = !pack_later.is_none();

  std::vector<PyRef> argument_descrs;
  for (auto& [descr, sizes, path] : arguments) {
    spec.arguments.push_back({checked_dtype(descr), std::move(sizes), std::move(path), false});
    argument_descrs.push_back(owned(descr));
  }
  for (const int64_t i : packable) {
    if (i < 0 || i >= static_cast<int64_t>(spec.arguments.size())) {
      throw nb::index_error("packable names an argument that does not exist");
    }
    spec.arguments[static_cast<size_t>(i)].packable = true;
  }
  for (const int64_t i : donated) {
    if (i < 0 || i >= static_cast<int64_t>(spec.arguments.size())) {
      throw nb::index_error("donated names an argument that does not exist");
    }
    spec.arguments[static_cast<size_t>(i)].donated = spec.donates = true;
  }
  for (const int64_t i : unread) {
    if (i < 0 || i >= static_cast<int64_t>(spec.arguments.size())) {
      throw nb::index_error("unread names an argument that does not exist");
    }
    spec.arguments[static_cast<size_t>(i)].unread = true;
  }
  for (const int64_t i : size_arguments) {
    if (i < 0 || i >= static_cast<int64_t>(spec.arguments.size())) {
      throw nb::index_error("size_arguments names an argument that does not exist");
    }
    const ArgumentSpec& argument = spec.arguments[static_cast<size_t>(i)];
    const bool is_static = std::find(argument.sizes.begin(), argument.sizes.end(), -1) ==
                           argument.sizes.end();
    if (!is_static || argument.dtype < DType::kInt8 || argument.dtype > DType::kUInt64) {
      throw nb::value_error("a size argument must be an integer array of static sizes");
    }
    if (argument.unread) throw nb::value_error("a size argument is read");
    spec.size_arguments.push_back(static_cast<size_t>(i));
  }
  for (const auto& [argument, result] : reuses) {
    if (argument < 0 || argument >= static_cast<int64_t>(spec.arguments.size()) || result < 0 ||
        result >= static_cast<int64_t>(results.size()) ||
        !spec.arguments[static_cast<size_t>(argument)].donated) {
      throw nb::index_error("reuses must pair donated arguments with results");
    }
    spec.reuses.emplace_back(argument, result);
  }
  std::vector<PyExecutable::Result> result_rows;
  for (auto& [descr, rank, weak_type] : results) {
    if (rank < 0) throw nb::value_error("a result's rank must not be negative");
    spec.results.push_back({checked_dtype(descr), rank});
    result_rows.push_back({owned(descr), weak_type});
  }
  auto executable = std::make_shared<Executable>(std::move(spec));
  for (const nb::object& constant : constants) add_constant(*executable, constant);
  new (self) PyExecutable(std::move(executable), std::move(argument_descrs),
                          std::move(result_rows),
                          pack_later.is_none() ? PyRef() : owned(pack_later));
}

// The table of C functions of a type of tensors, or None for capsules; throws TypeError where there is
// no table.
void init_tensor_bridge(TensorBridge* self, nb::object type) {
  if (type.is_none()) {
    new (self) TensorBridge();
    return;
  }
  if (!nb::isinstance<nb::type_object>(type)) {
    throw nb::type_error("TensorBridge takes a type of tensors, or None for capsules");
  }
  auto* const as_type = reinterpret_cast<PyTypeObject*>(type.ptr());
  const dlpack::ExchangeApi* api = nullptr;
  switch (exchange_api(as_type, &api)) {
    case Exchange::kFound: break;
    case Exchange::kError: throw nb::python_error();
    default:
      throw nb::type_error((std::string(as_type->tp_name) + " has no " + dlpack::kExchangeAttribute +
                            " of DLPack " + std::to_string(dlpack::kVersion.major))
                               .c_str());
  }
  new (self) TensorBridge(owned(type), api);
}

void init_tensor_call(TensorCall* self, nb::object executable, nb::object bridge,
                      nb::object weights, const std::vector<int64_t>& versioned,
                      const std::vector<int64_t>& frozen, nb::object over,
                      std::optional<size_t> flag) {
  if (!over.is_none() && !PyCallable_Check(over.ptr())) {
    throw nb::type_error("`over` must be callable");
  }
  const auto* const native = nb::cast<const PyExecutable*>(executable);
  const ProgramSpec& spec = native->executable().spec();
  for (size_t i = 0; i < spec.results.size(); ++i) {
    if (TensorBridge::can_wrap(spec.results[i].dtype)) continue;
    throw nb::type_error(("result " + std::to_string(i) + " has elements of type " +
                          dtype_name(spec.results[i].dtype) + ", which DLPack does not have")
                             .c_str());
  }
  if (flag.has_value()) {
    if (*flag >= spec.results.size()) throw nb::index_error("the flag is a result that does not exist");
    const ResultSpec& result = spec.results[*flag];
    if (result.rank != 0 || (result.dtype != DType::kBool && result.dtype != DType::kInt32)) {
      throw nb::type_error("the flag must be a scalar of bool or int32");
    }
  }
  std::vector<int64_t> places(spec.arguments.size(), TensorCall::kUnversioned);
  const auto place = [&](int64_t argument, int64_t value) {
    if (argument < 0 || argument >= static_cast<int64_t>(places.size())) {
      throw nb::index_error("a weight names an argument that does not exist");
    }
    int64_t& own = places[static_cast<size_t>(argument)];
    if (own != TensorCall::kUnversioned) {
      throw nb::value_error(("argument " + std::to_string(argument) + " is named twice").c_str());
    }
    own = value;
  };
  for (size_t i = 0; i < versioned.size(); ++i) place(versioned[i], static_cast<int64_t>(i));
  for (const int64_t argument : frozen) place(argument, TensorCall::kFrozen);
  new (self) TensorCall(owned(executable), native, owned(bridge),
                        nb::cast<const TensorBridge*>(bridge), owned(weights),
                        nb::cast<Weights*>(weights), std::move(places), versioned.size(),
                        over.is_none() ? PyRef() : owned(over),
                        flag.value_or(PyExecutable::kNoFlag));
}

nb::object checked(PyObject* object) {
  if (object == nullptr) throw nb::python_error();
  return nb::steal(object);
}

// (results, marks as an int64 array [n, 3] of site, end and nanoseconds, begin, end, dropped)
nb::tuple profiled_call(const PyExecutable& self, uint64_t run, JaxBridge* bridge,
                        nb::handle leaves) {
  if (run == 0) throw nb::value_error("run must be an address");
  Marks marks;
  const nb::object results =
      checked(self.call(function_at<disc_run>(run), &marks, bridge, leaves.ptr()));
  static_assert(sizeof(Marks::Mark) == 3 * sizeof(int64_t), "three columns");
  npy_intp sizes[] = {static_cast<npy_intp>(marks.marks.size()), 3};
  nb::object table = checked(PyArray_SimpleNew(2, sizes, NPY_INT64));
  if (!marks.marks.empty()) {
    std::memcpy(PyArray_DATA(reinterpret_cast<PyArrayObject*>(table.ptr())), marks.marks.data(),
                marks.marks.size() * sizeof(Marks::Mark));
  }
  return nb::make_tuple(results, table, marks.begin, marks.end, marks.dropped);
}

nb::dict pack_statistics() {
  const PackStats stats = pack_stats();
  nb::dict out;
  out["bytes"] = stats.bytes;
  out["packs"] = stats.packs;
  out["owners"] = stats.owners;
  out["limit_bytes"] = stats.limit_bytes;
  out["filled"] = stats.filled;
  out["refused"] = stats.refused;
  return out;
}

void run_parallel_for(uint64_t kernel, uint64_t args, uint64_t params, int64_t extent,
                      int64_t grain, int64_t scratch_bytes) {
  if (!parallel_for(function_at<disc_kernel>(kernel), function_at<void* const*>(args),
                    function_at<const int64_t*>(params), extent, grain, scratch_bytes)) {
    throw std::bad_alloc();
  }
}

nb::object new_error(const char* name, const char* doc, PyObject* base, PyObject** keep) {
  PyObject* const type =
      PyErr_NewExceptionWithDoc((std::string("shlo_disc.ral.") + name).c_str(), doc, base, nullptr);
  if (type == nullptr) throw nb::python_error();
  *keep = type;  // one reference for ever
  return nb::borrow(type);
}

nb::object object_or_none(const PyRef& object) {
  return object ? nb::borrow(object.get()) : nb::none();
}

// A ForeignError becomes what `_foreign_error` makes of it; always null.
PyObject* raise_explained(PyObject* self) {
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  const PyRef owned_type(type), error(value), owned_trace(trace);
  const PyRef explained(PyObject_CallMethod(self, "_foreign_error", "O", error.get()));
  if (explained) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(explained.get())), explained.get());
  }
  return nullptr;
}

// `Dispatcher.__call__`.
PyObject* call_dispatcher(PyObject* self, PyObject* args, PyObject* kwargs) {
  static PyObject* const slow_name = PyUnicode_InternFromString("_call_slowly");
  if (!nb::inst_ready(self)) {
    PyErr_SetString(PyExc_TypeError, "Dispatcher.__init__ has not been called");
    return nullptr;
  }
  try {
    PyRef result(nb::inst_ptr<Dispatcher>(self)->call(self, args, kwargs));
    if (!result) {
      if (PyErr_ExceptionMatches(errors().foreign)) return raise_explained(self);
      if (!PyErr_ExceptionMatches(errors().argument) && !PyErr_ExceptionMatches(errors().guard)) {
        return nullptr;
      }
      PyErr_Clear();  // the slow way explains what is wrong
    } else if (result.get() != Py_NotImplemented) {
      return result.release();
    }
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
  const PyRef slow(PyObject_GetAttr(self, slow_name));
  return slow ? PyObject_Call(slow.get(), args, kwargs) : nullptr;
}

int traverse_dispatcher(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Dispatcher>(self)->traverse(visit, arg) : 0;
}

int clear_dispatcher(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<Dispatcher>(self)->clear();
  return 0;
}

PyType_Slot dispatcher_slots[] = {{Py_tp_call, reinterpret_cast<void*>(&call_dispatcher)},
                                  {Py_tp_traverse, reinterpret_cast<void*>(&traverse_dispatcher)},
                                  {Py_tp_clear, reinterpret_cast<void*>(&clear_dispatcher)},
                                  {0, nullptr}};

// The callable that keeps memory may refer to whatever holds the weights.
int traverse_weights(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<Weights>(self)->traverse(visit, arg) : 0;
}

PyType_Slot weights_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_weights)},
                               {0, nullptr}};

int traverse_tensor_call(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const TensorCall* const call = nb::inst_ptr<TensorCall>(self);
  Py_VISIT(call->executable_object());
  Py_VISIT(call->bridge_object());
  Py_VISIT(call->weights_object());
  Py_VISIT(call->over());
  return 0;
}

PyType_Slot tensor_call_slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(&traverse_tensor_call)}, {0, nullptr}};

int traverse_entry(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (!nb::inst_ready(self)) return 0;
  const DispatchEntry* const entry = nb::inst_ptr<DispatchEntry>(self);
  for (const PyRef* const part :
       {&entry->executable_object, &entry->bridge_object, &entry->unflatten, &entry->dtypes,
        &entry->version, &entry->shapes}) {
    Py_VISIT(part->get());
  }
  return 0;
}

PyType_Slot entry_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_entry)},
                             {0, nullptr}};

using StepRow = std::tuple<size_t, int64_t, int64_t, SizePattern::Code>;
using GuardRow = std::tuple<SizePattern::Code, int64_t, SizePattern::Code>;

void init_pattern(SizePattern* self, std::vector<int64_t> ranks, int64_t symbols,
                  std::vector<StepRow> steps, std::vector<GuardRow> guards) {
  std::vector<SizePattern::Step> step_list;
  for (auto& [size, symbol, factor, code] : steps) {
    step_list.push_back({size, symbol, factor, std::move(code)});
  }
  std::vector<SizePattern::Guard> guard_list;
  for (auto& [left, relation, right] : guards) {
    guard_list.push_back({std::move(left), relation, std::move(right)});
  }
  new (self) SizePattern(std::move(ranks), symbols, std::move(step_list), std::move(guard_list));
}

// The symbols' values as a tuple, or None.
nb::object solve(const SizePattern& self, const std::vector<std::vector<int64_t>>& shapes) {
  bool fits = shapes.size() == self.ranks().size();
  std::vector<int64_t> sizes;
  for (size_t i = 0; fits && i < shapes.size(); ++i) {
    fits = static_cast<int64_t>(shapes[i].size()) == self.ranks()[i];
    sizes.insert(sizes.end(), shapes[i].begin(), shapes[i].end());
  }
  if (!fits) throw nb::value_error("the ranks of the shapes are not those of the pattern");
  SmallVector<int64_t, 32> values(self.symbols());
  const Fit fit = self.solve(sizes.data(), values.data());
  if (fit == Fit::kNo) return nb::none();
  if (fit == Fit::kUnknown) {
    PyErr_SetString(PyExc_OverflowError, "sizes of the pattern take more than 64 bits");
    throw nb::python_error();
  }
  nb::object result = checked(PyTuple_New(static_cast<Py_ssize_t>(self.symbols())));
  for (size_t i = 0; i < self.symbols(); ++i) {
    PyTuple_SET_ITEM(result.ptr(), static_cast<Py_ssize_t>(i),
                     nb::int_(values[i]).release().ptr());
  }
  return result;
}

bool run_fft_transform(int64_t options, int64_t batch, int64_t length,
                       const std::vector<uint64_t>& buffers, int64_t inner) {
  const int64_t kind = options & kFftKind;
  const bool is_complex = kind == kFftForward || kind == kFftInverse;
  const size_t pairs = ((options & kFftPairsIn) != 0) + ((options & kFftPairsOut) != 0);
  if (buffers.size() != (is_complex ? 4 - pairs : 3)) {
    throw nb::value_error("a transform has four buffers, fewer of pairs, three of reals");
  }
  if ((inner != 1 || pairs != 0) && !is_complex) {
    throw nb::value_error("transforms of reals are rows of planes");
  }
  std::vector<void*> pointers;
  for (const uint64_t address : buffers) pointers.push_back(function_at<void*>(address));
  const nb::gil_scoped_release without_gil;
  return fft_transform(options, batch, length, inner, pointers.data()) == FftResult::kDone;
}

nb::dict fft_plan_statistics() {
  const fft::PlanStats stats = fft::plan_stats();
  nb::dict dict;
  dict["plans"] = stats.plans;
  dict["bytes"] = stats.bytes;
  dict["limit_bytes"] = fft::kKeptBytes;
  return dict;
}

}  // namespace

DispatchEntry* dispatch_entry(PyObject* object) {
  const nb::handle handle(object);
  return nb::isinstance<DispatchEntry>(handle) ? nb::inst_ptr<DispatchEntry>(handle) : nullptr;
}

const SizePattern* size_pattern(PyObject* object) {
  const nb::handle handle(object);
  return nb::isinstance<SizePattern>(handle) ? nb::inst_ptr<SizePattern>(handle) : nullptr;
}

PyObject* new_dispatch_entry(PyObject* version, PyRef shapes) {
  const DispatchEntry* const like = dispatch_entry(version);
  if (like == nullptr) {
    PyErr_SetString(PyExc_TypeError, "not a DispatchEntry");
    return nullptr;
  }
  auto entry = std::make_unique<DispatchEntry>(PyRef::borrow(like->executable_object.get()),
                                               like->executable,
                                               PyRef::borrow(like->bridge_object.get()),
                                               like->bridge,
                                               PyRef::borrow(like->unflatten.get()),
                                               PyRef::borrow(like->dtypes.get()),
                                               like->through_after);
  entry->version = PyRef::borrow(version);
  entry->shapes = std::move(shapes);
  return nb::cast(entry.release(), nb::rv_policy::take_ownership).release().ptr();
}

}  // namespace shlo_disc

NB_MODULE(_ral, m) {
  using namespace shlo_disc;
  if (_import_array() < 0) throw nb::python_error();

  // Executables and bridges live in caches until the interpreter is gone; that is no leak.
  nb::set_leak_warnings(false);
  m.doc() = "The runtime of shlo_disc (use shlo_disc.ral).";
  m.attr("ArgumentError") =
      new_error("ArgumentError", "An argument does not fit; args: (index, kind, what).",
                PyExc_TypeError, &errors().argument);
  m.attr("GuardError") = new_error(
      "GuardError", "A guard of the program does not hold; args: (index, what, shapes), and elements of size arguments.",
      PyExc_ValueError, &errors().guard);

  nb::class_<JaxBridge>(m, "JaxBridge")
      .def(
          "__init__",
          [](JaxBridge* self, nb::object array_type, nb::object shaped_array,
             nb::object batched_device_put, nb::object device, nb::object cpu_sharding,
             nb::object unguarded_device_put, nb::object collect_garbage, nb::str committed_name,
             nb::str device_name) {
            new (self) JaxBridge(JaxHooks{owned(array_type), owned(shaped_array),
                                          owned(batched_device_put), owned(unguarded_device_put),
                                          owned(device), owned(cpu_sharding),
                                          owned(collect_garbage), owned(committed_name),
                                          owned(device_name), "the CPU"});
          },
          nb::kw_only(), "array_type"_a, "shaped_array"_a, "batched_device_put"_a, "device"_a,
          "cpu_sharding"_a, "unguarded_device_put"_a = nb::none(),
          "collect_garbage"_a = nb::none(), "committed_name"_a = "_committed",
          "device_name"_a = "_device");

  m.attr("ForeignError") = new_error(
      "ForeignError", "An XLA FFI handler has failed; args: (where, message, code).",
      PyExc_RuntimeError, &errors().foreign);

  bind_gpu(m);
  bind_code(m);
  nb::class_<SharedForeignCall>(m, "ForeignCall")
      .def("__init__", &init_foreign_call, nb::kw_only(), "target"_a, "where"_a, "handlers"_a,
           "operands"_a, "results"_a, "attributes"_a,
           "size_attributes"_a = std::vector<size_t>(),
           "state_types"_a = std::vector<std::pair<uint64_t, uint64_t>>(),
           "on_device"_a = false);

  nb::class_<KernelCell>(m, "KernelCell")
      .def("__init__", [](KernelCell* self, uint64_t address) {
        new (self) KernelCell(function_at<disc_kernel>(address));
      }, "address"_a = 0)
      .def_prop_rw("address",
          [](const KernelCell& self) { return reinterpret_cast<uintptr_t>(self.load()); },
          [](KernelCell& self, uint64_t address) {
            self.store(function_at<disc_kernel>(address), std::memory_order_release);
          });

  nb::class_<PyExecutable>(m, "Executable")
      .def("__init__", &init_executable, nb::kw_only(), "name"_a, "prepare"_a, "run"_a, "kernels"_a,
           "constants"_a, "arguments"_a, "results"_a, "symbols"_a,
           "pack_layouts"_a = std::vector<std::string>(), "packable"_a = std::vector<int64_t>(),
           "guards"_a = std::vector<std::string>(), "donated"_a = std::vector<int64_t>(),
           "reuses"_a = std::vector<std::pair<int64_t, int64_t>>(), "keep_alive"_a = nb::none(),
           "size_arguments"_a = std::vector<int64_t>(), "unread"_a = std::vector<int64_t>(),
           "foreign"_a = std::vector<SharedForeignCall>(), "gpu"_a.none() = nb::none(),
           "make_kernel"_a = nb::none(), "pack_later"_a = nb::none())
      .def("run_gpu",
           [](const PyExecutable& self, nb::handle leaves, int device) {
             return checked(self.run_gpu(device, leaves.ptr()));
           },
           "leaves"_a, "device"_a = 0)
      .def("gpu_kernels", &gpu_kernels, "device"_a = 0)
      .def("call",
           [](const PyExecutable& self, JaxBridge& bridge, nb::handle leaves) {
             return checked(self.call(&bridge, leaves.ptr()));
           })
      .def("run_numpy",
           [](const PyExecutable& self, nb::handle leaves) {
             return checked(self.call(nullptr, leaves.ptr()));
           })
      .def("packs", &packs)
      .def("add_pack", &add_pack)
      .def("profile", &profiled_call, "run"_a, "bridge"_a.none(), "leaves"_a)
      .def("register_ffi", &PyExecutable::register_ffi, "fingerprint"_a)
      .def_prop_ro("copies",
                   [](const PyExecutable& self) {
                     const ArgumentCopies& copies = self.copies();
                     return nb::make_tuple(copies.calls, copies.bytes);
                   })
      .def_prop_ro("gpu_calls",
                   [](const PyExecutable& self) {
                     const GpuCalls& calls = self.executable().gpu_calls();
                     return nb::make_tuple(calls.direct.load(), calls.enqueued.load(),
                                           calls.graphs.load());
                   })
      .def_prop_ro("unused_donations",
                   [](const PyExecutable& self) { return self.unused_donations(); })
      .def_prop_ro("name", [](const PyExecutable& self) { return self.executable().spec().name; });

  nb::class_<TensorBridge>(m, "TensorBridge").def("__init__", &init_tensor_bridge, "type"_a.none());

  nb::class_<Weights>(m, "Weights", nb::type_slots(weights_slots))
      .def(
          "__init__",
          [](Weights* self, nb::object keep) {
            if (!PyCallable_Check(keep.ptr())) throw nb::type_error("`keep` must be callable");
            new (self) Weights(owned(keep));
          },
          "keep"_a)
      .def("clear", &Weights::clear)
      .def_prop_ro("count", &Weights::count);

  nb::class_<TensorCall>(m, "TensorCall", nb::type_slots(tensor_call_slots))
      .def("__init__", &init_tensor_call, "executable"_a, "bridge"_a, "weights"_a, nb::kw_only(),
           "versioned"_a = std::vector<int64_t>(), "frozen"_a = std::vector<int64_t>(),
           "over"_a = nb::none(), "flag"_a = nb::none())
      .def(
          "__call__",
          [](const TensorCall& self, nb::handle leaves, nb::handle versions) {
            return checked(self.call(leaves.ptr(), versions.ptr()));
          },
          "leaves"_a, "versions"_a = nb::tuple());

  nb::class_<DispatchEntry>(m, "DispatchEntry", nb::type_slots(entry_slots))
      .def(
          "__init__",
          [](DispatchEntry* self, nb::object executable, nb::object bridge, nb::object unflatten,
             nb::tuple dtypes, std::optional<int64_t> through_after) {
            auto& reads = nb::cast<JaxBridge&>(bridge);
            const auto* const native = nb::cast<const PyExecutable*>(executable);
            const size_t results = native->executable().spec().results.size();
            if (unflatten.is_none() && results != 1) {
              throw nb::value_error(("a DispatchEntry of an executable with " +
                                     std::to_string(results) + " results needs `unflatten`")
                                        .c_str());
            }
            new (self) DispatchEntry(owned(executable), native, owned(bridge), &reads,
                                     owned(unflatten), owned(dtypes), through_after.value_or(-1));
          },
          "executable"_a, "bridge"_a, "unflatten"_a.none(), "dtypes"_a,
          "through_after"_a = nb::none())
      .def_ro("calls", &DispatchEntry::calls)
      .def_prop_ro("version", [](const DispatchEntry& self) { return object_or_none(self.version); })
      .def_prop_ro("shapes", [](const DispatchEntry& self) { return object_or_none(self.shapes); });

  nb::class_<SizePattern>(m, "SizePattern")
      .def("__init__", &init_pattern, "ranks"_a, "symbols"_a, "steps"_a, "guards"_a)
      .def("solve", &solve, "shapes"_a);
  nb::dict operations;
  for (const auto& [name, value] :
       {std::pair("constant", SizePattern::kConstant), std::pair("symbol", SizePattern::kSymbol),
        std::pair("+", SizePattern::kAdd), std::pair("*", SizePattern::kMultiply),
        std::pair("floordiv", SizePattern::kFloorDivide), std::pair("mod", SizePattern::kModulo),
        std::pair("min", SizePattern::kMin), std::pair("max", SizePattern::kMax)}) {
    operations[name] = static_cast<int64_t>(value);
  }
  m.attr("SIZE_OPERATIONS") = operations;
  nb::dict relations;
  for (const auto& [name, value] :
       {std::pair("==", SizePattern::kEqual), std::pair("!=", SizePattern::kNotEqual),
        std::pair("<", SizePattern::kLess), std::pair("<=", SizePattern::kLessEqual),
        std::pair(">", SizePattern::kGreater), std::pair(">=", SizePattern::kGreaterEqual)}) {
    relations[name] = static_cast<int64_t>(value);
  }
  m.attr("SIZE_RELATIONS") = relations;

  nb::class_<Dispatcher>(m, "Dispatcher", nb::type_slots(dispatcher_slots))
      .def(
          "__init__",
          [](Dispatcher* self, nb::object array_type, nb::object key_type, nb::object flatten,
             nb::object trace_context,
             const std::vector<std::pair<nb::object, nb::object>>& usual,
             std::vector<int64_t> static_nums, nb::tuple static_names) {
            std::vector<std::pair<PyRef, PyRef>> states;
            for (const auto& [state, value] : usual) {
              states.emplace_back(owned(state), owned(value));
            }
            new (self) Dispatcher({owned(array_type), owned(key_type), owned(flatten),
                                   owned(trace_context), std::move(states)},
                                  std::move(static_nums), owned(static_names));
          },
          nb::kw_only(), "array_type"_a, "key_type"_a, "flatten"_a, "trace_context"_a, "usual"_a,
          "static_nums"_a, "static_names"_a)
      .def("_add",
           [](Dispatcher& self, nb::tuple args, nb::dict kwargs, nb::handle entry) {
             if (!self.add(args.ptr(), kwargs.ptr(), entry.ptr())) throw nb::python_error();
           })
      .def("_offer",
           [](Dispatcher& self, nb::tuple args, nb::dict kwargs, nb::list versions) {
             if (!self.offer(args.ptr(), kwargs.ptr(), versions.ptr())) throw nb::python_error();
           })
      .def("_found", [](const Dispatcher& self) { return checked(self.found()); })
      .def("_forget", &Dispatcher::clear);

  m.def("ffi_handler", [](bool on_gpu) {
    nb::dict handlers;
    handlers["instantiate"] = nb::capsule(ffi_instantiate_address());
    handlers["execute"] = nb::capsule(ffi_execute_address(on_gpu));
    return handlers;
  }, "on_gpu"_a = false);
  m.def("ffi_registered", &ffi_registered);
  m.def("python_callback_address",
        [] { return reinterpret_cast<uintptr_t>(python_callback_address()); });
  m.def("num_threads", &num_threads);
  m.def("limit_threads", &limit_threads, "threads"_a);
  m.def("numpy_view", [](nb::handle array, nb::handle dtype) {
    if (!PyArray_DescrCheck(dtype.ptr())) throw nb::type_error("dtype must be a numpy.dtype");
    return checked(numpy_view(array.ptr(), reinterpret_cast<PyArray_Descr*>(dtype.ptr())));
  }, "array"_a, "dtype"_a);
  m.def("threads_started", &pool_started);
  m.def("parallel_for", &run_parallel_for, "kernel"_a, "args"_a, "params"_a, "extent"_a, "grain"_a,
        "scratch_bytes"_a = 0, nb::call_guard<nb::gil_scoped_release>());
  m.def("fft_transform", &run_fft_transform, "options"_a, "batch"_a, "length"_a, "buffers"_a,
        "inner"_a = 1);
  m.def("fft_plan_stats", &fft_plan_statistics);
  m.def("fft_forget_plans", &fft::forget_plans);
  m.def("pool_stats", [] { return pool_statistics(pool_stats()); });
  m.def("pool_trim", &pool_trim, nb::call_guard<nb::gil_scoped_release>());
  m.def("pack_stats", &pack_statistics);
  m.def("pack_clear", &pack_clear, nb::call_guard<nb::gil_scoped_release>());
}
