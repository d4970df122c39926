// The first lines of a call of a jitted function: what was called like this before runs at once.
#ifndef SHLO_DISC_RAL_DISPATCHER_H_
#define SHLO_DISC_RAL_DISPATCHER_H_

#include <cstdint>
#include <unordered_map>
#include <utility>

#include "jax_bridge.h"
#include "py_executable.h"
#include "py_support.h"

namespace shlo_disc {

// What runs for one structure, types and sizes of arguments.
struct DispatchEntry {
  DispatchEntry(PyRef executable_object, const PyExecutable* executable, JaxBridge* bridge,
                PyRef unflatten)
      : executable_object(std::move(executable_object)),
        executable(executable),
        bridge(bridge),
        unflatten(std::move(unflatten)) {}

  const PyRef executable_object;  // owns `executable`
  const PyExecutable* const executable;
  JaxBridge* const bridge;  // lives as long as the process
  const PyRef unflatten;    // list of results -> the function's structure; None: the only result
  int64_t calls = 0;
};

// Looks up calls whose arguments are concrete jax.Arrays, numpy arrays and Python numbers. Needs the
// GIL.
class Dispatcher {
 public:
  // See _ral.pyi for what each must be.
  Dispatcher(PyRef array_type, PyRef flatten, PyRef trace_context, PyRef disable_jit);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // The results, Py_NotImplemented when nothing is known of such a call, null with an error set.
  // `kwargs` may be null.
  PyObject* call(PyObject* args, PyObject* kwargs);
  // From now on calls like this one run `entry` (a Python object around a DispatchEntry). False
  // with an error set; true without effect when some argument is none of these.
  bool add(PyObject* args, PyObject* kwargs, PyObject* entry);
  void clear();
  // For Python's garbage collector: keys may hold a static value that holds the function.
  int traverse(visitproc visit, void* arg) const;

 private:
  // Leaves and the key of a call; an empty key without an error: not for us.
  struct Call {
    PyRef leaves;
    PyRef key;
  };
  bool describe(PyObject* args, PyObject* kwargs, Call* out);
  bool is_jax(PyObject* object) const;
  bool is_leaf(PyObject* object) const;
  // Numbers, cheaper to hash and compare than what they stand for: shape, dtype and kind of a leaf;
  // the configuration of JAX. Null with an error set.
  PyRef type_number(PyObject* leaf);
  PyRef jax_number(PyObject* array);
  PyRef context_number();
  PyRef number_of(PyObject* value);
  void forget_avals();

  const PyRef array_type_;
  const PyRef flatten_;
  const PyRef trace_context_;
  const PyRef disable_jit_;
  PyRef table_;  // dict
  PyRef numbers_;  // dict from values to their numbers
  int64_t next_ = 0;  // no number is used again: a key may be under way while all is forgotten
  PyRef last_context_, last_number_;
  // Those of avals seen, which are alive for it: JAX gives arrays of equal types equal ones, and
  // often the same. Asking them is three calls into Python.
  std::unordered_map<PyObject*, PyRef> avals_;
};

// The entry inside a Python object made by the module; null without an error for another object.
DispatchEntry* dispatch_entry(PyObject* object);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_DISPATCHER_H_
