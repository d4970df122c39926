/* A stand-in for the drivers of GPUs, for tests: functions of libcuda and libamdhip64 over host memory.
 *
 * Kernels are functions of the test, called through callbacks. What is given to a stream waits in its
 * queue until somebody waits for it (for the stream, the device, an event), so that a missing wait
 * shows. Sources of copies to the device are read at once, as drivers do with ordinary memory; copies
 * to the host are late. Freed memory is overwritten. Calls that need a current context refuse to work
 * without one, and with streams, modules and memory of another. Failures are set by functions that begin with stand_in.
 */
#include <fenv.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))

enum {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201,
  NOT_FOUND = 500,
  NOT_READY = 600,
  ILLEGAL_ADDRESS = 700,
  STREAM_CAPTURE_UNSUPPORTED = 900,
};
enum { MOST_PARAMS = 1024, MOST_DEVICES = 8, MOST_CONTEXTS = 64 };

/* ---- what the test gives -------------------------------------------------------------------- */

/* A handle for an image; 0: it is refused. */
typedef uint64_t (*load_callback)(int is_hip, const void* image);
/* The number of parameters of a kernel and the bytes of each; -1: there is no such kernel. */
typedef int (*find_callback)(uint64_t module, const char* symbol, int* bytes);
/* Runs a kernel; grid and block: x, y, z. Gives an error of the driver. */
typedef int (*launch_callback)(uint64_t module, const char* symbol, const unsigned* grid,
                               const unsigned* block, unsigned shared_bytes, void** params);

static load_callback load_image;
static find_callback find_kernel;
static launch_callback run_kernel;

static int devices = 1, major_version = 9, minor_version = 0;
static char architecture[64] = "gfx942:sramecc+:xnack-";
static int64_t memory_bytes = (int64_t)1 << 30;
static int refuse_launch = -1, refuse_code; /* the launch that is refused: 0 is the next */
static int fault_kernel = -1, fault_code;   /* the kernel that faults when it runs */
static int refuses_maps;                    /* no tensor map is made */
static int lost;                            /* what all calls give from now on */
static int is_strict = 1;                   /* memory must be the driver's */
static int is_eager;                        /* nothing is late */

static struct {
  int64_t launches, early, graphs, kernels, waits, allocations, bytes, modules, events, streams, most_bytes, maps, to_host_bytes;
} counts;

/* ---- memory --------------------------------------------------------------------------------- */

/* One for each device; a thread has a stack of them. */
static char contexts[MOST_DEVICES];
static __thread char* stack[MOST_CONTEXTS];
static __thread int context_depth;
static int64_t launches_on[MOST_DEVICES];

static __thread int current_hip_device;

static int use_hip_device(int device) {
  current_hip_device = device;
  stack[0] = &contexts[device];
  context_depth = 1;
  return SUCCESS;
}

static char* current_context(void) { return context_depth > 0 ? stack[context_depth - 1] : NULL; }

typedef struct Memory {
  char* data;
  size_t bytes;
  char* context;
  struct Memory* next;
} Memory;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER;
static Memory* memory;

static Memory* memory_at(const void* address) {
  for (Memory* m = memory; m != NULL; m = m->next) {
    if ((const char*)address >= m->data && (const char*)address < m->data + m->bytes) return m;
  }
  return NULL;
}

static int is_ours(const void* address, size_t bytes) {
  pthread_mutex_lock(&mutex);
  const Memory* m = memory_at(address);
  const int is_here = m != NULL && m->context == current_context();
  const int is = m == NULL ? !is_strict
                           : is_here && (const char*)address + bytes <= m->data + m->bytes;
  pthread_mutex_unlock(&mutex);
  return is;
}

/* ---- streams and events --------------------------------------------------------------------- */

typedef struct Stream Stream;

typedef struct Event {
  Stream* stream; /* where it was recorded last */
  int64_t position;
  double time_ms;
} Event;

typedef struct Module {
  char* context;
  int is_hip;
  uint64_t handle;
} Module;

typedef struct Function {
  Module* module;
  int params;
  int bytes[MOST_PARAMS];
  int shared_limit;
  char symbol[256];
  struct Function* next;
} Function;

typedef enum { COPY, FILL, LAUNCH, RECORD, AWAIT } Kind;

