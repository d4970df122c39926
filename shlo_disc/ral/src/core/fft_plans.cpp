#include "fft_plans.h"

#include <pthread.h>

#include <iterator>
#include <list>
#include <mutex>
#include <tuple>
#include <utility>

#include "fft_planner.h"

namespace shlo_disc::fft {
namespace {

class Plans {
 public:
  template <typename T>
  std::shared_ptr<const Plan<T>> get(Kind kind, int64_t n) {
    const Key key{sizeof(T), kind, n};
    if (auto found = find(key)) return std::static_pointer_cast<const Plan<T>>(found);
    MadePlan<T> made = make_plan<T>(kind, n);
    keep(key, made.plan, made.bytes);
    return made.plan;
  }

  PlanStats stats() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {entries_.size(), bytes_};
  }

  void clear() {
    std::list<Entry> gone;
    const std::lock_guard<std::mutex> lock(mutex_);
    gone.swap(entries_);
    bytes_ = 0;
  }

  std::mutex& mutex() { return mutex_; }

 private:
  using Key = std::tuple<size_t, Kind, int64_t>;
  struct Entry {
    Key key;
    std::shared_ptr<const void> plan;
    size_t bytes;
  };

  // The plan of `key`, which becomes the most recent one. A program has few lengths: the one asked
  // for is among the first.
  std::shared_ptr<const void> find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->key != key) continue;
      entries_.splice(entries_.begin(), entries_, entry);
      return entries_.front().plan;
    }
    return nullptr;
  }

  void keep(const Key& key, std::shared_ptr<const void> plan, size_t bytes) {
    if (bytes > kKeptBytes) return;
    std::list<Entry> gone;  // freed without the lock
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.push_front({key, std::move(plan), bytes});
    bytes_ += bytes;
    while (bytes_ > kKeptBytes || entries_.size() > kKeptPlans) {
      bytes_ -= entries_.back().bytes;
      gone.splice(gone.begin(), entries_, std::prev(entries_.end()));
    }
  }

  std::mutex mutex_;
  std::list<Entry> entries_;  // the most recent one first
  size_t bytes_ = 0;
};

Plans& plans() {
  // Never destroyed: worker threads may outlive static destructors. Locked across fork, so that
  // the child gets a consistent list.
  static Plans* const instance = [] {
    auto* const created = new Plans();
    pthread_atfork([] { plans().mutex().lock(); }, [] { plans().mutex().unlock(); },
                   [] { plans().mutex().unlock(); });
    return created;
  }();
  return *instance;
}

}  // namespace

template <typename T>
std::shared_ptr<const Plan<T>> plan_of(Kind kind, int64_t n) {
  return plans().get<T>(kind, n);
}
template std::shared_ptr<const Plan<float>> plan_of<float>(Kind kind, int64_t n);
template std::shared_ptr<const Plan<double>> plan_of<double>(Kind kind, int64_t n);

PlanStats plan_stats() { return plans().stats(); }
void forget_plans() { plans().clear(); }

}  // namespace shlo_disc::fft
