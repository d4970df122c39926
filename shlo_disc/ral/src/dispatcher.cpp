#include "dispatcher.h"

#include <algorithm>
#include <utility>

#include "small_vector.h"

namespace shlo_disc {
namespace {

constexpr size_t kMaxFound = 4096;  // entries for new sizes, until Python has all forgotten
constexpr size_t kMaxAvals = 4096;  // asking again costs half a microsecond: forgetting all is fine

struct Names {
  PyObject* base = PyUnicode_InternFromString("_base_array");
  PyObject* impl = PyUnicode_InternFromString("_impl");
  PyObject* aval = PyUnicode_InternFromString("aval");
  PyObject* call_through = PyUnicode_InternFromString("_call_through");
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

// The sizes of all arguments, one after the other, as a tuple of tuples.
PyRef as_shapes(const SizePattern& pattern, const int64_t* sizes) {
  PyRef all(PyTuple_New(static_cast<Py_ssize_t>(pattern.ranks().size())));
  if (!all) return PyRef();
  Py_ssize_t leaf = 0;
  for (const int64_t rank : pattern.ranks()) {
    PyRef shape(PyTuple_New(rank));
    if (!shape) return PyRef();
    for (int64_t axis = 0; axis < rank; ++axis) {
      PyObject* const size = PyLong_FromLongLong(*sizes++);
      if (size == nullptr) return PyRef();
      PyTuple_SET_ITEM(shape.get(), axis, size);
    }
    PyTuple_SET_ITEM(all.get(), leaf++, shape.release());
  }
  return all;
}

bool is_number(PyObject* object) {
  return PyFloat_CheckExact(object) || PyLong_CheckExact(object) || PyBool_Check(object) ||
         PyComplex_CheckExact(object);
}

bool is_numpy(PyObject* object) {
  return PyArray_CheckExact(object) || PyArray_IsScalar(object, Generic);
}

// Sizes of a tuple of Python integers, appended. False with an error set.
bool append_sizes(PyObject* shape, std::vector<int64_t>* sizes) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); ++i) {
    const int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, i));
    if (size == -1 && PyErr_Occurred()) return false;
    sizes->push_back(size);
  }
  return true;
}

}  // namespace

Dispatcher::Dispatcher(Setting setting, std::vector<int64_t> static_nums, PyRef static_names)
    : setting_(std::move(setting)),
      static_nums_(std::move(static_nums)),
      static_names_(std::move(static_names)),
      table_(PyDict_New()),
      offers_(PyDict_New()),
      numbers_(PyDict_New()) {}

Dispatcher::~Dispatcher() { forget_avals(); }

void Dispatcher::forget_avals() {
  const auto old = std::exchange(avals_, {});
  for (const auto& [aval, type] : old) Py_DECREF(aval);
}

void Dispatcher::clear() {
  PyDict_Clear(table_.get());
  PyDict_Clear(offers_.get());
  const auto found = std::exchange(found_, {});
  PyDict_Clear(numbers_.get());
  last_context_ = PyRef();
  forget_avals();
}

int Dispatcher::traverse(visitproc visit, void* arg) const {
  for (const PyRef* const part :
       {&setting_.array_type, &setting_.key_type, &setting_.flatten, &setting_.trace_context,
        &static_names_, &table_, &offers_, &numbers_, &last_context_, &last_number_}) {
    Py_VISIT(part->get());
  }
  for (const auto& [state, value] : setting_.usual) {
    Py_VISIT(state.get());
    Py_VISIT(value.get());
  }
  for (const PyRef& entry : found_) Py_VISIT(entry.get());
  for (const auto& [aval, type] : avals_) {
    Py_VISIT(aval);
    Py_VISIT(type.number.get());
    Py_VISIT(type.kind.get());
  }
  return 0;
}

PyRef Dispatcher::number_of(PyObject* value) {
  const PyRef next(PyLong_FromLongLong(next_++));
  if (!next) return PyRef();
  return PyRef::borrow(PyDict_SetDefault(numbers_.get(), value, next.get()));
}

PyRef Dispatcher::context_number() {
  PyRef context(PyObject_CallNoArgs(setting_.trace_context.get()));
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
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == setting_.array_type.get();
}

