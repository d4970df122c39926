#include "foreign_call.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <utility>

#include "ffi_types.h"
#include "foreign_api.h"
#include "small_vector.h"

namespace shlo_disc {
namespace {

using namespace xla_ffi;  // NOLINT: this file speaks nothing else

// What handlers may rely on: XLA's buffers on CPUs are aligned to 16 bytes at least. Ours are,
// too, but for arguments of the user's (NumPy) and slices that are computed in place.
constexpr uintptr_t kAlignment = 16;

// Takes over the error of a handler; true: there is none.
bool has_worked(Error* error, Failure* failure) {
  if (error == nullptr) return true;
  ForeignError taken = take_error(error);
  failure->code = taken.code;
  return failure->set(Failure::Kind::kForeign, std::move(taken.message));
}

// Calls a handler and waits until it is done.
bool call(Handler* handler, CallFrame* frame, Failure* failure) {
  Error* error = handler(frame);
  if (error == nullptr && frame->future != nullptr) error = wait_for(frame->future);
  return has_worked(error, failure);
}

// Asks a handler which version of the API its headers were: what they say, or 0.0.
Version version_of(Handler* handler, bool is_on_device) {
  struct Room {
    Metadata metadata;
    char spare[64];  // newer headers may write more
  };
  Room room{};
  room.metadata.struct_size = sizeof(Metadata);
  room.metadata.api_version.struct_size = size_up_to(&Version::minor_version);
  MetadataExtension extension{
      {size_up_to(&MetadataExtension::metadata), kMetadataExtension, nullptr}, &room.metadata};
  CallFrame frame{};
  frame.struct_size = size_up_to(&CallFrame::attrs);
  frame.extension_start = &extension.base;
  frame.api = foreign_api(is_on_device);
  frame.stage = Stage::kExecute;
  Failure failure;
  if (!has_worked(handler(&frame), &failure)) return Version{};
  return room.metadata.api_version;
}

// The host's own.
class OwnMemory : public ForeignMemory {
 public:
  ~OwnMemory() override {
    for (void* const block : blocks_) std::free(block);
  }

  void* acquire(size_t bytes) override {
    blocks_.reserve(blocks_.size() + 1);
    void* const block = std::aligned_alloc(64, (bytes + 64) & ~size_t{63});
    if (block != nullptr) blocks_.push_back(block);
    return block;
  }
  bool copy(void* to, const void* from, size_t bytes) override {
    if (bytes != 0) std::memcpy(to, from, bytes);
    return true;
  }
  bool zero(void* at, size_t bytes) override {
    if (bytes != 0) std::memset(at, 0, bytes);
    return true;
  }

 private:
  std::vector<void*> blocks_;
};

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment == 0; }

}  // namespace

DType dtype_of(DataType type) {
  static constexpr auto kTable = [] {
    std::array<DType, 64> table{};
    for (DType& dtype : table) dtype = DType::kOther;
    for (size_t i = 0; i < kDTypeCount; ++i) {
      if (kDataTypes[i] == DataType::kInvalid) continue;
      table[static_cast<size_t>(kDataTypes[i])] = static_cast<DType>(i);
    }
    return table;
  }();
  const auto number = static_cast<size_t>(type);
  return number < kTable.size() ? kTable[number] : DType::kOther;
}

// The attributes as handlers read them; addresses in it stay as they are.
class ForeignCall::Attributes {
 public:
  explicit Attributes(const std::vector<ForeignAttribute>& attributes) {
    for (const ForeignAttribute& one : attributes) {
      names_.push_back(std::make_unique<ByteSpan>(ByteSpan{one.name.data(), one.name.size()}));
      types_.push_back(one.type);
      name_pointers_.push_back(names_.back().get());
      values_.push_back(value(one));
    }
    view_ = {size_up_to(&xla_ffi::Attributes::values),
             nullptr,
             static_cast<int64_t>(values_.size()),
             types_.data(),
             name_pointers_.data(),
             values_.data()};
  }
  const xla_ffi::Attributes& view() const { return view_; }

