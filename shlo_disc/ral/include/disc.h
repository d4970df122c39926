/* disc.h - loads and runs artifacts of shlo_disc (files `*.disc`). C99 and C++17; link with libdisc_ral.so.
 *
 * A function that can fail returns null when it succeeded, else an error to free with disc_error_free.
 * A program may be run by any number of threads at once; closing it needs that no call is running.
 * Structures begin with `struct_size`, sizeof of the caller's, or are fixed for ever.
 */
#ifndef DISC_H
#define DISC_H
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DISC_API __attribute__((visibility("default")))
#define DISC_CHECKED DISC_API __attribute__((warn_unused_result))
#else
#define DISC_API
#define DISC_CHECKED
#endif

/* The version of this header. Later ones only add. */
#define DISC_VERSION 1
DISC_API int32_t disc_version(void); /* that of the library */

typedef struct disc_program disc_program;
typedef struct disc_error disc_error;
typedef struct disc_memory disc_memory; /* memory of the library's that a result is in */
typedef struct disc_weight disc_weight; /* packed copies of memory that does not change */

/* ---- Errors ---- */

typedef enum disc_code {
  DISC_OK = 0,
  DISC_MISUSE,        /* a null pointer, a wrong count, an unknown flag: a mistake in the calling code */
  DISC_FILE,          /* the file cannot be opened or read, or everyone may write to it */
  DISC_DAMAGED,       /* the bytes are no artifact, or not what was written */
  DISC_NEWER,         /* a later version of shlo_disc made the artifact; the message says which */
  DISC_NO_TARGET,     /* the artifact has no code for this processor */
  DISC_DTYPE,         /* an array has another element type */
  DISC_RANK,          /* an array has another number of dimensions */
  DISC_SIZE,          /* a size is not the one that the program takes */
  DISC_CONSTRAINT,    /* the sizes of several dimensions do not fit together */
  DISC_STRIDES,       /* an array is not dense and row-major */
  DISC_NULL,          /* an array with elements has no memory */
  DISC_ALIGNMENT,     /* memory does not begin at a multiple of what it must */
  DISC_OVERLAP,       /* the memory of a result meets that of an argument or of another result */
  DISC_TOO_SMALL,     /* the caller's memory is smaller than what goes there */
  DISC_DEVICE,        /* an array is elsewhere than the program wants it, or a GPU or its driver fails */
  DISC_OUT_OF_MEMORY,
  DISC_INTERNAL,      /* a mistake of ours */
  DISC_DATA_SIZED,    /* sizes come from data: they are known after a run, not before */
  DISC_NO_HANDLER,    /* the artifact calls code that was not given, or that cannot be called: a handler, LAPACK */
  DISC_HANDLER        /* a handler has failed in a call */
} disc_code;

DISC_API disc_code disc_error_code(const disc_error* error);
/* Names the argument and its sizes where there are some. Lives as long as the error. */
DISC_API const char* disc_error_message(const disc_error* error);
/* The argument that does not fit; -1: the error is of none. Results likewise. */
DISC_API int64_t disc_error_argument(const disc_error* error);
DISC_API int64_t disc_error_result(const disc_error* error);
DISC_API void disc_error_free(disc_error* error); /* null is fine */

/* ---- Element types: a byte each for booleans (0 or 1) and for all of less than 8 bits ---- */

typedef enum disc_dtype {
  DISC_BOOL, DISC_INT8, DISC_INT16, DISC_INT32, DISC_INT64,
  DISC_UINT8, DISC_UINT16, DISC_UINT32, DISC_UINT64,
  DISC_FLOAT16, DISC_BFLOAT16, DISC_FLOAT32, DISC_FLOAT64, DISC_COMPLEX64, DISC_COMPLEX128,
  DISC_FLOAT4_E2M1FN, DISC_FLOAT6_E2M3FN, DISC_FLOAT6_E3M2FN, DISC_FLOAT8_E3M4, DISC_FLOAT8_E4M3,
  DISC_FLOAT8_E4M3B11FNUZ, DISC_FLOAT8_E4M3FN, DISC_FLOAT8_E4M3FNUZ, DISC_FLOAT8_E5M2,
  DISC_FLOAT8_E5M2FNUZ, DISC_FLOAT8_E8M0FNU,
  DISC_INT2, DISC_INT4, DISC_UINT2, DISC_UINT4,
  DISC_DTYPES /* how many there are */
} disc_dtype;

DISC_API const char* disc_dtype_name(int32_t dtype); /* NumPy's name; null: there is no such type */
DISC_API int64_t disc_dtype_bytes(int32_t dtype);    /* of an element; 0: there is no such type */

