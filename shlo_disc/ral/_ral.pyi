"""The C++ runtime. See `shlo_disc.ral` for what is meant to be used."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

class ArgumentError(TypeError):
    """An argument does not fit. `args` is `(index, kind, what)`.

    `kind`: "count" (index -1), "type", "dtype", "rank", "size", "value", "device", "deleted",
    "donated" or "changed" (other memory during the call).
    """

    args: tuple[int, str, str]

class GuardError(ValueError):
    """A guard does not hold. `args` is `(index, what, shapes)`, the shapes of all arguments."""

    args: tuple[int, str, tuple[tuple[int, ...], ...]]

class ForeignError(RuntimeError):
    """A handler of XLA's FFI has failed. `args` is `(where, message, code)`."""

    args: tuple[str, str, int]

class ForeignCall:
    """One call of a handler of XLA's FFI in a program.

    handlers: addresses by stage (instantiate, prepare, initialize, execute), 0 where there is none.
    operands, results: rows `(dtype, rank)`. attributes: rows `(name, XLA_FFI_AttrType,
    XLA_FFI_DataType, elements, bytes)`, of dictionaries `(name, XLA_FFI_AttrType, rows)`.
    size_attributes: positions of integer scalars among them that every call gives.
    state_types: addresses of XLA_FFI_TypeId and XLA_FFI_TypeInfo, to delete states. on_device: the
    handlers are of a GPU's platform; those of the host are given copies in programs for GPUs. Runs
    the instantiate stage; raises RuntimeError where that fails.
    """

    def __init__(
        self,
        *,
        target: str,
        where: str,
        handlers: Sequence[int],
        operands: Sequence[tuple[np.dtype[Any], int]],
        results: Sequence[tuple[np.dtype[Any], int]],
        attributes: list[Any],
        size_attributes: Sequence[int] = ...,
        state_types: Sequence[tuple[int, int]] = ...,
        on_device: bool = ...,
    ) -> None: ...

class GpuKernel:
    """One kernel of a program for a GPU.

    symbol: its name in image number `image`. threads: of a block, along x. tasks_per_block: tasks
    of a launch that one block computes. shared_bytes: dynamic shared memory of a block. args,
    params: entries of a launch's arrays. by_value: entries of `args` that are passed by value.
    maps: entries of `args` that are tensor maps; of each its argument, element, box, and numbers of
    params: elements in front, sizes, strides.
    name, source: what messages call it, and its line in the program.
    """

    def __init__(
        self,
        *,
        symbol: str,
        image: int,
        threads: int,
        tasks_per_block: int,
        shared_bytes: int,
        args: int,
        by_value: Sequence[int] = ...,
        params: int,
        maps: Sequence[tuple[int, str, Sequence[int], int, Sequence[int], Sequence[int]]] = ...,
        name: str,
        source: str = ...,
    ) -> None: ...

class GpuProgram:
    """What an executable has for a GPU, besides its host program.

    platform: "cuda" or "rocm". architecture: what the images are compiled for, such as "sm_90a".
    images: PTX text, cubins or code objects. They are loaded in the first call on each device.
    machine_code: cubins of the images or empty bytes, one for each; or nothing. A device loads them
    in place of the images if it runs them, and the image if the driver refuses.
    Raises ValueError for an unknown platform or another number of cubins, and IndexError for a
    kernel without an image.
    """

    def __init__(
        self,
        *,
        platform: str,
        architecture: str,
        images: Sequence[bytes],
        machine_code: Sequence[bytes] = ...,
        kernels: Sequence[GpuKernel],
    ) -> None: ...

