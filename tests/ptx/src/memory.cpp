// ld, st, atom, red, cvta. Source: PTX ISA 8.x, section 9.7.9.
#include "memory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "lanes.h"

namespace ptx {

static std::string text_of(uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(address));
  return text;
}

static void check_arrays(const Array* arrays, uint64_t count, const char* space, uint64_t offset,
                         uint64_t bytes) {
  for (uint64_t k = 0; k < count; ++k) {
    const uint64_t from = offset - arrays[k].begin;
    if (from < arrays[k].bytes && bytes <= arrays[k].bytes - from) return;
  }
  throw Fault("an access of " + std::to_string(bytes) + " bytes at " + text_of(offset) + " of " +
              space + " memory, where no array is");
}

Place find(Warp& w, int lane, int64_t space, uint64_t address, uint64_t bytes, bool is_write,
           uint64_t align) {
  if (address % (align ? align : bytes)) {
    throw Fault("an access of " + std::to_string(bytes) + " bytes at " + text_of(address) +
                " that is not aligned");
  }
  Block& b = *w.block;
  Launch& launch = b.launch;
  uint64_t offset = address;
  if (space == generic) {
    space = address < kWindow ? global : int64_t(address / kWindow) + 1;
    offset = space == global ? address : address % kWindow;
  }
  switch (space) {
    case global: {
      const Segment* s = launch.segments;
      size_t k = b.last_segment;
      if (k >= launch.segment_count || offset - s[k].begin >= s[k].bytes) {
        const Segment* end = s + launch.segment_count;
        const Segment* next = std::upper_bound(
            s, end, offset, [](uint64_t at, const Segment& one) { return at < one.begin; });
        if (next == s) throw Fault("an access at " + text_of(offset) + ", where nothing is");
        k = b.last_segment = size_t(next - s) - 1;
      }
      const uint64_t from = offset - s[k].begin;
      if (from > s[k].bytes || bytes > s[k].bytes - from) {
        throw Fault("an access of " + std::to_string(bytes) + " bytes at " + text_of(offset) +
                    ", " + std::to_string(from) + " bytes into an array of " +
                    std::to_string(s[k].bytes));
      }
      if (is_write && !s[k].writable) throw Fault("a write to an array that may only be read");
      return {reinterpret_cast<uint8_t*>(s[k].host + from), -1, int64_t(k), from};
    }
    case shared:
      check_arrays(launch.shared, launch.shared_count, "shared", offset, bytes);
      return {&b.shared_memory[offset], int64_t(offset)};
    case local:
      check_arrays(launch.local, launch.local_count, "local", offset, bytes);
      return {&b.local_memory[uint64_t(w.thread(lane)) * b.local_bytes + offset], -1};
    case param:
      if (offset > launch.param_bytes || bytes > launch.param_bytes - offset) {
        throw Fault("an access behind the parameters");
      }
      if (is_write) throw Fault("a write to a parameter");
      return {const_cast<uint8_t*>(launch.params) + offset, -1};
    default:
      throw Fault("an access at " + text_of(address) + ", where nothing is");
  }
}

uint32_t shared_offset(Warp& w, uint64_t address, uint64_t bytes, uint64_t align) {
  const uint64_t base = base_of(shared);
  const uint64_t offset = address >= base ? address - base : address;
  if (offset % align) throw Fault("an address in shared memory that is not aligned");
  check_arrays(w.block->launch.shared, w.block->launch.shared_count, "shared", offset, bytes);
  return uint32_t(offset);
}

// imm: offset; space; bytes of an element, elements << 8 (8 at most), flags << 16.
enum Flag { Signed = 1, Strong = 2 };

void note_read(Warp& w, int lane, const Place& place, uint64_t bytes, bool is_strong) {
  Block& b = *w.block;
  if (place.offset >= 0) {
    const Access access = is_strong ? Access::atomic : Access::read;
    b.order.note(uint32_t(place.offset), uint32_t(bytes), w.thread(lane), access);
  } else if (place.segment >= 0) {
    b.is_informed |= is_strong;
    const size_t k = size_t(place.segment);
    b.conflicts.read(w, lane, k, b.launch.segments[k].bytes, place.from, bytes);
  }
}

