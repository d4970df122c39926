// Idle blocks of a pool: one list per size class, latest first, and one list of all by age.
#ifndef SHLO_DISC_RAL_IDLE_BLOCKS_H_
#define SHLO_DISC_RAL_IDLE_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "size_classes.h"

namespace shlo_disc {

// What a block of a pool begins with; used by the pool only.
template <typename Block>
struct IdleLinks {
  int size_class = 0;
  Block* newer = nullptr;  // idle blocks by age
  Block* older = nullptr;
  Block* below = nullptr;  // idle blocks of one size class, latest first
  Block* above = nullptr;
};

// Not thread-safe. `Block` has a `size` in bytes and `IdleLinks<Block> links`.
template <typename Block>
class IdleBlocks {
 public:
  int64_t bytes() const { return bytes_; }
  int64_t count() const { return count_; }

  void link(Block* block) {
    IdleLinks<Block>& links = block->links;
    const int c = links.size_class;
    links.above = nullptr;
    links.below = first_[c];
    if (links.below != nullptr) links.below->links.above = block;
    first_[c] = block;
    occupied_[c / 64] |= uint64_t{1} << (c % 64);

    links.newer = nullptr;
    links.older = newest_;
    if (newest_ != nullptr) newest_->links.newer = block;
    newest_ = block;
    if (oldest_ == nullptr) oldest_ = block;

    bytes_ += static_cast<int64_t>(block->size);
    ++count_;
  }

  // Takes out the smallest block of the classes from `wanted` to `largest` that `fits`, the latest of
  // its class; null when there is none.
  template <typename Fits>
  Block* take(int wanted, int largest, const Fits& fits) {
    for (int c = next_occupied(wanted); c <= largest; c = next_occupied(c + 1)) {
      for (Block* block = first_[c]; block != nullptr; block = block->links.below) {
        if (!fits(*block)) continue;
        unlink(block);
        return block;
      }
    }
    return nullptr;
  }

  // Takes the oldest blocks out until `bytes` are left; chained by `links.below`. The caller frees
  // them after unlocking, which may take milliseconds.
  Block* evict_to(int64_t bytes) {
    Block* evicted = nullptr;
    while (bytes_ > bytes && oldest_ != nullptr) {
      Block* const block = oldest_;
      unlink(block);
      block->links.below = evicted;
      evicted = block;
    }
    return evicted;
  }

 private:
  // First class >= c with a block; kClasses when there is none.
  int next_occupied(int c) const {
    while (c < kClasses) {
      const uint64_t word = occupied_[c / 64] >> (c % 64);
      if (word != 0) return c + __builtin_ctzll(word);
      c = (c / 64 + 1) * 64;
    }
    return kClasses;
  }

  void unlink(Block* block) {
    IdleLinks<Block>& links = block->links;
    const int c = links.size_class;
    if (links.above != nullptr) {
      links.above->links.below = links.below;
    } else {
      first_[c] = links.below;
    }
    if (links.below != nullptr) links.below->links.above = links.above;
    if (first_[c] == nullptr) occupied_[c / 64] &= ~(uint64_t{1} << (c % 64));

    if (links.newer != nullptr) links.newer->links.older = links.older;
    else newest_ = links.older;
    if (links.older != nullptr) links.older->links.newer = links.newer;
    else oldest_ = links.newer;

    bytes_ -= static_cast<int64_t>(block->size);
    --count_;
  }

  Block* first_[kClasses] = {};
  uint64_t occupied_[(kClasses + 63) / 64] = {};
  Block* newest_ = nullptr;
  Block* oldest_ = nullptr;
  int64_t bytes_ = 0;
  int64_t count_ = 0;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_IDLE_BLOCKS_H_
