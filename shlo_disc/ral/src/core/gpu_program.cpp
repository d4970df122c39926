#include "gpu_program.h"

#include <cstring>
#include <utility>

namespace shlo_disc {
namespace {

constexpr size_t kAlignment = 256;        // of constants
constexpr int64_t kUsualSharedBytes = 48 << 10;  // more has to be asked for
constexpr size_t kLogBytes = 4096;

// In PTX of a kernel that waits for the kernel in front of it.
constexpr char kWaitsForKernel[] = "griddepcontrol.wait;";

// CUjit_option.
constexpr int kErrorLog = 5;
constexpr int kErrorLogBytes = 6;

// "sm_90a": 90 and 'a'. Version 0: not of this form.
struct Capability {
  int version = 0;
  char suffix = 0;

  int major() const { return version / 10; }
};

Capability capability_of(const std::string& architecture) {
  constexpr char kPrefix[] = "sm_";
  Capability found;
  if (architecture.rfind(kPrefix, 0) != 0) return found;
  size_t i = sizeof(kPrefix) - 1;
  for (; i < architecture.size() && architecture[i] >= '0' && architecture[i] <= '9'; ++i) {
    found.version = found.version * 10 + (architecture[i] - '0');
  }
  if (i < architecture.size()) found.suffix = architecture[i];
  return found;
}

// Whether a device of architecture `have` runs code for `architecture`.
bool runs_on(GpuPlatform platform, const std::string& architecture, bool is_text,
             const std::string& have) {
  if (platform != GpuPlatform::kCuda) return architecture == have;
  const Capability want = capability_of(architecture), is = capability_of(have);
  if (want.suffix == 'a') return want.version == is.version;
  if (want.suffix == 'f' || !is_text) {  // of one family; machine code likewise
    return want.major() == is.major() && want.version <= is.version;
  }
  return want.version <= is.version;
}

bool is_text(const std::string& image) {
  return image.compare(0, 4, "\x7f" "ELF") != 0;
}

std::string kernel_text(const GpuKernel& kernel) {
  return "kernel " + kernel.name + (kernel.source.empty() ? "" : " (" + kernel.source + ")");
}

// Elements that tensor maps have, by name: CUtensorMapDataType and bytes. Copies of integers change
// no bits; those of tf32 round f32 to it.
struct MapElement {
  const char* name;
  int type;
  int bytes;
};
constexpr MapElement kMapElements[] = {{"f16", 1, 2}, {"bf16", 1, 2}, {"tf32", 11, 4}};

std::string map_mistake(const TensorMap& map, int64_t args, int64_t params) {
  const size_t rank = map.box.size();
  if (rank < 1 || rank > TensorMap::kMostRank || map.sizes.size() != rank || map.strides.size() != rank - 1) {
    return "a tensor map has one to five sizes, and a stride less";
  }
  std::vector<size_t> named = map.sizes;
  named.insert(named.end(), map.strides.begin(), map.strides.end());
  named.push_back(map.first);
  for (const size_t i : named) {
    if (i >= static_cast<size_t>(params)) return "a tensor map names a param that does not exist";
  }
  if (map.argument >= static_cast<size_t>(args)) return "a tensor map is of an argument that does not exist";
  return "";
}

}  // namespace

bool set_map_element(const std::string& name, TensorMap* map) {
  for (const MapElement& known : kMapElements) {
    if (name != known.name) continue;
    map->type = known.type;
    map->element_bytes = known.bytes;
    return true;
  }
  return false;
}

std::string gpu_kernel_mistake(const GpuKernel& kernel, size_t images) {
  constexpr int64_t kMostThreads = 1024, kMostShared = 1 << 20, kMostParameters = 4096;
  if (kernel.threads < 1 || kernel.threads > kMostThreads || kernel.tasks_per_block < 1 ||
      kernel.shared_bytes < 0 || kernel.shared_bytes > kMostShared || kernel.args < 0 || kernel.params < 0 ||
      kernel.args > kMostParameters || kernel.params > kMostParameters - kernel.args) {
    return "a number is out of range";
  }
  if (kernel.image >= images) return "it is in an image that does not exist";
  for (const size_t i : kernel.by_value) {
    if (i >= static_cast<size_t>(kernel.args)) return "by_value names an argument that does not exist";
  }
  for (const TensorMap& map : kernel.maps) {
    if (std::string mistake = map_mistake(map, kernel.args, kernel.params); !mistake.empty()) return mistake;
  }
  return "";
}

bool gpu_architecture_fits(GpuPlatform platform, const std::string& architecture, bool is_text,
                           const GpuDevice& device, Failure* failure) {
  const std::string& have = device.info().architecture;
  if (runs_on(platform, architecture, is_text, have)) return true;
  return failure->set(Failure::Kind::kDevice,
                      "the kernels are compiled for " + architecture + ", the device is " +
                          device.title() + "; compile with target='" +
                          gpu_platform_name(platform) + ":" + have + "'");
}

std::unique_ptr<LoadedProgram> LoadedProgram::load(
    const GpuProgram& program, GpuDevice& device,
    const std::vector<std::pair<const void*, size_t>>& constants, Failure* failure) {
  const GpuScope scope(device);
  std::unique_ptr<LoadedProgram> loaded(new LoadedProgram(device));
  const bool done = loaded->load_modules(program, failure) &&
                    loaded->find_kernels(program, failure) && loaded->upload(constants, failure);
  return done ? std::move(loaded) : nullptr;
}

LoadedProgram::~LoadedProgram() {
  const GpuScope scope(device_);
  device_.call().synchronize();  // its kernels may still run
  graphs_.reset();
  for (void* const module : modules_) {
    if (module != nullptr) device_.call().unload_module(module);
  }
}

bool LoadedProgram::load_modules(const GpuProgram& program, Failure* failure) {
  const size_t count = program.images.size();
  for (const std::string& image : program.images) {
    if (!gpu_architecture_fits(program.platform, program.architecture, is_text(image), device_,
                               failure)) {
      return false;
    }
  }
  // One after the other: the driver compiles PTX under one lock. On an H200 eight threads took
  // 2.7 s for what one took 2.3 s.
  modules_.assign(count, nullptr);
  for (size_t image = 0; image < count; ++image) {
    if (!load_module(program, image, failure)) return false;
  }
  return true;
}

bool LoadedProgram::load_module(const GpuProgram& program, size_t image, Failure* failure) {
  const GpuDriver& driver = device_.driver();
  const std::string& code = program.machine_code[image];
  if (!code.empty() && runs_on(program.platform, program.architecture, false,
                               device_.info().architecture)) {
    if (driver.call.load_module(&modules_[image], code.c_str(), 0, nullptr, nullptr) ==
        kGpuSuccess) {
      return true;
    }
    modules_[image] = nullptr;  // an older driver: it compiles the text
  }
  std::string log(kLogBytes, '\0');
  int names[] = {kErrorLog, kErrorLogBytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(kLogBytes)};
  const bool has_log = program.platform == GpuPlatform::kCuda;
  const int error = driver.call.load_module(&modules_[image], program.images[image].c_str(),
                                            has_log ? 2 : 0, names, values);
  if (error == kGpuSuccess) return true;
  modules_[image] = nullptr;
  std::string kernels;
  for (const GpuKernel& kernel : program.kernels) {
    if (kernel.image == image) kernels += (kernels.empty() ? "" : ", ") + kernel_text(kernel);
  }
  log.resize(std::strlen(log.c_str()));
  return driver.check(error,
                      device_.title() + " does not load " + kernels +
                          (log.empty() ? "" : " [" + log + "]"),
                      failure);
}

bool LoadedProgram::find_kernels(const GpuProgram& program, Failure* failure) {
  const GpuDriver& driver = device_.driver();
  for (const GpuKernel& kernel : program.kernels) {
    LoadedKernel loaded{&kernel, nullptr, std::vector<bool>(static_cast<size_t>(kernel.args))};
    for (const size_t i : kernel.by_value) loaded.by_value[i] = true;
    loaded.may_start_early = driver.call.launch_with != nullptr && gpu_overlaps_launches() &&
                             program.images[kernel.image].find(kWaitsForKernel) != std::string::npos;
    if (!driver.check(driver.call.get_function(&loaded.function, modules_[kernel.image],
                                               kernel.symbol.c_str()),
                      kernel_text(kernel) + " is not in its image", failure)) {
      return false;
    }
    if (!kernel.maps.empty() && driver.call.encode_tensor_map == nullptr) {
      return failure->set(Failure::Kind::kDevice,
                          "the driver " + driver.library + " makes no tensor maps for " +
                              kernel_text(kernel) + ": it is too old");
    }
    if (kernel.shared_bytes > kUsualSharedBytes && driver.call.set_function_attribute != nullptr &&
        !driver.check(driver.call.set_function_attribute(loaded.function,
                                                         kFunctionMaxDynamicSharedBytes,
                                                         static_cast<int>(kernel.shared_bytes)),
                      kernel_text(kernel) + " takes " + std::to_string(kernel.shared_bytes) +
                          " bytes of shared memory a block; " + device_.title() + " has " +
                          std::to_string(device_.info().shared_bytes),
                      failure)) {
      return false;
    }
    kernels_.push_back(std::move(loaded));
  }
  for (LoadedKernel& kernel : kernels_) kernel_pointers_.push_back(&kernel);
  return true;
}

bool LoadedProgram::upload(const std::vector<std::pair<const void*, size_t>>& constants,
                           Failure* failure) {
  const auto rounded = [](size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; };
  size_t total = 0;
  for (const auto& [data, bytes] : constants) total += rounded(bytes);
  if (total == 0) {
    constants_.assign(constants.size(), nullptr);
    return true;
  }
  constant_block_ =
      ScopedGpuBlock(device_.acquire(static_cast<int64_t>(total), Hold::kResult, device_.stream(),
                                     nullptr, "constants of the program", failure));
  auto* to = static_cast<char*>(constant_block_.data());
  if (to == nullptr) return false;
  for (const auto& [data, bytes] : constants) {
    constants_.push_back(to);
    if (bytes != 0 && !device_.driver().check(
                          device_.call().copy_to_device(to, data, bytes, device_.stream()),
                          "constants cannot be copied to " + device_.title(), failure)) {
      return false;
    }
    to += rounded(bytes);
  }
  return device_.wait(device_.stream(), "when constants are copied", failure);
}

bool LoadedProgram::attributes(size_t kernel, KernelAttributes* out, Failure* failure) const {
  const GpuScope scope(device_);
  const std::pair<int, int*> wanted[] = {{kFunctionRegisters, &out->registers},
                                         {kFunctionLocalBytes, &out->local_bytes},
                                         {kFunctionSharedBytes, &out->shared_bytes},
                                         {kFunctionMaxThreads, &out->max_threads}};
  for (const auto& [attribute, value] : wanted) {
    if (!device_.driver().check(
            device_.call().function_attribute(value, attribute, kernels_[kernel].function),
            kernel_text(*kernels_[kernel].kernel), failure)) {
      return false;
    }
  }
  return true;
}

const LoadedProgram* LoadedPrograms::on(
    GpuDevice& device, const std::vector<std::pair<const void*, size_t>>& constants,
    Failure* failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = loaded_.find(&device);
  if (found != loaded_.end()) return found->second.get();
  std::unique_ptr<LoadedProgram> made =
      LoadedProgram::load(program_, device, constants, failure);
  if (made == nullptr) return nullptr;
  return loaded_.emplace(&device, std::move(made)).first->second.get();
}

}  // namespace shlo_disc
