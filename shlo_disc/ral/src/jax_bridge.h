// Reads jax.Array arguments and makes jax.Array results, without a copy and without XLA: those of the
// host's memory here, those of a GPU's in gpu_bridge.h.
//
// Everything JAX is handed in by Python (shlo_disc/jax_private.py); nothing here imports it.
#ifndef SHLO_DISC_RAL_JAX_BRIDGE_H_
#define SHLO_DISC_RAL_JAX_BRIDGE_H_

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "array_table.h"
#include "py_support.h"

namespace shlo_disc {

// The objects the bridge calls; see shlo_disc/ral/_ral.pyi for what each must be.
struct JaxHooks {
  PyRef array_type;          // the concrete class of single-device arrays
  PyRef shaped_array;        // (shape, dtype, weak_type) -> aval
  PyRef batched_device_put;  // (aval, sharding, [ndarray], [device], committed) -> array
  PyRef unguarded_device_put;  // the same where transfers are refused; may be None
  PyRef device;              // where uncommitted results live
  PyRef sharding;            // (device) -> its sharding, None when programs cannot run there
  PyRef collect_garbage;     // () -> None: drops buffers JAX has finished with; may be None
  PyRef committed_name;      // attribute of an array: is it committed to its device
  PyRef device_name;         // attribute of a single-device sharding: the device
  std::string where;         // "the CPU": where programs run, for messages
};

class GpuBridge;

// A jax.Array argument as a program sees it. `record` lives as long as the array.
struct JaxArgument {
  void* data;
  std::shared_ptr<const ArrayType> type;
  PyObject* device;     // where it is committed to (borrowed, lives as long as the bridge)
  ArrayRecord* record;  // null when none was asked for
};

class JaxBridge {
 public:
  explicit JaxBridge(JaxHooks hooks) : hooks_(std::move(hooks)) {}
  virtual ~JaxBridge();
  JaxBridge(const JaxBridge&) = delete;
  JaxBridge& operator=(const JaxBridge&) = delete;

  bool is_array(PyObject* object) const {
    return reinterpret_cast<PyObject*>(Py_TYPE(object)) == hooks_.array_type.get();
  }

  // Waits until the array is ready. False with ArgumentError set when it cannot be used.
  bool read(Py_ssize_t index, PyObject* array, bool want_record, JaxArgument* out);

  // The type alone: the array may be deleted or on any device.
  bool look(Py_ssize_t index, PyObject* array, JaxArgument* out);

  // Deletes some of the arguments, as their method does; none when one is deleted already (by another
  // thread). False: that, an ArgumentError, or another Python error.
  bool forget(PyObject* const* arrays, const std::vector<size_t>& which);

  // A ready array over the memory of an owner; `device` null: uncommitted.
  PyObject* wrap(PyRef owner, PyArray_Descr* descr, DType dtype, bool weak_type,
                 int64_t rank, const int64_t* sizes, PyObject* device);

  // An argument was a result of ours; had `wrap` remembered where it is?
  void came_back(bool was_remembered);

  // Lets memory of dead arrays go back to the pool (JAX drops it lazily). False: Python error.
  bool collect_garbage();

  // The bridge as that of a GPU; null: it is the CPU's.
  virtual GpuBridge* as_gpu() { return nullptr; }
  // Whether memory that begins at an address is that of a result of ours. Of the host's memory that is
  // known by its owner.
  virtual bool owns(const void*) const { return false; }

 protected:
  struct Device {
    PyRef device;
    PyRef sharding;
    PyRef tuple;  // (device,)
  };

  // Makes the array's memory readable by what runs next, if it is alive. False with an error set.
  virtual bool wait(Py_ssize_t index, PyObject* array);
  // False with an error set for an array that is deleted; else `*ready`: it need not be waited for.
  bool ask_ready(Py_ssize_t index, PyObject* array, bool* ready);
  const Device* known_device(PyObject* device);
  bool remember(PyObject* array, void* data, DType dtype, PyObject* aval, PyObject* device);
  PyObject* result_aval(PyArray_Descr* descr, DType dtype, bool weak_type, int64_t rank,
                        const int64_t* sizes);

  const JaxHooks hooks_;

 private:

  std::shared_ptr<const ArrayType> type_of(Py_ssize_t index, PyRef aval);
  const Device* device_of(Py_ssize_t index, PyObject* array);
  bool committed(PyObject* array, bool* out);
  bool describe(Py_ssize_t index, PyObject* array, bool want_record, JaxArgument* out);
  bool pointer(Py_ssize_t index, PyObject* array, void** out);
  bool is_alive(Py_ssize_t index, PyObject* array);

  // Other threads may run whenever Python code does, so entries stay where they are.
  std::deque<Device> devices_;
  std::unordered_map<PyObject*, std::shared_ptr<const ArrayType>> types_;  // by aval, kept alive
  std::unordered_map<std::string, PyRef> avals_;  // of results, by dtype, weakness and sizes
  int worth_remembering_ = 0;  // so many more results
  // By dtype: does JAX take results as they are. Memory it has copied is not the array's.
  std::array<std::optional<bool>, kDTypeCount> zero_copy_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_JAX_BRIDGE_H_
