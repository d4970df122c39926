// The first lines of a call of a jitted function: what was called like this before runs at once.
#ifndef SHLO_DISC_RAL_DISPATCHER_H_
#define SHLO_DISC_RAL_DISPATCHER_H_

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jax_bridge.h"
#include "py_executable.h"
#include "py_support.h"
#include "size_pattern.h"

namespace shlo_disc {

// What runs for one structure, types and sizes of arguments.
struct DispatchEntry {
  DispatchEntry(PyRef executable_object, const PyExecutable* executable, PyRef bridge_object,
                JaxBridge* bridge, PyRef unflatten, PyRef dtypes, int64_t through_after)
      : executable_object(std::move(executable_object)),
        executable(executable),
        bridge_object(std::move(bridge_object)),
        bridge(bridge),
        unflatten(std::move(unflatten)),
        dtypes(std::move(dtypes)),
        through_after(through_after) {}

  const PyRef executable_object;  // owns `executable`
  const PyExecutable* const executable;
  const PyRef bridge_object;  // owns `bridge`
  JaxBridge* const bridge;
  const PyRef unflatten;  // list of results -> the function's structure; None: the only result
  const PyRef dtypes;     // tuple: what NumPy's arrays and scalars are converted to, by leaf
  const int64_t through_after;  // calls before `_call_through` gets them; -1: it never does
  // Of an entry the dispatcher made itself: the entry of the version, and the shapes; else null.
  PyRef version;
  PyRef shapes;
  int64_t calls = 0;
};

// Looks up calls whose arguments are concrete jax.Arrays, typed PRNG keys, NumPy's arrays and scalars,
// and Python numbers. Needs the GIL.
class Dispatcher {
 public:
  // What is the same for all functions. See _ral.pyi for what each must be.
  struct Setting {
    PyRef array_type, key_type, flatten, trace_context;
    std::vector<std::pair<PyRef, PyRef>> usual;
  };
  // Static arguments by position (negative: from the end) and by name, a sorted tuple.
  Dispatcher(Setting setting, std::vector<int64_t> static_nums, PyRef static_names);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // The results, Py_NotImplemented when nothing is known of such a call, null with an error set.
  // `kwargs` may be null. `self` is the Python object around this.
  PyObject* call(PyObject* self, PyObject* args, PyObject* kwargs);
  // From now on calls like this one run `entry` (a Python object around a DispatchEntry). False
  // with an error set; true without effect when some argument is none of these.
  bool add(PyObject* args, PyObject* kwargs, PyObject* entry);
  // From now on a call like this one, but for its sizes, runs the first of `versions` that they fit:
  // a list of pairs (SizePattern, DispatchEntry), which the caller may change later. As `add`.
  bool offer(PyObject* args, PyObject* kwargs, PyObject* versions);
  // The entries made for sizes that fitted an offered version, as a list. Null with an error set.
  PyObject* found() const;
  void clear();
  // For Python's garbage collector: keys may hold a static value that holds the function.
  int traverse(visitproc visit, void* arg) const;

 private:
  // Leaves of a call and what it is looked up by, but for the leaves' types; no context without an
  // error: not for us.
  struct Call {
    PyRef leaves;
    PyRef tree;  // with the static arguments, if there are any
    PyRef context;
    bool is_plain = true;  // no leaf may need a conversion

    Py_ssize_t count() const { return PySequence_Fast_GET_SIZE(leaves.get()); }
    PyObject* leaf(Py_ssize_t i) const { return PySequence_Fast_GET_ITEM(leaves.get(), i); }
  };
  // Numbers stand for types, which are dearer to hash and compare.
  struct ArrayType {
    PyRef number;  // of shape, dtype and weak type
    PyRef kind;    // of rank, dtype and weak type
    std::vector<int64_t> sizes;
  };
  bool describe(PyObject* args, PyObject* kwargs, Call* out);
  bool has_static() const;
  // The dynamic arguments, and a tuple of (place, type, value) of each static one. False with an
  // error set.
  bool split(PyObject* args, PyObject* kwargs, PyRef* dynamic, PyRef* named, PyRef* statics) const;
  // The leaves as the executable takes them. Null with an error set.
  PyRef converted(const Call& call, const DispatchEntry& entry) const;
  bool is_jax(PyObject* object) const;
  bool is_key(PyObject* object) const;
  bool is_leaf(PyObject* object) const;
  // The key of a call among those of the same types; or of the same types but for the sizes, which
  // are then appended to `sizes`. Null with an error set.
  using NumberOf = PyRef (Dispatcher::*)(PyObject*, std::vector<int64_t>*);
  PyRef exact_key(const Call& call);
  PyRef kind_key(const Call& call, std::vector<int64_t>* sizes);
  PyRef key_of(const Call& call, NumberOf number, std::vector<int64_t>* sizes);
  // Numbers of a leaf's type and kind; of the configuration of JAX. Null with an error set.
  PyRef type_number(PyObject* leaf, std::vector<int64_t>* unused);
  PyRef kind_number(PyObject* leaf, std::vector<int64_t>* sizes);
  PyRef key_number(PyObject* key, NumberOf number, std::vector<int64_t>* sizes);
  const ArrayType* jax_type(PyObject* array);  // valid until the next call of it
  PyRef context_number();
  PyRef number_of(PyObject* value);
  void forget_avals();
  // A new entry for a call whose sizes fit an offered version, in the table from now on. None when
  // there is no such version; null with an error set.
  PyRef fitting(const Call& call, PyObject* key);

  const Setting setting_;
  const std::vector<int64_t> static_nums_;
  const PyRef static_names_;
  PyRef table_;   // dict from exact keys to entries
  PyRef offers_;  // dict from kind keys to lists of versions
  std::vector<PyRef> found_;
  PyRef numbers_;  // dict from values to their numbers
  int64_t next_ = 0;  // no number is used again: a key may be under way while all is forgotten
  PyRef last_context_, last_number_;
  // Those of avals seen, which are alive for it: JAX gives arrays of equal types equal ones, and
  // often the same. Asking them is three calls into Python.
  std::unordered_map<PyObject*, ArrayType> avals_;
};

// The entry or the pattern inside a Python object made by the module; null without an error for
// another object.
DispatchEntry* dispatch_entry(PyObject* object);
const SizePattern* size_pattern(PyObject* object);
// A Python object around a new entry that runs as `version` does. Null with an error set.
PyObject* new_dispatch_entry(PyObject* version, PyRef shapes);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_DISPATCHER_H_