class JaxBridge:
    """How to read and make `jax.Array`s; its parts come from `shlo_disc.jax_private`.

    array_type: the concrete class of arrays. shaped_array: `(shape, dtype, weak_type) -> aval`.
    batched_device_put: `(aval, sharding, [ndarray], [device], committed) -> array`, zero-copy.
    device: where uncommitted results live. cpu_sharding: the sharding of one device, None when its
    memory is not the host's. unguarded_device_put: `batched_device_put` where a transfer guard
    refuses it. collect_garbage: drops buffers JAX is done with. The two names are
    attributes: is an array committed; the device of a single-device sharding.
    """

    def __init__(
        self,
        *,
        array_type: type,
        shaped_array: Callable[..., Any],
        batched_device_put: Callable[..., Any],
        device: Any,
        cpu_sharding: Callable[[Any], Any],
        unguarded_device_put: Callable[..., Any] | None = None,
        collect_garbage: Callable[[], None] | None = None,
        committed_name: str = "_committed",
        device_name: str = "_device",
    ) -> None: ...

class GpuBridge(JaxBridge):
    """How to read and make `jax.Array`s in the memory of one GPU; its parts come from
    `shlo_disc.jax_private`.

    platform, ordinal: the device of the driver. device: the same device of JAX. stream: an address,
    the stream XLA computes on; None for one that waits for no other. sharding: `(device) ->` its
    sharding, None for another device. order: `(array, stream) -> None`, after which work of the
    stream sees the array. adopt: `(capsule, device) ->` a committed array over the memory of a
    DLPack capsule. rewrap: `(aval, sharding, committed) -> ((array,) -> array)`, which gives arrays
    another type and another commitment. to_host: `(array) -> ndarray`, which waits. waits: a call
    ends when its work is done. dlpack_device: the code of the device's kind, if it is not that of
    the platform. The others are those of JaxBridge.
    """

    def __init__(
        self,
        *,
        platform: str,
        ordinal: int,
        stream: int | None,
        array_type: type,
        shaped_array: Callable[..., Any],
        device: Any,
        sharding: Callable[[Any], Any],
        order: Callable[[Any, int], None],
        adopt: Callable[[Any, Any], Any],
        rewrap: Callable[..., Callable[[tuple[Any]], Any]],
        to_host: Callable[[Any], npt.NDArray[Any]],
        collect_garbage: Callable[[], None] | None = None,
        dlpack_device: int | None = None,
        waits: bool = False,
        committed_name: str = "_committed",
        device_name: str = "_device",
    ) -> None: ...

class KernelCell:
    """Where the code of a kernel is. Programs read it at every launch; any thread may set it."""

    address: int
    """0: there is no code yet."""

    def __init__(self, address: int = 0) -> None: ...