 private:
  void* value(const ForeignAttribute& one) {
    void* const bytes = const_cast<char*>(one.bytes.data());
    switch (one.type) {
      case AttributeType::kScalar:
        scalars_.push_back(std::make_unique<Scalar>(Scalar{one.dtype, bytes}));
        return scalars_.back().get();
      case AttributeType::kArray:
        arrays_.push_back(std::make_unique<Array>(Array{one.dtype, one.size, bytes}));
        return arrays_.back().get();
      case AttributeType::kString:
        strings_.push_back(
            std::make_unique<ByteSpan>(ByteSpan{one.bytes.data(), one.bytes.size()}));
        return strings_.back().get();
      case AttributeType::kDictionary:
        inner_.push_back(std::make_unique<Attributes>(one.entries));
        return const_cast<xla_ffi::Attributes*>(&inner_.back()->view());
    }
    return nullptr;
  }

  std::vector<std::unique_ptr<ByteSpan>> names_;
  std::vector<ByteSpan*> name_pointers_;
  std::vector<AttributeType> types_;
  std::vector<void*> values_;
  std::vector<std::unique_ptr<Scalar>> scalars_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<std::unique_ptr<ByteSpan>> strings_;
  std::vector<std::unique_ptr<Attributes>> inner_;
  xla_ffi::Attributes view_{};
};

ForeignCall::ForeignCall(ForeignSpec spec)
    : spec_(std::move(spec)), attributes_(std::make_shared<Attributes>(spec_.attributes)) {
  for (const auto* buffers : {&spec_.operands, &spec_.results}) {
    for (const ForeignBuffer& buffer : *buffers) {
      // Of less than a byte XLA has other forms in memory.
      if (data_type(buffer.dtype) != DataType::kInvalid && packed_bits(buffer.dtype) == 0) continue;
      throw std::runtime_error(std::string("arrays of ") + dtype_name(buffer.dtype) +
                               " are not given to handlers");
    }
  }
  Handler* const execute = spec_.handlers[static_cast<int>(Stage::kExecute)];
  if (execute == nullptr) throw std::runtime_error("it has no execute handler");
  const Version version = version_of(execute, spec_.is_on_device);
  // Minor versions only add what a handler may use; where one does, `call` tells.
  if (version.major_version != kMajor) {
    throw std::runtime_error("its headers are of XLA FFI " +
                             std::to_string(version.major_version) + "." +
                             std::to_string(version.minor_version) + "; shlo_disc calls " +
                             std::to_string(kMajor) + ".x");
  }
  Handler* const instantiate = spec_.handlers[static_cast<int>(Stage::kInstantiate)];
  if (instantiate == nullptr) return;
  ForeignContext context;
  CallFrame frame{};
  frame.struct_size = size_up_to(&CallFrame::attrs);
  frame.api = foreign_api(spec_.is_on_device);
  frame.context = opaque(&context);
  frame.stage = Stage::kInstantiate;
  frame.args.struct_size = frame.rets.struct_size = size_up_to(&Args::values);
  frame.attrs = attributes_->view();
  Failure failure;
  if (!call(instantiate, &frame, &failure)) throw std::runtime_error(failure.message);
  const ForeignState& state = context.states[static_cast<int>(Stage::kInstantiate)];
  state_ = state.data;
  state_type_ = state.type_id;
}

ForeignCall::~ForeignCall() { delete_state({state_, state_type_}, spec_.is_on_device); }

bool ForeignCall::run(void* const* buffers, const int64_t* sizes, Failure* failure) const {
  OwnMemory memory;
  return run_in(memory, nullptr, buffers, sizes, failure);
}

