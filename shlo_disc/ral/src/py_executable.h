// An executable as Python holds it.
#ifndef SHLO_DISC_RAL_PY_EXECUTABLE_H_
#define SHLO_DISC_RAL_PY_EXECUTABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "executable.h"
#include "jax_bridge.h"
#include "py_arguments.h"
#include "py_support.h"
#include "tensor_bridge.h"

namespace shlo_disc {

// A list of what `wrap` makes of each result; null with a Python error set where it gives null.
template <typename Wrap>
PyObject* result_list(Call& call, const Wrap& wrap) {
  const std::vector<ResultSpec>& specs = call.executable.spec().results;
  PyRef list(PyList_New(static_cast<Py_ssize_t>(specs.size())));
  const int64_t* sizes = call.result_sizes();
  for (size_t i = 0; list && i < specs.size(); ++i) {
    PyObject* const result = wrap(i, specs[i], sizes);
    if (result == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), result);
    sizes += specs[i].rank;
  }
  return list.release();
}

class PyExecutable {
 public:
  struct Result {
    PyRef descr;
    bool weak_type;
  };

  // `pack_later`: takes a function that makes one packed copy, and returns whether more are missing;
  // null where calls make them.
  PyExecutable(std::shared_ptr<const Executable> executable, std::vector<PyRef> argument_descrs,
               std::vector<Result> results, PyRef pack_later)
      : executable_(std::move(executable)),
        argument_descrs_(std::move(argument_descrs)),
        memory_(argument_descrs_.size()),
        results_(std::move(results)),
        pack_later_(std::move(pack_later)) {}
  // What a GPU has of the program may have to wait for work, which may wait for the GIL.
  ~PyExecutable() {
    if (executable_->spec().gpu == nullptr) return;
    const WithoutGilIfHeld without_gil;
    executable_.reset();
  }
  PyExecutable(const PyExecutable&) = delete;
  PyExecutable& operator=(const PyExecutable&) = delete;

  // Runs the program; a new list of results, jax.Arrays with a bridge and numpy arrays without.
  // Null with a Python error set.
  PyObject* call(JaxBridge* bridge, PyObject* leaves) const {
    return call(executable_->spec().run(), nullptr, bridge, leaves);
  }

  // As call, with tensors of `bridge` as results. `weights`: null where no argument is one. `over`:
  // null, or makes a tensor of a donated one and of sizes, in its memory; without it donated tensors
  // are read only. `flag`: a result that is given as a Python integer, a scalar; kNoFlag for none.
  PyObject* call_tensors(const TensorBridge& bridge, PyObject* leaves, const WeightVersions* weights,
                         PyObject* over, size_t flag) const {
    return call(executable_->spec().run(), nullptr, nullptr, leaves, &bridge, weights, over, flag);
  }
  static constexpr size_t kNoFlag = SIZE_MAX;

  // As call, by another host program of the same kernels that reports to `marks`.
  PyObject* call(disc_run host, Marks* marks, JaxBridge* bridge, PyObject* leaves,
                 const TensorBridge* tensors = nullptr, const WeightVersions* weights = nullptr,
                 PyObject* over = nullptr, size_t flag = kNoFlag) const;

  // Runs a program for GPUs on one of them: NumPy arguments are copied there, results copied back. Null
  // with a Python error set: DeviceError for what the driver or the device refuses.
  PyObject* run_gpu(int ordinal, PyObject* leaves) const {
    return run_gpu(executable_->spec().run(), nullptr, ordinal, leaves);
  }
  PyObject* run_gpu(disc_run host, Marks* marks, int ordinal, PyObject* leaves) const;

  // As run_gpu, on the device and the stream of `bridge`, with jax.Arrays as results. Does not wait for
  // the device, but where the program reads memory.
  PyObject* call_gpu(disc_run host, Marks* marks, GpuBridge& bridge, PyObject* leaves) const;

  // Makes the program callable as an XLA FFI custom call; XLA executables made while it is alive own
  // it too.
  void register_ffi(int64_t fingerprint) const;

  const Executable& executable() const { return *executable_; }
  // Since the program was made.
  const ArgumentCopies& copies() const { return memory_.copies; }
  const UnusedDonations& unused_donations() const { return memory_.unused_donations; }

 private:
  // Hands over what the first call that needs packed copies did without. False: a Python error is set.
  bool have_packed(CallArguments& arguments, std::vector<WaitingPack> packs) const;

  std::shared_ptr<const Executable> executable_;
  const std::vector<PyRef> argument_descrs_;
  mutable CallRecord memory_;  // under the GIL
  const std::vector<Result> results_;
  const PyRef pack_later_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PY_EXECUTABLE_H_
