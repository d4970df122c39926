#include "manifest.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "container.h"
#include "ffi_types.h"
#include "parts.h"
#include "utf8.h"

namespace shlo_disc {
namespace {

constexpr std::string_view kMagic = "\x93" "discmf\n";
constexpr int64_t kVersion = 4;
constexpr int64_t kMostSymbols = 1 << 20;
constexpr int64_t kMostSizeElements = 1 << 20;
constexpr int64_t kMostDimensions = 64;  // of an array that a handler is given
constexpr int kMostDictionaries = 64;    // one in the other

[[noreturn]] void refuse(const std::string& why) {
  throw ArtifactError(ArtifactError::kDamaged, "the manifest: " + why);
}

// Reads values one after the other, by the rules of manifest.py.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}

  int64_t number() {
    int64_t value;
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }
  int64_t number(int64_t least, int64_t most) {
    const int64_t value = number();
    if (value < least || value > most) refuse("a number out of bounds");
    return value;
  }
  size_t index(size_t count) {
    const int64_t value = number();
    if (value < 0 || static_cast<uint64_t>(value) >= count) refuse("an index out of bounds");
    return static_cast<size_t>(value);
  }
  // Each element takes 8 bytes at least.
  size_t count() { return index(rest_.size() / 8 + 1); }
  std::string_view bytes(size_t size) {
    if (size > rest_.size()) refuse("truncated");
    const std::string_view out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }
  // C programs read it, so it has no null; those of Python decode it.
  std::string text() {
    const std::string found = some_bytes();
    if (found.find('\0') != found.npos) refuse("a null in a text");
    if (!is_utf8(found)) refuse("a text that is not UTF-8");
    return found;
  }
  std::string some_bytes() { return std::string(bytes(index(rest_.size() + 1))); }
  template <typename Read>
  auto all(const Read& read) {
    std::vector<decltype(read())> out;
    for (size_t count = this->count(); count != 0; --count) out.push_back(read());
    return out;
  }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

class ManifestReader {
 public:
  explicit ManifestReader(std::string_view data) : in_(data) {}

  Manifest read() {
    if (in_.bytes(kMagic.size()) != kMagic) refuse("none of shlo_disc");
    const int64_t version = in_.number();
    out_.compiler = in_.text();
    if (version > kVersion) {
      throw ArtifactError(ArtifactError::kNewer,
                          "it has format " + std::to_string(version) + ", of " + out_.compiler +
                              "; this runtime reads up to format " + std::to_string(kVersion));
    }
    if (version < 1) refuse("an unknown format");
    out_.members = in_.all([this] { return member(); });
    out_.name = in_.text();
    out_.arguments = in_.all([this] { return argument(); });
    out_.results = in_.all([this] { return result(); });
    out_.targets = in_.all([this] { return target(); });
    if (version >= 2) {
      out_.weights_file = in_.text();
      out_.tensors = in_.all([this] { return tensor(); });
      out_.packs = in_.all([this] { return pack(); });
    }
    if (version >= 3) {
      out_.parts = in_.all([this] { return part(); });
      out_.steps = in_.all([this] { return step(); });
      out_.devices = in_.all([this] { return device(); });
    }
    if (version >= 4) out_.foreign = in_.all([this] { return foreign(); });
    if (!in_.at_end()) refuse("bytes behind its end");
    if (out_.parts.empty() && out_.steps.empty()) {
      out_.parts.push_back({out_.name, out_.arguments, out_.results});
      out_.steps.push_back({Manifest::Step::kProgram, 0, {}, {}, ""});
      out_.steps.push_back({Manifest::Step::kSequence, 0, {0}, {}, ""});
    }
    check_steps(out_);
    check_targets();
    check_weights();
    return std::move(out_);
  }

 private:
  Manifest::Member member() {
    Manifest::Member out;
    out.name = in_.text();
    out.bytes = static_cast<size_t>(in_.number(0, INT64_MAX));
    out.digest = digest();
    return out;
  }

