// Jobs live in a fixed array of slots that is never freed, so a worker may look at a slot at any
// time. A worker first enters a slot (`entrants`), then checks that it is open; the caller first
// closes the slot, then waits until nobody is inside. Both orders are sequentially consistent, so
// either the worker sees the slot closed or the caller sees the worker.
#include "thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "fp_env.h"

namespace shlo_disc {
namespace {

constexpr int kSlots = 64;       // concurrent jobs; further callers run alone
constexpr int kMaxThreads = 1024;
// Up to here a worker that shares its caller's core is a loss worth a system call per worker to
// prevent (when the caller has moved); with more it is one in many.
constexpr int kFewThreads = 8;
// How long an idle worker polls before it sleeps, and a caller before it waits for the last
// chunks. Launches of one program follow each other within some 10 µs, while waking a sleeping
// thread costs 30-50 µs on a virtual machine (5 on bare metal). Half of this loses programs with
// short serial stretches, double only burns power after each call.
constexpr auto kSpin = std::chrono::microseconds(100);

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, count, nullptr,
          nullptr, 0);
}

// Polls `done` for kSpin; true when it became true in that time.
template <typename Done>
bool spin_until(const Done& done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (done()) return true;
      cpu_relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

// Grow-only, one block per nesting depth: a kernel that starts a parallel_for keeps its own.
class Scratch {
 public:
  ~Scratch() {
    for (Block& block : blocks_) std::free(block.data);
  }

  void* at(int depth, int64_t bytes) {
    if (bytes <= 0) return nullptr;
    if (depth >= kDepths) return nullptr;
    Block& block = blocks_[depth];
    if (block.bytes < bytes) {
      std::free(block.data);
      block.bytes = 0;
      // One vector beyond the end may be read by masked code.
      const size_t size = ((static_cast<size_t>(bytes) + 63) & ~size_t{63}) + 64;
      block.data = std::aligned_alloc(64, size);
      if (block.data == nullptr) return nullptr;
      block.bytes = bytes;
    }
    return block.data;
  }

  static constexpr int kDepths = 8;

 private:
  struct Block {
    void* data = nullptr;
    int64_t bytes = 0;
  };
  Block blocks_[kDepths];
};

thread_local Scratch t_scratch;
thread_local int t_depth = 0;
thread_local int t_limit = 0;  // 0: none
thread_local const OwnThreads* t_own = nullptr;

struct alignas(64) Job {
  disc_kernel kernel;
  void* const* args;
  const int64_t* params;
  int64_t extent;
  int64_t grain;
  int64_t scratch_bytes;
  int caller_cpu;
  uint32_t helpers;  // at most so many workers are inside
  bool limited;      // by limit_threads: what a task starts runs alone

  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<uint32_t> entrants{0};
  std::atomic<uint32_t> waiting{0};  // the caller sleeps on `entrants`
  std::atomic<bool> failed{false};   // somebody had no memory for scratch
};

// Guided self-scheduling: large chunks first, then smaller ones so that all finish together.
void work(Job& job, int threads) {
  void* const scratch = t_scratch.at(t_depth, job.scratch_bytes);
  if (scratch == nullptr && job.scratch_bytes > 0) {
    job.failed.store(true, std::memory_order_relaxed);
    job.next.store(job.extent, std::memory_order_relaxed);
    return;
  }
  ++t_depth;
  const int limit = t_limit;
  if (job.limited) t_limit = 1;
  const int64_t extent = job.extent;
  const int64_t divisor = 2 * int64_t{threads};
  int64_t lo = job.next.load(std::memory_order_relaxed);
  while (lo < extent) {
    const int64_t chunk =
        std::min(extent - lo, std::max(job.grain, (extent - lo) / divisor));
    if (!job.next.compare_exchange_weak(lo, lo + chunk, std::memory_order_relaxed)) continue;
    job.kernel(job.args, job.params, lo, lo + chunk, scratch);
    lo = job.next.load(std::memory_order_relaxed);
  }
  t_limit = limit;
  --t_depth;
}

// Keeps a worker off the core of the caller it helps, by taking that core out of the worker's
// affinity mask until another caller comes. Without it two cores may do the work of one: a virtual
// CPU that sleeps counts as preempted, so the kernel wakes the worker where the waker runs, and the
// two take turns (seen under KVM with Linux 6.18: no help within 400 µs in every other launch).
class alignas(64) Placement {
 public:
  // By the worker.
  void start() { thread_ = static_cast<pid_t>(syscall(SYS_gettid)); }
  void before_sleep() { state_.store(kAsleep, std::memory_order_release); }
  void after_sleep() {
    int state = kAsleep;
    while (!state_.compare_exchange_weak(state, kAwake, std::memory_order_acq_rel)) {
      state = kAsleep;  // a caller is at it, for a microsecond
      cpu_relax();
    }
  }
  // By the worker when it starts to help.
  void step_aside(int caller_cpu) {
    if (sched_getcpu() != caller_cpu) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_step_ < kStepInterval) return;
    last_step_ = now;
    exclude(caller_cpu);
  }

  // By a caller before it wakes workers.
  void displace(int caller_cpu) {
    int state = kAsleep;
    if (!state_.compare_exchange_strong(state, kDisplacing, std::memory_order_acq_rel)) return;
    if (excluded_ != caller_cpu) exclude(caller_cpu);
    state_.store(kAsleep, std::memory_order_release);
  }

 private:
  enum : int { kAwake, kAsleep, kDisplacing };
  // With more callers than cores somebody is always in the way, and moving costs some 10 µs.
  static constexpr auto kStepInterval = std::chrono::milliseconds(1);

  void exclude(int cpu) {
    cpu_set_t mask;  // read again every time: the user may have changed it
    if (sched_getaffinity(thread_, sizeof(mask), &mask) != 0) return;
    if (excluded_ >= 0) CPU_SET(static_cast<size_t>(excluded_), &mask);
    if (cpu >= 0) CPU_CLR(static_cast<size_t>(cpu), &mask);
    if (CPU_COUNT(&mask) == 0) return;
    if (sched_setaffinity(thread_, sizeof(mask), &mask) == 0) excluded_ = cpu;
  }

  std::atomic<int> state_{kAwake};
  pid_t thread_ = 0;   // before the first sleep
  int excluded_ = -1;  // owned by the worker while awake, else by whoever holds kDisplacing
  std::chrono::steady_clock::time_point last_step_{};
};