typedef struct Work {
  Kind kind;
  struct Work* next;
  void *to, *from;
  size_t count;
  int width, owns_from;
  uint32_t value;
  Function* function;
  unsigned grid[3], block[3], shared_bytes;
  Event* event;
  Stream* other;
  int64_t position;
  char* params;
  int param_bytes, is_early;
} Work;

/* What a stream was given while it was recorded. */
typedef struct Graph {
  Work* first;
  int launches;
} Graph;

struct Stream {
  Work *first, *last;
  int64_t given, done;
  int is_busy;
  int is_recorded;
  char* context;
  Stream* next;
};

static Stream default_stream;
static Stream* streams = &default_stream;
static __thread int is_running; /* a kernel on this thread, whose Python may free programs */
static Function* functions;

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

static void run_until(Stream* stream, int64_t position);

/* What a parameter of so many bytes takes. */
static int room(int bytes) { return (bytes + 7) / 8 * 8; }

static int run_launch(Work* work) {
  void* params[MOST_PARAMS];
  char* next = work->params;
  for (int i = 0; i < work->function->params; next += room(work->function->bytes[i]), ++i) {
    params[i] = next;
  }
  pthread_mutex_lock(&mutex);
  ++counts.kernels;
  const int faults = fault_kernel == 0;
  if (fault_kernel >= 0) --fault_kernel;
  pthread_mutex_unlock(&mutex);
  if (faults) return fault_code;
  is_running = 1;
  fenv_t of_thread; /* threads of XLA flush denormals, GPUs do not */
  fegetenv(&of_thread);
  fesetenv(FE_DFL_ENV);
  const int error = run_kernel(work->function->module->handle, work->function->symbol, work->grid,
                               work->block, work->shared_bytes, params);
  fesetenv(&of_thread);
  is_running = 0;
  return error;
}

static void run(Work* work) {
  int error = SUCCESS;
  switch (work->kind) {
    case COPY:
      memmove(work->to, work->from, work->count);
      break;
    case FILL:
      for (size_t i = 0; i < work->count; ++i) {
        memcpy((char*)work->to + i * work->width, &work->value, work->width);
      }
      break;
    case LAUNCH:
      error = run_launch(work);
      break;
    case RECORD:
      work->event->time_ms = now_ms();
      break;
    case AWAIT:
      run_until(work->other, work->position);
      break;
  }
  if (error != SUCCESS) lost = error;
}

static void destroy(Work* work) {
  if (work->owns_from) free(work->from);
  free(work->params);
  free(work);
}

/* Runs the work of a stream up to `position`; several threads may wait, one runs. */
static void run_until(Stream* stream, int64_t position) {
  if (is_running) return; /* it would wait for itself */
  pthread_mutex_lock(&mutex);
  while (stream->done < position) {
    if (stream->is_busy) {
      pthread_cond_wait(&progress, &mutex);
      continue;
    }
    Work* const work = stream->first;
    stream->first = work->next;
    if (stream->first == NULL) stream->last = NULL;
    stream->is_busy = 1;
    pthread_mutex_unlock(&mutex);
    if (lost == SUCCESS) run(work);
    destroy(work);
    pthread_mutex_lock(&mutex);
    ++stream->done;
    stream->is_busy = 0;
    pthread_cond_broadcast(&progress);
  }
  pthread_mutex_unlock(&mutex);
}

static Stream* stream_at(void* stream) { return stream == NULL ? &default_stream : stream; }

static void give(void* to, Work* work) {
  Stream* const stream = stream_at(to);
  pthread_mutex_lock(&mutex);
  if (stream->last == NULL) stream->first = work;
  else stream->last->next = work;
  stream->last = work;
  const int64_t position = ++stream->given;
  if (work->kind == RECORD) {
    work->event->stream = stream;
    work->event->position = position;
  }
  const int is_recorded = stream->is_recorded;
  pthread_mutex_unlock(&mutex);
  if (is_eager && !is_recorded) run_until(stream, position);
}

static Work* new_work(Kind kind) {
  Work* const work = calloc(1, sizeof(Work));
  work->kind = kind;
  return work;
}

static int wait_for(Stream* stream) {
  if (stream->is_recorded) return STREAM_CAPTURE_UNSUPPORTED;
  pthread_mutex_lock(&mutex);
  const int64_t position = stream->given;
  ++counts.waits;
  pthread_mutex_unlock(&mutex);
  run_until(stream, position);
  return lost;
}

static int wait_for_all(void) {
  for (Stream* stream = streams; stream != NULL; stream = stream->next) {
    if (!stream->is_recorded) wait_for(stream);
  }
  return lost;
}