  Manifest::Tensor tensor() {
    Manifest::Tensor out;
    out.name = in_.text();
    out.dtype = in_.text();
    out.sizes = in_.all([this] { return in_.number(0, INT64_MAX); });
    out.bytes = static_cast<size_t>(in_.number(0, INT64_MAX));
    out.digest = digest();
    return out;
  }

  Digest digest() {
    Digest out;
    if (in_.number() != static_cast<int64_t>(sizeof(Digest))) refuse("an unknown digest");
    std::memcpy(out.data(), in_.bytes(sizeof(Digest)).data(), sizeof(Digest));
    return out;
  }

  Manifest::Span span() { return span_of(in_.index(out_.members.size())); }

  Manifest::Span span_of(size_t member) {
    Manifest::Span out;
    out.member = static_cast<int64_t>(member);
    const size_t bytes = out_.members[member].bytes;
    out.offset = in_.index(bytes + 1);
    out.bytes = in_.index(bytes - out.offset + 1);
    return out;
  }

  // A part of a member, or a tensor, of which only check_weights() knows.
  Manifest::Span constant() {
    const int64_t member = in_.number();
    if (member >= 0) {
      if (static_cast<uint64_t>(member) >= out_.members.size()) refuse("an index out of bounds");
      return span_of(static_cast<size_t>(member));
    }
    const auto offset = static_cast<size_t>(in_.number(0, 0));
    return {member, offset, static_cast<size_t>(in_.number(0, INT64_MAX))};
  }

  Manifest::Pack pack() {
    Manifest::Pack out;
    out.target = in_.index(out_.targets.size());
    const Manifest::Target& target = out_.targets[out.target];
    out.constant = in_.index(target.constants.size());
    out.slot = in_.index(target.pack_layouts.size());
    out.data = span();
    return out;
  }

  Manifest::Device device() {
    Manifest::Device out;
    out.target = in_.index(out_.targets.size());
    if (!out_.targets[out.target].kernels.empty()) refuse("a target with kernels of two kinds");
    if (!gpu_platform_of(in_.text(), &out.platform)) refuse("an unknown platform");
    out.architecture = in_.text();
    out.images = in_.all([this] { return span(); });
    out.machine_code = in_.all([this] { return span(); });
    if (out.machine_code.size() != out.images.size()) refuse("an image without machine code");
    out.kernels = in_.all([this] { return kernel(); });
    for (const GpuKernel& kernel : out.kernels) {
      const std::string mistake = gpu_kernel_mistake(kernel, out.images.size());
      if (!mistake.empty()) refuse("kernel " + kernel.name + ": " + mistake);
    }
    return out;
  }

  std::vector<size_t> places() {
    return in_.all([this] { return static_cast<size_t>(in_.number(0, INT32_MAX)); });
  }

  GpuKernel kernel() {
    GpuKernel out;
    out.symbol = in_.text();
    out.image = static_cast<size_t>(in_.number(0, INT32_MAX));
    out.threads = in_.number();
    out.tasks_per_block = in_.number();
    out.shared_bytes = in_.number();
    out.args = in_.number();
    out.by_value = in_.all([this] {
      if (in_.number() != 2) refuse("no pair");
      const auto place = static_cast<size_t>(in_.number(0, INT32_MAX));
      in_.number();  // bytes
      return place;
    });
    out.params = in_.number();
    out.maps = in_.all([this] { return map(); });
    out.name = in_.text();
    out.source = in_.text();
    return out;
  }

  TensorMap map() {
    TensorMap out;
    out.argument = static_cast<size_t>(in_.number(0, INT32_MAX));
    if (!set_map_element(in_.text(), &out)) refuse("an unknown element of a tensor map");
    out.box = in_.all([this] { return static_cast<uint32_t>(in_.number(1, UINT32_MAX)); });
    out.first = static_cast<size_t>(in_.number(0, INT32_MAX));
    out.sizes = places();
    out.strides = places();
    return out;
  }