class Executable:
    """A compiled program; stateless in calls, callable from any number of threads.

    prepare, run, kernels: cells (see `disc_ral.h`), which keep_alive owns. Where `prepare` and
    `run` are empty, the code is for another machine, and calls raise DeviceError. constants:
    arrays, copied. arguments: rows `(dtype, sizes with -1 for any, path)`. results: rows `(dtype,
    rank, weak_type)`. symbols: how many `prepare` writes. pack_layouts: the key of each pack slot.
    packable: the arguments that may be packed. guards: what each guard asks, for messages. donated:
    arguments whose arrays a call deletes. reuses: pairs (donated argument, result) that may share
    memory, where nothing else refers to it. keep_alive: owns the machine code. size_arguments:
    integer arguments of static sizes whose elements `prepare` gets, behind the sizes of all
    arguments. unread: arguments whose memory no code looks at; a call takes deleted arrays and
    those of other devices for them, as JAX does. foreign: the handlers of XLA's FFI that it calls,
    in the order of their numbers. gpu: the kernels of a program for a GPU, which has neither
    kernels, packs nor FFI calls here. make_kernel: fills the cell of a kernel, by its index, when a
    call first needs one without code; it is also told whether this call has other sizes than the
    first one. pack_later: takes, once, a function to be called until it returns False. Each call
    makes one of the packed copies that the first call that needs some did without. Other calls do
    without missing copies until the function goes. None: calls make copies.
    """

    def __init__(
        self,
        *,
        name: str,
        prepare: KernelCell,
        run: KernelCell,
        kernels: Sequence[KernelCell],
        constants: Sequence[npt.NDArray[Any]],
        arguments: Sequence[tuple[np.dtype[Any], Sequence[int], str]],
        results: Sequence[tuple[np.dtype[Any], int, bool]],
        symbols: int,
        pack_layouts: Sequence[str] = ...,
        packable: Sequence[int] = ...,
        guards: Sequence[str] = ...,
        donated: Sequence[int] = ...,
        reuses: Sequence[tuple[int, int]] = ...,
        keep_alive: object = None,
        size_arguments: Sequence[int] = ...,
        unread: Sequence[int] = ...,
        foreign: Sequence[ForeignCall] = ...,
        gpu: GpuProgram | None = ...,
        make_kernel: Callable[[int, bool], object] | None = ...,
        pack_later: Callable[[Callable[[], bool]], object] | None = ...,
    ) -> None: ...
    @property
    def name(self) -> str: ...
    def packs(self) -> list[tuple[int, int, bytes]]:
        """Packed copies of constants that are ready, as rows `(constant, slot, bytes)`."""

    def add_pack(self, constant: int, slot: int, data: npt.NDArray[np.uint8], /) -> None:
        """Have calls read a packed copy of a constant, which must lie at a multiple of 64.

        To be called before the first call. Raises IndexError, and ValueError for other memory.
        """

    def call(self, bridge: JaxBridge, leaves: Sequence[Any], /) -> list[Any]:
        """Run on the flat arguments; ready `jax.Array`s, uncommitted when the arguments are.

        Arguments: `jax.Array`, numpy, Python scalars, or anything with `__dlpack__` on the CPU.
        Raises ArgumentError, GuardError, MemoryError.

        With a `GpuBridge` the program runs on its device. The call gives work to the stream of the
        bridge and waits for none of it, unless the program reads memory. Arguments that are no
        `jax.Array` are copied to the device. Raises DeviceError, too, as :meth:`run_gpu` does.
        """

    def run_numpy(self, leaves: Sequence[Any], /) -> list[npt.NDArray[Any]]:
        """Run without JAX; as `call`, with numpy arrays as results. Programs for a GPU run on the
        first one, as by :meth:`run_gpu`.
        """

    def run_gpu(self, leaves: Sequence[Any], device: int = 0) -> list[npt.NDArray[Any]]:
        """Run a program for a GPU on device number `device` of its platform.

        Arguments are copied there, results are copied back; the call waits for both. Raises
        DeviceError (of `shlo_disc.base.errors`) for a missing driver or device, kernels of another
        architecture, a refused launch and a fault of a kernel. Raises MemoryError where the device
        has no memory left, and TypeError for a program of the CPU.
        """

    def gpu_kernels(self, device: int = 0) -> list[dict[str, Any]]:
        """What the driver says of each kernel: `name`, `registers` and `local_bytes` of a thread,
        `shared_bytes` of a block and the most threads of a block, `max_threads`.

        Loads the program. Raises as :meth:`run_gpu`.
        """

    def profile(
        self, run: int, bridge: JaxBridge | None, leaves: Sequence[Any]
    ) -> tuple[list[Any], npt.NDArray[np.int64], int, int, int]:
        """As `call` (`run_numpy` without a bridge), by a host program that marks its launches.

        On a GPU the times are those of the device's work, from 0 where the run begins.

        Gives (results, marks, begin, end, marks dropped). marks: [n, 3] of launch site, 0 where it
        begins or 1 where it is done, and monotonic nanoseconds, as are begin and end of the run.
        """

    @property
    def copies(self) -> tuple[list[int], int]:
        """Calls that copied each argument because it was not dense, and the bytes of all copies."""

    @property
    def gpu_calls(self) -> tuple[int, int, int]:
        """Calls on GPUs that waited for their kernels, those that XLA enqueued, and how many of
        both were launched as a graph of the driver.
        """

    @property
    def unused_donations(self) -> list[int]:
        """Calls in which each donated tensor could not take a result, for it was not dense."""

    def register_ffi(self, fingerprint: int) -> None:
        """Make the program callable as a custom call with this `executable` attribute.

        An XLA executable made while this object lives keeps the program alive.
        """

