// The arguments of one call: pointers and sizes out of whatever the caller passed.
#ifndef SHLO_DISC_RAL_PY_ARGUMENTS_H_
#define SHLO_DISC_RAL_PY_ARGUMENTS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "call.h"
#include "jax_bridge.h"
#include "pack_job.h"
#include "py_support.h"
#include "small_vector.h"
#include "strided_copy.h"
#include "tensor_bridge.h"
#include "weights.h"

namespace shlo_disc {

// As raise_failure of py_support.h; always null.
inline PyObject* raise_failure(const Call& call) {
  return raise_failure(call.executable.spec().name, call.failure);
}

// Arguments that had to be copied into dense memory, since the program was made; under the GIL.
struct ArgumentCopies {
  std::vector<int64_t> calls;  // by argument
  int64_t bytes = 0;
};

// Calls in which a donated tensor could not take a result, since the program was made; by argument.
using UnusedDonations = std::vector<int64_t>;

// What a caller says of weights in one call.
struct WeightVersions {
  static constexpr int64_t kNoWeight = -2;

  Weights* weights;
  const int64_t* versions;  // by argument: a version, Weights::kFrozen or kNoWeight
};

// What an executable remembers of its calls; under the GIL.
struct CallRecord {
  explicit CallRecord(size_t arguments) : last_seen(arguments, nullptr) {
    copies.calls.resize(arguments);
    unused_donations.resize(arguments);
  }

  std::vector<const PyObject*> last_seen;  // the array of the last call, by argument; not owned
  ArgumentCopies copies;
  UnusedDonations unused_donations;
};

// Needs the GIL to make, fill and destroy; between those the pointers stay valid without it.
class CallArguments {
 public:
  // `bridge`: reads `jax.Array`s as such; may be null. `weights`: may be null.
  CallArguments(Call& call, const std::vector<PyRef>& descrs, CallRecord& record, JaxBridge* bridge,
                const WeightVersions* weights);
  ~CallArguments();
  CallArguments(const CallArguments&) = delete;
  CallArguments& operator=(const CallArguments&) = delete;

  // Takes the sequence, and prepares the call; false with a Python error (ArgumentError, GuardError) set.
  bool read(PyObject* leaves);

  // Takes over the arrays that were donated: deletes those whose memory is ours. False with a
  // Python error set, also when a donated array is another argument, too. To be called once.
  bool take_donated();
  // False with a Python error set when a donated array is another argument, too.
  bool are_donated_once();
  // Deletes arrays among the arguments; false with a Python error set.
  bool forget(const std::vector<size_t>& which) { return bridge_->forget(leaves_.data(), which); }
  // The owner of a donated argument's memory when nothing else refers to it; else null.
  PyRef owner_of_donated(size_t argument);
  // Deletes donated arrays of foreign memory; after the call has read them. False: another thread
  // has done so, or another Python error.
  bool forget_foreign();
  // Of tensors: false with a Python error set if one that is donated shares memory with another
  // argument.
  bool are_donated_apart();
  // The donated tensor, borrowed, if a result may be written where it is; null, counted, if not.
  PyObject* donated_tensor(size_t argument);
  // After the call: true if its tensors have the memory that was read. Other threads may have given
  // them another, and freed this one. False with a Python error set.
  bool have_kept_memory();

  // Whether an argument is a jax.Array, whose memory is where the program of the bridge runs. All others
  // are in the host's memory.
  bool is_jax(size_t argument) { return bridge_ != nullptr && bridge_->is_array(leaves_[argument]); }
  // Counts an argument that had to be copied.
  void count_copy(size_t argument, int64_t bytes) {
    ++record_.copies.calls[argument];
    record_.copies.bytes += bytes;
  }
  // By argument: true where what is packed outlives the call, see keep_for().
  const uint8_t* may_wait() { return may_wait_.data(); }
  // Lets `pack`, of an argument, find its memory after the call. False: Python error.
  bool keep_for(PackJob& job, WaitingPack pack);
  // The device the results are committed to; null: none.
  PyObject* device() const { return device_; }

 private:
  // Sets GuardError; always false.
  bool raise_guard_error();
  bool read_one(size_t index, PyObject* leaf);
  bool read_jax(size_t index, PyObject* leaf);
  bool unpack(size_t index, const ArrayType& type, void** data);
  bool read_size_elements();
  bool read_numpy(size_t index, PyArrayObject* array);
  bool read_scalar(size_t index, PyObject* leaf);
  bool read_dlpack(size_t index, PyObject* leaf);
  bool read_exchanged(size_t index, PyObject* leaf, const dlpack::ExchangeApi& api);
  bool read_tensor(size_t index, PyObject* leaf, const dlpack::Tensor& tensor, bool is_exchanged);
  bool take_weight(size_t index, PyObject* leaf, const WeightState& state);
  bool is_weight(size_t index) const;
  void drop_changed_weights();
  bool raise_changed(size_t index);
  // True for a tensor with elements, which are dense.
  bool is_read_in_place(size_t argument);
  char* densely_copied(size_t index, const StridedArray& array, int64_t bytes);
  bool accept(void* data, DType dtype, int64_t rank, const int64_t* sizes);

  Call& call_;
  const std::vector<ArgumentSpec>& specs_;
  const std::vector<PyRef>& descrs_;
  CallRecord& record_;
  JaxBridge* const bridge_;
  const WeightVersions* const weights_;
  SmallVector<PackOwner*, 64> owners_;
  SmallVector<uint8_t, 64> may_wait_;
  SmallVector<PyObject*, 64> leaves_;  // owned: a call keeps its arguments alive
  SmallVector<PyObject*, 64> memory_;  // owned: what holds our arrays' memory; null: foreign
  SmallVector<const void*, 64> borrowed_;  // memory of tensors read in place; null: of others
  SmallVector<int64_t, 32> scalars_;       // the elements of Python's numbers
  size_t held_ = 0;                     // entries of leaves_
  std::vector<ArrayRecord*> first_seen_;
  std::vector<size_t> donated_;         // arrays whose memory is ours
  std::vector<size_t> foreign_;         // donated, too
  std::vector<PyRef> temporaries_;      // copies and DLPack capsules
  std::vector<ScopedBlock> copies_;     // of arrays that JAX packs, and of strided ones
  std::vector<dlpack::ManagedTensorVersioned*> managed_;   // owned
  // By argument; alive until the call ends.
  std::vector<std::pair<size_t, std::shared_ptr<KeptWeight>>> kept_weights_;
  PyObject* device_ = nullptr;
  size_t device_index_ = 0;
  bool any_owner_ = false;
  bool any_borrowed_ = false;
  bool others_ran_ = true;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PY_ARGUMENTS_H_
