// Runs programs of files, without Python: linked with the core of the runtime alone. See test_core.py.
#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <sstream>
#include <thread>

#include "call.h"
#include "object_code.h"

using namespace shlo_disc;  // NOLINT

namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<int64_t> rest_of(std::istream& line) {
  return {std::istream_iterator<int64_t>(line), {}};
}

class Results : public CallMemory {
 public:
  bool result(size_t, const int64_t*, int64_t bytes, void** data) override {
    blocks_.emplace_back(pool_acquire(static_cast<size_t>(bytes), Hold::kResult));
    *data = blocks_.back().data();
    bytes_.push_back(static_cast<size_t>(bytes));
    return *data != nullptr;
  }

  std::string all() const {
    std::string all;
    for (size_t i = 0; i < bytes_.size(); ++i) {
      all.append(static_cast<const char*>(blocks_[i].data()), bytes_[i]);
    }
    return all;
  }

 private:
  std::vector<ScopedBlock> blocks_;
  std::vector<size_t> bytes_;
};

struct Argument {
  std::string bytes;
  DType dtype;
  std::vector<int64_t> sizes;
};

bool run(const Executable& executable, std::vector<Argument>& arguments, std::string* results,
         std::string* failure) {
  Call call(executable);
  Results memory;
  bool done = true;
  for (Argument& argument : arguments) {
    done = done && call.take(argument.bytes.data(), argument.dtype,
                             static_cast<int64_t>(argument.sizes.size()), argument.sizes.data());
  }
  if (done) call.read_size_elements(call.arguments());
  done = done && call.prepare() && call.run(memory);
  *results = memory.all();
  *failure = call.failure.text(executable.spec().name);
  return done;
}

}  // namespace

// Lines of PROGRAM: its parts, then calls. A call prints "done" when every thread has had the same results
// every time, which are in the file it names then; or why it failed.
int main(int, char** argv) {
  std::map<std::string, std::unique_ptr<LoadedCode>> codes;
  std::vector<std::unique_ptr<KernelCell>> cells;
  std::vector<Argument> arguments;
  std::unique_ptr<Executable> executable;
  ProgramSpec spec;
  spec.make_kernel = [](int64_t, bool, std::string* message) {
    *message = "there is no compiler";
    return false;
  };
  std::ifstream program(argv[1]);
  for (std::string text; std::getline(program, text);) {
    std::istringstream line(text);
    std::string word, name;
    line >> word;
    if (word == "name") {
      line >> spec.name;
    } else if (word == "symbols") {
      line >> spec.symbols;
    } else if (word == "guard") {
      std::getline(line >> std::ws, name);
      spec.guards.push_back(name);
    } else if (word == "prepare" || word == "run" || word == "kernel") {
      std::string path;
      uintptr_t address = 0;
      if (line >> path >> name) {
        auto& code = codes[path];
        if (code == nullptr) code = std::make_unique<LoadedCode>(bytes_of(path));
        for (const LoadedCode::Function& function : code->functions()) {
          if (function.name == name) address = function.address;
        }
        if (address == 0) return 2;
      }
      cells.push_back(std::make_unique<KernelCell>(reinterpret_cast<disc_kernel>(address)));
      if (word == "prepare") spec.host_prepare = cells.back().get();
      else if (word == "run") spec.host_run = cells.back().get();
      else spec.kernels.push_back(cells.back().get());
    } else if (word == "parameter") {
      std::string dtype;
      line >> dtype >> name;
      spec.arguments.push_back({dtype_from_name(dtype), rest_of(line), name});
    } else if (word == "result") {
      ResultSpec result{};
      line >> name >> result.rank;
      result.dtype = dtype_from_name(name);
      spec.results.push_back(result);
    } else if (word == "argument") {
      std::string path;
      line >> path >> name;
      arguments.push_back({bytes_of(path), dtype_from_name(name), rest_of(line)});
    } else if (word == "call") {
      if (executable == nullptr) executable = std::make_unique<Executable>(std::move(spec));
      line >> name;
      std::string results, failure;
      if (!run(*executable, arguments, &results, &failure)) {
        std::cout << failure << std::endl;
      } else {
        std::ofstream(name, std::ios::binary) << results;
        std::atomic<int> other{0};
        std::vector<std::thread> threads;
        for (int i = 0; i < 4; ++i) {
          threads.emplace_back([&] {
            for (int k = 0; k < 100; ++k) {
              std::string again, unused;
              if (!run(*executable, arguments, &again, &unused) || again != results) ++other;
            }
          });
        }
        for (std::thread& thread : threads) thread.join();
        std::cout << (other == 0 ? "done" : "other results") << std::endl;
      }
      arguments.clear();
    } else {
      return 3;
    }
  }
  return 0;
}