/* ---- Programs ---- */

/* The handlers of an FFI target of XLA, as `jax.ffi.register_ffi_target` takes them: addresses of functions
 * XLA_FFI_Handler, by stage; null where there is none. Fixed for ever. */
typedef struct disc_handler {
  const char* target; /* the name of the target */
  void* instantiate;
  void* prepare;
  void* initialize;
  void* execute;
  /* Of states that the first three leave: an XLA_FFI_TypeId* and an XLA_FFI_TypeInfo*, with which they are deleted.
   * A type that no XLA has numbered gets a number. Both are null where there are no states. */
  void* state_type_id;
  void* state_type_info;
} disc_handler;

typedef struct disc_options {
  size_t struct_size;
  /* The target to load, as `x86-64-v3`; null: the first that this processor can run. */
  const char* target;
  /* Threads that work on one call, the caller included; 0: as many as there are cores, or
   * SHLO_DISC_NUM_THREADS. */
  int32_t threads;
  /* Zero, or DISC_TRUST_CONSTANTS. */
  uint32_t flags;
  /* What `allocate`, `release`, `parallel_for` and `log` are given. */
  void* context;
  /* Memory for results and temporary values; both are null for the pool of the library. `allocate` returns
   * a multiple of `alignment` (64), or null. Packed copies and the threads' own memory are of the library. */
  void* (*allocate)(void* context, size_t bytes, size_t alignment);
  void (*release)(void* context, void* memory, size_t bytes);
  /* Calls task(data) `count` times, if possible on different threads at once, and returns when all have
   * returned. A task that is called late finds nothing to do. Null: threads of the library. */
  void (*parallel_for)(void* context, void (*task)(void* data), void* data, int32_t count);
  /* Told what the library decides: the target, and why others were not taken. Null: nobody. */
  void (*log)(void* context, const char* message);
  /* The number of the GPU that a target for GPUs runs on, as its driver counts. `allocate` is not asked for memory of
   * it, and `threads` and `parallel_for` do nothing there. */
  int32_t device;
  uint32_t reserved; /* zero */
  /* Handlers that the program may call, `handler_count` of them. What was saved with ffi="extern" needs its own: where
   * one is missing, opening fails with DISC_NO_HANDLER, and the error names it. Their code and their types live as
   * long as the program. */
  const disc_handler* handlers;
  size_t handler_count;
  /* The library with the functions of LAPACK, for a program that calls them (cholesky, solve, qr, svd, eigh ...): a
   * path or a name, as dlopen takes it. Null: the environment variable DISC_LAPACK, else the first of liblapack.so.3,
   * libopenblas.so.0, libmkl_rt.so.2 and libflexiblas.so.3. Its functions are named as `spotrf_`, `scipy_spotrf_`, or, with
   * integers of 64 bits, `spotrf_64_` or `scipy_spotrf_64_`. It is opened for programs alone that need it, and stays open. */
  const char* lapack;
} disc_options;

/* The digests of constants are not checked: opening does not read weights. Without this flag it does. */
#define DISC_TRUST_CONSTANTS 1u

/* `options` may be null. `path` is an artifact, or a shared library that has one, of which no code is run. The file is
 * mapped: replace it, never write into it while it is open. Anyone may own it, but a file that everyone may write to is
 * refused. Weights that were saved separately are in the same folder. Texts are UTF-8. */
DISC_CHECKED disc_error* disc_program_open(const char* path, const disc_options* options,
                                           disc_program** program);
/* The same for bytes in memory, which stay as they are until the program is closed. Constants are read
 * there if `data` is a multiple of 64, else copied. The artifact has its weights inside. A shared library with an
 * artifact has `const void* disc_artifact_NAME(size_t* bytes)`, which gives them; NAME is that of the program. */
DISC_CHECKED disc_error* disc_program_open_memory(const void* data, size_t bytes, const disc_options* options,
                                                  disc_program** program);
/* Results that are not released yet stay. Null is fine. */
DISC_API void disc_program_close(disc_program* program);

/* Texts and arrays below live as long as the program. */
DISC_API const char* disc_program_name(const disc_program* program);
DISC_API const char* disc_program_compiler(const disc_program* program); /* `shlo_disc 0.1.0` */
DISC_API const char* disc_program_target(const disc_program* program);   /* the one that runs */
/* Where it runs: a DLDeviceType of DLPack (1: the CPU, 2: CUDA, 10: ROCm) and the number of the device, 0 of the CPU. */
DISC_API void disc_program_device(const disc_program* program, int32_t* type, int32_t* number);
DISC_API size_t disc_program_arguments(const disc_program* program);     /* how many there are */
DISC_API size_t disc_program_results(const disc_program* program);

