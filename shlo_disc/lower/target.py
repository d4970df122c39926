"""What programs are compiled for: the registry of targets, and all that a target offers.

Code outside `lower/cpu` asks a :class:`Target`, which `parse` finds by name. A row of the registry
is a module with a function `target(architecture: str) -> Target`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.base.locks import once
from shlo_disc.base.records import dataclass
from shlo_disc.lower.host.record import CodeNames
from shlo_disc.lower.images import KernelImage
from shlo_disc.lower.plan import KernelPlan, KernelText
from shlo_disc.store.loader import KernelCell

if TYPE_CHECKING:  # programs are loaded without them
    from shlo_disc.lower.host.memory import HostMemory
    from shlo_disc.passes.machine_model import MachineModel
    from shlo_disc.passes.records import Planned

_MODULES = {
    "cpu": "shlo_disc.lower.cpu.target",
    "cuda": "shlo_disc.lower.cuda",
    "rocm": "shlo_disc.lower.rocm",
}
"""Family of a target to the module that has it."""

_ARTIFACTS = ("shlo_disc.lower.cpu.target", "shlo_disc.lower.gpu.artifacts")
"""Modules with a function `artifact_target(name: str, cores: int) -> ArtifactTarget | None`."""
ARTIFACT_TARGETS = ("x86-64-v3", "x86-64-v4")
"""Machines that artifacts are made for if nobody says which; "aarch64" is another one."""

Emitter = Callable[["Planned[Any]", Any], KernelPlan]
"""Gives the plan of a fusion. The last argument is the target's `machine`."""


class Function(Protocol):
    """Machine code of one function. It stays in memory as long as this object lives."""

    @property
    def name(self) -> str:
        """The symbol of the function."""

    @property
    def cell(self) -> KernelCell | None:
        """Where programs find the code; None where a device loads it."""

    @property
    def address(self) -> int:
        """Where the code is; 0 before it is compiled."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the code, constants aside."""

    @property
    def from_store(self) -> bool:
        """True if the code was not compiled in this process, but kept on disk."""

    def compiled(self) -> Function:
        """The function with its code: compiles it first if that was put off."""

    def finish(self) -> None:
        """Have the best code that it can have."""


class CodeGenerator(Protocol):
    """A context that compiles kernel texts while more are written."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None: ...

    def add(self, source: KernelText, *, wanted: bool = True) -> None:
        """Have a kernel compiled. A target may put off what is not `wanted` by the first call."""

    def functions(self, sources: Sequence[KernelText]) -> Sequence[Function]:
        """The functions of kernels, in order; those that no :meth:`add` wanted may come later.

        Raises KernelsRefused if some do not compile.
        """


class KeptCode(Protocol):
    """Code of a family of targets on disk; architectures are named as in targets."""

    def identity(self, architecture: str) -> bytes:
        """Names all of the machine that compiled programs depend on."""

    def runs(self, symbols: Iterable[str]) -> bool:
        """Whether the system lets this process run functions of these names."""

    def functions(
        self,
        architecture: str,
        names: CodeNames,
        texts: Callable[[], tuple[str, Sequence[str], Sequence[str]]],
    ) -> tuple[Sequence[Function], Sequence[Function], tuple[Function, Function]]:
        """Kernels, functions of plans, and those of a host program: compiled where they are gone.

        `texts` gives the text of the host program, of the kernels, and of the functions.
        """


class CodeCache(Protocol):
    """Machine code that a target keeps in this process for programs compiled again."""

    def stats(self) -> dict[str, int]:
        """`entries`, and their `bytes`."""

    def clear(self) -> int:
        """Keep nothing; returns the bytes of what was kept."""


@dataclass(frozen=True)
class Probes:
    """Kernel texts that measure what a machine can do."""

    products: str
    """Each task runs independent float32 multiply-adds in registers."""
    flops: int
    """Operations of one task of `products`."""
    reads: str
    """Task i reads block `i mod params[1]` of `params[0]` float32 elements."""


@dataclass(frozen=True)
class Target:
    """A machine that programs are compiled for."""

    name: str
    """As `parse` takes it, the architecture included: "cpu:avx512"."""
    machine: Any
    """What the emitters ask: a record of the target's own."""
    model: MachineModel
    """What the fusion planner asks."""
    emitters: Mapping[str, Emitter]
    """The emitter of every kind of fusion."""
    generator: Callable[[], CodeGenerator]
    memory: HostMemory
    """How a host program launches kernels, and reaches memory of the target."""
    compile_host: Callable[[str], tuple[Function, Function]]
    """`prepare` and `run` of a host program's text."""
    code_names: Callable[[str, Sequence[str], Sequence[str]], CodeNames] | None
    """Where the store has the code of a host program's text, and of those of kernels and of plans'
    functions; None: nowhere."""
    views: Mapping[str, Callable[[Sequence[KernelText]], str]]
    """What kernels are compiled to, for reading: the name of a form to a function of texts."""
    function_name: Callable[[str], str]
    """The symbol that a kernel text gets: equal texts get equal names."""
    code: CodeCache
    probes: Callable[[], Probes] | None
    """None where what the machine can do is measured by other means."""
    details: Callable[[], dict[str, str]]
    """Facts of the machine, by name, for bug reports."""

    @property
    def platform(self) -> str:
        """The family, which is JAX's name of the platform: "cpu"."""
        return self.name.partition(":")[0]