bool Dispatcher::is_key(PyObject* object) const {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == setting_.key_type.get();
}

bool Dispatcher::is_leaf(PyObject* object) const {
  return is_jax(object) || is_number(object) || is_numpy(object) || is_key(object);
}

PyRef Dispatcher::type_number(PyObject* leaf, std::vector<int64_t>*) {
  if (is_jax(leaf)) {
    const ArrayType* const type = jax_type(leaf);
    return type == nullptr ? PyRef() : PyRef::borrow(type->number.get());
  }
  auto* const kind = reinterpret_cast<PyObject*>(Py_TYPE(leaf));
  if (is_key(leaf)) return key_number(leaf, &Dispatcher::type_number, nullptr);
  if (!PyArray_CheckExact(leaf)) return number_of(kind);
  auto* const array = reinterpret_cast<PyArrayObject*>(leaf);
  const PyRef shape(PyArray_IntTupleFromIntp(PyArray_NDIM(array), PyArray_DIMS(array)));
  if (!shape) return PyRef();
  auto* const dtype = reinterpret_cast<PyObject*>(PyArray_DESCR(array));
  const PyRef type(PyTuple_Pack(3, shape.get(), dtype, kind));
  return type ? number_of(type.get()) : PyRef();
}

PyRef Dispatcher::kind_number(PyObject* leaf, std::vector<int64_t>* sizes) {
  if (is_jax(leaf)) {
    const ArrayType* const type = jax_type(leaf);
    if (type == nullptr) return PyRef();
    sizes->insert(sizes->end(), type->sizes.begin(), type->sizes.end());
    return PyRef::borrow(type->kind.get());
  }
  auto* const kind = reinterpret_cast<PyObject*>(Py_TYPE(leaf));
  if (is_key(leaf)) {
    PyRef number = key_number(leaf, &Dispatcher::kind_number, sizes);
    if (number && !sizes->empty()) sizes->pop_back();  // the words of a key are no size of the array
    return number;
  }
  if (!PyArray_CheckExact(leaf)) return number_of(kind);
  auto* const array = reinterpret_cast<PyArrayObject*>(leaf);
  sizes->insert(sizes->end(), PyArray_DIMS(array), PyArray_DIMS(array) + PyArray_NDIM(array));
  const PyRef rank(PyLong_FromLong(PyArray_NDIM(array)));
  if (!rank) return PyRef();
  auto* const dtype = reinterpret_cast<PyObject*>(PyArray_DESCR(array));
  const PyRef type(PyTuple_Pack(3, rank.get(), dtype, kind));
  return type ? number_of(type.get()) : PyRef();
}

PyRef Dispatcher::key_number(PyObject* key, NumberOf number, std::vector<int64_t>* sizes) {
  const PyRef base(PyObject_GetAttr(key, names().base));
  const PyRef impl(base ? PyObject_GetAttr(key, names().impl) : nullptr);
  if (!impl) return PyRef();
  const PyRef words = (this->*number)(base.get(), sizes);
  if (!words) return PyRef();
  const PyRef type(PyTuple_Pack(2, impl.get(), words.get()));
  return type ? number_of(type.get()) : PyRef();
}

const Dispatcher::ArrayType* Dispatcher::jax_type(PyObject* array) {
  PyRef aval(PyObject_GetAttr(array, names().aval));
  if (!aval) return nullptr;
  const auto found = avals_.find(aval.get());
  if (found != avals_.end()) return &found->second;

  const PyRef shape(PyObject_GetAttr(array, names().shape));
  const PyRef dtype(shape ? PyObject_GetAttr(array, names().dtype) : nullptr);
  const PyRef weak(dtype ? PyObject_GetAttr(array, names().weak_type) : nullptr);
  if (!weak) return nullptr;
  if (!PyTuple_Check(shape.get())) {
    PyErr_SetString(PyExc_TypeError, "the shape of an array must be a tuple");
    return nullptr;
  }
  ArrayType type;
  if (!append_sizes(shape.get(), &type.sizes)) return nullptr;
  const PyRef rank(PyLong_FromSsize_t(PyTuple_GET_SIZE(shape.get())));
  const PyRef exact(PyTuple_Pack(3, shape.get(), dtype.get(), weak.get()));
  const PyRef kind(rank ? PyTuple_Pack(3, rank.get(), dtype.get(), weak.get()) : nullptr);
  if (!exact || !kind) return nullptr;
  type.number = number_of(exact.get());
  if (type.number) type.kind = number_of(kind.get());
  if (!type.kind) return nullptr;
  if (avals_.size() >= kMaxAvals) forget_avals();
  const auto [place, is_new] = avals_.emplace(aval.get(), std::move(type));
  if (is_new) aval.release();
  return &place->second;
}

