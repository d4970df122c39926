// Threads for the tasks that FFI handlers schedule (XLA_FFI_ThreadPool_Schedule).
#ifndef SHLO_DISC_RAL_FOREIGN_THREADS_H_
#define SHLO_DISC_RAL_FOREIGN_THREADS_H_

namespace shlo_disc {

// Runs `task(data)` soon on another thread. The threads are not those of `parallel_for`: a task may
// wait for other tasks. False: no thread could be started, and the task will not run.
bool schedule_task(void (*task)(void*), void* data);

}  // namespace shlo_disc

#endif  // SHLO_DISC_RAL_FOREIGN_THREADS_H_
