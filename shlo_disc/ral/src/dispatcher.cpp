#include "dispatcher.h"

#include <utility>

namespace shlo_disc {
namespace {

constexpr size_t kMaxAvals = 4096;  // asking again costs half a microsecond: forgetting all is fine

struct Names {
  PyObject* aval = PyUnicode_InternFromString("aval");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* value = PyUnicode_InternFromString("value");
  PyObject* weak_type = PyUnicode_InternFromString("weak_type");
};

const Names& names() {
  static const Names instance;
  return instance;
}

// Are these tuples of the same objects, and so equal? There are dozens in a context, seldom new ones.
bool are_same_items(PyObject* a, PyObject* b) {
  if (b == nullptr || !PyTuple_CheckExact(a) || !PyTuple_CheckExact(b)) return false;
  const Py_ssize_t count = PyTuple_GET_SIZE(a);
  if (count != PyTuple_GET_SIZE(b)) return false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyTuple_GET_ITEM(a, i) != PyTuple_GET_ITEM(b, i)) return false;
  }
  return true;
}

}  // namespace

Dispatcher::Dispatcher(PyRef array_type, PyRef flatten, PyRef trace_context, PyRef disable_jit)
    : array_type_(std::move(array_type)),
      flatten_(std::move(flatten)),
      trace_context_(std::move(trace_context)),
      disable_jit_(std::move(disable_jit)),
      table_(PyDict_New()),
      numbers_(PyDict_New()) {}

Dispatcher::~Dispatcher() { forget_avals(); }

void Dispatcher::forget_avals() {
  const auto old = std::exchange(avals_, {});
  for (const auto& [aval, number] : old) Py_DECREF(aval);
}

void Dispatcher::clear() {
  PyDict_Clear(table_.get());
  PyDict_Clear(numbers_.get());
  last_context_ = PyRef();
  forget_avals();
}

int Dispatcher::traverse(visitproc visit, void* arg) const {
  for (const PyRef* const part : {&array_type_, &flatten_, &trace_context_, &disable_jit_, &table_,
                                  &numbers_, &last_context_, &last_number_}) {
    Py_VISIT(part->get());
  }
  for (const auto& [aval, number] : avals_) {
    Py_VISIT(aval);
    Py_VISIT(number.get());
  }
  return 0;
}

PyRef Dispatcher::number_of(PyObject* value) {
  const PyRef next(PyLong_FromLongLong(next_++));
  if (!next) return PyRef();
  return PyRef::borrow(PyDict_SetDefault(numbers_.get(), value, next.get()));
}

PyRef Dispatcher::context_number() {
  PyRef context(PyObject_CallNoArgs(trace_context_.get()));
  if (!context) return PyRef();
  if (are_same_items(context.get(), last_context_.get())) {
    return PyRef::borrow(last_number_.get());
  }
  PyRef number = number_of(context.get());
  if (!number) return PyRef();
  PyRef result = PyRef::borrow(number.get());
  // The old ones die after both are exchanged: that may run Python code, which may call us.
  std::swap(last_context_, context);
  std::swap(last_number_, number);
  return result;
}

bool Dispatcher::is_jax(PyObject* object) const {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == array_type_.get();
}

bool Dispatcher::is_leaf(PyObject* object) const {
  return is_jax(object) || PyArray_CheckExact(object) || PyFloat_CheckExact(object) ||
         PyLong_CheckExact(object) || PyBool_Check(object) || PyComplex_CheckExact(object);
}

PyRef Dispatcher::type_number(PyObject* leaf) {
  if (is_jax(leaf)) return jax_number(leaf);
  auto* const kind = reinterpret_cast<PyObject*>(Py_TYPE(leaf));
  if (!PyArray_CheckExact(leaf)) return number_of(kind);
  auto* const array = reinterpret_cast<PyArrayObject*>(leaf);
  const PyRef shape(PyArray_IntTupleFromIntp(PyArray_NDIM(array), PyArray_DIMS(array)));
  if (!shape) return PyRef();
  auto* const dtype = reinterpret_cast<PyObject*>(PyArray_DESCR(array));
  const PyRef type(PyTuple_Pack(3, shape.get(), dtype, kind));
  return type ? number_of(type.get()) : PyRef();
}