typedef struct disc_spec {
  size_t struct_size;
  const char* name; /* the path in the tree of arguments or results: `params['w']` */
  int32_t dtype;
  int32_t rank;
  const int64_t* sizes;     /* -1: any, or computed */
  const char* const* texts; /* of each size: `8`, `batch`, `2*n + 1` */
  int32_t is_donated;       /* an argument whose memory one result may take, see `donated_to` */
  int32_t is_packable;      /* an argument worth a disc_weight */
  int64_t donated_to;       /* the result that may be written over it; -1: none */
} disc_spec;

/* Fills `spec`, whose `struct_size` is set. */
DISC_CHECKED disc_error* disc_program_argument(const disc_program* program, size_t index, disc_spec* spec);
DISC_CHECKED disc_error* disc_program_result(const disc_program* program, size_t index, disc_spec* spec);

/* ---- Calls ---- */

/* An argument. Its memory begins at a multiple of the size of an element. */
typedef struct disc_array {
  const void* data;       /* may be null where there are no elements */
  const int64_t* sizes;   /* `rank` of them */
  const int64_t* strides; /* in elements; null: dense, row-major, as it must be */
  int32_t dtype;
  int32_t rank;
  disc_weight* weight; /* null, or the packed copies of this memory */
} disc_array;

/* A result. Caller's memory begins at a multiple of 64 and meets no argument, but for the one that may be
 * donated to it. A buffer filled by one call can be given to the next: memory of the library is used again,
 * or replaced if it is too small. */
typedef struct disc_buffer {
  void* data;          /* in: caller's memory, or null for memory of the library; out: the result */
  size_t bytes;        /* in: of the memory; out: of the result */
  int64_t* sizes;      /* null, or room for as many as the result's rank; out: the sizes */
  disc_memory* memory; /* null at first; out: what disc_memory_release takes; null: the memory is the caller's */
} disc_buffer;

typedef struct disc_needs {
  size_t struct_size;
  int64_t result_bytes;    /* of all results */
  int64_t temporary_bytes; /* of temporary values */
  int64_t peak_bytes;      /* both, each rounded as it is allocated; packed copies come on top, once */
} disc_needs;

/* What a call with these arguments would need. `data` of arguments may be null, but for those whose
 * elements are sizes, which are on the CPU. `result_sizes`: null, or room for the sizes of all results, one after the
 * other; `needs` may be null. DISC_DATA_SIZED for a program whose sizes come from data: run it with memory of the
 * library. */
DISC_CHECKED disc_error* disc_program_measure(const disc_program* program, const disc_array* arguments,
                                              size_t argument_count, int64_t* result_sizes,
                                              disc_needs* needs);

/* Runs the program, with all memory on the CPU: a program for GPUs copies arguments and results, and has no place
 * for donation. After an error the buffers are as they were, and their memory may hold anything. */
DISC_CHECKED disc_error* disc_program_run(const disc_program* program, const disc_array* arguments,
                                          size_t argument_count, disc_buffer* results, size_t result_count);
DISC_API void disc_memory_release(disc_memory* memory); /* null is fine */

/* The same with all memory on the GPU of the program. The work is given to `stream` (a CUstream or hipStream_t of the
 * device's primary context) behind what it has, and need not be done on return; null: a stream of the library, which is
 * waited for. Arguments stay until the work is done. A buffer with memory of the library belongs to one stream. A
 * program whose sizes come from data waits for the stream where these are read. */
DISC_CHECKED disc_error* disc_program_enqueue(const disc_program* program, void* stream, const disc_array* arguments,
                                              size_t argument_count, disc_buffer* results, size_t result_count);

/* The same with DLPack's tensors. All are on the CPU, as for disc_program_run, or all on the GPU of the program, and
 * then so are the results, which are done. `arguments`: pointers to DLTensor. `results`: room
 * for pointers to DLManagedTensorVersioned, to be deleted as DLPack says. */
struct DLManagedTensorVersioned;
DISC_CHECKED disc_error* disc_program_run_dlpack(const disc_program* program, const void* const* arguments,
                                                 size_t argument_count,
                                                 struct DLManagedTensorVersioned** results,
                                                 size_t result_count);

/* Says that memory does not change until disc_weight_free: products keep a packed copy of it. One for each
 * array of weights, given to every call in `disc_array.weight`. No call runs when it is freed. */
DISC_CHECKED disc_error* disc_weight_create(disc_weight** weight);
DISC_API void disc_weight_free(disc_weight* weight); /* null is fine */

#ifdef __cplusplus
}
#endif
#endif /* DISC_H */
