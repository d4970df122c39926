// State of a launch: threads are lanes of warps, registers are 64-bit slots, memory is checked.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "conflicts.h"
#include "order.h"

namespace ptx {

constexpr int kLanes = 32;
constexpr uint32_t kNowhere = UINT32_MAX;

using Mask = uint32_t;  // one bit a lane
using Slot = uint64_t;  // a register of one lane; a narrow value fills its low bits

struct Warp;
struct Instr;

// What an instruction does to the lanes that ran it.
enum class Flow {
  next,  // they go on behind it
  jump,  // they go on at imm[0]
  set,   // the handler has written their pc
  exit,
};

using Handler = Flow (*)(Warp&, const Instr&, Mask);

// Which lanes must run an instruction together.
enum class Together : int32_t {
  none,
  named,    // those of the mask in the operand imm[3]
  aligned,  // all lanes of the warp that have not exited
};

struct Encoded {  // what Python writes: see assembler.py
  int32_t op, guard, first, count, together, pad;
  int64_t imm[4];
};

struct Instr {
  Handler run;
  int32_t guard;  // 2 * predicate register + (1 for @!), or -1
  Together together;
  const int32_t* operand;  // a register, or ~k for constant k
  int32_t count;
  int64_t imm[4];
};

struct Program {
  std::vector<Instr> code;
  std::vector<int32_t> operands;
  std::vector<Slot> constants;  // kLanes slots each
  int registers = 0;
};

// Memory spaces, and where each lies among generic addresses.
enum Space : int64_t { generic, global, shared, local, param };
constexpr uint64_t kWindow = uint64_t{1} << 60;
constexpr uint64_t base_of(int64_t space) { return space > global ? (space - 1) * kWindow : 0; }

struct Segment {  // as Python writes it
  uint64_t begin, bytes, host, writable;
};

struct Array {  // a shared or local array, by its offset
  uint64_t begin, bytes;
};

struct Launch {  // as Python writes it
  uint32_t grid[3], block[3];
  const uint8_t* params;
  uint64_t param_bytes;
  const Segment* segments;
  uint64_t segment_count;
  const Array* shared;
  uint64_t shared_count;
  const Array* local;
  uint64_t local_count;
  uint64_t granule;         // bytes of shared memory that are tracked together
  uint64_t global_granule;  // the same of global memory
  uint64_t seed;
  uint64_t limit;  // instructions of the warps of one block
  uint64_t fill;   // a byte
  uint64_t steps;  // out: instructions of warps
  int64_t at;      // out: the instruction of a fault
  char message[480];
};

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Unknown : std::runtime_error {  // an instruction that is not written yet
  using std::runtime_error::runtime_error;
};

struct Barrier {
  uint32_t arrived = 0;
  uint32_t expected = 0;  // 0: all threads that have not exited
  uint32_t ayes = 0;        // of barriers that count predicates
  std::map<int, Mask> waiting, joined;  // by warp
  std::vector<std::pair<Slot*, int64_t>> results;  // where the count goes, and how: see `barrier`
};

struct Transfer {  // bytes that an asynchronous copy has yet to bring
  uint32_t offset;
  std::vector<uint8_t> bytes;
};

struct PhaseBarrier {  // an mbarrier object
  int64_t count = 0, pending = 0, bytes = 0;
  uint32_t phase = 0;
  Clocks clocks{}, released{};
  bool done() const { return pending == 0 && bytes == 0; }
};

struct BulkLoad {  // on its way to shared memory
  uint32_t barrier;
  std::vector<Transfer> parts;
  int64_t bytes;
  int64_t arrivals = 0;  // that its end counts for
};

struct BulkStore {  // a run of bytes on its way from shared memory
  uint32_t offset;
  uint64_t address;
  uint32_t bytes;
};

struct Block {
  Launch& launch;
  const Program& program;
  Conflicts& conflicts;
  uint64_t number = 0;
  bool is_informed = false;  // it may know what other blocks have done: see conflicts.h
  uint32_t id[3] = {};
  uint32_t threads, live = 0;
  std::vector<uint8_t> shared_memory, local_memory;
  uint64_t local_bytes = 0;
  std::vector<Warp> warps;
  std::map<uint32_t, Barrier> barriers;
  std::map<uint32_t, PhaseBarrier> phases;
  std::vector<BulkLoad> bulk;
  Order order;
  uint64_t random;
  uint64_t first_step = 0;
  uint64_t events = 0;  // grows where a lane that polls may go on
  size_t last_segment = 0;

