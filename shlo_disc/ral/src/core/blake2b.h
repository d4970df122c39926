// BLAKE2b (RFC 7693) of 32 bytes, which names what artifacts hold.
#ifndef SHLO_DISC_RAL_BLAKE2B_H_
#define SHLO_DISC_RAL_BLAKE2B_H_

#include <array>
#include <cstdint>
#include <string_view>

namespace shlo_disc {

using Digest = std::array<uint8_t, 32>;

// As hashlib.blake2b(data, digest_size=32) of Python.
Digest blake2b(std::string_view data);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_BLAKE2B_H_
