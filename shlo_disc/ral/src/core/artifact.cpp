#include "artifact.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <stdexcept>
#include <utility>
#include <vector>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

#include "lapack.h"
#include "object_code.h"
#include "safetensors.h"
#include "thread_pool.h"

namespace shlo_disc {
namespace {

#if defined(__x86_64__)
constexpr char kMachine[] = "x86-64";
#elif defined(__aarch64__)
constexpr char kMachine[] = "aarch64";
#else
constexpr char kMachine[] = "unknown";
#endif

// True if this processor has a feature and the system saves its registers. Names are LLVM's.
bool has_feature(const std::string& name) {
#if defined(__x86_64__)
#define FEATURE(name) {name, __builtin_cpu_supports(name) != 0}
  static const std::map<std::string, bool> features = {
      FEATURE("sse3"), FEATURE("ssse3"), FEATURE("sse4.1"), FEATURE("sse4.2"), FEATURE("popcnt"),
      FEATURE("avx"), FEATURE("avx2"), FEATURE("bmi"), FEATURE("bmi2"), FEATURE("f16c"), FEATURE("fma"),
      FEATURE("lzcnt"), FEATURE("movbe"), FEATURE("avx512f"), FEATURE("avx512bw"), FEATURE("avx512cd"),
      FEATURE("avx512dq"), FEATURE("avx512vl"), FEATURE("avx512vnni"), FEATURE("avx512bf16"),
  };
#undef FEATURE
#elif defined(__aarch64__)
  static const std::map<std::string, bool> features = {
      {"neon", (getauxval(AT_HWCAP) & HWCAP_ASIMD) != 0},
      {"fullfp16", (getauxval(AT_HWCAP) & HWCAP_ASIMDHP) != 0},
      {"sve", (getauxval(AT_HWCAP) & HWCAP_SVE) != 0},
  };
#else
  static const std::map<std::string, bool> features;
#endif
  const auto found = features.find(name);
  return found != features.end() && found->second;
}

// Why this processor cannot run a target; empty: it can.
std::string obstacle(const Manifest::Target& target) {
  if (target.machine != kMachine) return "is for " + target.machine + ", this is " + kMachine;
  for (const std::string& name : target.features) {
    if (!has_feature(name)) return "needs " + name + ", which this processor has not";
  }
  return "";
}

// The kernels of a target for GPUs; null: it is of the processor alone.
const Manifest::Device* device_of(const Manifest& manifest, const Manifest::Target& target) {
  for (const Manifest::Device& device : manifest.devices) {
    if (&manifest.targets[device.target] == &target) return &device;
  }
  return nullptr;
}

// The GPU that runs kernels; null with `why` set.
GpuDevice* opened(const Manifest::Device& kernels, int ordinal, std::string* why) {
  Failure failure;
  GpuDevice* const found = GpuDevice::get(kernels.platform, ordinal, &failure);
  if (found != nullptr && gpu_architecture_fits(kernels.platform, kernels.architecture, true, *found, &failure)) {
    return found;
  }
  *why = "does not run: " + failure.message;
  return nullptr;
}

// The first row of a target. `device`: the GPU that it runs on.
const Manifest::Target& chosen(const Manifest& manifest, const ArtifactOptions& options, GpuDevice** device) {
  std::string why;
  for (size_t i = 0; i < manifest.targets.size(); i += manifest.parts.size()) {
    const Manifest::Target& target = manifest.targets[i];
    if (!options.target.empty() && target.name != options.target) continue;
    std::string without = obstacle(target);
    const Manifest::Device* const kernels = device_of(manifest, target);
    if (without.empty() && kernels != nullptr) *device = opened(*kernels, options.device, &without);
    if (without.empty()) {
      if (options.log) options.log("loading target " + target.name);
      return target;
    }
    const std::string told = "target " + target.name + " " + without;
    if (options.log) options.log(told);
    why += (why.empty() ? "" : "; ") + told;
  }
  if (why.empty()) {
    why = options.target.empty() ? "it has no targets" : "it has no target " + options.target + ", but";
    for (size_t i = 0; i < manifest.targets.size(); i += manifest.parts.size()) why += " " + manifest.targets[i].name;
  }
  throw ArtifactError(ArtifactError::kNoTarget, why);
}

// Bytes of a file as long as this object lives.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not wait
    if (file < 0) fail(errno);
    struct stat status;
    const bool is_known = fstat(file, &status) == 0;
    const bool is_file = is_known && S_ISREG(status.st_mode);
    const bool is_open_to_all = is_known && (status.st_mode & S_IWOTH) != 0;
    int error = 0;
    if (is_file && !is_open_to_all && status.st_size > 0) {
      bytes_ = static_cast<size_t>(status.st_size);
      data_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
      if (data_ == MAP_FAILED) error = errno;
    }
    close(file);
    if (error != 0) fail(error);
    if (!is_file) throw ArtifactError(ArtifactError::kFile, "it is no regular file");
    if (is_open_to_all) {
      throw ArtifactError(ArtifactError::kFile,
                          "everyone may write to it, so its code is not run; chmod o-w");
    }
  }
  ~MappedFile() {
    if (bytes_ != 0) munmap(data_, bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view bytes() const { return {static_cast<const char*>(data_), bytes_}; }

 private:
  [[noreturn]] static void fail(int error) { throw ArtifactError(ArtifactError::kFile, std::strerror(error)); }

  void* data_ = nullptr;
  size_t bytes_ = 0;
};

constexpr size_t kWorthThreads = size_t{1} << 18;  // bytes that take 0.3 ms to check
constexpr ptrdiff_t kPadding = 64;  // masked code may read so many bytes behind a constant

std::string typed(const std::string& dtype, const std::vector<int64_t>& sizes) {
  std::string text = dtype + "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(sizes[i]);
  return text + "]";
}

// The tensors of the file beside an artifact.
class WeightsFile {
 public:
  explicit WeightsFile(const std::string& path)
      : file_(std::make_shared<const MappedFile>(path)), tensors_(read_safetensors(file_->bytes())) {}

  // The tensor that `row` tells of, whose elements are not checked.
  std::string_view find(const Manifest::Tensor& row) const {
    const auto found = tensors_.find(row.name);
    if (found == tensors_.end()) refuse("it has no tensor " + row.name);
    const StoredTensor& tensor = found->second;
    if (tensor.dtype != row.dtype || tensor.sizes != row.sizes || tensor.data.size() != row.bytes) {
      refuse(row.name + " is " + typed(tensor.dtype, tensor.sizes) + ", the artifact takes " +
             typed(row.dtype, row.sizes));
    }
    return tensor.data;
  }

  const std::shared_ptr<const MappedFile>& file() const { return file_; }

  [[noreturn]] static void refuse(const std::string& why) {
    throw ArtifactError(ArtifactError::kDamaged, why);
  }

 private:
  const std::shared_ptr<const MappedFile> file_;
  const std::map<std::string, StoredTensor> tensors_;
};

// What a program of an artifact runs.
struct TargetCode {
  LoadedCode code;
  std::deque<KernelCell> cells;  // which do not move
};

class Loader {
 public:
  // `folder`: of the artifact, with a slash behind it; null: it is in memory.
  Loader(std::string_view file, std::shared_ptr<const void> owner, const std::string* folder,
         const ArtifactOptions& options)
      : container_(file), owner_(std::move(owner)), folder_(folder), options_(options) {}

  std::unique_ptr<Artifact> load() {
    auto out = std::make_unique<Artifact>();
    out->manifest = read_manifest(container_.manifest());
    const Manifest& manifest = out->manifest;
    check_members(manifest);
    const Manifest::Target* const first = &chosen(manifest, options_, &out->device);
    is_checked_.resize(manifest.members.size());
    is_tensor_checked_.resize(manifest.tensors.size());
    out->target = first + manifest.last();
    for (size_t i = 0; i < manifest.parts.size(); ++i) out->programs.push_back(program(manifest, i, first));
    return out;
  }

 private:
  [[noreturn]] static void refuse(const std::string& why) {
    throw ArtifactError(ArtifactError::kDamaged, why);
  }

  // Program `index` of the target whose rows begin at `first`.
  std::unique_ptr<Executable> program(const Manifest& manifest, size_t index, const Manifest::Target* first) {
    const Manifest::Target& target = first[index];
    for (const Manifest::Span& span : target.objects) check_digest(manifest, span.member);
    if (const Manifest::Device* const kernels = device_of(manifest, target)) {
      for (const Manifest::Span& span : kernels->images) check_digest(manifest, span.member);
      for (const Manifest::Span& span : kernels->machine_code) check_digest(manifest, span.member);
    }
    if (!options_.trusts_constants) check_constants(manifest, target);
    auto out = std::make_unique<Executable>(spec_of(manifest, index, first));
    for (const Manifest::Span& span : target.constants) {
      if (span.member < 0) {
        add_tensor(manifest, manifest.tensors[static_cast<size_t>(-1 - span.member)], *out);
        continue;
      }
      const std::string_view data = data_of(span);
      // The directory of the file, or the copy's padding, is what masked code may read behind it.
      const auto memory = folder_ == nullptr ? Executable::Memory::kKept : Executable::Memory::kMappedFile;
      if (!out->add_constant(data.data(), data.size(), owner_, memory)) throw std::bad_alloc();
    }
    for (const Manifest::Pack& pack : manifest.packs) {
      if (&manifest.targets[pack.target] != &target) continue;
      const std::string_view data = data_of(pack.data);
      out->add_pack(pack.constant, pack.slot, data.data(), data.size(), owner_);
    }
    return out;
  }

  std::string_view data_of(const Manifest::Span& span) const {
    return container_.members()[static_cast<size_t>(span.member)].data.substr(span.offset, span.bytes);
  }

  // A member or a tensor.
  struct Unchecked {
    std::string_view data;
    const Digest* digest;
    std::string name;
    bool is_member;
    bool is_right = false;
  };

  // Checks the digests of all constants and packed copies of a program: several threads at once, since reading them
  // takes longest.
  void check_constants(const Manifest& manifest, const Manifest::Target& target) {
    std::vector<Unchecked> all;
    const auto add = [&](const Manifest::Span& span) {
      const auto index = static_cast<size_t>(span.member < 0 ? -1 - span.member : span.member);
      if (span.member >= 0) {
        if (is_checked_[index]) return;
        is_checked_[index] = true;
        const Container::Member& member = container_.members()[index];
        all.push_back({member.data, &manifest.members[index].digest, std::string(member.name), true});
      } else if (!is_tensor_checked_[index]) {
        is_tensor_checked_[index] = true;
        const Manifest::Tensor& row = manifest.tensors[index];
        all.push_back({tensor(manifest, row), &row.digest, row.name, false});
      }
    };
    for (const Manifest::Span& span : target.constants) add(span);
    for (const Manifest::Pack& pack : manifest.packs) {
      if (&manifest.targets[pack.target] == &target) add(pack.data);
    }
    const auto check = [](void* const* args, const int64_t*, int64_t lo, int64_t hi, void*) {
      for (int64_t i = lo; i < hi; ++i) {
        Unchecked& one = static_cast<Unchecked*>(args[0])[i];
        one.is_right = blake2b(one.data) == *one.digest;
      }
    };
    void* const args[] = {all.data()};
    const auto count = static_cast<int64_t>(all.size());
    size_t bytes = 0;
    for (const Unchecked& one : all) bytes += one.data.size();
    if (bytes < kWorthThreads || !parallel_for(check, args, nullptr, count, 1, 0)) check(args, nullptr, 0, count, nullptr);
    for (const Unchecked& one : all) {
      // Calls may need the copies alone, or few rows.
      if (folder_ != nullptr || !one.is_member) drop_file_pages(one.data.data(), one.data.size());
      if (one.is_right) continue;
      if (one.is_member) refuse(one.name + " has a wrong digest");
      in_weights(manifest, [&] { WeightsFile::refuse(one.name + " has other elements than those that were saved"); });
    }
  }

  // Does something with the weights file, which errors then name.
  template <typename Do>
  void in_weights(const Manifest& manifest, const Do& act) {
    if (folder_ == nullptr) {
      throw ArtifactError(ArtifactError::kFile, "its weights are in " + manifest.weights_file +
                                                    ", in a folder that an artifact in memory has not");
    }
    const std::string path = *folder_ + manifest.weights_file;
    try {
      if (weights_ == nullptr) weights_ = std::make_unique<WeightsFile>(path);
      act();
    } catch (const ArtifactError& error) {
      throw ArtifactError(error.kind, "its weights in " + path + ": " + error.what());
    }
  }

  std::string_view tensor(const Manifest& manifest, const Manifest::Tensor& row) {
    std::string_view found;
    in_weights(manifest, [&] { found = weights_->find(row); });
    return found;
  }

  void add_tensor(const Manifest& manifest, const Manifest::Tensor& row, Executable& executable) {
    const std::string_view data = tensor(manifest, row);
    const std::string_view file = weights_->file()->bytes();
    const ptrdiff_t behind = file.data() + file.size() - (data.data() + data.size());
    const auto memory = behind >= kPadding ? Executable::Memory::kMappedFile : Executable::Memory::kPassing;
    if (!executable.add_constant(data.data(), data.size(), weights_->file(), memory)) throw std::bad_alloc();
  }

  void check_members(const Manifest& manifest) const {
    const auto& members = container_.members();
    const bool are_same = std::equal(
        members.begin(), members.end(), manifest.members.begin(), manifest.members.end(),
        [](const Container::Member& member, const Manifest::Member& row) {
          return member.name == row.name && member.data.size() == row.bytes;
        });
    if (!are_same) refuse("the members are not those that the manifest names");
  }

  void check_digest(const Manifest& manifest, int64_t index) {
    const auto member = static_cast<size_t>(index);
    if (is_checked_[member]) return;
    is_checked_[member] = true;
    const Container::Member& found = container_.members()[member];
    if (blake2b(found.data) == manifest.members[member].digest) return;
    refuse(std::string(found.name) + " has a wrong digest");
  }

  std::shared_ptr<TargetCode> loaded(const Manifest::Target& target) const {
    std::vector<std::string_view> files;
    for (const Manifest::Span& span : target.objects) files.push_back(data_of(span));
    try {
      return std::shared_ptr<TargetCode>(new TargetCode{LoadedCode(files), {}});
    } catch (const ObjectCodeError& error) {
      refuse("the code of " + target.name + ": " + error.what());
    }
  }

  ProgramSpec spec_of(const Manifest& manifest, size_t index, const Manifest::Target* first) const {
    const Manifest::Target& target = first[index];
    const Manifest::Part& part = manifest.parts[index];
    const std::shared_ptr<TargetCode> code = loaded(target);
    std::map<std::pair<size_t, std::string_view>, uintptr_t> known;
    for (const LoadedCode::Function& function : code->code.functions()) {
      known.emplace(std::pair(function.file, std::string_view(function.name)), function.address);
    }
    const auto cell = [&](const Manifest::Function& function) {
      const auto found = known.find({function.object, function.name});
      if (found == known.end()) refuse("the code of " + target.name + " has no " + function.name);
      return &code->cells.emplace_back(reinterpret_cast<disc_kernel>(found->second));
    };
    ProgramSpec spec;
    spec.name = part.name;
    spec.host_prepare = cell(target.prepare);
    spec.host_run = cell(target.run);
    for (const Manifest::Function& kernel : target.kernels) spec.kernels.push_back(cell(kernel));
    spec.make_kernel = [](int64_t, bool, std::string* message) {
      *message = "the artifact has no code of it";
      return false;
    };
    spec.code = code;
    for (const Manifest::Argument& argument : part.arguments) {
      spec.arguments.push_back({argument.dtype, argument.sizes, argument.name});
    }
    for (const size_t i : target.packable) spec.arguments[i].packable = true;
    for (const size_t i : target.donated) spec.arguments[i].donated = true;
    for (const size_t i : target.unread) spec.arguments[i].unread = true;
    if (index == manifest.last()) tell_of_all(manifest, first, spec);
    for (const Manifest::Result& result : part.results) {
      spec.results.push_back({result.dtype, static_cast<int64_t>(result.texts.size())});
    }
    spec.symbols = target.symbols;
    spec.size_arguments = target.size_arguments;
    spec.reuses = target.reuses;
    spec.donates = !target.donated.empty();
    spec.pack_layouts = target.pack_layouts;
    spec.guards = target.guards;
    if (const Manifest::Device* const kernels = device_of(manifest, target)) spec.gpu = gpu_program(*kernels);
    for (const Manifest::Foreign& row : manifest.foreign) {
      if (&manifest.targets[row.target] == &target) spec.foreign.push_back(foreign_call(row));
    }
    return spec;
  }

  // A call of the handler that was given, or of LAPACK.
  std::shared_ptr<const ForeignCall> foreign_call(const Manifest::Foreign& row) const {
    ForeignSpec spec = row.call;
    const std::string title = spec.where + ": FFI target @" + spec.target + " cannot be called: ";
    try {
      const auto given = options_.handlers.find(spec.target);
      if (given != options_.handlers.end()) {
        spec.handlers = given->second;
      } else if (spec.is_lapack()) {
        use_lapack(&spec, options_.lapack);
      } else {
        throw std::runtime_error("its handler was not given: give it by this name in disc_options.handlers "
                                 "(handlers={'" + spec.target + "': ...} in Python)");
      }
      static constexpr const char* kStageNames[] = {"instantiate", "prepare", "initialize", "execute"};
      const auto require = [&spec](size_t stage) {
        if (spec.handlers[stage] != nullptr) return;
        throw std::runtime_error(std::string("it needs a handler of the stage ") + kStageNames[stage] +
                                 ", which was not given");
      };
      for (const size_t stage : row.stages) require(stage);
      require(static_cast<size_t>(xla_ffi::Stage::kExecute));  // else results would be what memory held
      return std::make_shared<const ForeignCall>(std::move(spec));
    } catch (const std::runtime_error& error) {
      throw ArtifactError(ArtifactError::kNoHandler, title + error.what());
    }
  }

  // Has the last program tell of the arguments of the call what holds for all programs, and steps.
  static void tell_of_all(const Manifest& manifest, const Manifest::Target* first, ProgramSpec& last) {
    const size_t count = manifest.arguments.size();
    std::vector<bool> is_read(count);
    for (const auto* target = first; target != first + manifest.parts.size(); ++target) {
      std::vector<bool> is_read_here(count, true);
      for (const size_t i : target->unread) {
        if (i < count) is_read_here[i] = false;
      }
      for (size_t i = 0; i < count; ++i) is_read[i] = is_read[i] || is_read_here[i];
      for (const size_t i : target->packable) {
        if (i < count) last.arguments[i].packable = true;
      }
    }
    for (const Manifest::Step& step : manifest.steps) {
      if (step.kind == Manifest::Step::kBranches && step.number < count) is_read[step.number] = true;
      if (step.kind != Manifest::Step::kLoop) continue;
      for (const size_t i : step.numbers) {
        if (i < count) is_read[i] = true;
      }
    }
    for (size_t i = 0; i < count; ++i) last.arguments[i].unread = !is_read[i];
  }

  std::shared_ptr<const GpuProgram> gpu_program(const Manifest::Device& device) const {
    auto out = std::make_shared<GpuProgram>();
    out->platform = device.platform;
    out->architecture = device.architecture;
    for (const Manifest::Span& span : device.images) out->images.emplace_back(data_of(span));
    for (const Manifest::Span& span : device.machine_code) out->machine_code.emplace_back(data_of(span));
    out->kernels = device.kernels;
    return out;
  }

  const Container container_;
  const std::shared_ptr<const void> owner_;
  const std::string* const folder_;
  const ArtifactOptions& options_;
  std::unique_ptr<const WeightsFile> weights_;  // once a constant is there
  std::vector<bool> is_checked_;         // members
  std::vector<bool> is_tensor_checked_;
};

}  // namespace

std::unique_ptr<Artifact> open_artifact(const std::string& path, const ArtifactOptions& options) {
  try {
    const auto file = std::make_shared<const MappedFile>(path);
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    return Loader(file->bytes(), file, &folder, options).load();
  } catch (const ArtifactError& error) {
    throw ArtifactError(error.kind, path + ": " + error.what());
  }
}

std::unique_ptr<Artifact> open_artifact_in(std::string_view file, const ArtifactOptions& options) {
  return Loader(file, nullptr, nullptr, options).load();
}

}  // namespace shlo_disc