  // The file is in the folder of the artifact, and every constant that is a tensor is one.
  void check_weights() const {
    const std::string& name = out_.weights_file;
    const bool is_file = name.find('/') == name.npos && name != "." && name != "..";
    if (name.empty() != out_.tensors.empty() || !is_file) refuse("its weights are in no file beside it");
    for (const Manifest::Target& target : out_.targets) {
      for (const Manifest::Span& span : target.constants) {
        if (span.member >= 0) continue;
        const auto index = static_cast<size_t>(-1 - span.member);
        if (index >= out_.tensors.size()) refuse("an index out of bounds");
        if (span.bytes != out_.tensors[index].bytes) refuse("a constant is no whole tensor");
      }
    }
  }

  DType dtype() {
    const DType found = dtype_from_name(in_.text());
    if (found == DType::kOther) refuse("an unknown dtype");
    return found;
  }

  std::vector<std::string> texts() {
    return in_.all([this] { return in_.text(); });
  }

  Manifest::Argument argument() {
    Manifest::Argument out;
    out.name = in_.text();
    out.dtype = dtype();
    out.sizes = in_.all([this] { return in_.number(-1, INT64_MAX); });
    out.texts = texts();
    if (out.texts.size() != out.sizes.size()) refuse("a size without a text");
    return out;
  }

  Manifest::Result result() {
    Manifest::Result out;
    out.name = in_.text();
    out.dtype = dtype();
    out.texts = texts();
    return out;
  }

  Manifest::Part part() {
    Manifest::Part out;
    out.name = in_.text();
    out.arguments = in_.all([this] { return argument(); });
    out.results = in_.all([this] { return result(); });
    return out;
  }

  Manifest::Step step() {
    static const std::string kKinds[] = {"program", "sequence", "branches", "loop", "guarded", "impossible"};
    const auto* const found = std::find(std::begin(kKinds), std::end(kKinds), in_.text());
    if (found == std::end(kKinds)) refuse("an unknown kind of step");
    Manifest::Step out;
    out.kind = static_cast<Manifest::Step::Kind>(found - kKinds);
    out.number = plain_index();
    out.steps = indices();
    out.numbers = indices();
    out.text = in_.text();
    return out;
  }

  Manifest::Foreign foreign() {
    Manifest::Foreign out;
    out.target = in_.index(out_.targets.size());
    out.call.target = in_.text();
    out.call.where = in_.text();
    out.call.is_on_device = in_.number(0, 1) != 0;
    const auto is_it = [&out](const Manifest::Device& device) { return device.target == out.target; };
    if (out.call.is_on_device && std::none_of(out_.devices.begin(), out_.devices.end(), is_it)) {
      refuse("a handler of GPUs in a program of the processor");
    }
    out.stages = in_.all([this] { return in_.index(xla_ffi::kStages); });
    const auto buffer = [this] { return ForeignBuffer{dtype(), in_.number(0, kMostDimensions)}; };
    out.call.operands = in_.all(buffer);
    out.call.results = in_.all(buffer);
    out.call.attributes = attributes(kMostDictionaries);
    out.call.size_attributes = in_.all([this, &out] {
      const size_t index = in_.index(out.call.attributes.size());
      if (out.call.attributes[index].type != xla_ffi::AttributeType::kScalar) refuse("a size is no scalar");
      return index;
    });
    return out;
  }

  // `depth`: the dictionaries that may be in each other here.
  std::vector<ForeignAttribute> attributes(int depth) {
    return in_.all([this, depth] { return attribute(depth); });
  }

  ForeignAttribute attribute(int depth) {
    using Type = xla_ffi::AttributeType;
    ForeignAttribute out;
    out.name = in_.text();
    out.type = static_cast<Type>(in_.number(1, 4));
    out.dtype = static_cast<xla_ffi::DataType>(in_.number(0, INT32_MAX));
    out.size = static_cast<size_t>(in_.number(0, INT64_MAX));
    out.bytes = in_.some_bytes();
    if (depth == 0) refuse("too many dictionaries in each other");
    out.entries = attributes(depth - 1);
    if (out.type != Type::kDictionary && !out.entries.empty()) refuse("an attribute with entries is no dictionary");
    if (out.type == Type::kScalar || out.type == Type::kArray) {
      const auto item = static_cast<size_t>(dtype_bytes(dtype_of(out.dtype)));
      const bool is_one = out.type == Type::kArray || out.size == 1;
      if (item == 0 || !is_one || out.bytes.size() % item != 0 || out.bytes.size() / item != out.size) {
        refuse("an attribute has other bytes than its type");
      }
    }
    return out;
  }