class ThreadPool {
 public:
  explicit ThreadPool(int threads)
      : threads_(threads), placements_(new Placement[static_cast<size_t>(threads)]) {}

  // Starts the workers; those the system refuses are done without.
  void start() {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    for (int i = 1; i < threads_; ++i) {
      auto* const start = new Start{this, &placements_[static_cast<size_t>(i)]};
      pthread_t thread;
      if (pthread_create(&thread, &attr, &ThreadPool::worker_main, start) != 0) {
        delete start;
        break;
      }
      pthread_setname_np(thread, "shlo_disc");
    }
    pthread_attr_destroy(&attr);
  }

  // -1 when all slots are taken.
  int take_slot() {
    uint64_t taken = taken_.load(std::memory_order_relaxed);
    while (~taken != 0) {
      const int slot = __builtin_ctzll(~taken);
      if (taken_.compare_exchange_weak(taken, taken | (uint64_t{1} << slot),
                                       std::memory_order_acquire, std::memory_order_relaxed)) {
        return slot;
      }
    }
    return -1;
  }

  // Runs the job in a slot from take_slot() and gives the slot back.
  bool run(int slot, disc_kernel kernel, void* const* args, const int64_t* params, int64_t extent,
           int64_t grain, int64_t scratch_bytes, int threads) {
    Job& job = jobs_[slot];
    job.kernel = kernel;
    job.args = args;
    job.params = params;
    job.extent = extent;
    job.grain = grain;
    job.scratch_bytes = scratch_bytes;
    job.caller_cpu = sched_getcpu();
    job.helpers = static_cast<uint32_t>(threads - 1);
    job.limited = t_limit != 0;
    job.next.store(0, std::memory_order_relaxed);
    job.failed.store(false, std::memory_order_relaxed);
    const uint64_t bit = uint64_t{1} << slot;
    open_.fetch_or(bit, std::memory_order_seq_cst);
    wake(std::min<int64_t>((extent - 1) / grain, threads - 1), job.caller_cpu);

    work(job, threads_);

    open_.fetch_and(~bit, std::memory_order_seq_cst);
    wait_for_entrants(job);
    const bool done = !job.failed.load(std::memory_order_relaxed);
    taken_.fetch_and(~bit, std::memory_order_release);
    return done;
  }