@dataclass(frozen=True)
class ArtifactTarget:
    """Machines that an artifact is made for."""

    name: str
    """`x86-64-v3`."""
    family: str
    """Of its instructions: `x86-64`."""
    features: tuple[str, ...]
    """What every such machine has, as LLVM names it."""
    target: Target
    """Its functions are object files and images, which this process does not load."""
    generation: int = 0
    """Of GPUs: a device is given the code of the highest one that it runs."""
    machine_code: Callable[[KernelImage], bytes] | None = None
    """Of GPUs: what devices load in place of an image, or nothing."""

    @property
    def is_gpu(self) -> bool:
        """Its host program runs on a CPU of `family`, its kernels on a GPU."""
        return self.target.platform != "cpu"


class ObjectFunction(Function, Protocol):
    """A function of an :class:`ArtifactTarget`."""

    @property
    def object_code(self) -> bytes:
        """The object file that has it under its name."""


_known: dict[str, Target] = {}

_KEPT: dict[str, Any] = {"cpu": importlib.import_module("shlo_disc.lower.cpu.kept")}
"""Family of a target whose code is kept on disk to the module that finds it."""


def parse(name: str) -> Target:
    """The target "FAMILY" or "FAMILY:ARCHITECTURE", such as "cpu" (this machine) or "cpu:avx2".

    Raises UnsupportedError for an unknown family, and for an architecture that the family does not
    know or this machine cannot run.
    """
    family, _, architecture = name.partition(":")
    if family not in _MODULES:
        known = ", ".join(repr(family) for family in _MODULES)
        raise UnsupportedError(f"target {name!r} is not supported; targets: {known}")
    target = _target(family, architecture)
    _known[target.name] = target
    return target


def artifact_target(name: str, cores: int) -> ArtifactTarget:
    """A machine that runs artifacts, such as "x86-64-v3", with `cores`; this one may be another.

    Or a GPU, such as "cuda:sm_90a".

    Raises UnsupportedError for an unknown name.
    """
    for module in _ARTIFACTS:
        found: ArtifactTarget | None = importlib.import_module(module).artifact_target(name, cores)
        if found is not None:
            return found
    known = ", ".join(map(repr, (*ARTIFACT_TARGETS, "aarch64", "cuda:sm_90a", "rocm:gfx942")))
    raise UnsupportedError(f"artifacts for {name!r} are not supported; targets: {known}")


def check_processor(name: str) -> None:
    """Raise UnsupportedError unless this processor runs code of an artifact for target `name`.

    Of a GPU's target that is the host program.
    """
    family, _, architecture = name.partition(":")
    if family == "cpu":
        _KEPT["cpu"].identity(architecture)
    else:
        _KEPT["cpu"].check_host_of_gpus()


def kept_code(family: str) -> KeptCode | None:
    """How code of a family of targets is found on disk; None where it is not kept there.

    Needs no emitters, which take longer to load than a program.
    """
    return _KEPT.get(family)


@once
def _target(family: str, architecture: str) -> Target:
    made: Target = importlib.import_module(_MODULES[family]).target(architecture)
    return made


def native_architecture(family: str, device: str) -> str:
    """The architecture whose code gets the most of a device that the driver calls `device`.

    Such code runs on this device, and perhaps on no other.
    """
    return str(importlib.import_module(_MODULES[family]).for_device(device))


def loaded() -> list[Target]:
    """The targets that this process has asked for."""
    return list(_known.values())