  // What it is an index of is read later.
  size_t plain_index() { return in_.index(SIZE_MAX); }
  std::vector<size_t> indices() {
    return in_.all([this] { return plain_index(); });
  }

  // Each target has a row for each program, whose indices are of its arguments and results.
  void check_targets() const {
    const size_t programs = out_.parts.size();
    if (out_.targets.size() % programs != 0) refuse("a target lacks programs");
    std::vector<const Manifest::Device*> kernels(out_.targets.size());
    for (const Manifest::Device& device : out_.devices) {
      if (std::exchange(kernels[device.target], &device) != nullptr) refuse("a target has kernels twice");
    }
    for (size_t i = 0; i < out_.targets.size(); ++i) {
      const Manifest::Target& target = out_.targets[i];
      const Manifest::Target& first = out_.targets[i - i % programs];
      if (target.name != first.name || target.machine != first.machine || target.features != first.features) {
        refuse("the programs of a target are for several machines");
      }
      const Manifest::Device* const here = kernels[i];
      const Manifest::Device* const there = kernels[i - i % programs];
      if ((here == nullptr) != (there == nullptr) ||
          (here != nullptr && (here->platform != there->platform || here->architecture != there->architecture))) {
        refuse("the programs of a target are for several GPUs");
      }
      const auto& arguments = out_.parts[i % programs].arguments;
      const auto& results = out_.parts[i % programs].results;
      const auto check = [](size_t index, size_t count) {
        if (index >= count) refuse("an index out of bounds");
      };
      for (const auto* indices : {&target.size_arguments, &target.packable, &target.donated, &target.unread}) {
        for (const size_t index : *indices) check(index, arguments.size());
      }
      for (const auto& [argument, result] : target.reuses) {
        check(argument, arguments.size());
        check(result, results.size());
      }
      for (const size_t index : target.size_arguments) check_size_argument(arguments[index]);
    }
  }

  static void check_size_argument(const Manifest::Argument& argument) {
    int64_t elements = 1;
    for (const int64_t size : argument.sizes) {
      if (size < 0 || __builtin_mul_overflow(elements, size, &elements) || elements > kMostSizeElements) {
        refuse("too many elements that are sizes");
      }
    }
    if (argument.dtype < DType::kInt8 || argument.dtype > DType::kUInt64) refuse("a size is no integer");
  }

  std::pair<size_t, size_t> reuse() {
    if (in_.number() != 2) refuse("no pair");
    const size_t argument = plain_index();
    return {argument, plain_index()};
  }

  Manifest::Target target() {
    Manifest::Target out;
    const auto function = [&] {
      Manifest::Function found;
      found.object = in_.index(out.objects.size());
      found.name = in_.text();
      return found;
    };
    out.name = in_.text();
    out.machine = in_.text();
    out.features = texts();
    out.cores = in_.number();
    out.objects = in_.all([this] { return span(); });
    out.prepare = function();
    out.run = function();
    out.kernels = in_.all(function);
    out.symbols = in_.number(0, kMostSymbols);
    out.guards = texts();
    out.pack_layouts = texts();
    out.constants = in_.all([this] { return constant(); });
    out.size_arguments = indices();
    out.packable = indices();
    out.donated = indices();
    out.unread = indices();
    out.reuses = in_.all([this] { return reuse(); });
    return out;
  }

  Reader in_;
  Manifest out_;
};

}  // namespace

Manifest read_manifest(std::string_view data) { return ManifestReader(data).read(); }

}  // namespace shlo_disc
