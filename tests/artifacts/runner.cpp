// Runs artifacts with arrays of files, and functions of object files, for tests of other machines:
//
//   runner run ARTIFACT CALL      a call: see run()
//   runner function OBJECT NAME N...  what a function of int64_t gives for each N
//   runner load OBJECTS           how many are loaded of many object files, each behind its length
#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "disc.h"
#include "object_code.h"

namespace {

using shlo_disc::LoadedCode;

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int32_t dtype_of(const std::string& name) {
  for (int32_t dtype = 0; dtype < DISC_DTYPES; ++dtype) {
    if (name == disc_dtype_name(dtype)) return dtype;
  }
  return -1;
}

struct Argument {
  std::string bytes;
  int32_t dtype;
  std::vector<int64_t> sizes;
};

int failed(disc_error* error) {
  std::cout << disc_error_code(error) << " " << disc_error_message(error) << std::endl;
  disc_error_free(error);
  return 1;
}

// Lines of CALL: the file of all results, then `FILE DTYPE SIZES...` for each argument. Prints the sizes of
// each result, or the code of an error and its message.
int run(const char* artifact, const char* call) {
  std::ifstream lines(call);
  std::string line, out;
  std::getline(lines, out);
  std::vector<Argument> arguments;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string path, dtype;
    words >> path >> dtype;
    arguments.push_back({bytes_of(path), dtype_of(dtype), {std::istream_iterator<int64_t>(words), {}}});
  }
  std::vector<disc_array> arrays;
  for (const Argument& argument : arguments) {
    arrays.push_back({argument.bytes.data(), argument.sizes.data(), nullptr, argument.dtype,
                      static_cast<int32_t>(argument.sizes.size()), nullptr});
  }
  disc_program* program = nullptr;
  if (disc_error* error = disc_program_open(artifact, nullptr, &program)) return failed(error);
  const size_t count = disc_program_results(program);
  std::vector<std::vector<int64_t>> sizes(count);
  std::vector<disc_buffer> results(count);
  for (size_t i = 0; i < count; ++i) {
    disc_spec spec = {};
    spec.struct_size = sizeof(spec);
    if (disc_error* error = disc_program_result(program, i, &spec)) return failed(error);
    sizes[i].resize(static_cast<size_t>(spec.rank));
    results[i] = {nullptr, 0, sizes[i].data(), nullptr};
  }
  if (disc_error* error =
          disc_program_run(program, arrays.data(), arrays.size(), results.data(), count)) {
    return failed(error);
  }
  std::ofstream file(out, std::ios::binary);
  for (size_t i = 0; i < count; ++i) {
    file.write(static_cast<const char*>(results[i].data), static_cast<std::streamsize>(results[i].bytes));
    for (const int64_t size : sizes[i]) std::cout << size << " ";
    std::cout << std::endl;
    disc_memory_release(results[i].memory);
  }
  disc_program_close(program);
  return 0;
}

int function(const char* object, const std::string& name, int count, char** numbers) {
  const LoadedCode code(bytes_of(object));
  for (const LoadedCode::Function& found : code.functions()) {
    if (found.name != name) continue;
    for (int i = 0; i < count; ++i) {
      std::cout << reinterpret_cast<int64_t (*)(int64_t)>(found.address)(std::stoll(numbers[i])) << std::endl;
    }
  }
  return 0;
}

int load(const char* objects) {
  std::ifstream file(objects, std::ios::binary);
  int loaded = 0;
  uint64_t sum = 0;
  for (uint64_t bytes; file.read(reinterpret_cast<char*>(&bytes), sizeof(bytes));) {
    std::string object(bytes, 0);
    file.read(object.data(), static_cast<std::streamsize>(bytes));
    try {
      const LoadedCode code(object);
      for (const LoadedCode::Function& found : code.functions()) {
        const auto* const byte = reinterpret_cast<const unsigned char*>(found.address);
        for (size_t i = 0; i < found.bytes; ++i) sum += byte[i];  // there is memory
      }
      ++loaded;
    } catch (const shlo_disc::ObjectCodeError&) {
      continue;
    }
  }
  std::cout << loaded << " " << sum << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string word = argc > 2 ? argv[1] : "";
  if (word == "run" && argc == 4) return run(argv[2], argv[3]);
  if (word == "function" && argc > 3) return function(argv[2], argv[3], argc - 4, argv + 4);
  if (word == "load" && argc == 3) return load(argv[2]);
  return 2;
}
