// Conflicts in global memory: what threads of a launch write, and others read or write otherwise.
//
// Two writes of the same bytes are none. A block that has used an atomic operation or a strong load
// on global memory may know that others are done, so it is not checked any more.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "order.h"

namespace ptx {

struct Warp;

class Conflicts {
 public:
  Conflicts(size_t segments, size_t granule) : written_(segments), granule_(granule) {}

  void read(const Warp& w, int lane, size_t segment, uint64_t bytes_of_segment, uint64_t from,
            uint64_t bytes);
  // Before `value` is written over `old`.
  void write(const Warp& w, int lane, size_t segment, uint64_t bytes_of_segment, uint64_t from,
             uint64_t bytes, const uint8_t* old, const uint8_t* value);

 private:
  struct Stamp {
    uint32_t block;  // its number + 1; 0: nobody wrote
    Moment moment;
    int32_t warp;
  };
  struct Free {
    void operator()(Stamp* p) const { std::free(p); }
  };
  bool conflict(const Warp& w, int lane, const Stamp& s) const;

  std::vector<std::unique_ptr<Stamp[], Free>> written_;  // pages that nobody touches cost nothing
  size_t granule_;
};

}  // namespace ptx