PyRef Dispatcher::key_of(const Call& call, NumberOf number, std::vector<int64_t>* sizes) {
  const Py_ssize_t count = call.count();
  PyRef key(PyTuple_New(2 + count));
  if (!key) return PyRef();
  PyTuple_SET_ITEM(key.get(), 0, Py_NewRef(call.tree.get()));
  PyTuple_SET_ITEM(key.get(), 1, Py_NewRef(call.context.get()));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyRef item = (this->*number)(call.leaf(i), sizes);
    if (!item) return PyRef();
    PyTuple_SET_ITEM(key.get(), 2 + i, item.release());
  }
  return key;
}

PyRef Dispatcher::exact_key(const Call& call) {
  return key_of(call, &Dispatcher::type_number, nullptr);
}

PyRef Dispatcher::kind_key(const Call& call, std::vector<int64_t>* sizes) {
  return key_of(call, &Dispatcher::kind_number, sizes);
}

bool Dispatcher::has_static() const {
  return !static_nums_.empty() || PyTuple_GET_SIZE(static_names_.get()) > 0;
}

bool Dispatcher::split(PyObject* args, PyObject* kwargs, PyRef* dynamic, PyRef* named,
                       PyRef* statics) const {
  const PyRef found(PyList_New(0)), rest(PyList_New(0));
  if (!found || !rest) return false;
  const auto keep = [&found](PyObject* place, PyObject* value) {
    return place != nullptr && PyList_Append(found.get(), place) == 0 &&
           PyList_Append(found.get(), reinterpret_cast<PyObject*>(Py_TYPE(value))) == 0 &&
           PyList_Append(found.get(), value) == 0;
  };
  const Py_ssize_t count = PyTuple_GET_SIZE(args);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const value = PyTuple_GET_ITEM(args, i);
    const bool is_static = std::any_of(
        static_nums_.begin(), static_nums_.end(),
        [i, count](int64_t place) { return place == i || place + count == i; });
    const PyRef place(is_static ? PyLong_FromSsize_t(i) : nullptr);
    if (is_static ? !keep(place.get(), value) : PyList_Append(rest.get(), value) < 0) return false;
  }
  *named = kwargs == nullptr ? PyRef() : PyRef::borrow(kwargs);
  for (Py_ssize_t i = 0; kwargs != nullptr && i < PyTuple_GET_SIZE(static_names_.get()); ++i) {
    PyObject* const name = PyTuple_GET_ITEM(static_names_.get(), i);
    const PyRef value = PyRef::borrow(PyDict_GetItemWithError(kwargs, name));
    if (!value) {
      if (PyErr_Occurred()) return false;
      continue;
    }
    if (named->get() == kwargs) *named = PyRef(PyDict_Copy(kwargs));
    if (!*named || PyDict_DelItem(named->get(), name) < 0 || !keep(name, value.get())) return false;
  }
  *dynamic = PyRef(PyList_AsTuple(rest.get()));
  *statics = PyRef(PyList_AsTuple(found.get()));
  return *dynamic && *statics;
}

