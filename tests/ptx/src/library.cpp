// The C interface that native.py loads.
#include <cstdio>

#include "machine.h"

namespace ptx {

static const std::vector<std::pair<std::string, Handler>>& handlers() {
  static const auto all = [] {
    Table t;
    for (const auto add : {add_arithmetic, add_halves, add_packed, add_conversions, add_memory, add_control,
                           add_warp, add_matrix, add_async, add_phases,
                           add_bulk, add_wgmma}) {
      add(t);
    }
    return std::vector<std::pair<std::string, Handler>>(t.begin(), t.end());
  }();
  return all;
}
}  // namespace ptx

using namespace ptx;

extern "C" {

// The name of handler `number`, or null behind the last one.
const char* ptx_handler(int32_t number) {
  return size_t(number) < handlers().size() ? handlers()[size_t(number)].first.c_str() : nullptr;
}

void* ptx_program(const Encoded* code, int64_t count, const int32_t* operands,
                  int64_t operand_count, const uint64_t* constants, int64_t constant_count,
                  int32_t registers) {
  auto* p = new Program;
  p->registers = registers;
  p->operands.assign(operands, operands + operand_count);
  p->constants.resize(size_t(constant_count) * kLanes);
  for (size_t k = 0; k < p->constants.size(); ++k) p->constants[k] = constants[k / kLanes];
  for (int64_t k = 0; k < count; ++k) {
    const Encoded& e = code[k];
    Instr in{handlers()[size_t(e.op)].second, e.guard, Together(e.together),
             p->operands.data() + e.first, e.count, {}};
    std::memcpy(in.imm, e.imm, sizeof in.imm);
    p->code.push_back(in);
  }
  return p;
}

void ptx_free(void* program) { delete static_cast<Program*>(program); }

// 0; 1 after a fault, 2 at an instruction that is not written, 3 after a mistake of this library or
// without memory: `message` and `at` tell.
int32_t ptx_launch(const void* program, Launch* launch) {
  Launch& l = *launch;
  l.steps = 0;
  const Program& p = *static_cast<const Program*>(program);
  Conflicts conflicts(l.segment_count, l.global_granule);
  Block block(l, p, conflicts);
  const auto fail = [&](const std::string& what, int32_t code) {
    const Warp& w = block.warps[size_t(l.at)];
    std::snprintf(l.message, sizeof l.message, "%s (block %u, %u, warp %d)", what.c_str(),
                  block.id[0], block.id[1], w.number);
    l.at = w.here;
    return code;
  };
  try {
    const uint64_t count = uint64_t{l.grid[0]} * l.grid[1] * l.grid[2];
    std::vector<uint64_t> turn(count);
    for (uint64_t k = 0; k < count; ++k) turn[k] = k;
    for (uint64_t k = count; k > 1; --k) std::swap(turn[k - 1], turn[block.draw() % k]);
    for (const uint64_t k : turn) block.run(k);
  } catch (const Fault& fault) {
    return fail(fault.what(), 1);
  } catch (const Unknown& unknown) {
    return fail(unknown.what(), 2);
  } catch (const std::exception& error) {
    return fail(error.what(), 3);
  }
  return 0;
}
}
