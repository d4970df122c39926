// Packed copies of immutable buffers (weights in the layout a dense kernel wants), kept beside
// the buffer they were made from and shared by all executables of the process. Those of an artifact
// may be mapped.
#ifndef SHLO_DISC_RAL_PACK_CACHE_H_
#define SHLO_DISC_RAL_PACK_CACHE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>

#include "buffer_pool.h"

namespace shlo_disc {

struct Pack;

// Lets the pages that are whole in these bytes leave the process; they come back when they are read. The bytes are
// of a mapping of a file that nobody writes to.
void drop_file_pages(const void* data, size_t bytes);

// One immutable buffer that may have packs. Its packs are freed with it; that must not happen
// while a call uses the buffer (calls keep their arguments and their executable alive).
class PackOwner {
 public:
  PackOwner();
  ~PackOwner();
  PackOwner(const PackOwner&) = delete;
  PackOwner& operator=(const PackOwner&) = delete;

  // Tells that the buffer is a part of a mapped file, whose pages need not stay once there is a pack. Before the
  // first call.
  void lies_in_file(const void* data, size_t bytes) {
    in_file_ = data;
    bytes_in_file_ = bytes;
  }

  // The pack, if there is one that is ready; else null. Lock-free.
  void* ready(uint32_t key) const;
  // See disc_context::packed. Lock-free when the pack exists.
  int32_t find_or_begin(uint32_t key, int64_t bytes, void** out);
  void publish(uint32_t key);
  // Takes a pack that was made before; `holder` keeps its memory. Before the first call.
  void adopt(uint32_t key, const void* data, size_t bytes, std::shared_ptr<const void> holder);
  // The pack with its size, if there is one that is ready; else null and 0.
  std::pair<const void*, size_t> made(uint32_t key) const;

 private:
  friend int64_t pack_clear();
  int64_t free_packs();

  std::atomic<Pack*> head_{nullptr};
  const void* in_file_ = nullptr;
  size_t bytes_in_file_ = 0;
  PackOwner* next_ = nullptr;  // all owners of the process
  PackOwner* previous_ = nullptr;
};

struct PackStats {
  int64_t bytes;
  int64_t packs;
  int64_t owners;
  int64_t limit_bytes;
  int64_t filled;   // since the start
  int64_t refused;  // for want of room under the limit
};

// Number of a layout; equal strings get equal numbers.
uint32_t pack_key(const std::string& layout);

PackStats pack_stats();

// Frees all packs, after the calls that may be reading them have ended; bytes freed.
int64_t pack_clear();

// Held (shared) by a call while its program may read packs.
std::shared_mutex& pack_readers();

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_PACK_CACHE_H_