bool Dispatcher::describe(PyObject* args, PyObject* kwargs, Call* out) {
  PyRef dynamic, named, statics;
  if (has_static()) {
    if (!split(args, kwargs, &dynamic, &named, &statics)) return false;
    args = dynamic.get();
    kwargs = named.get();
  }
  const Py_ssize_t positional = PyTuple_GET_SIZE(args);
  bool flat = kwargs == nullptr || PyDict_GET_SIZE(kwargs) == 0;
  for (Py_ssize_t i = 0; flat && i < positional; ++i) flat = is_leaf(PyTuple_GET_ITEM(args, i));

  PyRef tree;
  if (flat) {
    // Leaves alone: their number is the structure.
    out->leaves = PyRef::borrow(args);
    tree = PyRef(PyLong_FromSsize_t(positional));
  } else {
    const PyRef keywords = kwargs == nullptr ? PyRef(PyDict_New()) : PyRef::borrow(kwargs);
    const PyRef both(keywords ? PyTuple_Pack(2, args, keywords.get()) : nullptr);
    if (!both) return false;
    const PyRef pair(PyObject_CallOneArg(setting_.flatten.get(), both.get()));
    if (!pair) return false;
    out->leaves = PyRef::borrow(PyTuple_GET_ITEM(pair.get(), 0));
    tree = PyRef::borrow(PyTuple_GET_ITEM(pair.get(), 1));
  }
  if (!tree) return false;
  const Py_ssize_t count = out->count();
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const leaf = out->leaf(i);
    if (is_jax(leaf) || is_number(leaf)) continue;
    out->is_plain = false;
    if (is_numpy(leaf)) continue;
    if (!is_key(leaf)) return true;
    const PyRef base(PyObject_GetAttr(leaf, names().base));
    if (!base) return false;
    if (!is_jax(base.get())) return true;  // a tracer
  }
  if (statics) {
    tree = PyRef(PyTuple_Pack(2, tree.get(), statics.get()));
    if (!tree) return false;
  }
  out->tree = std::move(tree);
  out->context = context_number();
  return static_cast<bool>(out->context);
}

PyRef Dispatcher::fitting(const Call& call, PyObject* key) {
  if (PyDict_GET_SIZE(offers_.get()) == 0 || found_.size() >= kMaxFound) {
    return PyRef::borrow(Py_None);
  }
  std::vector<int64_t> sizes;
  const PyRef kind = kind_key(call, &sizes);
  if (!kind) return PyRef();
  const PyRef versions = PyRef::borrow(PyDict_GetItemWithError(offers_.get(), kind.get()));
  if (!versions) return PyErr_Occurred() ? PyRef() : PyRef::borrow(Py_None);

  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(versions.get()); ++i) {
    const PyRef pair = PyRef::borrow(PyList_GET_ITEM(versions.get(), i));
    const bool is_pair = PyTuple_CheckExact(pair.get()) && PyTuple_GET_SIZE(pair.get()) == 2;
    const SizePattern* const pattern =
        is_pair ? size_pattern(PyTuple_GET_ITEM(pair.get(), 0)) : nullptr;
    if (pattern == nullptr || pattern->sizes() != sizes.size()) {
      PyErr_SetString(PyExc_TypeError, "offered versions must be pairs of a SizePattern for such "
                                       "arguments and a DispatchEntry");
      return PyRef();
    }
    SmallVector<int64_t, 32> values(pattern->symbols());
    const Fit fit = pattern->solve(sizes.data(), values.data());
    if (fit == Fit::kUnknown) break;  // Python's numbers have any width
    if (fit == Fit::kNo) continue;
    PyRef shapes = as_shapes(*pattern, sizes.data());
    if (!shapes) return PyRef();
    PyRef entry(new_dispatch_entry(PyTuple_GET_ITEM(pair.get(), 1), std::move(shapes)));
    if (!entry || PyDict_SetItem(table_.get(), key, entry.get()) < 0) return PyRef();
    found_.push_back(PyRef::borrow(entry.get()));
    return entry;
  }
  return PyRef::borrow(Py_None);
}

