// Bulk copies between global and shared memory, of rows and of tiles that a tensor map describes.
//
// A load arrives at the last moment: when no lane of the block can run without it. A store reads
// shared memory at the wait for it. Source: PTX ISA 8.x, sections 5.5 and 9.7.9.25.
#include <algorithm>

#include "memory.h"

namespace ptx {

constexpr uint32_t kMagic = 0x4D54584C;
constexpr uint32_t kChunk = 16;

struct TensorMap {  // as tensor_map.py writes it
  uint32_t magic;
  uint8_t rank, element, swizzle, rounds;
  uint64_t address;
  uint32_t sizes[5], box[5];
  uint64_t strides[4];
};

static uint32_t swizzled(uint32_t offset, int mode) {
  const uint32_t lines[] = {0, 1, 3, 7};  // none, 32, 64, 128 bytes
  return offset ^ ((offset >> 7 & lines[mode]) << 4);
}

static TensorMap read_map(Warp& w, int lane, uint64_t address) {
  const Place place = find(w, lane, generic, address, 128, false, 64);
  TensorMap map;
  std::memcpy(&map, place.host, sizeof map);
  if (map.magic != kMagic) throw Fault("no tensor map is at the address of one");
  return map;
}

// Calls f(offset in shared memory, address or 0 outside of the tensor) for 16 bytes of a tile.
template <class F>
void each_chunk(const TensorMap& map, uint32_t shared_at, const int32_t* at, F f) {
  uint32_t rows = 1;
  for (int d = 1; d < map.rank; ++d) rows *= map.box[d];
  const uint32_t row_bytes = map.box[0] * map.element;
  for (uint32_t r = 0; r < rows; ++r) {
    uint64_t address = map.address;
    bool is_inside = true;
    for (uint32_t d = 1, rest = r; d < map.rank; ++d) {
      const int64_t index = int64_t(at[d]) + rest % map.box[d];
      rest /= map.box[d];
      is_inside &= index >= 0 && index < map.sizes[d];
      address += uint64_t(index) * map.strides[d - 1];
    }
    for (uint32_t b = 0; b < row_bytes; b += kChunk) {
      const uint32_t to = swizzled(shared_at + r * row_bytes + b, map.swizzle);
      f(to, address, int64_t(at[0]) * map.element + b, is_inside);
    }
  }
}

// f32 to ten digits behind the first, ties to even, as seen on an H200.
static void round_to_tf32(std::vector<uint8_t>& bytes) {
  for (size_t i = 0; i < bytes.size(); i += 4) {
    uint32_t word;
    std::memcpy(&word, &bytes[i], 4);
    if ((word & 0x7F800000) != 0x7F800000) {
      word = (word + 0xFFF + (word >> 13 & 1)) & ~uint32_t{0x1FFF};
    }
    std::memcpy(&bytes[i], &word, 4);
  }
}

// Map, coordinates..., destination or source, barrier if it loads. imm[1]: whether it loads.
static Flow tensor_copy(Warp& w, const Instr& in, Mask m) {
  Block& b = *w.block;
  const bool is_load = in.imm[1];
  const int rank = in.count - (is_load ? 3 : 2);
  each(m, [&](int l) {
    const TensorMap map = read_map(w, l, w.arg(in, 0)[l]);
    if (map.rank != rank) throw Fault("a tensor map of " + std::to_string(map.rank) + " dimensions");
    int32_t at[5];
    for (int d = 0; d < rank; ++d) at[d] = int32_t(w.arg(in, 1 + d)[l]);
    uint32_t tile = map.element;
    for (int d = 0; d < rank; ++d) tile *= map.box[d];
    const uint32_t first =
        shared_offset(w, w.arg(in, 1 + rank)[l] + uint64_t(in.imm[0]), tile, 128);
    const int64_t row = int64_t(map.sizes[0]) * map.element;
    BulkLoad load{0, {}, tile};
    each_chunk(map, first, at, [&](uint32_t offset, uint64_t address, int64_t from, bool inside) {
      const int64_t low = std::clamp<int64_t>(-from, 0, kChunk);
      const int64_t high = inside ? std::clamp<int64_t>(row - from, 0, kChunk) : 0;
      const uint32_t bytes = high > low ? uint32_t(high - low) : 0;
      address += uint64_t(from + low);
      if (is_load) {
        Transfer t{offset, std::vector<uint8_t>(kChunk)};
        if (bytes) {
          const Place place = find(w, l, global, address, bytes, false, map.element);
          note_read(w, l, place, bytes, false);
          std::memcpy(&t.bytes[size_t(low)], place.host, bytes);
          if (map.rounds) round_to_tf32(t.bytes);
        }
        b.order.depart(offset, kChunk, w.thread(l));
        load.parts.push_back(std::move(t));
      } else if (bytes) {
        find(w, l, global, address, bytes, true, map.element);
        b.order.lend(offset + uint32_t(low), bytes, w.thread(l));
        w.open_stores[l].push_back({offset + uint32_t(low), address, bytes});
      }
    });
    if (is_load) {
      load.barrier = shared_offset(w, w.arg(in, 2 + rank)[l] + uint64_t(in.imm[2]), 8, 8);
      b.order.note(load.barrier, 8, w.thread(l), Access::atomic);
      if (!b.phases.count(load.barrier)) throw Fault("an mbarrier that nothing has initialised");
      b.bulk.push_back(std::move(load));
    }
  });
  return Flow::next;
}

static Flow commit(Warp& w, const Instr&, Mask m) {
  each(m, [&](int l) {
    w.stores[l].push_back(std::move(w.open_stores[l]));
    w.open_stores[l].clear();
  });
  return Flow::next;
}

static Flow wait(Warp& w, const Instr& in, Mask m) {  // imm[0]: groups that may be on their way
  each(m, [&](int l) {
    auto& groups = w.stores[l];
    while (groups.size() > size_t(in.imm[0])) {
      for (const BulkStore& s : groups.front()) {
        const Place place = find(w, l, global, s.address, s.bytes, true, 1);
        const uint8_t* from = &w.block->shared_memory[s.offset];
        note_write(w, l, place, s.bytes, from, false);
        std::memcpy(place.host, from, s.bytes);
        w.block->order.give_back(s.offset, s.bytes, w.thread(l));
      }
      groups.erase(groups.begin());
    }
  });
  return Flow::next;
}

// Destination, source, bytes, barrier if it loads. imm: offsets of the first two, of the barrier.
static Flow row_load(Warp& w, const Instr& in, Mask m) {
  Block& b = *w.block;
  each(m, [&](int l) {
    const uint32_t bytes = uint32_t(w.arg(in, 2)[l]);
    if (!bytes || bytes % kChunk) throw Fault("a bulk copy of no multiple of 16 bytes");
    const uint32_t to = shared_offset(w, w.arg(in, 0)[l] + uint64_t(in.imm[0]), bytes, kChunk);
    const uint64_t from = w.arg(in, 1)[l] + uint64_t(in.imm[1]);
    const Place place = find(w, l, global, from, bytes, false, kChunk);
    note_read(w, l, place, bytes, false);
    const uint8_t* host = place.host;
    const uint32_t at = shared_offset(w, w.arg(in, 3)[l] + uint64_t(in.imm[2]), 8, 8);
    b.order.note(at, 8, w.thread(l), Access::atomic);
    if (!b.phases.count(at)) throw Fault("an mbarrier that nothing has initialised");
    b.order.depart(to, bytes, w.thread(l));
    b.bulk.push_back({at, {{to, std::vector<uint8_t>(host, host + bytes)}}, bytes});
  });
  return Flow::next;
}

static Flow row_store(Warp& w, const Instr& in, Mask m) {
  each(m, [&](int l) {
    const uint32_t bytes = uint32_t(w.arg(in, 2)[l]);
    if (!bytes || bytes % kChunk) throw Fault("a bulk copy of no multiple of 16 bytes");
    const uint64_t to = w.arg(in, 0)[l] + uint64_t(in.imm[0]);
    const uint32_t from = shared_offset(w, w.arg(in, 1)[l] + uint64_t(in.imm[1]), bytes, kChunk);
    find(w, l, global, to, bytes, true, kChunk);
    w.block->order.lend(from, bytes, w.thread(l));
    w.open_stores[l].push_back({from, to, bytes});
  });
  return Flow::next;
}

void add_bulk(Table& t) {
  t["bulk.tensor"] = tensor_copy;
  t["bulk.load"] = row_load;
  t["bulk.store"] = row_store;
  t["bulk.commit_group"] = commit;
  t["bulk.wait_group"] = wait;
}

}  // namespace ptx
