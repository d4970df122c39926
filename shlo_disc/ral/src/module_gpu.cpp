#include "module_gpu.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "dlpack_abi.h"
#include "ffi_gpu.h"
#include "ffi_handler.h"
#include "gpu_bridge.h"
#include "gpu_device.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shlo_disc {
namespace {

GpuPlatform checked_platform(const std::string& name) {
  GpuPlatform platform;
  if (!gpu_platform_of(name, &platform)) {
    throw nb::value_error(("no GPU platform is called '" + name + "'; there are cuda and rocm").c_str());
  }
  return platform;
}

// (argument, element, box, first, sizes, strides)
using MapRow = std::tuple<size_t, std::string, std::vector<uint32_t>, size_t, std::vector<size_t>,
                          std::vector<size_t>>;

TensorMap checked_map(const MapRow& row) {
  const auto& [argument, element, box, first, sizes, strides] = row;
  TensorMap map{argument, 0, 0, box, first, sizes, strides};
  if (!set_map_element(element, &map)) throw nb::value_error(("no tensor map has " + element).c_str());
  return map;
}

void init_gpu_kernel(GpuKernel* self, std::string symbol, size_t image, int64_t threads,
                     int64_t tasks_per_block, int64_t shared_bytes, int64_t args,
                     std::vector<size_t> by_value, int64_t params,
                     const std::vector<MapRow>& maps, std::string name, std::string source) {
  std::vector<TensorMap> checked;
  for (const MapRow& row : maps) checked.push_back(checked_map(row));
  new (self) GpuKernel{std::move(symbol), image,  threads,
                       tasks_per_block,   shared_bytes, args,
                       std::move(by_value), params, std::move(checked),
                       std::move(name),   std::move(source)};
}

void init_gpu_program(SharedGpuProgram* self, const std::string& platform, std::string architecture,
                      const std::vector<nb::bytes>& images, std::vector<GpuKernel> kernels,
                      const std::vector<nb::bytes>& machine_code) {
  if (!machine_code.empty() && machine_code.size() != images.size()) {
    throw nb::value_error("machine_code has an entry for each image, or none");
  }
  auto program = std::make_shared<GpuProgram>();
  program->platform = checked_platform(platform);
  program->architecture = std::move(architecture);
  for (const nb::bytes& image : images) program->images.emplace_back(image.c_str(), image.size());
  for (const nb::bytes& code : machine_code) {
    program->machine_code.emplace_back(code.c_str(), code.size());
  }
  program->machine_code.resize(images.size());
  for (const GpuKernel& kernel : kernels) {
    const std::string mistake = gpu_kernel_mistake(kernel, images.size());
    if (!mistake.empty()) throw nb::value_error(("kernel " + kernel.name + ": " + mistake).c_str());
  }
  program->kernels = std::move(kernels);
  new (self) SharedGpuProgram{std::move(program)};
}

const GpuDriver& checked_driver(const std::string& platform) {
  Failure failure;
  const GpuDriver* const driver = GpuDriver::get(checked_platform(platform), &failure);
  if (driver == nullptr) {
    raise_failure("", failure);
    throw nb::python_error();
  }
  return *driver;
}

nb::dict gpu_driver_facts(const std::string& platform) {
  const GpuDriver& driver = checked_driver(platform);
  nb::dict out;
  out["library"] = driver.library;
  out["version"] = driver.version();
  return out;
}

nb::list gpu_devices(const std::string& platform) {
  std::vector<GpuDeviceInfo> devices;
  Failure failure;
  if (!checked_driver(platform).devices(&devices, &failure)) {
    raise_failure("", failure);
    throw nb::python_error();
  }
  nb::list all;
  for (const GpuDeviceInfo& device : devices) {
    nb::dict row;
    row["ordinal"] = device.ordinal;
    row["name"] = device.name;
    row["architecture"] = device.architecture;
    row["multiprocessors"] = device.multiprocessors;
    row["warp_size"] = device.warp_size;
    row["shared_bytes"] = device.shared_bytes;
    row["l2_bytes"] = device.l2_bytes;
    row["total_bytes"] = device.total_bytes;
    all.append(row);
  }
  return all;
}

GpuDevice& checked_device(GpuPlatform platform, int ordinal) {
  Failure failure;
  GpuDevice* device = nullptr;
  {
    const nb::gil_scoped_release without_gil;
    device = GpuDevice::get(platform, ordinal, &failure);
  }
  if (device == nullptr) {
    raise_failure("", failure);
    throw nb::python_error();
  }
  return *device;
}

PyRef owned(const nb::object& object) { return PyRef::borrow(object.ptr()); }

void init_gpu_bridge(GpuBridge* self, const std::string& platform_name, int ordinal,
                     nb::object stream, nb::object array_type, nb::object shaped_array,
                     nb::object device, nb::object sharding, nb::object order, nb::object adopt,
                     nb::object rewrap, nb::object to_host, nb::object collect_garbage,
                     nb::object dlpack_device, bool waits, nb::str committed_name,
                     nb::str device_name) {
  const GpuPlatform platform = checked_platform(platform_name);
  GpuDevice& opened = checked_device(platform, ordinal);
  void* const given = stream.is_none()
                          ? opened.stream()
                          : reinterpret_cast<void*>(nb::cast<uintptr_t>(stream));
  const int32_t usual = platform == GpuPlatform::kCuda ? dlpack::kCuda : dlpack::kRocm;
  JaxHooks hooks{owned(array_type),      owned(shaped_array), owned(nb::none()),
                 owned(nb::none()),      owned(device),       owned(sharding),
                 owned(collect_garbage), owned(committed_name), owned(device_name),
                 opened.title()};
  GpuHooks gpu_hooks{owned(order), owned(adopt), owned(rewrap), owned(to_host)};
  new (self) GpuBridge(std::move(hooks), std::move(gpu_hooks), {&opened, given},
                       dlpack_device.is_none() ? usual : nb::cast<int32_t>(dlpack_device), waits);
}

}  // namespace

