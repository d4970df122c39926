"""Exported programs that can be called: compiled as a whole, or in regions."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any, NoReturn

import numpy.typing as npt
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.utils import _pytree as pytree

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.executables.behind_tensors import BehindTensors
from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc.executables.executable import Executable
from shlo_disc.torch.argument_checks import ArgumentChecks
from shlo_disc.torch.arguments import Input, check_number, leaves_of
from shlo_disc.torch.donation import apart_from_writes
from shlo_disc.torch.nodes import copied
from shlo_disc.torch.part import Part
from shlo_disc.torch.prepare import inline_modes
from shlo_disc.torch.program import Lowered
from shlo_disc.torch.regions import Regions
from shlo_disc.torch.tensors import TensorProgram, check_argument, is_plain

_REQUIRES_GRAD = operator.attrgetter("requires_grad")

WRITTEN = frozenset({
    OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION,
})  # fmt: skip
"""Results that are written into a tensor."""


def _weight(program: ExportedProgram, name: str) -> torch.Tensor:
    """The parameter, buffer or constant of this name."""
    known = program.state_dict
    return known[name] if name in known else program.constants[name]


class TorchExecutable(BehindTensors):
    """An exported program compiled for every size; called as the exported module is.

    Takes and gives tensors, no element of which is copied where they are dense. Buffers that the
    module writes are written. Results have no gradients. Any number of threads may call one object
    unless the module writes buffers.
    """

    eager: dict[str, str]
    """Operations that PyTorch runs, by their places, each with the reason."""
    eager_count: int
    """How many operations PyTorch runs in a call."""
    parts: list[Part]
    """The compiled regions, where PyTorch runs something."""

    def __init__(
        self,
        program: ExportedProgram,
        inputs: Sequence[Input],
        executable: Executable | DataSizedExecutable,
    ) -> None:
        self.executable = executable
        """The program behind it; its arguments are all weights and tensors, flat. Where PyTorch
        runs something, it checks the arguments of a call, and has no results.
        """
        self.name = executable.name
        self.eager, self.eager_count, self.parts = {}, 0, []
        self._inputs = tuple(inputs)
        spec = program.call_spec
        self._in_spec, self._out_spec = spec.in_spec, spec.out_spec
        weights = {i.weight: _weight(program, i.weight) for i in inputs if i.weight is not None}
        outputs = program.graph_signature.output_specs
        self._writes: list[tuple[int, torch.Tensor | int]] = []
        self._returned = []
        names = [i.name for i in inputs]
        for number, out in enumerate(outputs):
            if out.kind in WRITTEN:
                if out.kind is OutputKind.USER_INPUT_MUTATION:
                    self._writes.append((number, names.index(str(out.target))))
                else:
                    self._writes.append((number, weights[str(out.target)]))
            elif out.kind is OutputKind.USER_OUTPUT:
                self._returned.append(number)
            else:
                raise UnsupportedError(
                    f"the result {number} is a {out.kind.name.lower()}: a joint graph of forward "
                    "and backward is not covered; compile the model by "
                    "torch.compile(model, backend='shlo_disc'), which trains"
                )
        self._fixed: list[Any] = [None if i.weight is None else weights[i.weight] for i in inputs]
        self._user = [number for number, i in enumerate(inputs) if i.weight is None]
        tensors = all(inputs[number].is_tensor for number in self._user)
        flat = pytree.tree_structure(((None,) * len(self._user), {}))
        self._is_flat = tensors and self._in_spec == flat
        """Called with tensors in a row."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the arguments that the exported module takes; its result.

        Raises ShapeMismatchError for sizes that break a constraint, and TypeError for another
        structure or type of arguments. Raises DeviceError or UnsupportedError for a tensor it
        cannot read. Raises RuntimeError for one that requires a gradient while these are recorded.
        """
        raise NotImplementedError

    def _check(self, given: Input, leaf: Any, *, grad: bool) -> None:
        """Raise for a leaf that the program cannot be called with; `grad`: they are recorded."""
        if not given.is_tensor:
            check_number(leaf, given, self.name)
            return
        check_argument(leaf, given.name)
        if grad and leaf.requires_grad:
            self._refuse_gradient(given)

    def _refuse_gradient(self, given: Input) -> NoReturn:
        raise RuntimeError(
            f"{self.name}: {given.name} requires a gradient, and an exported program computes "
            "none; call it under torch.no_grad(), or pass a detached tensor"
        )

    def _leaves(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[Any]:
        """The user's arguments, flat."""
        if self._is_flat and not kwargs and len(args) == len(self._user):
            return args
        leaves: list[Any]
        leaves, structure = pytree.tree_flatten((args, kwargs))
        if structure == self._in_spec:
            return leaves
        try:
            return leaves_of(args, kwargs, self._in_spec)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None

    def _values(self, leaves: Sequence[Any]) -> list[Any]:
        """All inputs of the graph."""
        values = list(self._fixed)
        for number, leaf in zip(self._user, leaves, strict=True):
            values[number] = leaf
        return values

    def _given(
        self, every: Sequence[Any], values: Sequence[Any], *, are_donated: bool = False
    ) -> Any:
        """What the caller is given, of all results of the graph; the others are written."""
        if self._writes:
            writes = [(n, values[to] if isinstance(to, int) else to) for n, to in self._writes]
            if are_donated:
                every, writes = apart_from_writes(every, writes)
            with torch.no_grad():
                for number, where in writes:
                    where.copy_(every[number])
        return pytree.tree_unflatten([every[k] for k in self._returned], self._out_spec)

    def __repr__(self) -> str:
        return f"<shlo_disc.torch.TorchExecutable {self.name}{self.signature}>"