/* ---- for the test --------------------------------------------------------------------------- */

API void stand_in_callbacks(load_callback load, find_callback find, launch_callback launch) {
  load_image = load;
  find_kernel = find;
  run_kernel = launch;
}
API void stand_in_reset(void) {
  devices = 1, major_version = 9, minor_version = 0;
  strcpy(architecture, "gfx942:sramecc+:xnack-");
  memory_bytes = (int64_t)1 << 30;
  refuse_launch = fault_kernel = -1;
  lost = SUCCESS;
  is_strict = 1, is_eager = refuses_maps = 0;
}
API void stand_in_devices(int count) { devices = count; }
API void stand_in_capability(int major, int minor) { major_version = major, minor_version = minor; }
API void stand_in_architecture(const char* name) {
  snprintf(architecture, sizeof(architecture), "%s", name);
}
API void stand_in_memory(int64_t bytes) { memory_bytes = bytes; }
API void stand_in_refuse_maps(int all) { refuses_maps = all; }
API void stand_in_refuse_launch(int which, int code) { refuse_launch = which, refuse_code = code; }
API void stand_in_fault(int which, int code) { fault_kernel = which, fault_code = code; }
API void stand_in_lose(int code) { lost = code; }
API void stand_in_strict(int is) { is_strict = is; }
API int stand_in_is_strict(void) { return is_strict; }
API void stand_in_eager(int is) { is_eager = is; }
API void stand_in_finish(void) { wait_for_all(); } /* as if time had passed */
API int64_t stand_in_pending(void) {
  int64_t pending = 0;
  pthread_mutex_lock(&mutex);
  for (Stream* stream = streams; stream != NULL; stream = stream->next) {
    pending += stream->given - stream->done;
  }
  pthread_mutex_unlock(&mutex);
  return pending;
}
API int64_t stand_in_count(const char* what) {
  const struct {
    const char* name;
    int64_t value;
  } rows[] = {
      {"launches", counts.launches}, {"early", counts.early}, {"graphs", counts.graphs}, {"kernels", counts.kernels}, {"waits", counts.waits},
      {"allocations", counts.allocations}, {"bytes", counts.bytes}, {"modules", counts.modules},
      {"events", counts.events}, {"streams", counts.streams}, {"most_bytes", counts.most_bytes},
      {"maps", counts.maps}, {"to_host_bytes", counts.to_host_bytes},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); ++i) {
    if (strcmp(rows[i].name, what) == 0) return rows[i].value;
  }
  return -1;
}
/* Kernels that were launched on a device; a graph counts once. */
API int64_t stand_in_launches_on(int device) { return launches_on[device]; }
/* The memory that holds an address: 0 where there is none. */
API int stand_in_memory_at(const void* address, void** data, size_t* bytes) {
  pthread_mutex_lock(&mutex);
  const Memory* const m = memory_at(address);
  if (m != NULL) *data = m->data, *bytes = m->bytes;
  pthread_mutex_unlock(&mutex);
  return m != NULL;
}

/* ---- the driver ----------------------------------------------------------------------------- */

#define NEEDS_CONTEXT                               \
  if (context_depth <= 0) return INVALID_CONTEXT;   \
  NEEDS_DEVICE
#define NEEDS_DEVICE \
  if (lost != SUCCESS) return lost;

