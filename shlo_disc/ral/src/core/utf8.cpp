#include "utf8.h"

#include <cstddef>
#include <cstdint>

namespace shlo_disc {

bool is_utf8(std::string_view text) {
  static constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i]);
    const size_t more = first < 0x80 ? 0 : first >> 5 == 6 ? 1 : first >> 4 == 14 ? 2 : first >> 3 == 30 ? 3 : 4;
    if (more == 4 || text.size() - i <= more) return false;
    uint32_t code = more == 0 ? first : first & (0x3f >> more);
    for (size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if (next >> 6 != 2) return false;
      code = code << 6 | (next & 0x3f);
    }
    if (code < kLeast[more] || code > 0x10ffff || code >> 11 == 0x1b) return false;  // or half of a pair
    i += more + 1;
  }
  return true;
}

}  // namespace shlo_disc
