#include "object_code.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <system_error>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace shlo_disc {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kApart = 64;             // code and constants share no cache line
constexpr size_t kMostSections = 4096;    // LLVM writes about ten
constexpr size_t kMostBytes = 256 << 20;  // of an image; the largest kernels take 100 KB
constexpr uint64_t kLarge = 0x10000000;   // SHF_X86_64_LARGE
constexpr uint32_t kUnwind = 0x70000001;  // SHT_X86_64_UNWIND

struct External {
  const char* name;
  uintptr_t address;
};

template <typename Pointer>
External external(const char* name, Pointer* function) {
  return {name, reinterpret_cast<uintptr_t>(function)};
}

// All that generated code may call by name.
const std::vector<External>& externals() {
  using F = float (*)(float);
  using D = double (*)(double);
  using F2 = float (*)(float, float);
  using D2 = double (*)(double, double);
  using F3 = float (*)(float, float, float);
  using D3 = double (*)(double, double, double);
  static const std::vector<External> table = {
      external("memset", &memset),
      external("memcpy", &memcpy),
      external("memmove", &memmove),
      external("memcmp", &memcmp),
      external("fmod", static_cast<D2>(&::fmod)),
      external("fmodf", static_cast<F2>(&::fmodf)),
      external("fma", static_cast<D3>(&::fma)),
      external("fmaf", static_cast<F3>(&::fmaf)),
      external("ceil", static_cast<D>(&::ceil)),
      external("ceilf", static_cast<F>(&::ceilf)),
      external("floor", static_cast<D>(&::floor)),
      external("floorf", static_cast<F>(&::floorf)),
      external("trunc", static_cast<D>(&::trunc)),
      external("truncf", static_cast<F>(&::truncf)),
      external("rint", static_cast<D>(&::rint)),
      external("rintf", static_cast<F>(&::rintf)),
      external("nearbyint", static_cast<D>(&::nearbyint)),
      external("nearbyintf", static_cast<F>(&::nearbyintf)),
      external("round", static_cast<D>(&::round)),
      external("roundf", static_cast<F>(&::roundf)),
      external("roundeven", static_cast<D>(&::roundeven)),
      external("roundevenf", static_cast<F>(&::roundevenf)),
      external("ldexp", static_cast<double (*)(double, int)>(&::ldexp)),
      external("ldexpf", static_cast<float (*)(float, int)>(&::ldexpf)),
  };
  return table;
}

[[noreturn]] void refuse(const std::string& why) { throw ObjectCodeError(why); }

size_t aligned(size_t offset, size_t alignment) { return (offset + alignment - 1) & ~(alignment - 1); }

// An instruction of AArch64 with a place for bits of an address. Source: ELF for the Arm 64-bit
// Architecture, and the Arm Architecture Reference Manual, C4.1.
struct Patched {
  enum Kind { kPage, kLow, kBranch };
  uint32_t type;  // of the relocation
  Kind kind;
  uint32_t mask;  // of bits that are those of `code` in every such instruction
  uint32_t code;
  int scale;  // kLow: the address is in units of 2^scale bytes
};
constexpr Patched kPatched[] = {
    {R_AARCH64_ADR_PREL_PG_HI21, Patched::kPage, 0x9f000000, 0x90000000, 0},    // adrp
    {R_AARCH64_ADD_ABS_LO12_NC, Patched::kLow, 0xffc00000, 0x91000000, 0},      // add
    {R_AARCH64_LDST8_ABS_LO12_NC, Patched::kLow, 0xfb000000, 0x39000000, 0},    // ldrb, ldr b, ...
    {R_AARCH64_LDST16_ABS_LO12_NC, Patched::kLow, 0xfb000000, 0x79000000, 1},
    {R_AARCH64_LDST32_ABS_LO12_NC, Patched::kLow, 0xfb000000, 0xb9000000, 2},
    {R_AARCH64_LDST64_ABS_LO12_NC, Patched::kLow, 0xfb000000, 0xf9000000, 3},
    {R_AARCH64_LDST128_ABS_LO12_NC, Patched::kLow, 0xff800000, 0x3d800000, 4},  // ldr q, str q
    {R_AARCH64_CALL26, Patched::kBranch, 0xfc000000, 0x94000000, 0},            // bl
    {R_AARCH64_JUMP26, Patched::kBranch, 0xfc000000, 0x14000000, 0},            // b
};

// Calls reach 128 MB, and library functions may be further away: such a call goes to a stub.
constexpr uint32_t kStub[] = {0x58000050, 0xd61f0200};  // ldr x16, [the address behind]; br x16
constexpr size_t kStubBytes = sizeof(kStub) + 8;
constexpr int64_t kReach = int64_t{1} << 27;

}  // namespace