  Block(Launch& launch, const Program& program, Conflicts& conflicts);
  void run(uint64_t number);
  void barrier_check(uint32_t number);
  void phase_check(PhaseBarrier& phase);
  uint64_t draw() { return random = random * 6364136223846793005u + 1442695040888963407u, random >> 33; }

 private:
  bool land_one();
};

struct Flying {  // sums of wgmma on their way to a register, by the group that brings them
  std::vector<Slot> lanes;
  uint64_t group;
};

struct Lent {  // a register that wgmma reads until its group is done
  int32_t number;
  std::vector<Slot> lanes;
};

struct Warp {
  Block* block = nullptr;
  int number = 0;
  std::vector<Slot> registers;
  uint32_t pc[kLanes] = {};
  Mask running = 0, exited = 0;
  Mask syncing = 0;  // wait for other lanes of the warp
  Mask barred = 0;   // wait at a barrier of the block
  Mask polling = 0;  // wait for a phase
  Mask parked = 0;   // lanes that the current handler has stopped, with their pc
  uint64_t polled_at = 0;
  uint32_t here = 0;  // the current instruction
  Slot carry[kLanes] = {};
  std::vector<std::vector<Transfer>> groups[kLanes];  // committed copies, oldest first
  std::vector<Transfer> open[kLanes];                 // copies of no group yet
  std::vector<std::vector<BulkStore>> stores[kLanes];
  std::vector<BulkStore> open_stores[kLanes];
  std::vector<std::vector<Array>> reads;  // of committed wgmma groups
  std::vector<Array> open_reads;
  std::map<int32_t, Flying> flying;  // by register, which holds nothing of use meanwhile
  std::vector<std::vector<Lent>> lent;
  std::vector<Lent> open_lent;
  uint64_t committed = 0, done = 0;  // wgmma groups
  bool is_fenced = false;  // by wgmma.fence

  Mask live() const { return ~exited; }
  int thread(int lane) const { return number * kLanes + lane; }
  Slot* out(const Instr& in, int k) { return &registers[size_t(in.operand[k]) * kLanes]; }
  const Slot* arg(const Instr& in, int k) const {
    const int32_t o = in.operand[k];
    return o >= 0 ? &registers[size_t(o) * kLanes]
                  : &block->program.constants[size_t(~o) * kLanes];
  }
  void run(uint64_t slice);

 private:
  Mask gathered(const Instr& in, Mask& mask);
};

template <class F>
inline void each(Mask m, F f) {
  for (; m; m &= m - 1) f(std::countr_zero(m));
}

template <class T>
inline T get(const Slot* from, int lane) {
  T value;
  std::memcpy(&value, &from[lane], sizeof value);
  return value;
}

// Signed integers are extended by their sign, all else by zeros.
template <class T>
inline void put(Slot* to, int lane, T value) {
  if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
    to[lane] = Slot(int64_t(value));
  } else {
    Slot raw = 0;
    std::memcpy(&raw, &value, sizeof value);
    to[lane] = raw;
  }
}

// Handlers by name; each source file adds its own.
using Table = std::map<std::string, Handler>;
void add_arithmetic(Table&);
void add_halves(Table&);
void add_packed(Table&);
void add_conversions(Table&);
void add_memory(Table&);
void add_control(Table&);
void add_warp(Table&);
void add_matrix(Table&);
void add_async(Table&);
void add_bulk(Table&);
void add_phases(Table&);
void add_wgmma(Table&);

}  // namespace ptx