bool ForeignCall::run_in(ForeignMemory& memory, const GpuPlace* place, void* const* buffers,
                         const int64_t* sizes, Failure* failure) const {
  static std::atomic<int64_t> runs{0};
  const size_t operands = spec_.operands.size(), count = buffer_count();
  SmallVector<Buffer, 16> described(count);
  SmallVector<void*, 16> pointers(count);
  SmallVector<int, 16> types(count);
  SmallVector<size_t, 16> bytes(count);
  for (size_t i = 0; i < count; ++i) {
    const ForeignBuffer& of = buffer(i);
    bytes[i] = static_cast<size_t>(array_bytes(of.dtype, of.rank, sizes));
    described[i] = {size_up_to(&Buffer::dims),      nullptr, data_type(of.dtype), buffers[i], of.rank,
                    const_cast<int64_t*>(sizes)};
    pointers[i] = &described[i];
    types[i] = kBufferArgument;
    sizes += of.rank;
  }
  // XLA computes no empty results, either, and LAPACK calls an empty matrix an error.
  const auto is_empty = [](size_t size) { return size == 0; };
  if (count != operands && (spec_.is_lapack() ? bytes[operands] == 0
                                            : std::all_of(bytes.data() + operands, bytes.end(),
                                                          is_empty))) {
    for (size_t i = operands; i < count; ++i) {
      if (!memory.zero(buffers[i], bytes[i])) return false;
    }
    return true;
  }
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] == 0 || is_aligned(buffers[i])) continue;
    // A result may be in the memory of an operand.
    size_t first = 0;
    while (bytes[first] == 0 || buffers[first] != buffers[i]) ++first;
    if (first == i) {
      described[i].data = memory.acquire(bytes[i]);
      if (described[i].data == nullptr) {
        return failure->set(Failure::Kind::kOutOfMemory, "an aligned copy cannot be allocated");
      }
      if (!memory.copy(described[i].data, buffers[i], bytes[i])) return false;
    } else {
      described[i].data = described[first].data;
    }
  }
  ForeignContext context;
  context.run_id = ++runs;
  context.place = place;
  context.states[static_cast<int>(Stage::kInstantiate)] = {state_, state_type_};
  // The size attributes of this call, in a copy of the list of values.
  xla_ffi::Attributes attributes = attributes_->view();
  const size_t sized = spec_.size_attributes.size();
  SmallVector<void*, 16> values(sized == 0 ? 0 : static_cast<size_t>(attributes.size));
  SmallVector<Scalar, 4> scalars(sized);
  SmallVector<int64_t, 4> numbers(sized);  // little-endian: its first bytes are the narrow number
  if (sized != 0) {
    std::copy_n(attributes.values, attributes.size, values.data());
    attributes.values = values.data();
  }
  for (size_t i = 0; i < sized; ++i) {
    void*& value = values[spec_.size_attributes[i]];
    numbers[i] = sizes[i];
    scalars[i] = {static_cast<const Scalar*>(value)->dtype, &numbers[i]};
    value = &scalars[i];
  }
  bool has_run = true;
  for (const Stage stage : {Stage::kPrepare, Stage::kInitialize, Stage::kExecute}) {
    Handler* const handler = spec_.handlers[static_cast<int>(stage)];
    if (handler == nullptr || !has_run) continue;
    CallFrame frame{};
    frame.struct_size = size_up_to(&CallFrame::attrs);
    frame.api = foreign_api(spec_.is_on_device);
    frame.context = opaque(&context);
    frame.stage = stage;
    const size_t args_size = size_up_to(&Args::values);
    frame.args = {args_size, nullptr, static_cast<int64_t>(operands), types.data(),
                  pointers.data()};
    frame.rets = {args_size, nullptr, static_cast<int64_t>(count - operands), types.data(),
                  pointers.data() + operands};
    frame.attrs = attributes;
    has_run = call(handler, &frame, failure);
    if (!has_run) failure->where = title();
  }
  for (const Stage stage : {Stage::kInitialize, Stage::kPrepare}) {
    delete_state(context.states[static_cast<int>(stage)], spec_.is_on_device);
  }
  for (size_t i = operands; i < count; ++i) {
    if (described[i].data != buffers[i] && !memory.copy(buffers[i], described[i].data, bytes[i])) {
      return false;
    }
  }
  return has_run;
}

void ForeignCall::clear_results(void* const* buffers, const int64_t* sizes) const {
  for (const ForeignBuffer& of : spec_.operands) sizes += of.rank;
  buffers += spec_.operands.size();
  for (const ForeignBuffer& of : spec_.results) {
    std::memset(*buffers++, 0, static_cast<size_t>(array_bytes(of.dtype, of.rank, sizes)));
    sizes += of.rank;
  }
}

}  // namespace shlo_disc