void note_write(Warp& w, int lane, const Place& place, uint64_t bytes, const uint8_t* value,
                bool is_strong) {
  Block& b = *w.block;
  if (place.offset >= 0) {
    const Access access = is_strong ? Access::atomic : Access::write;
    b.order.note(uint32_t(place.offset), uint32_t(bytes), w.thread(lane), access);
  } else if (place.segment >= 0 && !is_strong) {
    const size_t k = size_t(place.segment);
    b.conflicts.write(w, lane, k, b.launch.segments[k].bytes, place.from, bytes, place.host, value);
  }
}

template <size_t Bytes>
void load_lane(const Place& place, uint64_t count, bool is_signed, Warp& w, const Instr& in, int l) {
  for (uint64_t k = 0; k < count; ++k) {
    Slot raw = 0;
    std::memcpy(&raw, place.host + k * Bytes, Bytes);
    constexpr int unused = 64 - 8 * int(Bytes);
    if (is_signed) raw = Slot(int64_t(raw << unused) >> unused);
    w.out(in, int(k))[l] = raw;
  }
}

template <size_t Bytes>
Flow load(Warp& w, const Instr& in, Mask m) {
  const uint64_t count = uint64_t(in.imm[2]) >> 8 & 255;
  const bool is_signed = in.imm[2] >> 16 & Signed, is_strong = in.imm[2] >> 16 & Strong;
  const Slot* base = w.arg(in, int(count));
  uint64_t last = ~uint64_t{0};
  int lanes = 0;  // that have read at `last`, one after another
  each(m, [&](int l) {
    const uint64_t address = base[l] + uint64_t(in.imm[0]);
    const Place place = find(w, l, in.imm[1], address, Bytes * count, false);
    lanes = address == last ? lanes + 1 : 1;
    last = address;
    if (lanes <= 2) note_read(w, l, place, Bytes * count, is_strong);  // a third one tells no more
    load_lane<Bytes>(place, count, is_signed, w, in, l);
  });
  return Flow::next;
}

template <size_t Bytes>
Flow store(Warp& w, const Instr& in, Mask m) {
  const uint64_t count = uint64_t(in.imm[2]) >> 8 & 255;
  const bool is_strong = in.imm[2] >> 16 & Strong;
  const Slot* base = w.arg(in, 0);
  each(m, [&](int l) {
    const uint64_t address = base[l] + uint64_t(in.imm[0]);
    const Place place = find(w, l, in.imm[1], address, Bytes * count, true);
    uint8_t value[8 * Bytes];
    for (uint64_t k = 0; k < count; ++k) {
      std::memcpy(value + k * Bytes, &w.arg(in, int(k) + 1)[l], Bytes);
    }
    note_write(w, l, place, Bytes * count, value, is_strong);
    std::memcpy(place.host, value, Bytes * count);
  });
  return Flow::next;
}

template <size_t Bytes>
void add_access(Table& t) {
  t["ld." + std::to_string(Bytes)] = load<Bytes>;
  t["st." + std::to_string(Bytes)] = store<Bytes>;
}

// prefetch: no fault is one of an address, so nothing is checked.
static Flow nothing(Warp&, const Instr&, Mask) { return Flow::next; }

// Operands: old value, base, one or two values. imm as of `load`.
template <class T, class F>
Flow atomic(Warp& w, const Instr& in, Mask m) {
  Slot* to = w.out(in, 0);
  const Slot *base = w.arg(in, 1), *first = w.arg(in, 2), *second = w.arg(in, in.count - 1);
  each(m, [&](int l) {
    const Place place = find(w, l, in.imm[1], base[l] + uint64_t(in.imm[0]), sizeof(T), true);
    note_read(w, l, place, sizeof(T), true);
    T old;
    std::memcpy(&old, place.host, sizeof old);
    const T made = F{}(old, get<T>(first, l), get<T>(second, l));
    std::memcpy(place.host, &made, sizeof made);
    put<T>(to, l, old);
  });
  return Flow::next;
}

