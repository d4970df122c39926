// Machine code, and what it depends on, in the Python module shlo_disc.ral._ral; documented in
// _ral.pyi.
#include "module_code.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <csignal>
#include <string>
#include <system_error>
#include <vector>

#include "file_stamps.h"
#include "object_code.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace shlo_disc {
namespace {

std::string_view bytes_of(const nb::bytes& object) {
  return {static_cast<const char*>(object.data()), object.size()};
}

[[noreturn]] void raise(const std::system_error& error) {
  errno = error.code().value();
  PyErr_SetFromErrno(PyExc_OSError);
  throw nb::python_error();
}

void init_loaded_code(LoadedCode* self, const nb::bytes& object) {
  try {
    new (self) LoadedCode(bytes_of(object));
  } catch (const std::system_error& error) {
    raise(error);
  }
}

nb::bytes stamps_of(const LateFileStamps& late) {
  try {
    std::string stamps;
    {
      const nb::gil_scoped_release others_run;
      stamps = late.get();
    }
    return nb::bytes(stamps.data(), stamps.size());
  } catch (const std::system_error& error) {
    raise(error);
  }
}

nb::dict functions(const LoadedCode& code) {
  nb::dict out;
  for (const LoadedCode::Function& function : code.functions()) {
    out[nb::str(function.name.c_str())] = nb::make_tuple(function.address, function.bytes);
  }
  return out;
}

// The handlers of all signals, to set them again.
class SignalHandlers {
 public:
  SignalHandlers() : handlers_(NSIG) {
    for (int signal = 1; signal < NSIG; ++signal) {
      known_.push_back(sigaction(signal, nullptr, &handlers_[signal]) == 0);
    }
  }

  void restore() const {
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction now;
      if (!known_[signal - 1] || sigaction(signal, nullptr, &now) != 0) continue;
      if (now.sa_sigaction != handlers_[signal].sa_sigaction) {
        sigaction(signal, &handlers_[signal], nullptr);
      }
    }
  }

 private:
  std::vector<struct sigaction> handlers_;
  std::vector<bool> known_;
};

}  // namespace

void bind_code(nb::module_& m) {
  nb::exception<ObjectCodeError>(m, "ObjectCodeError", PyExc_ValueError);
  nb::class_<LoadedCode>(m, "LoadedCode")
      .def("__init__", &init_loaded_code, "object"_a)
      .def_prop_ro("functions", &functions)
      .def_prop_ro("mapped_bytes", &LoadedCode::mapped_bytes);
  m.def(
      "check_object_code",
      [](const nb::bytes& object, const std::string& instruction_set) {
        const bool is_arm = instruction_set == "aarch64";
        if (!is_arm && instruction_set != "x86-64") throw nb::value_error("an unknown instruction set");
        ObjectCode{bytes_of(object), is_arm ? InstructionSet::kAArch64 : InstructionSet::kX86_64};
      },
      "object"_a, "instruction_set"_a = "x86-64");
  m.def("cpu_identity", [] {
    const std::string identity = cpu_identity();
    return nb::bytes(identity.data(), identity.size());
  });
  nb::class_<LateFileStamps>(m, "FileStamps")
      .def(nb::init<std::string>(), "folder"_a)
      .def("get", &stamps_of);
  nb::class_<SignalHandlers>(m, "SignalHandlers")
      .def(nb::init<>())
      .def("restore", &SignalHandlers::restore);
}

}  // namespace shlo_disc