// Fills an ObjectCode, or throws.
class ObjectReader {
 public:
  ObjectReader(std::string_view file, InstructionSet instructions, ObjectCode* code)
      : file_(file), is_arm_(instructions == InstructionSet::kAArch64), code_(code) {}

  void read() {
    read_header();
    for (size_t i = 0; i < headers_.size(); ++i) check_section(i);
    if (symbols_at_ == 0) refuse("no symbols");
    lay_out();
    for (const Elf64_Sym& symbol : symbols_) check_symbol(symbol);
    if (code_->functions_.empty()) refuse("no functions");
    stubs_at_ = code_->image_bytes_;
    for (const Elf64_Shdr& header : headers_) {
      if (header.sh_type == SHT_RELA) read_relocations(header);
    }
    code_->image_bytes_ = stubs_at_;
  }

 private:
  static constexpr size_t kNotLoaded = ~size_t{0};

  // The record at `offset`, which need not be aligned.
  template <typename Record>
  Record record(size_t offset) const {
    if (offset > file_.size() || file_.size() - offset < sizeof(Record)) refuse("truncated");
    Record out;
    std::memcpy(&out, file_.data() + offset, sizeof(Record));
    return out;
  }

  template <typename Record>
  std::vector<Record> records(const Elf64_Shdr& header) const {
    if (header.sh_entsize != sizeof(Record) || header.sh_size % sizeof(Record) != 0) {
      refuse("a table of another record size");
    }
    std::vector<Record> out(header.sh_size / sizeof(Record));
    if (!out.empty()) std::memcpy(out.data(), file_.data() + header.sh_offset, header.sh_size);
    return out;
  }

