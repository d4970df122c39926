#include "gpu_bridge.h"

#include <utility>

#include "dlpack_capsule.h"

namespace shlo_disc {
namespace {

constexpr size_t kMaxMakers = 4096;  // a new one costs a microsecond, so forgetting all is fine

}  // namespace

GpuBridge::~GpuBridge() {
  for (auto& makers : makers_) {
    for (auto& [aval, maker] : makers) Py_DECREF(aval);
  }
}

bool GpuBridge::wait(Py_ssize_t index, PyObject* array) {
  bool ready = false;
  if (!ask_ready(index, array, &ready)) return false;
  if (ready) return true;
  const PyRef stream(PyLong_FromVoidPtr(place_.stream));
  if (!stream) return false;
  PyObject* const args[] = {array, stream.get()};
  return static_cast<bool>(
      PyRef(PyObject_Vectorcall(gpu_hooks_.order.get(), args, 2, nullptr)));
}

PyRef GpuBridge::to_host(PyObject* array) const {
  return PyRef(PyObject_CallOneArg(gpu_hooks_.to_host.get(), array));
}

PyObject* GpuBridge::maker(PyObject* aval, PyObject* sharding, bool committed) {
  auto& makers = makers_[committed ? 1 : 0];
  const auto found = makers.find(aval);
  if (found != makers.end()) return found->second.get();
  PyObject* const args[] = {aval, sharding, committed ? Py_True : Py_False};
  PyRef made(PyObject_Vectorcall(gpu_hooks_.rewrap.get(), args, 3, nullptr));
  if (!made) return nullptr;
  if (makers.size() >= kMaxMakers) {
    const auto old = std::exchange(makers, {});
    for (const auto& [forgotten, unused] : old) Py_DECREF(forgotten);
  }
  return makers.emplace(Py_NewRef(aval), std::move(made)).first->second.get();
}

PyObject* GpuBridge::adopt(GpuMemory memory, PyArray_Descr* descr, DType dtype, bool weak_type,
                           int64_t rank, const int64_t* sizes, bool committed) {
  void* const data = memory.data();
  const PyRef aval = PyRef::borrow(result_aval(descr, dtype, weak_type, rank, sizes));
  const Device* const device = known_device(hooks_.device.get());
  if (!aval || device == nullptr) return nullptr;
  const dlpack::Device where = {dlpack_device_, place_.device->info().ordinal};
  const PyRef capsule(dlpack::capsule_over(std::move(memory), where, dtype, rank, sizes));
  if (!capsule) return nullptr;
  PyObject* const args[] = {capsule.get(), device->device.get()};
  const PyRef adopted(PyObject_Vectorcall(gpu_hooks_.adopt.get(), args, 2, nullptr));
  if (!adopted) return nullptr;
  const PyRef make = PyRef::borrow(maker(aval.get(), device->sharding.get(), committed));
  const PyRef arrays(make ? PyTuple_Pack(1, adopted.get()) : nullptr);
  if (!arrays) return nullptr;
  PyRef result(PyObject_CallOneArg(make.get(), arrays.get()));
  const bool known = result && remember(result.get(), data, dtype, aval.get(),
                                        committed ? device->device.get() : nullptr);
  return known ? result.release() : nullptr;
}

}  // namespace shlo_disc