PyRef Dispatcher::converted(const Call& call, const DispatchEntry& entry) const {
  const Py_ssize_t count = call.count();
  if (PyTuple_GET_SIZE(entry.dtypes.get()) != count) {
    PyErr_SetString(PyExc_TypeError, "a DispatchEntry needs a dtype for every leaf");
    return PyRef();
  }
  PyRef leaves(PyTuple_New(count));
  if (!leaves) return PyRef();
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const leaf = call.leaf(i);
    PyObject* const dtype = PyTuple_GET_ITEM(entry.dtypes.get(), i);
    PyRef value;
    if (is_key(leaf)) {
      value = PyRef(PyObject_GetAttr(leaf, names().base));
    } else if (is_numpy(leaf)) {
      if (!PyArray_DescrCheck(dtype)) {
        PyErr_SetString(PyExc_TypeError, "a DispatchEntry needs dtypes of NumPy");
        return PyRef();
      }
      auto* const descr = reinterpret_cast<PyArray_Descr*>(dtype);
      const bool fits = PyArray_CheckExact(leaf) &&
                        PyArray_EquivTypes(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(leaf)),
                                           descr);
      if (!fits) {
        Py_INCREF(dtype);  // PyArray_FromAny takes it
        value = PyRef(PyArray_FromAny(leaf, descr, 0, 0, NPY_ARRAY_CARRAY | NPY_ARRAY_FORCECAST,
                                      nullptr));
      } else {
        value = PyRef::borrow(leaf);
      }
    } else {
      value = PyRef::borrow(leaf);
    }
    if (!value) return PyRef();
    PyTuple_SET_ITEM(leaves.get(), i, value.release());
  }
  return leaves;
}

PyObject* Dispatcher::call(PyObject* self, PyObject* args, PyObject* kwargs) {
  if (PyDict_GET_SIZE(table_.get()) == 0) Py_RETURN_NOTIMPLEMENTED;
  for (const auto& [state, value] : setting_.usual) {
    const PyRef now(PyObject_GetAttr(state.get(), names().value));
    if (!now) return nullptr;
    if (now.get() != value.get()) Py_RETURN_NOTIMPLEMENTED;
  }
  Call call;
  if (!describe(args, kwargs, &call)) return nullptr;
  if (!call.context) Py_RETURN_NOTIMPLEMENTED;
  const PyRef key = exact_key(call);
  if (!key) return nullptr;
  // It stays alive: the call releases the GIL.
  PyRef found = PyRef::borrow(PyDict_GetItemWithError(table_.get(), key.get()));
  if (!found) {
    if (PyErr_Occurred()) {
      if (!has_static()) return nullptr;
      PyErr_Clear();  // a static value that cannot be hashed; the slow way explains that
      Py_RETURN_NOTIMPLEMENTED;
    }
    found = fitting(call, key.get());
    if (!found) return nullptr;
    if (found.get() == Py_None) Py_RETURN_NOTIMPLEMENTED;
  }
  DispatchEntry* const entry = dispatch_entry(found.get());
  if (entry == nullptr) {
    PyErr_SetString(PyExc_TypeError, "not a DispatchEntry");
    return nullptr;
  }
  if (entry->through_after >= 0 && entry->calls >= entry->through_after) {
    const PyRef through(PyObject_GetAttr(self, names().call_through));
    PyRef result(through ? PyObject_Call(through.get(), args, kwargs) : nullptr);
    if (result) ++entry->calls;
    return result.release();
  }
  const PyRef leaves = call.is_plain ? PyRef::borrow(call.leaves.get()) : converted(call, *entry);
  if (!leaves) return nullptr;
  const PyRef results(entry->executable->call(entry->bridge, leaves.get()));
  if (!results) return nullptr;
  ++entry->calls;
  if (entry->unflatten.get() == Py_None) return Py_NewRef(PyList_GET_ITEM(results.get(), 0));
  return PyObject_CallOneArg(entry->unflatten.get(), results.get());
}

bool Dispatcher::add(PyObject* args, PyObject* kwargs, PyObject* entry) {
  Call call;
  if (!describe(args, kwargs, &call)) return false;
  if (!call.context) return true;
  const PyRef key = exact_key(call);
  return key && PyDict_SetItem(table_.get(), key.get(), entry) == 0;
}

bool Dispatcher::offer(PyObject* args, PyObject* kwargs, PyObject* versions) {
  Call call;
  if (!describe(args, kwargs, &call)) return false;
  if (!call.context) return true;
  std::vector<int64_t> sizes;
  const PyRef key = kind_key(call, &sizes);
  return key && PyDict_SetItem(offers_.get(), key.get(), versions) == 0;
}

PyObject* Dispatcher::found() const {
  PyRef list(PyList_New(static_cast<Py_ssize_t>(found_.size())));
  if (!list) return nullptr;
  for (size_t i = 0; i < found_.size(); ++i) {
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(found_[i].get()));
  }
  return list.release();
}

}  // namespace shlo_disc
