#ifndef SHLO_DISC_RAL_UTF8_H_
#define SHLO_DISC_RAL_UTF8_H_

#include <string_view>

namespace shlo_disc {

// True if Python decodes `text`.
bool is_utf8(std::string_view text);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_UTF8_H_
