// FFI targets for test_targets.py, written as a user of JAX writes them.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "xla/ffi/api/ffi.h"
#include "xla_ffi_abi.h"

namespace ffi = xla::ffi;
using Any = ffi::AnyBuffer;
using Result = ffi::Result<Any>;
template <ffi::DataType kType>
using Out = ffi::ResultBuffer<kType>;

// y = x * scale + shift, sums of x
static ffi::Error Affine(ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> shift, Out<ffi::F32> y,
                         Out<ffi::F32> sums, float scale) {
  const int64_t rows = x.dimensions().size() < 2 ? 1 : x.dimensions()[0];
  const int64_t n = static_cast<int64_t>(x.element_count());
  std::fill_n(sums->typed_data(), sums->element_count(), 0.f);
  for (int64_t i = 0; i < n; ++i) {
    y->typed_data()[i] = x.typed_data()[i] * scale + shift.typed_data()[0];
    sums->typed_data()[i / (n / rows)] += x.typed_data()[i];
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(affine, Affine,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<float>("scale"));

// Adds to the first two elements of x in place, and to no others: y is x by the alias.
static ffi::Error Bump(Any x, Result y) {
  if (x.untyped_data() != y->untyped_data()) {
    return ffi::Error::InvalidArgument("the operand is not where the result is");
  }
  float* const data = y->typed_data<float>();
  for (size_t i = 0; i < std::min<size_t>(2, y->element_count()); ++i) data[i] += 100.f;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(bump, Bump, ffi::Ffi::Bind().Arg<Any>().Ret<Any>());

// Fails if an element is negative.
static ffi::Error Checked(ffi::Buffer<ffi::F32> x, Out<ffi::F32> y) {
  for (size_t i = 0; i < x.element_count(); ++i) {
    if (!(x.typed_data()[i] >= 0)) {
      return ffi::Error::InvalidArgument("element " + std::to_string(i) + " is negative");
    }
    y->typed_data()[i] = x.typed_data()[i] / 2;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    checked, Checked,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// Writes the bytes of all attributes, as they come, behind each other.
static void Dump(const XLA_FFI_Attrs& attrs, std::string* out) {
  for (int64_t i = 0; i < attrs.size; ++i) {
    out->append(attrs.names[i]->ptr, attrs.names[i]->len);
    *out += '=';
    const auto append = [&](XLA_FFI_DataType type, const void* data, size_t count) {
      const auto element = static_cast<ffi::DataType>(type);
      *out += std::to_string(static_cast<int>(type)) + "x" + std::to_string(count) + ":";
      out->append(static_cast<const char*>(data), count * ffi::ByteWidth(element));
    };
    switch (attrs.types[i]) {
      case XLA_FFI_AttrType_SCALAR: {
        const auto* const scalar = static_cast<const XLA_FFI_Scalar*>(attrs.attrs[i]);
        append(scalar->dtype, scalar->value, 1);
        break;
      }
      case XLA_FFI_AttrType_ARRAY: {
        const auto* const array = static_cast<const XLA_FFI_Array*>(attrs.attrs[i]);
        append(array->dtype, array->data, array->size);
        break;
      }
      case XLA_FFI_AttrType_STRING: {
        const auto* const span = static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[i]);
        out->append(span->ptr, span->len);
        break;
      }
      case XLA_FFI_AttrType_DICTIONARY:
        *out += '{';
        Dump(*static_cast<const XLA_FFI_Attrs*>(attrs.attrs[i]), out);
        *out += '}';
        break;
    }
    *out += ';';
  }
}

extern "C" XLA_FFI_Error* dump(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start != nullptr &&
      frame->extension_start->type == XLA_FFI_Extension_Metadata) {
    auto* const metadata =
        reinterpret_cast<XLA_FFI_Metadata_Extension*>(frame->extension_start)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return nullptr;
  }
  std::string text;
  Dump(frame->attrs, &text);
  auto* const out = static_cast<XLA_FFI_Buffer*>(frame->rets.rets[0]);
  const size_t room = static_cast<size_t>(out->dims[0]);
  std::memset(out->data, 0, room);
  std::memcpy(out->data, text.data(), std::min(room, text.size()));
  return nullptr;
}

// Logical sizes of x and what is in memory, one after the other.
static ffi::Error Memory(ffi::Buffer<ffi::F32> x, Out<ffi::F32> seen, Out<ffi::S64> sizes) {
  std::copy_n(x.typed_data(), x.element_count(), seen->typed_data());
  std::copy_n(x.dimensions().begin(), x.dimensions().size(), sizes->typed_data());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(memory, Memory,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::S64>>());

// Sums blocks of x on the thread pool, through scratch memory. Tasks wait for each other.
static ffi::Error Pooled(ffi::ScratchAllocator scratch, ffi::ThreadPool pool, ffi::RunId run,
                         int32_t device, ffi::Buffer<ffi::F32> x, Out<ffi::F32> total) {
  const int64_t threads = pool.num_threads();
  if (threads < 1 || run.run_id < 1 || device != 0) return ffi::Error::Internal("no context");
  const std::optional<void*> memory = scratch.Allocate(threads * sizeof(double), 32);
  if (!memory || reinterpret_cast<uintptr_t>(*memory) % 32 != 0) {
    return ffi::Error::Internal("no scratch memory");
  }
  if (scratch.Allocate(size_t{1} << 60)) return ffi::Error::Internal("an impossible allocation");
  double* const sums = static_cast<double*>(*memory);
  const int64_t n = static_cast<int64_t>(x.element_count());
  std::mutex mutex;
  std::condition_variable changed;
  int64_t started = 0, done = 0;
  for (int64_t t = 0; t < threads; ++t) {
    pool.Schedule([&, t] {
      {
        std::unique_lock<std::mutex> lock(mutex);
        ++started;
        changed.notify_all();
        changed.wait(lock, [&] { return started == threads; });
      }
      sums[t] = 0;
      for (int64_t i = n * t / threads; i < n * (t + 1) / threads; ++i) sums[t] += x.typed_data()[i];
      const std::lock_guard<std::mutex> lock(mutex);
      ++done;
      changed.notify_all();
    });
  }
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return done == threads; });
  double sum = 0;
  for (int64_t t = 0; t < threads; ++t) sum += sums[t];
  total->typed_data()[0] = static_cast<float>(sum);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(pooled, Pooled,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::ScratchAllocator>()
                                  .Ctx<ffi::ThreadPool>()
                                  .Ctx<ffi::RunId>()
                                  .Ctx<ffi::DeviceOrdinal>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());

// Asynchronous: another thread writes the result, and fails for a negative first element.
static ffi::Future Later(ffi::Buffer<ffi::F32> x, Out<ffi::F32> y) {
  ffi::Promise promise;
  ffi::Future future(promise);
  std::thread([x, y, promise = std::move(promise)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::copy_n(x.typed_data(), x.element_count(), y->typed_data());
    if (x.typed_data()[0] < 0) {
      promise.SetError(ffi::Error::Internal("later"));
    } else {
      promise.SetAvailable();
    }
  }).detach();
  return future;
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    later, Later, ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

// Wants a stream, as handlers for other devices do.
static ffi::Error Streamed(void*, Any, Result) { return ffi::Error::Success(); }
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    streamed, Streamed, ffi::Ffi::Bind().Ctx<ffi::PlatformStream<void*>>().Arg<Any>().Ret<Any>());

// With a state that its instantiation leaves.
struct Power {
  static ffi::TypeId id;
  static ffi::TypeInfo info;
  explicit Power(int64_t exponent) : exponent(exponent) { ++alive; }
  ~Power() { --alive; }
  int64_t exponent;
  static std::atomic<int64_t> alive;
};
std::atomic<int64_t> Power::alive{0};
ffi::TypeId Power::id = {};
ffi::TypeInfo Power::info = ffi::MakeTypeInfo<Power>();
extern "C" void* power_id() { return &Power::id; }
extern "C" int64_t powers() { return Power::alive; }
extern "C" void* power_info() { return &Power::info; }

static ffi::ErrorOr<std::unique_ptr<Power>> Instantiate(int64_t exponent) {
  if (exponent < 0) return ffi::Unexpected(ffi::Error::InvalidArgument("a negative exponent"));
  return std::make_unique<Power>(exponent);
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(power_instantiate, Instantiate,
                              ffi::Ffi::BindInstantiate().Attr<int64_t>("exponent"));

static ffi::Error Execute(Power* power, ffi::Buffer<ffi::F32> x, Out<ffi::F32> y, int64_t) {
  for (size_t i = 0; i < x.element_count(); ++i) {
    float product = 1;
    for (int64_t k = 0; k < power->exponent; ++k) product *= x.typed_data()[i];
    y->typed_data()[i] = product;
  }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(power, Execute,
                              ffi::Ffi::Bind()
                                  .Ctx<ffi::State<Power>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<int64_t>("exponent"));

// Asks the table for everything that later versions of the API have, by our own declarations: the
// header of the installed jaxlib may be older. y is 1 in all elements if all answers are right.
extern "C" XLA_FFI_Error* later_api(XLA_FFI_CallFrame* given) {
  namespace abi = shlo_disc::xla_ffi;
  auto* const frame = reinterpret_cast<abi::CallFrame*>(given);
  if (given->extension_start != nullptr) {  // the question for metadata
    auto* const extension = reinterpret_cast<abi::MetadataExtension*>(frame->extension_start);
    extension->metadata->api_version.major_version = abi::kMajor;
    extension->metadata->api_version.minor_version = abi::kMinor;  // XLA refuses later ones
    return nullptr;
  }
  const abi::Api& api = *frame->api;
  bool right = api.api_version.minor_version == abi::kLatestMinor;

  abi::FindExtensionArgs find{sizeof find, nullptr, frame->context, 7, &find};
  right = right && api.find_extension(&find) == nullptr && find.extension == nullptr;
  abi::CustomOptionsArgs options{sizeof options, nullptr, frame->context, nullptr};
  right = right && api.get_custom_options(&options) == nullptr && options.options->size == 0;

  abi::ErrorCreateArgs create{sizeof create, nullptr, "told", abi::ErrorCode::kNotFound};
  abi::Error* const error = api.create_error(&create);
  abi::ErrorDetailsArgs details{abi::size_up_to(&abi::ErrorDetailsArgs::message), nullptr, error,
                                nullptr, abi::ErrorCode::kInternal};
  api.error_details(&details);  // as before 0.4: there is no room for a code
  right = right && details.code == abi::ErrorCode::kInternal;
  details.struct_size = abi::size_up_to(&abi::ErrorDetailsArgs::code);
  api.error_details(&details);
  right = right && details.code == create.code && std::strcmp(details.message, "told") == 0;
  abi::ErrorDestroyArgs destroy{sizeof destroy, nullptr, error};
  api.destroy_error(&destroy);

  auto* const y = static_cast<abi::Buffer*>(frame->rets.values[0]);
  std::fill_n(static_cast<float*>(y->data), y->dims[0], right ? 1.f : 0.f);
  return nullptr;
}