class TensorBridge:
    """How results become tensors of a type, by the table `__dlpack_c_exchange_api__` of that type.

    Without a type they become capsules named "dltensor", for one reader each. Raises TypeError for
    a type without a usable table.
    """

    def __init__(self, type: type | None) -> None: ...

class Weights:
    """Packed copies of arrays that may change between calls; they go with the array or with this.

    keep: `(array) -> ` an object that owns the memory the array has now, whatever memory the array
    is given later. It must not be the array itself, which would then never die.
    """

    def __init__(self, keep: Callable[[Any], Any]) -> None: ...
    @property
    def count(self) -> int:
        """Arrays that have packed copies."""

    def clear(self) -> None:
        """Forget all, after the calls that use them."""

class TensorCall:
    """Calls of an executable with tensors as results.

    versioned, frozen: arguments whose packed copies `weights` keeps. Those of a versioned one serve
    while the array, its memory, strides and the version that calls give are the same; a copy of a
    changed array is made when it comes a second time. A sample of the elements is compared as well,
    which tells most changes that a version does not. A frozen one has no version and no sample.
    over: makes a tensor of a donated one and of sizes, in the memory of the donated one, which has
    the result by then. Without it donated tensors are only read.
    flag: a result, a scalar of bool or int32, that calls give as a Python integer.
    Raises TypeError for a result that DLPack has no type for, and for a flag of another type.
    Raises IndexError for an argument or a flag that does not exist and ValueError for an argument
    named twice.
    """

    def __init__(
        self,
        executable: Executable,
        bridge: TensorBridge,
        weights: Weights,
        *,
        versioned: Sequence[int] = ...,
        frozen: Sequence[int] = ...,
        over: Callable[[Any, tuple[int, ...]], Any] | None = ...,
        flag: int | None = ...,
    ) -> None: ...
    def __call__(self, leaves: Sequence[Any], versions: Sequence[int] = ...) -> list[Any]:
        """As `Executable.call`, with one version from 0 for each versioned argument.

        Raises ArgumentError of the kind "overlap" for a donated tensor that shares memory with
        another argument. Raises ValueError for another number of versions or a negative one,
        TypeError for what is no integer.
        """

class DispatchEntry:
    """What a `Dispatcher` runs; `unflatten` makes the function's result of the list of results,
    None of which there is one and which is the function's. dtypes: what arrays and scalars of NumPy
    are converted to, one for each leaf; None for one that is a typed key. through_after: after how
    many calls the `Dispatcher` gives such calls to its `_call_through`; None: never.

    Raises ValueError for no `unflatten` and an executable with no result or with several.
    """

    def __init__(
        self,
        executable: Executable,
        bridge: JaxBridge,
        unflatten: Callable[[list[Any]], Any] | None,
        dtypes: tuple[np.dtype[Any] | None, ...],
        through_after: int | None = ...,
    ) -> None: ...
    @property
    def calls(self) -> int:
        """How often it ran without an error."""

    @property
    def version(self) -> DispatchEntry | None:
        """The entry of the version, for one a `Dispatcher` made itself."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of the arguments, for one a `Dispatcher` made itself."""

SIZE_OPERATIONS: dict[str, int]
"""Operations of a `SizePattern`'s expressions: constant, symbol, +, *, floordiv, mod, min, max."""
SIZE_RELATIONS: dict[str, int]
"""Relations of a `SizePattern`'s guards: ==, !=, <, <=, > and >=."""

