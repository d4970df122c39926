// Limits read once from the environment or the machine.
#ifndef SHLO_DISC_RAL_SYSTEM_LIMITS_H_
#define SHLO_DISC_RAL_SYSTEM_LIMITS_H_

#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace shlo_disc {

inline int64_t physical_memory_bytes() {
  return static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
}

// The variable's value when it is a whole number >= 0, else `otherwise`.
inline int64_t bytes_from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  if (text == nullptr || *text == 0) return otherwise;
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  return *end == 0 && value >= 0 ? value : otherwise;
}

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_SYSTEM_LIMITS_H_