static int device_count(int* count) {
  *count = devices;
  return devices == 0 ? NO_DEVICE : SUCCESS;
}
static int device_get(int* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < devices ? SUCCESS : INVALID_DEVICE;
}
static int device_name(char* name, int bytes, int device) {
  snprintf(name, bytes, "Stand-in %d", device);
  return SUCCESS;
}
static int device_memory(size_t* bytes, int device) {
  (void)device;
  *bytes = memory_bytes;
  return SUCCESS;
}
static int error_name(int error, const char** name) {
  switch (error) {
    case OUT_OF_MEMORY: *name = "ERROR_OUT_OF_MEMORY"; break;
    case NO_DEVICE: *name = "ERROR_NO_DEVICE"; break;
    case ILLEGAL_ADDRESS: *name = "ERROR_ILLEGAL_ADDRESS"; break;
    case INVALID_CONTEXT: *name = "ERROR_INVALID_CONTEXT"; break;
    default: *name = "ERROR"; break;
  }
  return SUCCESS;
}
static int error_text(int error, const char** text) {
  static __thread char buffer[32];
  snprintf(buffer, sizeof(buffer), "error %d", error);
  *text = buffer;
  return SUCCESS;
}
static int memory_info(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = memory_bytes - counts.bytes;
  *total_bytes = memory_bytes;
  return SUCCESS;
}
static int load_module(void** module, const void* image, int is_hip) {
  NEEDS_CONTEXT
  const uint64_t handle = load_image(is_hip, image);
  if (handle == 0) return INVALID_IMAGE;
  Module* const made = calloc(1, sizeof(Module));
  made->is_hip = is_hip;
  made->context = current_context();
  made->handle = handle;
  *module = made;
  pthread_mutex_lock(&mutex);
  ++counts.modules;
  pthread_mutex_unlock(&mutex);
  return SUCCESS;
}
static int unload_module(void* module) {
  NEEDS_CONTEXT
  pthread_mutex_lock(&mutex);
  --counts.modules;
  for (Function** at = &functions; *at != NULL;) {
    Function* const function = *at;
    if (function->module == module) {
      *at = function->next;
      free(function);
    } else {
      at = &function->next;
    }
  }
  pthread_mutex_unlock(&mutex);
  free(module);
  return SUCCESS;
}
static int get_function(void** out, void* module, const char* name) {
  NEEDS_CONTEXT
  Function* const function = calloc(1, sizeof(Function));
  function->module = module;
  function->shared_limit = 48 << 10;
  snprintf(function->symbol, sizeof(function->symbol), "%s", name);
  function->params = find_kernel(function->module->handle, name, function->bytes);
  if (function->params < 0) {
    free(function);
    return NOT_FOUND;
  }
  pthread_mutex_lock(&mutex);
  function->next = functions;
  functions = function;
  pthread_mutex_unlock(&mutex);
  *out = function;
  return SUCCESS;
}
static int function_attribute(int* value, int attribute, void* function) {
  NEEDS_CONTEXT
  (void)function;
  *value = attribute == 4 ? 32 : attribute == 0 ? 1024 : 0;
  return SUCCESS;
}
static int set_function_attribute(void* function, int attribute, int value) {
  NEEDS_CONTEXT
  if (attribute != 8 || value > 227 << 10) return INVALID_VALUE;
  ((Function*)function)->shared_limit = value;
  return SUCCESS;
}
/* What the driver gives for so many launches. */
static int count_launches(int count) {
  pthread_mutex_lock(&mutex);
  counts.launches += count;
  const int is_refused = 0 <= refuse_launch && refuse_launch < count;
  if (refuse_launch >= 0) refuse_launch = is_refused ? -1 : refuse_launch - count;
  pthread_mutex_unlock(&mutex);
  return is_refused ? refuse_code : SUCCESS;
}
static int launch(void* at, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                  unsigned bz, unsigned shared_bytes, void* stream, void** params, void** extra) {
  NEEDS_CONTEXT
  Function* const function = at;
  int error = SUCCESS;
  if (!stream_at(stream)->is_recorded && (error = count_launches(1)) != SUCCESS) return error;
  if (function->module->context != current_context()) return INVALID_CONTEXT;
  if (stream != NULL && ((Stream*)stream)->context != current_context()) return INVALID_CONTEXT;
  pthread_mutex_lock(&mutex);
  ++launches_on[current_context() - contexts];
  pthread_mutex_unlock(&mutex);
  if (extra != NULL || gx == 0 || gy == 0 || gz == 0 || gy > 65535 || gx > 2147483647u ||
      bx * by * bz > 1024) {
    return INVALID_VALUE;
  }
  if (!function->module->is_hip && (int)shared_bytes > function->shared_limit) return INVALID_VALUE;
  /* A grid of AMD's counts threads, in 32 bits. */
  if (function->module->is_hip && (uint64_t)gx * bx > UINT32_MAX) return INVALID_VALUE;
  Work* const work = new_work(LAUNCH);
  work->function = function;
  work->grid[0] = gx, work->grid[1] = gy, work->grid[2] = gz;
  work->block[0] = bx, work->block[1] = by, work->block[2] = bz;
  work->shared_bytes = shared_bytes;
  int total = 8;
  for (int i = 0; i < function->params; ++i) total += room(function->bytes[i]);
  work->param_bytes = total;
  char* next = work->params = calloc(1, total);
  for (int i = 0; i < function->params; next += room(function->bytes[i]), ++i) {
    memcpy(next, params[i], function->bytes[i]);
  }
  give(stream, work);
  return SUCCESS;
}
static int allocate(void** address, size_t bytes) {
  NEEDS_CONTEXT
  if (bytes == 0) return INVALID_VALUE;
  pthread_mutex_lock(&mutex);
  int error = counts.bytes + (int64_t)bytes > memory_bytes ? OUT_OF_MEMORY : SUCCESS;
  Memory* const made = calloc(1, sizeof(Memory));
  if (error == SUCCESS && posix_memalign((void**)&made->data, 512, bytes) != 0) error = OUT_OF_MEMORY;
  if (error == SUCCESS) {
    memset(made->data, 0xff, bytes); /* NaN */
    made->bytes = bytes;
    made->context = current_context();
    made->next = memory;
    memory = made;
    counts.bytes += bytes;
    ++counts.allocations;
    if (counts.bytes > counts.most_bytes) counts.most_bytes = counts.bytes;
    *address = made->data;
  } else {
    free(made);
  }
  pthread_mutex_unlock(&mutex);
  return error;
}
static int free_memory(void* address) {
  NEEDS_CONTEXT
  pthread_mutex_lock(&mutex);
  int error = INVALID_VALUE;
  for (Memory** at = &memory; *at != NULL; at = &(*at)->next) {
    Memory* const found = *at;
    if (found->data != address) continue;
    *at = found->next;
    counts.bytes -= found->bytes;
    --counts.allocations;
    memset(found->data, 0xee, found->bytes);
    free(found->data);
    free(found);
    error = SUCCESS;
    break;
  }
  pthread_mutex_unlock(&mutex);
  return error;
}
static int allocate_host(void** address, size_t bytes, unsigned flags) {
  NEEDS_CONTEXT
  (void)flags;
  return posix_memalign(address, 64, bytes) == 0 ? SUCCESS : OUT_OF_MEMORY;
}
static int copy(void* to, const void* from, size_t bytes, void* stream, int reads_now) {
  NEEDS_CONTEXT
  Work* const work = new_work(COPY);
  work->to = to;
  work->count = bytes;
  work->owns_from = reads_now;
  if (reads_now) {
    work->from = malloc(bytes + 1);
    memcpy(work->from, from, bytes);
  } else {
    work->from = (void*)from;
  }
  give(stream, work);
  return SUCCESS;
}
static int copy_to_device(void* to, const void* from, size_t bytes, void* stream) {
  return is_ours(to, bytes) ? copy(to, from, bytes, stream, 1) : INVALID_VALUE;
}
static int copy_to_host(void* to, const void* from, size_t bytes, void* stream) {
  counts.to_host_bytes += (int64_t)bytes;
  return is_ours(from, bytes) ? copy(to, from, bytes, stream, 0) : INVALID_VALUE;
}
static int copy_on_device(void* to, const void* from, size_t bytes, void* stream) {
  return is_ours(to, bytes) && is_ours(from, bytes) ? copy(to, from, bytes, stream, 0)
                                                    : INVALID_VALUE;
}
static int fill(void* to, uint32_t value, int width, size_t count, void* stream) {
  NEEDS_CONTEXT
  if (!is_ours(to, count * width) || (uintptr_t)to % width != 0) return INVALID_VALUE;
  Work* const work = new_work(FILL);
  work->to = to;
  work->value = value;
  work->width = width;
  work->count = count;
  give(stream, work);
  return SUCCESS;
}
static int create_stream(void** stream, unsigned flags) {
  NEEDS_CONTEXT
  (void)flags;
  Stream* const made = calloc(1, sizeof(Stream));
  pthread_mutex_lock(&mutex);
  made->context = current_context();
  made->next = streams;
  streams = made;
  ++counts.streams;
  pthread_mutex_unlock(&mutex);
  *stream = made;
  return SUCCESS;
}
static int wait_stream(void* stream) {
  NEEDS_CONTEXT
  return wait_for(stream_at(stream));
}
static int synchronize(void) {
  NEEDS_CONTEXT
  return wait_for_all();
}
static int create_event(void** event, unsigned flags) {
  NEEDS_CONTEXT
  (void)flags;
  *event = calloc(1, sizeof(Event));
  pthread_mutex_lock(&mutex);
  ++counts.events;
  pthread_mutex_unlock(&mutex);
  return SUCCESS;
}
static int wait_event(void* at) {
  NEEDS_CONTEXT
  const Event* const event = at;
  if (event->stream != NULL) run_until(event->stream, event->position);
  return lost;
}
static int destroy_event(void* event) {
  wait_event(event); /* its place in a queue is behind it */
  pthread_mutex_lock(&mutex);
  --counts.events;
  pthread_mutex_unlock(&mutex);
  free(event);
  return SUCCESS;
}
static int record_event(void* event, void* stream) {
  NEEDS_CONTEXT
  Work* const work = new_work(RECORD);
  work->event = event;
  give(stream, work);
  return SUCCESS;
}
static int query_event(void* at) {
  NEEDS_CONTEXT
  const Event* const event = at;
  pthread_mutex_lock(&mutex);
  const int is_done = event->stream == NULL || event->stream->done >= event->position;
  pthread_mutex_unlock(&mutex);
  return is_done ? SUCCESS : NOT_READY;
}
static int stream_wait_event(void* stream, void* at, unsigned flags) {
  NEEDS_CONTEXT
  (void)flags;
  const Event* const event = at;
  if (event->stream == NULL) return SUCCESS;
  Work* const work = new_work(AWAIT);
  work->other = event->stream;
  work->position = event->position;
  give(stream, work);
  return SUCCESS;
}
static int event_time(float* milliseconds, void* from, void* to) {
  NEEDS_CONTEXT
  *milliseconds = (float)(((Event*)to)->time_ms - ((Event*)from)->time_ms);
  return SUCCESS;
}

