// The arguments of one call: pointers and sizes out of whatever the caller passed.
#ifndef SHLO_DISC_RAL_PY_ARGUMENTS_H_
#define SHLO_DISC_RAL_PY_ARGUMENTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "executable.h"
#include "jax_bridge.h"
#include "py_support.h"
#include "small_vector.h"

namespace shlo_disc {

// Needs the GIL to make, fill and destroy; between those the pointers stay valid without it.
class CallArguments {
 public:
  // `last_seen`: per argument the address of the array of the last call, kept by the executable.
  CallArguments(const Executable& executable, const std::vector<PyRef>& descrs,
                std::vector<const PyObject*>& last_seen, JaxBridge* bridge);
  ~CallArguments();
  CallArguments(const CallArguments&) = delete;
  CallArguments& operator=(const CallArguments&) = delete;

  // Takes the sequence; false with a Python error (ArgumentError) set.
  bool read(PyObject* leaves);

  // Takes over the arrays that were donated: deletes those whose memory is ours. False with a
  // Python error set, also when a donated array is another argument, too. To be called once.
  bool take_donated();
  // The owner of a donated argument's memory when nothing else refers to it; else null.
  PyRef owner_of_donated(size_t argument);
  // Deletes donated arrays of foreign memory; after the call has read them. False: another thread
  // has done so, or another Python error.
  bool forget_foreign();

  void* const* pointers() { return pointers_.data(); }
  const int64_t* sizes() { return sizes_.data(); }
  // One per argument, null where not packable in this call; null when none is.
  PackOwner* const* owners() { return any_owner_ ? owners_.data() : nullptr; }
  // The device the results are committed to; null: none.
  PyObject* device() const { return device_; }
  // ((2, 3), (3,)): the sizes of all arguments, for messages.
  PyObject* shapes();
  // (3, 5): the elements of size arguments, for messages.
  PyObject* size_elements();

 private:
  bool read_one(size_t index, PyObject* leaf);
  bool read_jax(size_t index, PyObject* leaf);
  bool unpack(size_t index, const ArrayType& type, void** data);
  bool read_numpy(size_t index, PyArrayObject* array);
  bool read_scalar(size_t index, PyObject* leaf);
  bool read_dlpack(size_t index, PyObject* leaf);
  bool accept(size_t index, void* data, DType dtype, int64_t rank, const int64_t* sizes);

  const Executable& executable_;
  const std::vector<PyRef>& descrs_;
  std::vector<const PyObject*>& last_seen_;
  JaxBridge* const bridge_;
  SmallVector<void*, 64> pointers_;
  SmallVector<PackOwner*, 64> owners_;
  SmallVector<PyObject*, 64> leaves_;  // owned: a call keeps its arguments alive
  SmallVector<PyObject*, 64> memory_;  // owned: what holds our arrays' memory; null: foreign
  SmallVector<int64_t, 128> sizes_;
  int64_t* next_size_;
  size_t held_ = 0;                     // entries of leaves_
  std::vector<ArrayRecord*> first_seen_;
  std::vector<size_t> donated_;         // arrays whose memory is ours
  std::vector<size_t> foreign_;         // donated, too
  std::vector<PyRef> temporaries_;      // copies and DLPack capsules
  std::vector<ScopedBlock> unpacked_;   // copies of arrays that JAX packs
  PyObject* device_ = nullptr;
  size_t device_index_ = 0;
  bool any_owner_ = false;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PY_ARGUMENTS_H_