class SizePattern:
    """Sizes of arguments as expressions of symbols, and guards.

    An expression is a list of numbers in postfix form: the operations "constant" and "symbol" are
    followed by a value or the symbol's number, the others take the two results before them. A
    division by 0 has no value: no sizes fit.
    ranks: one for each argument. steps: rows of the size's place among all sizes of all arguments,
    the number of the symbol that `size == factor * symbol + expression` gives (-1: size must equal
    the expression), factor, and expression; an expression reads symbols of earlier steps. guards:
    rows of expression, relation and expression.
    Raises ValueError for anything out of range.
    """

    def __init__(
        self,
        ranks: Sequence[int],
        symbols: int,
        steps: Sequence[tuple[int, int, int, Sequence[int]]],
        guards: Sequence[tuple[Sequence[int], int, Sequence[int]]],
    ) -> None: ...
    def solve(self, shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
        """The symbols' values, each at least 1; None when the shapes do not fit.

        Raises OverflowError when 64 bits are too narrow to tell; ValueError for other ranks.
        """

class Dispatcher:
    """Runs calls of concrete `jax.Array`s, typed PRNG keys, NumPy's arrays and scalars and Python
    numbers that are like one added before, or whose sizes fit a version offered; a subclass has
    `_call_slowly` for the others, and for what does not fit, and `_call_through` for entries with
    `through_after`.

    array_type: the concrete class of arrays. key_type: that of typed keys, which hold one in
    `_base_array`, with words in its last dimension. static_nums, static_names (sorted): arguments
    whose types and values are part of what a call is like. flatten: `((args, kwargs)) ->
    (leaves, structure)`.
    trace_context: `() -> ` a hashable that differs where a function would be traced differently.
    usual: pairs of an object and its usual `.value`; elsewhere calls are never looked up.
    """

    def __init__(
        self,
        *,
        array_type: type,
        key_type: type,
        flatten: Callable[[Any], tuple[list[Any], Any]],
        trace_context: Callable[[], Any],
        usual: Sequence[tuple[Any, Any]],
        static_nums: Sequence[int],
        static_names: tuple[str, ...],
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result.

        Raises what `Executable.call` raises, but for its ArgumentError and GuardError, which
        `_call_slowly` explains; AttributeError without one.
        """

    def _add(self, args: tuple[Any, ...], kwargs: dict[str, Any], entry: DispatchEntry, /) -> None:
        """Run `entry` from now on; no effect when a leaf is of another kind."""

    def _offer(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        versions: list[tuple[SizePattern, DispatchEntry]],
        /,
    ) -> None:
        """From now on a call like this one, but for its sizes, runs the first of `versions` that
        they fit. The list may be changed later. No effect when a leaf is of another kind.
        """

    def _found(self) -> list[DispatchEntry]:
        """The entries made for sizes that fitted an offered version."""

    def _forget(self) -> None:
        """Run no entry and no version any more."""

class ObjectCodeError(ValueError):
    """An object file is damaged, or has something the loader does not know."""

class LoadedCode:
    """Executable memory with the machine code of `object`; freed with this object.

    object: a relocatable ELF file of this machine's, as LLVM writes it. It is checked as a whole
    before any of it is mapped. Memory is never writable and executable at once.
    Raises ObjectCodeError, and OSError where the system gives no executable memory.
    """

    def __init__(self, object: bytes) -> None: ...
    @property
    def functions(self) -> dict[str, tuple[int, int]]:
        """Address and bytes of every global function."""

    @property
    def mapped_bytes(self) -> int: ...

class SignalHandlers:
    """What handles every signal of the process, as it is when this object is made."""

    def __init__(self) -> None: ...
    def restore(self) -> None:
        """Have the same functions handle the signals again."""

def check_object_code(object: bytes, instruction_set: str = "x86-64") -> None:
    """Raise ObjectCodeError if `LoadedCode` would on a machine of `instruction_set`; maps nothing.

    Raises ValueError for another instruction set than "x86-64" and "aarch64".
    """

def cpu_identity() -> bytes:
    """What tells CPUs apart that LLVM generates other code for, such as values of CPUID."""

class FileStamps:
    """Path, size and time of every `*.py` and `*.so` below a folder, as they are now.

    A thread reads them, without the interpreter.
    """

    def __init__(self, folder: str) -> None: ...
    def get(self) -> bytes:
        """Raises OSError."""

def ffi_handler(on_gpu: bool = False) -> dict[str, Any]:
    """The capsules to register with JAX, by stage.

    `jax.ffi.register_ffi_target(FFI_TARGET, ffi_handler(), platform="cpu")`; once per process.
    `on_gpu`: those for the platforms "CUDA" and "ROCM", whose buffers are a GPU's.

    Programs become callable by :meth:`Executable.register_ffi`. The custom call takes the
    attribute `executable` (i64, the fingerprint) and optionally `sizes` (i64 array): the sizes of
    one more, zero-size argument that carries sizes no array shows. A program runs on its own
    platform; calls on another are refused.
    """

def ffi_learn_stream() -> Any:
    """The capsule of an FFI handler of GPUs that remembers the stream of its calls."""

def ffi_registered() -> int: ...
def python_callback_address() -> int:
    """Of an XLA FFI handler that calls the Python object whose address is its attribute `callback`.

    The object is called with operands as `(bytes, sizes)` and results as `(memoryview, sizes)`. It
    returns None, or the text of an error.
    """

def limit_threads(threads: int) -> int:
    """At most so many threads work on what this thread runs from now on; 0: no limit.

    Returns the limit that was.
    """

def num_threads() -> int: ...
def numpy_view(array: Any, dtype: np.dtype[Any]) -> Any:
    """A read-only numpy array over the memory of a tensor with DLPack's table of C functions.

    `array` itself if it is anything else, on another device or of another dtype.
    """

def threads_started() -> bool: ...
def parallel_for(
    kernel: int, args: int, params: int, extent: int, grain: int, scratch_bytes: int = 0
) -> None: ...
def fft_transform(
    options: int, batch: int, length: int, buffers: Sequence[int], inner: int = 1
) -> bool:
    """Run a transform on memory at addresses (see `src/fft.h`); False: out of memory."""

def fft_plan_stats() -> dict[str, int]:
    """`plans` kept for later transforms, their `bytes`, and `limit_bytes`."""

def fft_forget_plans() -> None: ...
def pool_stats() -> dict[str, int]: ...
def pool_trim() -> int: ...
def gpu_driver(platform: str) -> dict[str, str]:
    """The driver of "cuda" or "rocm": its `library` and `version`.

    Raises DeviceError where it is missing, and ValueError for another platform.
    """

def gpu_check_architecture(platform: str, architecture: str, device: int = 0) -> None:
    """Raise DeviceError unless kernels for `architecture` run on a device of this machine."""

def gpu_devices(platform: str) -> list[dict[str, Any]]:
    """A row for each device: `ordinal`, `name`, `architecture`, `multiprocessors`, `warp_size`,
    `shared_bytes` (a block may have), `l2_bytes` and `total_bytes`.

    Uses no memory of the devices. Raises as :func:`gpu_driver`, and DeviceError where there is no
    device.
    """

def gpu_learned_stream(ordinal: int) -> int | None:
    """The address of the stream of the last call of `ffi_learn_stream`'s handler on a device."""

def gpu_pool_stats(platform: str, device: int = 0) -> dict[str, int]:
    """As `pool_stats`, of the memory of a device. Raises as :func:`gpu_devices`."""

def gpu_pool_trim(platform: str, device: int = 0) -> int:
    """As `pool_trim`, of the memory of a device, whose work is waited for."""

def pack_stats() -> dict[str, int]: ...
def pack_clear() -> int: ...