class WholeExecutable(TorchExecutable):
    """One that is compiled as a whole."""

    def __init__(
        self,
        program: ExportedProgram,
        inputs: Sequence[Input],
        lowered: Lowered,
        executable: Executable | DataSizedExecutable,
        *,
        freeze: bool,
        donated: Collection[int] = (),
    ) -> None:
        super().__init__(program, inputs, executable)
        self._binding = binding = lowered.binding
        self._donated = frozenset(donated)
        own = [k for k, place in enumerate(binding.inputs) if inputs[place].weight is not None]
        written = {id(to) for _, to in self._writes if isinstance(to, torch.Tensor)}
        fixed = [k for k in own if id(self._fixed[binding.inputs[k]]) not in written]
        self._program = TensorProgram(
            executable,
            weights=own,
            frozen=[*(fixed if freeze else ()), *binding.held],
            flag=binding.flag,
            are_donated=bool(donated),
        )
        self._template = binding.leaves(self._fixed)
        """The arguments of the program, without those of a call."""
        places = {place: k for k, place in enumerate(binding.inputs)}
        self._slots = [places.get(number) for number in self._user]
        """Which of them the user's arguments are; None for one that the program does not read."""
        self._is_row = self._slots == list(range(len(self._template)))
        """The user's arguments are those of the program."""
        count = len(program.graph_signature.output_specs)
        is_one = self._out_spec.is_leaf() and binding.is_plain and count == 1
        self._is_plain = is_one and not (binding.has_own or binding.unstated or donated)
        """One tensor is the result, nothing is written, and arguments alone determine it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See :class:`TorchExecutable`."""
        leaves = self._leaves(args, kwargs)
        grad = torch.is_grad_enabled()
        if (
            leaves is args
            and self._is_plain
            and all(map(is_plain, args))
            and not (grad and any(map(_REQUIRES_GRAD, args)))
        ):
            return self._of_plain(args)
        arguments = list(self._template)
        for number, slot, leaf in zip(self._user, self._slots, leaves, strict=True):
            self._check(self._inputs[number], leaf, grad=grad)
            if number in self._donated and leaf.requires_grad:
                raise RuntimeError(
                    f"{self.name}: {self._inputs[number].name} is donated and requires a gradient; "
                    "pass a detached tensor"
                )
            if slot is not None:
                arguments[slot] = leaf
        if self._is_plain:
            return self._binding.finish(self._program(arguments), ())[0]
        values = self._values(leaves)
        self._binding.check(values)
        results = self._program([*arguments, *self._binding.own(values)])
        every = self._binding.finish(results, values)
        return self._given(every, values, are_donated=bool(self._donated))

    def _of_plain(self, args: Sequence[torch.Tensor]) -> torch.Tensor:
        """The one result of a program, on tensors in a row that need no checks."""
        if self._is_row:
            arguments = list(args)
        else:
            arguments = list(self._template)
            for slot, leaf in zip(self._slots, args, strict=True):
                if slot is not None:
                    arguments[slot] = leaf
        try:
            results = self._program(arguments, are_plain=True)
        except (TypeError, ValueError):
            for number, leaf in zip(self._user, args, strict=True):
                self._check(self._inputs[number], leaf, grad=False)  # it may say more
            raise
        binding = self._binding
        flag = binding.flag
        if not binding.is_certain or (flag is not None and results[flag]):
            results = binding.finish(results, ())
        found: torch.Tensor = results[0]
        return found

    def _why_not_saved(self) -> str:
        binding = self._binding
        if self._writes:
            return "writes tensors of the model or of the caller, which an artifact does not know"
        if binding.has_own:
            return "takes random numbers that PyTorch draws, or numbers that Python computes"
        if not binding.is_certain or binding.flag is not None:
            return (
                "checks data that an artifact does not, or gives results in another layout; "
                "without the former compile it with checks=False"
            )
        return "relies on conditions that no constraint states" if binding.unstated else ""

    def _weight_arrays(self) -> dict[int, npt.NDArray[Any]]:
        return {
            k: _bytes_of(leaf)
            for k, leaf in enumerate(self._template)
            if isinstance(leaf, torch.Tensor)
        }

    def explain(self, *, format: str = "text") -> str:
        """Every kernel, with lines of the model, and the operations that draw random numbers."""
        told = super().explain(format=format)
        if format != "text":
            return told
        return "\n".join([*(f"PyTorch draws {op}" for op in self._binding.draws.places), told])


