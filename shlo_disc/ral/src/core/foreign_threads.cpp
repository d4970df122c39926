#include "foreign_threads.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "fp_env.h"
#include "thread_pool.h"

namespace shlo_disc {
namespace {

struct Tasks {
  std::mutex mutex;
  std::condition_variable some;
  std::deque<std::pair<void (*)(void*), void*>> waiting;
  int idle = 0;
  int threads = 0;
};

Tasks* tasks = nullptr;  // never deleted: threads wait on it until the process ends

// A forked child has none of the threads; what its parent's mutex was is anyone's guess.
void start_afresh() { tasks = new Tasks(); }

void work(Tasks* all) {
  DefaultFpEnv::set();
  std::unique_lock<std::mutex> lock(all->mutex);
  for (;;) {
    ++all->idle;
    all->some.wait(lock, [&] { return !all->waiting.empty(); });
    --all->idle;
    const auto [task, data] = all->waiting.front();
    all->waiting.pop_front();
    lock.unlock();
    task(data);
    lock.lock();
  }
}

}  // namespace

bool schedule_task(void (*task)(void*), void* data) {
  static std::once_flag once;
  std::call_once(once, [] {
    start_afresh();
    pthread_atfork(nullptr, nullptr, &start_afresh);
  });
  Tasks* const all = tasks;
  const std::lock_guard<std::mutex> lock(all->mutex);
  if (static_cast<int>(all->waiting.size()) >= all->idle && all->threads < num_threads()) {
    try {
      std::thread(&work, all).detach();
      ++all->threads;
    } catch (const std::exception&) {
      if (all->threads == 0) return false;  // else one of those there are comes to it
    }
  }
  try {
    all->waiting.emplace_back(task, data);
  } catch (const std::exception&) {
    return false;
  }
  all->some.notify_one();
  return true;
}

}  // namespace shlo_disc
