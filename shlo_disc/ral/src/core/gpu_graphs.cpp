#include "gpu_graphs.h"

#include <algorithm>
#include <string>
#include <utility>

namespace shlo_disc {
namespace {

constexpr size_t kMostEntries = 16;    // callers take turns with a few blocks of memory
constexpr int64_t kWorthAGraph = 4;    // operations; launching a graph takes as long as two or three
constexpr int64_t kMostOperations = 20000;
constexpr int kOfThisThread = 1;       // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

}  // namespace

GpuGraphs::~GpuGraphs() {
  const GpuScope scope(device_);
  for (const Entry& entry : entries_) {
    if (entry.graph != nullptr) device_.call().destroy_graph_exec(entry.graph);
  }
  destroy_retired(true);
}

bool GpuGraphs::is_usable() const {
  const DriverFunctions& driver = device_.call();
  return driver.begin_capture != nullptr && driver.instantiate_graph != nullptr &&
         gpu_makes_graphs() && !gpu_waits_for_launches();
}

std::list<GpuGraphs::Entry>::iterator GpuGraphs::find(const Key& key) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&key](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) entries_.splice(entries_.begin(), entries_, found);
  return found;
}

bool GpuGraphs::call(Key key, void* stream, const Run& run, Failure* failure) {
  bool is_new = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = find(key);
    is_new = found == entries_.end();
    if (!is_new && found->is_worth_it && found->graph == nullptr) {
      found->is_worth_it = false;  // unless it works
      found->graph = record(run);
      found->is_worth_it = found->graph != nullptr;
    }
    if (!is_new && found->graph != nullptr) {
      const int error = device_.call().launch_graph(found->graph, stream);
      if (error == kGpuSuccess) return true;
      retire(std::exchange(found->graph, nullptr), stream);
      found->is_worth_it = false;
      return failure->set(Failure::Kind::kDevice,
                          device_.title() + " refuses the kernels of a call: " +
                              device_.driver().describe(error));
    }
  }
  RunTrace trace;
  if (!run(stream, false, &trace)) return false;
  if (!is_new) return true;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (find(key) != entries_.end()) return true;  // another thread was here
  const bool is_worth_it = !trace.has_read && trace.operations >= kWorthAGraph &&
                           trace.operations <= kMostOperations;
  entries_.push_front({std::move(key), nullptr, is_worth_it});
  if (entries_.size() > kMostEntries) {
    if (entries_.back().graph != nullptr) retire(entries_.back().graph, stream);
    entries_.pop_back();
  }
  return true;
}

void* GpuGraphs::record(const Run& run) {
  const DriverFunctions& driver = device_.call();
  void* graph = nullptr;
  {
    const std::lock_guard<std::mutex> lock(device_.recording());
    void* const stream = device_.recording_stream();
    if (stream == nullptr || driver.begin_capture(stream, kOfThisThread) != kGpuSuccess) {
      return nullptr;
    }
    RunTrace trace;
    const bool is_complete = run(stream, true, &trace);
    const int error = driver.end_capture(stream, &graph);
    if (error != kGpuSuccess) graph = nullptr;
    if (!is_complete && graph != nullptr) {
      driver.destroy_graph(graph);
      graph = nullptr;
    }
  }
  if (graph == nullptr) return nullptr;
  void* made = nullptr;
  if (driver.instantiate_graph(&made, graph, 0) != kGpuSuccess) made = nullptr;
  driver.destroy_graph(graph);
  return made;
}

void GpuGraphs::retire(void* graph, void* stream) {
  destroy_retired(false);
  void* event = nullptr;
  const DriverFunctions& driver = device_.call();
  if (driver.create_event(&event, kEventDisableTiming) == kGpuSuccess) {
    driver.record_event(event, stream);
  }
  retired_.push_back({graph, event});
}

void GpuGraphs::destroy_retired(bool all) {
  const DriverFunctions& driver = device_.call();
  const auto is_done = [&](const Retired& retired) {
    if (!all && (retired.event == nullptr || driver.query_event(retired.event) != kGpuSuccess)) {
      return false;
    }
    driver.destroy_graph_exec(retired.graph);
    if (retired.event != nullptr) driver.destroy_event(retired.event);
    return true;
  };
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(), is_done), retired_.end());
}

}  // namespace shlo_disc