def _bytes_of(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The elements of a tensor of any type, as bytes."""
    found: npt.NDArray[Any] = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy()
    return found


class CutExecutable(TorchExecutable):
    """One that PyTorch runs a part of: what is not covered, between compiled regions.

    `graph` is functional, or PyTorch runs all of it if it `cannot_trace` it.
    """

    def __init__(
        self,
        program: ExportedProgram,
        inputs: Sequence[Input],
        checks: ArgumentChecks,
        regions: Regions,
        *,
        cannot_trace: Exception | None,
    ) -> None:
        super().__init__(program, inputs, checks.executable)
        self._checks = checks
        graph = program.graph_module
        if cannot_trace is None:
            graph = copied(graph)
            inline_modes(graph)
            written = {id(to) for _, to in self._writes if isinstance(to, torch.Tensor)}
            weights = [
                number
                for number, value in enumerate(self._fixed)
                if isinstance(value, torch.Tensor) and id(value) not in written
            ]
            names = [i.weight or i.name for i in inputs]
            self._run = regions.compile_regions(graph, names, weights)
        else:
            nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
            regions.leave(nodes, str(cannot_trace))
            self._run = lambda values: graph(*values)
        self._regions = regions
        self.eager, self.eager_count = regions.eager, regions.eager_count
        self.parts = regions.parts

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See :class:`TorchExecutable`."""
        leaves = self._leaves(args, kwargs)
        grad = torch.is_grad_enabled()
        for number, leaf in zip(self._user, leaves, strict=True):
            self._check(self._inputs[number], leaf, grad=grad)
        self._checks(leaves)
        values = self._values(leaves)
        with torch.no_grad():
            every = self._run(values)
        return self._given(every, values)

    def _check(self, given: Input, leaf: Any, *, grad: bool) -> None:
        """As for any program, but that PyTorch reads what no program does."""
        if given.name not in self._checks.others or not isinstance(leaf, torch.Tensor):
            super()._check(given, leaf, grad=grad)
        elif grad and leaf.requires_grad:
            self._refuse_gradient(given)

    def explain(self, *, format: str = "text") -> str:
        """Every kernel, with lines of the model, and the operations that PyTorch runs."""
        return self._regions.explain() if format == "text" else self._refuse()

    def as_text(self, stage: str = "disc") -> str:
        """The programs at a stage: see :meth:`shlo_disc.Executable.as_text`."""
        return self._regions.as_text(stage)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        """Raise UnsupportedError: the report is of one program."""
        raise UnsupportedError(
            f"{self.name} has no such report, as PyTorch runs a part of it; those in `parts` have "
            "an `executable` each"
        )

    cost_analysis = memory_analysis = _refuse

    def _why_not_saved(self) -> str:
        places = "; ".join(f"{place}: {reason}" for place, reason in self.eager.items())
        return f"has operations that PyTorch runs: {places}"

    def __repr__(self) -> str:
        return (
            f"<shlo_disc.torch.TorchExecutable {self.name}{self.signature}, PyTorch runs "
            f"{self.eager_count} operations>"
        )
