// Small helpers around the CPython and NumPy C APIs.
#ifndef SHLO_DISC_RAL_PY_SUPPORT_H_
#define SHLO_DISC_RAL_PY_SUPPORT_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#define NPY_TARGET_VERSION NPY_2_0_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL shlo_disc_ral_numpy
#ifndef SHLO_DISC_IMPORT_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "buffer_pool.h"
#include "executable.h"

namespace shlo_disc {

// Owns one reference; null is allowed. All uses need the GIL.
class PyRef {
 public:
  PyRef() = default;
  explicit PyRef(PyObject* owned) : object_(owned) {}
  static PyRef borrow(PyObject* object) {
    Py_XINCREF(object);
    return PyRef(object);
  }
  ~PyRef() { Py_XDECREF(object_); }
  PyRef(PyRef&& other) noexcept : object_(other.release()) {}
  PyRef& operator=(PyRef&& other) noexcept {
    if (this != &other) {
      PyObject* const old = object_;
      object_ = other.release();
      Py_XDECREF(old);
    }
    return *this;
  }
  PyRef(const PyRef&) = delete;
  PyRef& operator=(const PyRef&) = delete;

  PyObject* get() const { return object_; }
  PyObject* release() {
    PyObject* const object = object_;
    object_ = nullptr;
    return object;
  }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Takes the GIL for a scope, on any thread.
class WithGil {
 public:
  WithGil() : state_(PyGILState_Ensure()) {}
  ~WithGil() { PyGILState_Release(state_); }
  WithGil(const WithGil&) = delete;
  WithGil& operator=(const WithGil&) = delete;

 private:
  const PyGILState_STATE state_;
};

// Gives up the GIL for a scope.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  ~WithoutGil() { PyEval_RestoreThread(state_); }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const state_;
};

// As WithoutGil, in threads that may not hold it.
class WithoutGilIfHeld {
 public:
  WithoutGilIfHeld() {
    if (Py_IsInitialized() && PyGILState_Check()) held_.emplace();
  }

 private:
  std::optional<WithoutGil> held_;
};

// Shared ownership of a Python object by code that may not hold the GIL where the last owner goes.
// The reference is then given up soon, by a thread that holds it.
std::shared_ptr<const void> shared_reference(PyObject* object);
// Gives up what waits; needs the GIL.
void drop_waiting_references();

// Exception types of the module; created by its initialisation, alive for ever.
struct Errors {
  PyObject* argument;  // ArgumentError(index, kind, what), a TypeError
  PyObject* guard;     // GuardError(index, what, sizes, elements), a ValueError
  PyObject* foreign;   // ForeignError(where, message, code), a RuntimeError
  PyObject* device;    // shlo_disc.base.errors.DeviceError
  PyObject* internal;  // shlo_disc.base.errors.InternalError
};
Errors& errors();

// Sets ArgumentError; a Python error that is already set becomes its cause. Always false.
bool raise_argument_error(Py_ssize_t index, const char* kind, const std::string& what);

// Sets the error of a failure, which is of no guard; always null. `program`: its name.
PyObject* raise_failure(const std::string& program, const Failure& failure);

std::string text_of(PyObject* object);       // str(object); "?" when that fails
std::string take_error_text();               // message of the current error, which is cleared
DType dtype_of(PyArray_Descr* descr);        // by NumPy's name; kOther for byte-swapped data

// An object that owns a block's memory, which goes back to the pool when the last reference dies.
// Null with an error set when out of memory; the block is released then.
PyRef owner_of(ScopedBlock block);
// The owner of the memory at an address, if it is ours and begins there; else null, no error set.
PyRef owner_at(void* data);
// A new dense row-major array over the memory of an owner (null: it has failed). Null with an error
// set.
PyObject* array_over(PyRef owner, PyArray_Descr* descr, int64_t rank, const int64_t* sizes);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PY_SUPPORT_H_