 private:

  void wake(int64_t helpers, int caller_cpu) {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t sleeping = sleepers_.load(std::memory_order_seq_cst);
    if (sleeping == 0) return;
    if (threads_ <= kFewThreads) {
      for (int i = 1; i < threads_; ++i) placements_[static_cast<size_t>(i)].displace(caller_cpu);
    }
    futex_wake(epoch_, static_cast<int>(std::min<int64_t>(helpers, sleeping)));
  }

  void wait_for_entrants(Job& job) {
    const auto empty = [&job] { return job.entrants.load(std::memory_order_seq_cst) == 0; };
    if (empty() || spin_until(empty)) return;
    job.waiting.store(1, std::memory_order_seq_cst);
    for (uint32_t inside = job.entrants.load(std::memory_order_seq_cst); inside != 0;
         inside = job.entrants.load(std::memory_order_seq_cst)) {
      futex_wait(job.entrants, inside);
    }
    job.waiting.store(0, std::memory_order_relaxed);
  }

  // Helps every open job once.
  void help(Placement& placement) {
    uint64_t open = open_.load(std::memory_order_seq_cst);
    for (; open != 0; open &= open - 1) {
      const int slot = __builtin_ctzll(open);
      Job& job = jobs_[slot];
      const uint32_t inside = job.entrants.fetch_add(1, std::memory_order_seq_cst);
      if ((open_.load(std::memory_order_seq_cst) & (uint64_t{1} << slot)) && inside < job.helpers) {
        placement.step_aside(job.caller_cpu);
        work(job, threads_);
      }
      job.entrants.fetch_sub(1, std::memory_order_seq_cst);
      if (job.waiting.load(std::memory_order_seq_cst) != 0) futex_wake(job.entrants, INT_MAX);
    }
  }

  struct Start {
    ThreadPool* pool;
    Placement* placement;
  };

  static void* worker_main(void* argument) {
    auto* const start = static_cast<Start*>(argument);
    const Start copy = *start;
    delete start;
    DefaultFpEnv::set();
    copy.pool->serve(*copy.placement);
    return nullptr;
  }

  [[noreturn]] void serve(Placement& placement) {
    placement.start();
    for (;;) {
      const uint32_t epoch = epoch_.load(std::memory_order_seq_cst);
      const auto changed = [&] { return epoch_.load(std::memory_order_acquire) != epoch; };
      help(placement);
      if (spin_until(changed)) continue;
      placement.before_sleep();
      sleepers_.fetch_add(1, std::memory_order_seq_cst);
      futex_wait(epoch_, epoch);
      sleepers_.fetch_sub(1, std::memory_order_seq_cst);
      placement.after_sleep();
    }
  }

  const int threads_;
  const std::unique_ptr<Placement[]> placements_;  // by worker; 0 is the caller's and unused
  alignas(64) std::atomic<uint64_t> open_{0};   // slots with work to offer
  alignas(64) std::atomic<uint64_t> taken_{0};  // slots owned by a caller
  alignas(64) std::atomic<uint32_t> epoch_{0};  // counts published jobs; workers sleep on it
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  Job jobs_[kSlots];
};

