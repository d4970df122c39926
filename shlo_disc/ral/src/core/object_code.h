// Machine code from object files. LLVM writes a relocatable ELF file of each kernel; here it is checked,
// placed in memory and made executable. Files of the kernel store go the same way as fresh ones.
#ifndef SHLO_DISC_RAL_OBJECT_CODE_H_
#define SHLO_DISC_RAL_OBJECT_CODE_H_

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace shlo_disc {

// An object file that is damaged, or that has something the loader does not know.
class ObjectCodeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

enum class InstructionSet { kX86_64, kAArch64 };

#if defined(__aarch64__)
constexpr InstructionSet kOwnInstructions = InstructionSet::kAArch64;
#else
constexpr InstructionSet kOwnInstructions = InstructionSet::kX86_64;
#endif

// An object file that was checked as a whole: every offset, length, symbol and relocation.
// It has code and constants, no variables, constructors, thread-local memory or indirect functions.
// Refers to the bytes it was made from.
class ObjectCode {
 public:
  struct Function {
    std::string name;
    size_t offset;  // in the image
    size_t bytes;
  };

  // Throws ObjectCodeError. Files of any instruction set are checked on every machine.
  explicit ObjectCode(std::string_view file, InstructionSet instructions = kOwnInstructions);

  size_t image_bytes() const { return image_bytes_; }
  const std::vector<Function>& functions() const { return functions_; }

  // Writes the image to `image`, where it will run; `image` is a page's start.
  void place(char* image) const;

 private:
  struct Section {
    size_t offset;  // in the file
    size_t bytes;
    size_t place;  // in the image
  };
  struct Relocation {
    size_t place;      // of the eight bytes, in the image
    uint64_t value;    // what is added to `relative_to`
    bool from_image;   // the value is an offset in the image
    bool from_place;   // the place is subtracted
  };
  // Bits of four bytes, which are the same wherever the image is, as it begins with a page.
  struct Bits {
    size_t place;  // in the image
    uint32_t mask;
    uint32_t value;
  };

  std::string_view file_;
  size_t image_bytes_ = 0;
  std::vector<Section> sections_;
  std::vector<Relocation> relocations_;
  std::vector<Bits> bits_;
  std::vector<size_t> stubs_;  // code of ours in the image that jumps to an address behind it
  std::vector<Function> functions_;

  friend class ObjectReader;
};

// Executable memory with the code of object files; freed with this object.
class LoadedCode {
 public:
  // Throws ObjectCodeError, and std::system_error where the system gives no executable memory.
  explicit LoadedCode(std::string_view file) : LoadedCode(std::vector{file}) {}
  explicit LoadedCode(const std::vector<std::string_view>& files);
  ~LoadedCode();
  LoadedCode(const LoadedCode&) = delete;
  LoadedCode& operator=(const LoadedCode&) = delete;

  struct Function {
    std::string name;
    uintptr_t address;
    size_t bytes;
    size_t file;
  };
  const std::vector<Function>& functions() const { return functions_; }
  size_t mapped_bytes() const { return mapped_bytes_; }

 private:
  void* image_ = nullptr;
  size_t mapped_bytes_ = 0;
  std::vector<Function> functions_;
};

// What tells CPUs apart that LLVM generates other code for: the values of CPUID and XGETBV that it reads,
// or what Linux tells of a CPU of Arm's. Empty on other machines.
std::string cpu_identity();

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_OBJECT_CODE_H_
