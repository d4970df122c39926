// Accesses to memory: found among segments and arrays, checked for bounds and alignment.
#pragma once

#include "machine.h"

namespace ptx {

struct Place {
  uint8_t* host;
  int64_t offset;        // in shared memory, else -1
  int64_t segment = -1;  // of global memory
  uint64_t from = 0;     // its beginning
};

// Note that `bytes` at a place are read, or `value` written there. Throws Fault after a race.
void note_read(Warp& w, int lane, const Place& place, uint64_t bytes, bool is_strong);
void note_write(Warp& w, int lane, const Place& place, uint64_t bytes, const uint8_t* value,
                bool is_strong);

// Where `bytes` at `address` of `space` are; `align` of 0 is `bytes`. Throws Fault.
Place find(Warp& w, int lane, int64_t space, uint64_t address, uint64_t bytes, bool is_write,
           uint64_t align = 0);

// The offset in shared memory of an address that an instruction takes to be one.
uint32_t shared_offset(Warp& w, uint64_t address, uint64_t bytes, uint64_t align);

}  // namespace ptx