std::atomic<ThreadPool*> g_pool{nullptr};
std::mutex g_start_mutex;

// The workers do not exist in a forked child: forget the pool (its memory stays, other threads of
// the parent may have been inside it) and let the next parallel_for start another.
void forget_pool_in_child() {
  g_pool.store(nullptr, std::memory_order_relaxed);
  new (&g_start_mutex) std::mutex;
  t_depth = 0;
}

int thread_count_from_environment() {
  if (const char* text = std::getenv("SHLO_DISC_NUM_THREADS"); text != nullptr && *text != 0) {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end == 0 && value >= 1) return static_cast<int>(std::min<long>(value, kMaxThreads));
  }
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1L, std::min<long>(sysconf(_SC_NPROCESSORS_ONLN), kMaxThreads)));
}

ThreadPool& pool() {
  ThreadPool* pool = g_pool.load(std::memory_order_acquire);
  if (pool != nullptr) return *pool;
  std::lock_guard<std::mutex> lock(g_start_mutex);
  pool = g_pool.load(std::memory_order_acquire);
  if (pool == nullptr) {
    static const int registered = pthread_atfork(nullptr, nullptr, &forget_pool_in_child);
    (void)registered;
    pool = new ThreadPool(num_threads());
    pool->start();
    g_pool.store(pool, std::memory_order_release);
  }
  return *pool;
}

// A job of one caller, done by threads that are not ours.
bool run_on(const OwnThreads& own, int threads, disc_kernel kernel, void* const* args, const int64_t* params,
            int64_t extent, int64_t grain, int64_t scratch_bytes) {
  struct Task {
    Job job;
    int threads;

    static void run(void* data) {
      const DefaultFpEnv fp_env;
      Task& task = *static_cast<Task*>(data);
      work(task.job, task.threads);
    }
  };
  Task task{{kernel, args, params, extent, grain, scratch_bytes, -1, 0, true}, threads};
  const int64_t chunks = (extent - 1) / grain + 1;
  own.run(own.context, &Task::run, &task, static_cast<int32_t>(std::min<int64_t>(chunks, threads)));
  Task::run(&task);  // what a pool that is shutting down has left
  return !task.job.failed.load(std::memory_order_relaxed);
}

bool run_alone(disc_kernel kernel, void* const* args, const int64_t* params, int64_t extent,
               int64_t scratch_bytes) {
  void* const scratch = t_scratch.at(t_depth, scratch_bytes);
  if (scratch == nullptr && scratch_bytes > 0) return false;
  ++t_depth;
  kernel(args, params, 0, extent, scratch);
  --t_depth;
  return true;
}

}  // namespace

int num_threads() {
  static const int count = thread_count_from_environment();
  return count;
}

int limit_threads(int threads) { return std::exchange(t_limit, std::max(threads, 0)); }

const OwnThreads* use_threads(const OwnThreads* own) { return std::exchange(t_own, own); }

bool pool_started() { return g_pool.load(std::memory_order_acquire) != nullptr; }

bool parallel_for(disc_kernel kernel, void* const* args, const int64_t* params, int64_t extent,
                  int64_t grain, int64_t scratch_bytes) {
  if (extent <= 0) return true;
  const DefaultFpEnv fp_env;
  grain = std::max<int64_t>(grain, 1);
  const int most = t_own != nullptr ? t_own->count : num_threads();
  const int threads = t_limit == 0 ? most : std::min(t_limit, most);
  if (extent > grain && threads > 1) {
    if (t_own != nullptr) return run_on(*t_own, threads, kernel, args, params, extent, grain, scratch_bytes);
    ThreadPool& workers = pool();
    const int slot = workers.take_slot();
    if (slot >= 0) {
      return workers.run(slot, kernel, args, params, extent, grain, scratch_bytes, threads);
    }
  }
  return run_alone(kernel, args, params, extent, scratch_bytes);
}

}  // namespace shlo_disc