  void read_header() {
    const auto header = record<Elf64_Ehdr>(0);
    static constexpr unsigned char kIdent[EI_NIDENT] = {
        ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT, ELFOSABI_NONE};
    if (std::memcmp(header.e_ident, kIdent, EI_NIDENT) != 0) refuse("no 64-bit ELF file");
    if (header.e_type != ET_REL) refuse("no relocatable file");
    if (header.e_machine != (is_arm_ ? EM_AARCH64 : EM_X86_64)) refuse("code of another machine");
    if (header.e_version != EV_CURRENT || header.e_flags != 0 || header.e_entry != 0 ||
        header.e_phoff != 0 || header.e_phnum != 0 || header.e_ehsize != sizeof(Elf64_Ehdr) ||
        header.e_shentsize != sizeof(Elf64_Shdr)) {
      refuse("an unknown header");
    }
    if (header.e_shnum == 0 || header.e_shnum > kMostSections) refuse("an unlikely number of sections");
    if (header.e_shoff > file_.size()) refuse("truncated");
    for (size_t i = 0; i < header.e_shnum; ++i) {
      headers_.push_back(record<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
    }
    if (header.e_shstrndx >= header.e_shnum) refuse("no names of sections");
  }

  const Elf64_Shdr& section(size_t index, uint32_t type) const {
    if (index >= headers_.size() || headers_[index].sh_type != type) refuse("a wrong link of sections");
    return headers_[index];
  }

  void check_section(size_t index) {
    const Elf64_Shdr& header = headers_[index];
    if ((header.sh_type == SHT_NULL) != (index == 0)) refuse("a null section");
    if (index == 0) return;
    if (header.sh_offset > file_.size() || header.sh_size > file_.size() - header.sh_offset) {
      refuse("truncated");
    }
    if (header.sh_addr != 0) refuse("a placed section");
    const uint64_t alignment = header.sh_addralign;
    if ((alignment & (alignment - 1)) != 0 || alignment > kPage) refuse("a wrong alignment");
    constexpr uint64_t kKnown =
        SHF_ALLOC | SHF_EXECINSTR | SHF_MERGE | SHF_STRINGS | SHF_INFO_LINK | kLarge;
    if ((header.sh_flags & ~kKnown) != 0) refuse("a section of an unknown kind");
    switch (header.sh_type) {
      case SHT_PROGBITS:
        return;
      case kUnwind:
        if (is_arm_) refuse("a section of an unknown type");
        return;
      case SHT_STRTAB:
        if (header.sh_size == 0 || file_[header.sh_offset + header.sh_size - 1] != 0) {
          refuse("names without an end");
        }
        return;
      case SHT_RELA:
        if (header.sh_link == 0 || header.sh_info == 0 || header.sh_info >= headers_.size()) {
          refuse("a wrong link of sections");
        }
        return;
      case SHT_SYMTAB:
        if (symbols_at_ != 0) refuse("two tables of symbols");
        symbols_at_ = index;
        symbols_ = records<Elf64_Sym>(header);
        names_ = section(header.sh_link, SHT_STRTAB);
        return;
      default:
        refuse("a section of an unknown type");
    }
  }

  // Code comes first, so that it has the alignment of a page in every process.
  void lay_out() {
    places_.assign(headers_.size(), kNotLoaded);
    size_t end = 0;
    for (const bool executable : {true, false}) {
      end = aligned(end, kApart);
      for (size_t i = 0; i < headers_.size(); ++i) {
        const Elf64_Shdr& header = headers_[i];
        // Generated code is never unwound (disc_ral.h), so tables for that stay behind.
        if (header.sh_type != SHT_PROGBITS || (header.sh_flags & SHF_ALLOC) == 0) continue;
        if (((header.sh_flags & SHF_EXECINSTR) != 0) != executable) continue;
        end = aligned(end, header.sh_addralign == 0 ? 1 : header.sh_addralign);
        places_[i] = end;
        code_->sections_.push_back({header.sh_offset, header.sh_size, end});
        end += header.sh_size;
        if (end > kMostBytes) refuse("too large");
      }
    }
    code_->image_bytes_ = end;
  }

  std::string name_of(const Elf64_Sym& symbol) const {
    // Its table ends with a null byte.
    if (symbol.st_name >= names_.sh_size) refuse("a name outside its table");
    return file_.data() + names_.sh_offset + symbol.st_name;
  }

  void check_symbol(const Elf64_Sym& symbol) {
    const unsigned type = ELF64_ST_TYPE(symbol.st_info);
    const unsigned binding = ELF64_ST_BIND(symbol.st_info);
    const std::string name = name_of(symbol);
    if (type > STT_FILE || binding > STB_WEAK) refuse("an unknown kind of symbol");
    if (symbol.st_shndx == SHN_UNDEF) return;  // looked up where it is used
    if (symbol.st_shndx == SHN_ABS && type == STT_FILE) return;
    if (symbol.st_shndx >= headers_.size()) refuse("a symbol outside all sections");
    const uint64_t bytes = headers_[symbol.st_shndx].sh_size;
    if (symbol.st_value > bytes || symbol.st_size > bytes - symbol.st_value) {
      refuse("a symbol outside its section");
    }
    if (type != STT_FUNC || binding != STB_GLOBAL) return;
    check_name(name);
    const size_t place = places_[symbol.st_shndx];
    if (place == kNotLoaded || (headers_[symbol.st_shndx].sh_flags & SHF_EXECINSTR) == 0 ||
        symbol.st_size == 0) {
      refuse("a function without code");
    }
    code_->functions_.push_back({name, place + symbol.st_value, symbol.st_size});
  }

  void read_relocations(const Elf64_Shdr& header) {
    section(header.sh_link, SHT_SYMTAB);
    const Elf64_Shdr& target = headers_[header.sh_info];
    const size_t place = places_[header.sh_info];
    if (place == kNotLoaded) {
      if (target.sh_type != kUnwind) refuse("relocations of a section that is not loaded");
      return;
    }
    for (const Elf64_Rela& entry : records<Elf64_Rela>(header)) {
      const uint64_t type = ELF64_R_TYPE(entry.r_info);
      const bool is_wide = type == (is_arm_ ? R_AARCH64_ABS64 : R_X86_64_64) ||
                           type == (is_arm_ ? R_AARCH64_PREL64 : R_X86_64_PC64);
      if (!is_wide && !is_arm_) refuse("relocations of type " + std::to_string(type));
      const size_t bytes = is_wide ? 8 : 4;
      if (target.sh_size < bytes || entry.r_offset > target.sh_size - bytes) {
        refuse("a relocation outside its section");
      }
      const size_t index = ELF64_R_SYM(entry.r_info);
      if (index >= symbols_.size()) refuse("a relocation without a symbol");
      if (!is_wide) {
        read_bits(entry, target, place + entry.r_offset, symbols_[index]);
        continue;
      }
      const Elf64_Sym& symbol = symbols_[index];
      ObjectCode::Relocation out = {};
      out.place = place + entry.r_offset;
      out.from_place = type == (is_arm_ ? R_AARCH64_PREL64 : R_X86_64_PC64);
      out.value = static_cast<uint64_t>(entry.r_addend);
      if (symbol.st_shndx == SHN_UNDEF) {
        out.value += external_address(name_of(symbol));
      } else {
        out.from_image = true;
        out.value += place_of(symbol);
      }
      code_->relocations_.push_back(out);
    }
  }

  // Where a symbol is in the image.
  size_t place_of(const Elf64_Sym& symbol) const {
    if (symbol.st_shndx >= places_.size() || places_[symbol.st_shndx] == kNotLoaded) {
      refuse("a relocation to what is not loaded");
    }
    return places_[symbol.st_shndx] + symbol.st_value;
  }

  // A relocation of AArch64 to something in the image, or a call of a function outside.
  void read_bits(const Elf64_Rela& entry, const Elf64_Shdr& target, size_t place,
                 const Elf64_Sym& symbol) {
    const uint64_t type = ELF64_R_TYPE(entry.r_info);
    const bool is_outside = symbol.st_shndx == SHN_UNDEF;
    if (type == R_AARCH64_PREL32) {
      const int64_t apart = in_image(symbol, entry) - static_cast<int64_t>(place);
      code_->bits_.push_back({place, ~uint32_t{0}, static_cast<uint32_t>(apart)});
      return;
    }
    const Patched* patched = nullptr;
    for (const Patched& known : kPatched) {
      if (known.type == type) patched = &known;
    }
    if (patched == nullptr) refuse("relocations of type " + std::to_string(type));
    if ((target.sh_flags & SHF_EXECINSTR) == 0 || place % sizeof(uint32_t) != 0) {
      refuse("a relocation of an instruction where none is");
    }
    const auto code = record<uint32_t>(target.sh_offset + entry.r_offset);
    if ((code & patched->mask) != patched->code) refuse("a relocation of another instruction");
    if (patched->kind == Patched::kBranch) {
      if (is_outside && entry.r_addend != 0) refuse("a call into the middle of a function");
      const int64_t to = is_outside ? stub_of(name_of(symbol)) : in_image(symbol, entry);
      const int64_t apart = to - static_cast<int64_t>(place);
      if (apart % 4 != 0 || apart < -kReach || apart >= kReach) refuse("a call too far");
      code_->bits_.push_back({place, 0x03ffffff, static_cast<uint32_t>(apart >> 2) & 0x03ffffff});
      return;
    }
    const int64_t to = in_image(symbol, entry);
    if (patched->kind == Patched::kPage) {
      const auto pages = static_cast<uint32_t>((to >> 12) - static_cast<int64_t>(place >> 12));
      code_->bits_.push_back({place, 0x60ffffe0, (pages & 3) << 29 | (pages >> 2 & 0x7ffff) << 5});
      return;
    }
    const auto low = static_cast<uint32_t>(to & 0xfff);
    if (low % (1u << patched->scale) != 0) refuse("a relocation to an unaligned address");
    code_->bits_.push_back({place, 0x003ffc00, low >> patched->scale << 10});
  }

  // The same with the addend; it stays in the image, or is its end.
  int64_t in_image(const Elf64_Sym& symbol, const Elf64_Rela& entry) const {
    const auto base = static_cast<int64_t>(place_of(symbol));
    const auto end = static_cast<int64_t>(code_->image_bytes_);
    if (entry.r_addend < -base || entry.r_addend > end - base) {
      refuse("a relocation to what is not loaded");
    }
    return base + entry.r_addend;
  }

  // The place of the stub that jumps to a function outside.
  int64_t stub_of(const std::string& name) {
    const uintptr_t address = external_address(name);
    const auto known = stub_places_.find(address);
    if (known != stub_places_.end()) return known->second;
    const size_t place = aligned(stubs_at_, 8);
    stubs_at_ = place + kStubBytes;
    code_->stubs_.push_back(place);
    code_->relocations_.push_back({place + sizeof(kStub), address, false, false});
    return stub_places_[address] = static_cast<int64_t>(place);
  }

  // Names go into messages and to Python.
  static void check_name(const std::string& name) {
    constexpr const char* kLetters =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    if (name.empty() || name.find_first_not_of(kLetters) != std::string::npos) {
      refuse("an unlikely name of a function");
    }
  }

  static uintptr_t external_address(const std::string& name) {
    check_name(name);
    for (const External& known : externals()) {
      if (name == known.name) return known.address;
    }
    refuse("a call of '" + name + "', which generated code may not call");
  }

  std::string_view file_;
  bool is_arm_;
  ObjectCode* code_;
  size_t stubs_at_ = 0;  // where the next stub will be in the image
  std::map<uintptr_t, int64_t> stub_places_;
  std::vector<Elf64_Shdr> headers_;
  std::vector<size_t> places_;  // of each section in the image
  size_t symbols_at_ = 0;
  std::vector<Elf64_Sym> symbols_;
  Elf64_Shdr names_ = {};
};

ObjectCode::ObjectCode(std::string_view file, InstructionSet instructions) : file_(file) {
  ObjectReader(file, instructions, this).read();
}

void ObjectCode::place(char* image) const {
  for (const Section& section : sections_) {
    if (section.bytes != 0) {
      std::memcpy(image + section.place, file_.data() + section.offset, section.bytes);
    }
  }
  for (const size_t stub : stubs_) std::memcpy(image + stub, kStub, sizeof(kStub));
  for (const Bits& bits : bits_) {
    uint32_t word;
    std::memcpy(&word, image + bits.place, sizeof(word));
    word = (word & ~bits.mask) | bits.value;
    std::memcpy(image + bits.place, &word, sizeof(word));
  }
  const auto base = reinterpret_cast<uintptr_t>(image);
  for (const Relocation& relocation : relocations_) {
    uint64_t value = relocation.value;
    if (relocation.from_image) value += base;
    if (relocation.from_place) value -= base + relocation.place;
    std::memcpy(image + relocation.place, &value, sizeof(value));
  }
}

LoadedCode::LoadedCode(const std::vector<std::string_view>& files) {
#if !defined(__x86_64__) && !defined(__aarch64__)
  refuse("machine code is loaded on x86-64 and AArch64 only");
#endif
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<ObjectCode> codes;
  std::vector<size_t> places;
  for (size_t i = 0; i < files.size(); ++i) {
    codes.emplace_back(files[i]);
    places.push_back(mapped_bytes_);
    for (const ObjectCode::Function& function : codes[i].functions()) {
      functions_.push_back({function.name, mapped_bytes_ + function.offset, function.bytes, i});
    }
    mapped_bytes_ += aligned(codes[i].image_bytes(), page);
    if (mapped_bytes_ > kMostBytes) refuse("too large");
  }
  void* const image =
      mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (image == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  for (size_t i = 0; i < codes.size(); ++i) codes[i].place(static_cast<char*>(image) + places[i]);
  // CPUs of Arm's do not see in their caches of instructions what was written as data.
  __builtin___clear_cache(static_cast<char*>(image), static_cast<char*>(image) + mapped_bytes_);
  // Never writable and executable at once.
  if (mprotect(image, mapped_bytes_, PROT_READ | PROT_EXEC) != 0) {
    const int error = errno;
    munmap(image, mapped_bytes_);
    throw std::system_error(error, std::generic_category(), "mprotect");
  }
  image_ = image;
  for (Function& function : functions_) function.address += reinterpret_cast<uintptr_t>(image);
}

LoadedCode::~LoadedCode() { munmap(image_, mapped_bytes_); }

std::string cpu_identity() {
  std::string out;
#if defined(__x86_64__)
  const auto add = [&out](uint32_t value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  enum : unsigned { kEax = 1, kEbx = 2, kEcx = 4, kEdx = 8, kAll = 15 };
  // What LLVM's TargetParser/Host.cpp reads. Other registers of these leaves differ between cores.
  struct Leaf {
    uint32_t leaf, subleaf;
    unsigned registers;
  };
  static constexpr Leaf kLeaves[] = {
      {0x0, 0, kAll},          {0x1, 0, kEax | kEcx | kEdx}, {0x7, 0, kAll},
      {0x7, 1, kAll},          {0xd, 1, kEax},               {0x14, 0, kEbx},
      {0x19, 0, kEbx},         {0x1e, 1, kEax},              {0x24, 0, kEbx},
      {0x80000001, 0, kEcx | kEdx}, {0x80000008, 0, kEbx},
  };
  unsigned eax, ebx, ecx, edx;
  for (const Leaf& row : kLeaves) {
    if (__get_cpuid_count(row.leaf, row.subleaf, &eax, &ebx, &ecx, &edx) == 0) {
      eax = ebx = ecx = edx = 0;
    }
    if (row.registers & kEax) add(eax);
    if (row.registers & kEbx) add(ebx);
    if (row.registers & kEcx) add(ecx);
    if (row.registers & kEdx) add(edx);
  }
  // Registers that the operating system saves: AVX-512 and AMX need it.
  constexpr unsigned kOsxsave = 1u << 27;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & kOsxsave) != 0) {
    uint32_t low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    add(low);
    add(high);
  }
#elif defined(__aarch64__)
  for (const unsigned long kind : {AT_HWCAP, AT_HWCAP2}) {
    const unsigned long features = getauxval(kind);
    out.append(reinterpret_cast<const char*>(&features), sizeof(features));
  }
#endif
  return out;
}

}  // namespace shlo_disc