nb::dict pool_statistics(const PoolStats& stats) {
  nb::dict out;
  out["in_use_bytes"] = stats.in_use_bytes;
  out["in_use_blocks"] = stats.in_use_blocks;
  out["idle_bytes"] = stats.idle_bytes;
  out["idle_blocks"] = stats.idle_blocks;
  out["limit_bytes"] = stats.limit_bytes;
  out["hits"] = stats.hits;
  out["misses"] = stats.misses;
  return out;
}

nb::list gpu_kernels(const PyExecutable& self, int ordinal) {
  const ProgramSpec& spec = self.executable().spec();
  if (spec.gpu == nullptr) throw nb::type_error((spec.name + " is compiled for the CPU").c_str());
  GpuDevice& device = checked_device(spec.gpu->platform, ordinal);
  Failure failure;
  std::vector<KernelAttributes> rows(spec.gpu->kernels.size());
  {
    const nb::gil_scoped_release without_gil;
    const LoadedProgram* const loaded = self.executable().loaded_on(device, &failure);
    for (size_t i = 0; loaded != nullptr && i < rows.size(); ++i) {
      if (!loaded->attributes(i, &rows[i], &failure)) break;
    }
  }
  if (failure.failed()) {
    raise_failure(spec.name, failure);
    throw nb::python_error();
  }
  nb::list all;
  for (size_t i = 0; i < rows.size(); ++i) {
    nb::dict row;
    row["name"] = spec.gpu->kernels[i].name;
    row["registers"] = rows[i].registers;
    row["local_bytes"] = rows[i].local_bytes;
    row["shared_bytes"] = rows[i].shared_bytes + spec.gpu->kernels[i].shared_bytes;
    row["max_threads"] = rows[i].max_threads;
    all.append(row);
  }
  return all;
}

void bind_gpu(nb::module_& m) {
  const nb::module_ ours = nb::module_::import_("shlo_disc.base.errors");
  errors().device = nb::object(ours.attr("DeviceError")).release().ptr();  // one reference for ever
  errors().internal = nb::object(ours.attr("InternalError")).release().ptr();

  nb::class_<GpuKernel>(m, "GpuKernel")
      .def("__init__", &init_gpu_kernel, nb::kw_only(), "symbol"_a, "image"_a, "threads"_a,
           "tasks_per_block"_a, "shared_bytes"_a, "args"_a, "by_value"_a = std::vector<size_t>(),
           "params"_a, "maps"_a = std::vector<MapRow>(), "name"_a, "source"_a = "");
  nb::class_<SharedGpuProgram>(m, "GpuProgram")
      .def("__init__", &init_gpu_program, nb::kw_only(), "platform"_a, "architecture"_a, "images"_a,
           "kernels"_a, "machine_code"_a = std::vector<nb::bytes>());

  nb::class_<GpuBridge, JaxBridge>(m, "GpuBridge")
      .def("__init__", &init_gpu_bridge, nb::kw_only(), "platform"_a, "ordinal"_a,
           "stream"_a.none(), "array_type"_a, "shaped_array"_a, "device"_a, "sharding"_a, "order"_a,
           "adopt"_a, "rewrap"_a, "to_host"_a, "collect_garbage"_a = nb::none(),
           "dlpack_device"_a = nb::none(), "waits"_a = false, "committed_name"_a = "_committed",
           "device_name"_a = "_device");
  m.def("ffi_learn_stream", [] { return nb::capsule(ffi_learn_stream_address()); });
  m.def("gpu_learned_stream", [](int ordinal) -> nb::object {
    void* stream = nullptr;
    if (!learned_stream(ordinal, &stream)) return nb::none();
    return nb::int_(reinterpret_cast<uintptr_t>(stream));
  }, "ordinal"_a);
  m.def("gpu_driver", &gpu_driver_facts, "platform"_a);
  m.def("gpu_devices", &gpu_devices, "platform"_a);
  m.def("gpu_check_architecture", [](const std::string& platform_name, const std::string& architecture, int device) {
    const GpuPlatform platform = checked_platform(platform_name);
    Failure failure;
    if (gpu_architecture_fits(platform, architecture, true, checked_device(platform, device), &failure)) return;
    raise_failure("", failure);
    throw nb::python_error();
  }, "platform"_a, "architecture"_a, "device"_a = 0);
  m.def("gpu_pool_stats", [](const std::string& platform, int device) {
    return pool_statistics(checked_device(checked_platform(platform), device).pool().stats());
  }, "platform"_a, "device"_a = 0);
  m.def("gpu_pool_trim", [](const std::string& platform, int device) {
    GpuPool& pool = checked_device(checked_platform(platform), device).pool();
    const nb::gil_scoped_release without_gil;
    return pool.trim();
  }, "platform"_a, "device"_a = 0);
}

}  // namespace shlo_disc