PyRef Dispatcher::jax_number(PyObject* array) {
  PyRef aval(PyObject_GetAttr(array, names().aval));
  if (!aval) return PyRef();
  const auto found = avals_.find(aval.get());
  if (found != avals_.end()) return PyRef::borrow(found->second.get());

  PyRef type(PyTuple_New(3));
  if (!type) return PyRef();
  PyObject* const attributes[] = {names().shape, names().dtype, names().weak_type};
  for (Py_ssize_t i = 0; i < 3; ++i) {
    PyObject* const value = PyObject_GetAttr(array, attributes[i]);
    if (value == nullptr) return PyRef();
    PyTuple_SET_ITEM(type.get(), i, value);
  }
  PyRef number = number_of(type.get());
  if (!number) return PyRef();
  if (avals_.size() >= kMaxAvals) forget_avals();
  if (avals_.emplace(aval.get(), PyRef::borrow(number.get())).second) aval.release();
  return number;
}

bool Dispatcher::describe(PyObject* args, PyObject* kwargs, Call* out) {
  const Py_ssize_t positional = PyTuple_GET_SIZE(args);
  bool flat = kwargs == nullptr || PyDict_GET_SIZE(kwargs) == 0;
  for (Py_ssize_t i = 0; flat && i < positional; ++i) flat = is_leaf(PyTuple_GET_ITEM(args, i));

  PyRef tree;
  if (flat) {
    // Leaves alone: their number is the structure.
    out->leaves = PyRef::borrow(args);
    tree = PyRef(PyLong_FromSsize_t(positional));
  } else {
    const PyRef named = kwargs == nullptr ? PyRef(PyDict_New()) : PyRef::borrow(kwargs);
    const PyRef both(named ? PyTuple_Pack(2, args, named.get()) : nullptr);
    if (!both) return false;
    const PyRef pair(PyObject_CallOneArg(flatten_.get(), both.get()));
    if (!pair) return false;
    out->leaves = PyRef::borrow(PyTuple_GET_ITEM(pair.get(), 0));
    tree = PyRef::borrow(PyTuple_GET_ITEM(pair.get(), 1));
  }
  if (!tree) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(out->leaves.get());
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_leaf(PySequence_Fast_GET_ITEM(out->leaves.get(), i))) return true;
  }
  PyRef context = context_number();
  if (!context) return false;
  PyRef key(PyTuple_New(2 + count));
  if (!key) return false;
  PyTuple_SET_ITEM(key.get(), 0, tree.release());
  PyTuple_SET_ITEM(key.get(), 1, context.release());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyRef number = type_number(PySequence_Fast_GET_ITEM(out->leaves.get(), i));
    if (!number) return false;
    PyTuple_SET_ITEM(key.get(), 2 + i, number.release());
  }
  out->key = std::move(key);
  return true;
}

PyObject* Dispatcher::call(PyObject* args, PyObject* kwargs) {
  if (PyDict_GET_SIZE(table_.get()) == 0) Py_RETURN_NOTIMPLEMENTED;
  const PyRef off(PyObject_GetAttr(disable_jit_.get(), names().value));
  if (!off) return nullptr;
  if (off.get() != Py_False) Py_RETURN_NOTIMPLEMENTED;
  Call call;
  if (!describe(args, kwargs, &call)) return nullptr;
  if (!call.key) Py_RETURN_NOTIMPLEMENTED;
  PyObject* const found = PyDict_GetItemWithError(table_.get(), call.key.get());
  if (found == nullptr) {
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NOTIMPLEMENTED;
  }
  const PyRef alive = PyRef::borrow(found);  // the call releases the GIL
  DispatchEntry* const entry = dispatch_entry(found);
  if (entry == nullptr) {
    PyErr_SetString(PyExc_TypeError, "not a DispatchEntry");
    return nullptr;
  }
  const PyRef results(entry->executable->call(entry->bridge, call.leaves.get()));
  if (!results) return nullptr;
  ++entry->calls;
  if (entry->unflatten.get() == Py_None) return Py_NewRef(PyList_GET_ITEM(results.get(), 0));
  return PyObject_CallOneArg(entry->unflatten.get(), results.get());
}

bool Dispatcher::add(PyObject* args, PyObject* kwargs, PyObject* entry) {
  Call call;
  if (!describe(args, kwargs, &call)) return false;
  return !call.key || PyDict_SetItem(table_.get(), call.key.get(), entry) == 0;
}

}  // namespace shlo_disc
