// Calls of a program that come again, as graphs of the driver: one launch in place of many.
//
// A host program gives the device the same work whenever its arguments, results, temporary memory and
// sizes are the same, unless it reads memory of the device or calls a handler of XLA's FFI. So what it gives is recorded when such a
// call comes for the second time, and the recording launched from then on. That saves the host 2 to 8
// microseconds a kernel, and the device a part of the time between two kernels.
//
// Source: CUDA Driver API, "Graph Management", "Stream Management" (capture).
#ifndef SHLO_DISC_RAL_GPU_GRAPHS_H_
#define SHLO_DISC_RAL_GPU_GRAPHS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include "gpu_device.h"

namespace shlo_disc {

// What a run of a host program did.
struct RunTrace {
  int64_t operations = 0;  // launches, copies and fills
  bool has_read = false;   // memory of the device, or had a handler of XLA's FFI do so
};

// Graphs of one program on one device. Thread-safe.
class GpuGraphs {
 public:
  using Key = std::vector<uint64_t>;
  // Gives the work of a call to a stream. False: it has failed, and says so elsewhere. `is_recorded`:
  // nothing runs, and a read fails.
  using Run = std::function<bool(void* stream, bool is_recorded, RunTrace* trace)>;

  explicit GpuGraphs(GpuDevice& device) : device_(device) {}
  ~GpuGraphs();
  GpuGraphs(const GpuGraphs&) = delete;
  GpuGraphs& operator=(const GpuGraphs&) = delete;

  // Whether the driver has graphs, and the environment allows them.
  bool is_usable() const;

  // Gives the work of the call `key` to `stream`, by `run` or by a graph. `key`: everything that the
  // work depends on. True if it is given; else what `run` gave, or false with `failure` set.
  bool call(Key key, void* stream, const Run& run, Failure* failure);

 private:
  struct Entry {
    Key key;
    void* graph = nullptr;     // CUgraphExec
    bool is_worth_it = false;  // it gave many operations, and read nothing
  };
  struct Retired {
    void* graph;
    void* event;  // recorded behind its last launch
  };

  std::list<Entry>::iterator find(const Key& key);
  // A graph of what `run` gives; null: there is none.
  void* record(const Run& run);
  // Destroys a graph when its launches are done. Under the lock.
  void retire(void* graph, void* stream);
  void destroy_retired(bool all);

  GpuDevice& device_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // the one used last is the first
  std::vector<Retired> retired_;
};

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_GPU_GRAPHS_H_