/* ---- names of both drivers ------------------------------------------------------------------ */

#define BOTH(cuda, hip, takes, gives)   \
  API int cuda takes { return gives; }  \
  API int hip takes { return gives; }

BOTH(cuGetErrorName, hipDrvGetErrorName, (int e, const char** s), error_name(e, s))
BOTH(cuGetErrorString, hipDrvGetErrorString, (int e, const char** s), error_text(e, s))
BOTH(cuDeviceGetCount, hipGetDeviceCount, (int* n), device_count(n))
BOTH(cuDeviceGet, hipDeviceGet, (int* d, int i), device_get(d, i))
BOTH(cuDeviceGetName, hipDeviceGetName, (char* s, int n, int d), device_name(s, n, d))
BOTH(cuDeviceTotalMem_v2, hipDeviceTotalMem, (size_t* n, int d), device_memory(n, d))
BOTH(cuCtxSynchronize, hipDeviceSynchronize, (void), synchronize())
BOTH(cuModuleUnload, hipModuleUnload, (void* m), unload_module(m))
BOTH(cuModuleGetFunction, hipModuleGetFunction, (void** f, void* m, const char* s),
     get_function(f, m, s))
BOTH(cuFuncGetAttribute, hipFuncGetAttribute, (int* v, int a, void* f),
     function_attribute(v, a, f))
