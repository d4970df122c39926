#include "dispatcher.h"

#include <utility>

namespace shlo_disc {
namespace {

struct Names {
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* value = PyUnicode_InternFromString("value");
  PyObject* weak_type = PyUnicode_InternFromString("weak_type");
};

const Names& names() {
  static const Names instance;
  return instance;
}

}  // namespace

Dispatcher::Dispatcher(PyRef array_type, PyRef flatten, PyRef trace_context, PyRef disable_jit)
    : array_type_(std::move(array_type)),
      flatten_(std::move(flatten)),
      trace_context_(std::move(trace_context)),
      disable_jit_(std::move(disable_jit)),
      table_(PyDict_New()) {}

void Dispatcher::clear() { PyDict_Clear(table_.get()); }

bool Dispatcher::append_leaf(PyObject* key, Py_ssize_t position, PyObject* leaf) const {
  PyObject* const attributes[] = {names().shape, names().dtype, names().weak_type};
  for (PyObject* const attribute : attributes) {
    PyObject* const value = PyObject_GetAttr(leaf, attribute);
    if (value == nullptr) return false;
    PyTuple_SET_ITEM(key, position++, value);
  }
  return true;
}

bool Dispatcher::describe(PyObject* args, PyObject* kwargs, Call* out) {
  const auto is_array = [this](PyObject* object) {
    return reinterpret_cast<PyObject*>(Py_TYPE(object)) == array_type_.get();
  };
  const Py_ssize_t positional = PyTuple_GET_SIZE(args);
  bool flat = PyDict_GET_SIZE(kwargs) == 0;
  for (Py_ssize_t i = 0; flat && i < positional; ++i) flat = is_array(PyTuple_GET_ITEM(args, i));

  PyRef tree;
  if (flat) {
    // Arrays alone: their number is the structure.
    out->leaves = PyRef::borrow(args);
    tree = PyRef(PyLong_FromSsize_t(positional));
  } else {
    const PyRef both(PyTuple_Pack(2, args, kwargs));
    if (!both) return false;
    const PyRef pair(PyObject_CallOneArg(flatten_.get(), both.get()));
    if (!pair) return false;
    out->leaves = PyRef::borrow(PyTuple_GET_ITEM(pair.get(), 0));
    tree = PyRef::borrow(PyTuple_GET_ITEM(pair.get(), 1));
  }
  if (!tree) return false;
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(out->leaves.get());
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!is_array(PySequence_Fast_GET_ITEM(out->leaves.get(), i))) return true;
  }
  PyRef context(PyObject_CallNoArgs(trace_context_.get()));
  if (!context) return false;
  PyRef key(PyTuple_New(2 + 3 * count));
  if (!key) return false;
  PyTuple_SET_ITEM(key.get(), 0, tree.release());
  PyTuple_SET_ITEM(key.get(), 1, context.release());
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const leaf = PySequence_Fast_GET_ITEM(out->leaves.get(), i);
    if (!append_leaf(key.get(), 2 + 3 * i, leaf)) return false;
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
  return PyObject_CallOneArg(entry->unflatten.get(), results.get());
}

bool Dispatcher::add(PyObject* args, PyObject* kwargs, PyObject* entry) {
  Call call;
  if (!describe(args, kwargs, &call)) return false;
  return !call.key || PyDict_SetItem(table_.get(), call.key.get(), entry) == 0;
}

}  // namespace shlo_disc