template <class T, class F>
void add_atomic(Table& t, const std::string& name, F) {
  t["atom." + name] = atomic<T, F>;
}

template <class T>
void add_integer_atomics(Table& t, const std::string& type) {
  add_atomic<T>(t, "add." + type, [](T x, T y, T) { return T(uint64_t(x) + uint64_t(y)); });
  add_atomic<T>(t, "min." + type, [](T x, T y, T) { return std::min(x, y); });
  add_atomic<T>(t, "max." + type, [](T x, T y, T) { return std::max(x, y); });
}

template <class T>
void add_bit_atomics(Table& t, const std::string& type) {
  add_atomic<T>(t, "exch." + type, [](T, T y, T) { return y; });
  add_atomic<T>(t, "cas." + type, [](T x, T y, T z) { return x == y ? z : x; });
  add_atomic<T>(t, "and." + type, [](T x, T y, T) { return T(x & y); });
  add_atomic<T>(t, "or." + type, [](T x, T y, T) { return T(x | y); });
  add_atomic<T>(t, "xor." + type, [](T x, T y, T) { return T(x ^ y); });
}

template <class T>
void add_pair_atomics(Table& t, const std::string& type) {
  add_atomic<T>(t, "add.noftz." + type, [](T x, T y, T) { return narrow<T>(wide(x) + wide(y)); });
  add_atomic<uint32_t>(t, "add.noftz." + type + "x2", [](uint32_t x, uint32_t y, uint32_t) {
    const auto half = [&](int k) {
      const T a = std::bit_cast<T>(uint16_t(x >> k)), b = std::bit_cast<T>(uint16_t(y >> k));
      return uint32_t(std::bit_cast<uint16_t>(narrow<T>(wide(a) + wide(b)))) << k;
    };
    return half(0) | half(16);
  });
}

// cvta: imm[0] is added to an address, generic or not.
static Flow moved(Warp& w, const Instr& in, Mask m) {
  Slot* to = w.out(in, 0);
  const Slot* from = w.arg(in, 1);
  each(m, [&](int l) { to[l] = from[l] + uint64_t(in.imm[0]); });
  return Flow::next;
}

static Flow is_in_space(Warp& w, const Instr& in, Mask m) {
  Slot* to = w.out(in, 0);
  const Slot* from = w.arg(in, 1);
  each(m, [&](int l) {
    const int64_t space = from[l] < kWindow ? int64_t{global} : int64_t(from[l] / kWindow) + 1;
    to[l] = space == in.imm[0];
  });
  return Flow::next;
}

void add_memory(Table& t) {
  add_access<1>(t);
  add_access<2>(t);
  add_access<4>(t);
  add_access<8>(t);
  t["prefetch"] = nothing;
  t["cvta"] = moved;
  t["isspacep"] = is_in_space;
  add_integer_atomics<uint32_t>(t, "u32");
  add_integer_atomics<int32_t>(t, "s32");
  add_integer_atomics<uint64_t>(t, "u64");
  add_integer_atomics<int64_t>(t, "s64");
  add_bit_atomics<uint16_t>(t, "b16");
  add_bit_atomics<uint32_t>(t, "b32");
  add_bit_atomics<uint64_t>(t, "b64");
  add_pair_atomics<Half>(t, "f16");
  add_pair_atomics<Brain>(t, "bf16");
  add_atomic<float>(t, "add.f32", [](float x, float y, float) { return canonical(x + y); });
  add_atomic<double>(t, "add.f64", [](double x, double y, double) { return canonical(x + y); });
  using U = uint32_t;
  add_atomic<U>(t, "inc.u32", [](U x, U y, U) { return x >= y ? 0 : x + 1; });
  add_atomic<U>(t, "dec.u32", [](U x, U y, U) { return x == 0 || x > y ? y : x - 1; });
}

}  // namespace ptx