BOTH(cuLaunchKernel, hipModuleLaunchKernel,
     (void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
      unsigned n, void* s, void** p, void** e),
     launch(f, gx, gy, gz, bx, by, bz, n, s, p, e))
/* CUlaunchConfig: one attribute, that the kernel may start before the one in front has ended. */
struct config {
  unsigned blocks[3], threads[3], shared;
  void* stream;
  const int* attributes;
  unsigned count;
};
static int begin_capture(void* at, int mode) {
  NEEDS_CONTEXT
  Stream* const stream = at;
  if (mode != 1 || stream->is_recorded || stream->first != NULL) return INVALID_VALUE;
  stream->is_recorded = 1;
  return SUCCESS;
}
static int end_capture(void* at, void** out) {
  Stream* const stream = at;
  Graph* const graph = calloc(1, sizeof(Graph));
  pthread_mutex_lock(&mutex);
  graph->first = stream->first;
  stream->first = stream->last = NULL;
  stream->given = stream->done;
  stream->is_recorded = 0;
  pthread_mutex_unlock(&mutex);
  for (const Work* work = graph->first; work != NULL; work = work->next) {
    graph->launches += work->kind == LAUNCH;
  }
  *out = graph;
  return SUCCESS;
}
static Work* copy_of(const Work* work) {
  Work* const made = new_work(work->kind);
  *made = *work;
  made->next = NULL;
  if (work->params != NULL) {
    made->params = malloc(work->param_bytes);
    memcpy(made->params, work->params, work->param_bytes);
  }
  return made;
}
static void destroy_graph(Graph* graph) {
  for (Work* work = graph->first; work != NULL;) {
    Work* const next = work->next;
    destroy(work);
    work = next;
  }
  free(graph);
}
API int cuStreamBeginCapture_v2(void* stream, int mode) { return begin_capture(stream, mode); }
API int cuStreamEndCapture(void* stream, void** graph) { return end_capture(stream, graph); }
API int cuGraphInstantiateWithFlags(void** made, void* at, unsigned long long flags) {
  NEEDS_CONTEXT
  (void)flags;
  Graph* const graph = calloc(1, sizeof(Graph));
  Work** end = &graph->first;
  for (const Work* work = ((Graph*)at)->first; work != NULL; work = work->next) {
    *end = copy_of(work);
    end = &(*end)->next;
  }
  graph->launches = ((Graph*)at)->launches;
  *made = graph;
  return SUCCESS;
}
API int cuGraphDestroy(void* graph) { return destroy_graph(graph), SUCCESS; }
API int cuGraphExecDestroy(void* graph) { return destroy_graph(graph), SUCCESS; }
API int cuGraphLaunch(void* at, void* stream) {
  NEEDS_CONTEXT
  const Graph* const graph = at;
  const int error = count_launches(graph->launches);
  if (error != SUCCESS) return error;
  ++counts.graphs;
  for (const Work* work = graph->first; work != NULL; work = work->next) {
    counts.early += work->is_early;
    give(stream, copy_of(work));
  }
  return SUCCESS;
}
API int cuLaunchKernelEx(const struct config* c, void* f, void** p, void** e) {
  if (c->count != 1 || c->attributes[0] != 6 || c->attributes[2] != 1) return INVALID_VALUE;
  Stream* const stream = stream_at(c->stream);
  const int error = launch(f, c->blocks[0], c->blocks[1], c->blocks[2], c->threads[0],
                           c->threads[1], c->threads[2], c->shared, c->stream, p, e);
  if (error != SUCCESS) return error;
  if (stream->is_recorded) stream->last->is_early = 1;
  else ++counts.early;
  return SUCCESS;
}
BOTH(cuMemAlloc_v2, hipMalloc, (void** p, size_t n), allocate(p, n))
BOTH(cuMemFree_v2, hipFree, (void* p), free_memory(p))
BOTH(cuMemHostAlloc, hipHostMalloc, (void** p, size_t n, unsigned f), allocate_host(p, n, f))
BOTH(cuMemGetInfo_v2, hipMemGetInfo, (size_t* a, size_t* b), memory_info(a, b))
BOTH(cuMemcpyHtoDAsync_v2, hipMemcpyHtoDAsync, (void* t, const void* f, size_t n, void* s),
     copy_to_device(t, f, n, s))
BOTH(cuMemcpyDtoHAsync_v2, hipMemcpyDtoHAsync, (void* t, const void* f, size_t n, void* s),
     copy_to_host(t, f, n, s))
BOTH(cuMemcpyDtoDAsync_v2, hipMemcpyDtoDAsync, (void* t, const void* f, size_t n, void* s),
     copy_on_device(t, f, n, s))
BOTH(cuMemsetD8Async, hipMemsetD8Async, (void* t, unsigned char v, size_t n, void* s),
     fill(t, v, 1, n, s))
BOTH(cuMemsetD16Async, hipMemsetD16Async, (void* t, unsigned short v, size_t n, void* s),
     fill(t, v, 2, n, s))
BOTH(cuMemsetD32Async, hipMemsetD32Async, (void* t, unsigned v, size_t n, void* s),
     fill(t, v, 4, n, s))
BOTH(cuStreamCreate, hipStreamCreateWithFlags, (void** s, unsigned f), create_stream(s, f))
BOTH(cuStreamSynchronize, hipStreamSynchronize, (void* s), wait_stream(s))
BOTH(cuStreamWaitEvent, hipStreamWaitEvent, (void* s, void* e, unsigned f),
     stream_wait_event(s, e, f))
BOTH(cuEventCreate, hipEventCreateWithFlags, (void** e, unsigned f), create_event(e, f))
BOTH(cuEventDestroy_v2, hipEventDestroy, (void* e), destroy_event(e))
BOTH(cuEventRecord, hipEventRecord, (void* e, void* s), record_event(e, s))
BOTH(cuEventSynchronize, hipEventSynchronize, (void* e), wait_event(e))
BOTH(cuEventQuery, hipEventQuery, (void* e), query_event(e))
BOTH(cuEventElapsedTime, hipEventElapsedTime, (float* m, void* a, void* b), event_time(m, a, b))

API int cuInit(unsigned flags) { return (void)flags, SUCCESS; }
API int hipInit(unsigned flags) { return (void)flags, use_hip_device(current_hip_device); }
API int cuDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
API int hipDriverGetVersion(int* version) { return *version = 60342134, SUCCESS; }
API int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  switch (attribute) {
    case 10: *value = 32; break;
    case 16: *value = 132; break;
    case 38: *value = 50 << 20; break;
    case 75: *value = major_version; break;
    case 76: *value = minor_version; break;
    case 97: *value = 227 << 10; break;
    default: return INVALID_VALUE;
  }
  return SUCCESS;
}
API int hipGetDevicePropertiesR0600(char* properties, int device) {
  (void)device;
  memset(properties, 0, 1472);
  *(size_t*)(properties + 296) = 64 << 10;
  *(int*)(properties + 308) = strncmp(architecture, "gfx9", 4) == 0 ? 64 : 32;
  *(int*)(properties + 388) = 304;
  *(int*)(properties + 616) = 4 << 20;
  strcpy(properties + 1160, architecture);
  return SUCCESS;
}
API int cuDevicePrimaryCtxRetain(void** context, int device) {
  NEEDS_DEVICE
  *context = &contexts[device];
  return SUCCESS;
}
API int cuCtxPushCurrent_v2(void* context) {
  if (context == NULL || context_depth == MOST_CONTEXTS) return INVALID_CONTEXT;
  stack[context_depth++] = context;
  return SUCCESS;
}
API int cuCtxPopCurrent_v2(void** context) { return *context = NULL, --context_depth, SUCCESS; }
API int hipGetDevice(int* device) { return use_hip_device(*device = current_hip_device); }
API int hipSetDevice(int device) { return use_hip_device(device); }
API int cuFuncSetAttribute(void* f, int attribute, int value) {
  return set_function_attribute(f, attribute, value);
}
/* As tests/ptx/tensor_map.py has it, with 4-byte sizes. */
typedef struct {
  uint32_t magic;
  uint8_t rank, element, swizzle, rounds;
  uint64_t address;
  uint32_t sizes[5], box[5];
  uint64_t strides[4];
} TensorMap;
API int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address,
                               const uint64_t* sizes, const uint64_t* strides, const uint32_t* box,
                               const uint32_t* steps, int interleave, int swizzle, int promotion,
                               int fill) {
  static const uint8_t bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
  static const uint32_t spans[] = {UINT32_MAX, 32, 64, 128};
  if (refuses_maps || (uintptr_t)map % 64 != 0 || type < 0 || type > 12 || rank < 1 || rank > 5 ||
      (uintptr_t)address % 16 != 0 || interleave != 0 || swizzle < 0 || swizzle > 3 ||
      promotion < 0 || promotion > 3 || fill != 0) {
    return INVALID_VALUE;
  }
  TensorMap made = {0x4D54584C, rank,  bytes[type], swizzle, type == 11, (uintptr_t)address,
                    {0},        {0}, {0}};
  const uint32_t row = box[0] * made.element;
  if (row % 16 != 0 || row > spans[swizzle]) return INVALID_VALUE;
  for (unsigned i = 0; i < rank; ++i) {
    if (sizes[i] < 1 || sizes[i] > UINT32_MAX || box[i] < 1 || box[i] > 256 || steps[i] != 1) {
      return INVALID_VALUE;
    }
    made.sizes[i] = sizes[i], made.box[i] = box[i];
    if (i == 0) continue;
    const uint64_t stride = strides[i - 1];
    if (stride % 16 != 0 || stride == 0 || stride >= (uint64_t)1 << 40) return INVALID_VALUE;
    made.strides[i - 1] = stride;
  }
  memset(map, 0, 128);
  memcpy(map, &made, sizeof(made));
  pthread_mutex_lock(&mutex);
  ++counts.maps;
  pthread_mutex_unlock(&mutex);
  return SUCCESS;
}
API int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* names, void** values) {
  const int error = load_module(module, image, 0);
  for (unsigned i = 0; error == INVALID_IMAGE && i < count; ++i) {
    if (names[i] == 5) strcpy(values[i], "ptxas fatal : not the stand-in's text");
  }
  return error;
}
API int hipModuleLoadDataEx(void** module, const void* image, unsigned count, int* names, void** values) {
  (void)count, (void)names, (void)values;
  return load_module(module, image, 1);
}
