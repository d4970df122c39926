"""`compile`: an exported program, compiled once for every size that its signature allows."""

from __future__ import annotations

import copy
import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export._remove_effect_tokens_pass import _remove_effect_tokens
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils import _pytree as pytree

import shlo_disc
from shlo_disc.behind_tensors import BehindTensors
from shlo_disc.data_sized import DataSizedExecutable
from shlo_disc.errors import UnsupportedError
from shlo_disc.executable import Executable
from shlo_disc.torch.arguments import Input, check_number, inputs_of, leaves_of
from shlo_disc.torch.donation import apart_from_writes, donated_inputs
from shlo_disc.torch.places import note_place
from shlo_disc.torch.prepare import needs_retracing
from shlo_disc.torch.program import Lowered, lower_graph
from shlo_disc.torch.random_numbers import TAKEN_APART
from shlo_disc.torch.running_statistics import instance_norm
from shlo_disc.torch.tensors import TensorProgram, check_argument, is_plain

__all__ = ["TorchExecutable", "compile"]

_REQUIRES_GRAD = operator.attrgetter("requires_grad")

_WRITTEN = {
    OutputKind.BUFFER_MUTATION,
    OutputKind.PARAMETER_MUTATION,
    OutputKind.USER_INPUT_MUTATION,
}


def compile(
    program: ExportedProgram,
    *,
    likely: Mapping[str, int | Sequence[int]] | None = None,
    freeze: bool = False,
    constraints: str | Sequence[str] = (),
    donated: int | str | Sequence[int | str] = (),
    target: str = "cpu",
    checks: bool = True,
) -> TorchExecutable:
    """The executable of an exported program, for every size its dynamic dimensions allow.

    Parameters and buffers are read at every call, so that changes of the module are seen. With
    `freeze` packed copies of them are made once: they must not change any more. `likely` gives
    values of sizes to have specialised kernels for. `constraints` are relations of sizes, such as
    "x_0 >= 4", that every call must satisfy. `x_0` is the size of dimension 0 of the argument `x`;
    of equal sizes the first one has the name. `target`: see :func:`shlo_disc.compile`.

    `donated` are arguments whose tensors a call may overwrite with results, such as caches: by
    position, or by name. Only the result may be used afterwards; it shares the tensor's memory. A
    tensor that is not dense is left as it is. A warning names tensors that no result can replace.

    With `checks`, a call raises for indices and labels that are out of range, and for integers
    divided by 0, as eager mode does. Without, reads are of the nearest element in range, writes out
    of range are dropped, and results of the others are undefined.

    Raises UnsupportedError for an operation that is not covered, with its source line. Raises
    TypeError for anything but an ExportedProgram, ValueError for options as `shlo_disc.compile`.
    """
    if not isinstance(program, ExportedProgram):
        raise TypeError(
            f"expected a torch.export.ExportedProgram, got {type(program).__name__}; make one with "
            "torch.export.export(model, args, dynamic_shapes=...)"
        )
    if program.example_inputs is None and program.call_spec is None:
        raise UnsupportedError("the program has no call signature")
    if needs_retracing(program.graph_module):
        program = _taken_apart(program)
    if any(spec.kind is InputKind.TOKEN for spec in program.graph_signature.input_specs):
        program = _remove_effect_tokens(copy.deepcopy(program))
    _refuse_resizing(program)
    inputs = inputs_of(program)
    given = [constraints] if isinstance(constraints, str) else constraints
    if not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
        raise TypeError(f"constraints must be strings such as 'x_0 >= 4', got {constraints!r}")
    for name, value in (("freeze", freeze), ("checks", checks)):
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")
    taken = donated_inputs(program, donated)
    lowered = lower_graph(
        program.graph_module,
        names=[i.weight or i.name for i in inputs],
        ranges=program.range_constraints,
        conditions=_conditions(program),
        checks=checks,
    )
    executable = shlo_disc.compile(
        lowered.module,
        shapes=lowered.shapes,
        names=lowered.names,
        constraints=[*lowered.constraints, *given],
        likely=likely,
        donated=[k for k, place in enumerate(lowered.binding.inputs) if place in taken],
        target=target,
    )
    return TorchExecutable(program, inputs, lowered, executable, freeze=freeze, donated=taken)


def _taken_apart(program: ExportedProgram) -> ExportedProgram:
    """`program` without writes, retraced by PyTorch.

    Raises UnsupportedError with the line of the first op that writes, where PyTorch fails.
    """
    try:
        return program.run_decompositions(
            {**TAKEN_APART, torch.ops.aten.instance_norm.default: instance_norm}
        )
    except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        for node in program.graph.nodes:
            is_op = isinstance(node.target, torch._ops.OpOverload)
            if is_op and node.target._schema.is_mutable:
                note_place(node)
                where = f"{node.meta.get('place', 'unknown location')}: {node.target}: "
                break
        else:
            where = ""
        said = str(error).partition("\n")[0]
        raise UnsupportedError(f"{where}PyTorch cannot retrace the program: {said}") from error


def _refuse_resizing(program: ExportedProgram) -> None:
    """Raise UnsupportedError if a result is written into an argument or weight of another shape."""
    graph = program.graph_module.graph
    values = {node.name: node.meta.get("val") for node in graph.nodes}
    signature = program.graph_signature
    holders = {spec.target or spec.arg.name: spec.arg.name for spec in signature.input_specs}
    for out in signature.output_specs:
        if out.kind not in _WRITTEN:
            continue
        name = holders.get(str(out.target), str(out.target))
        new, own = values.get(out.arg.name), values.get(name)
        if not isinstance(new, torch.Tensor) or not isinstance(own, torch.Tensor):
            continue
        if new.dim() != own.dim() or any(
            statically_known_true(n != m) for n, m in zip(new.shape, own.shape, strict=True)
        ):
            raise UnsupportedError(
                f"the program gives {name} the shape {tuple(new.shape)}, it has "
                f"{tuple(own.shape)}: tensors that get another size (`resize_`, `out=`) are not "
                "covered; return the new tensor"
            )


def _conditions(program: ExportedProgram) -> list[Any]:
    """What the program requires of sizes: PyTorch refuses calls without it, too.

    Of the symbols in its values: a derived dimension, `2*s`, has a symbol of its own in guards.
    """
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    mode = torch._guards.detect_fake_mode(values)
    if mode is None or mode.shape_env is None:
        return []
    return [mode.shape_env.replace(guard.expr) for guard in mode.shape_env.guards]


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
        self.executable = executable
        """The program behind it; its arguments are all weights and tensors, flat."""
        self.name = executable.name
        self._inputs = tuple(inputs)
        self._binding = lowered.binding
        spec = program.call_spec
        self._in_spec, self._out_spec = spec.in_spec, spec.out_spec
        weights = {i.weight: _weight(program, i.weight) for i in inputs if i.weight is not None}
        outputs = program.graph_signature.output_specs
        self._writes: list[tuple[int, torch.Tensor | int]] = []
        self._returned = []
        names = [i.name for i in inputs]
        for number, out in enumerate(outputs):
            if out.kind in _WRITTEN:
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
        binding = lowered.binding
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
        self._donated = frozenset(donated)
        self._user = [number for number, i in enumerate(inputs) if i.weight is None]
        self._template = self._binding.leaves(self._fixed)
        """The arguments of the program, without those of a call."""
        places = {place: k for k, place in enumerate(binding.inputs)}
        self._slots = [places.get(number) for number in self._user]
        """Which of them the user's arguments are; None for one that the program does not read."""
        self._is_row = self._slots == list(range(len(self._template)))
        """The user's arguments are those of the program."""
        tensors = all(inputs[number].is_tensor for number in self._user)
        flat = pytree.tree_structure(((None,) * len(self._user), {}))
        self._is_flat = tensors and self._in_spec == flat
        """Called with tensors in a row."""
        is_one = self._out_spec.is_leaf() and binding.is_plain and len(outputs) == 1
        self._is_plain = is_one and not (binding.has_own or binding.unstated or donated)
        """One tensor is the result, nothing is written, and arguments alone determine it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the arguments that the exported module takes; its result.

        Raises ShapeMismatchError for sizes that break a constraint, and TypeError for another
        structure or type of arguments. Raises DeviceError or UnsupportedError for a tensor it
        cannot read. Raises RuntimeError for one that requires a gradient while these are recorded.
        """
        is_flat = self._is_flat and not kwargs and len(args) == len(self._user)
        grad = torch.is_grad_enabled()
        if (
            is_flat
            and self._is_plain
            and all(map(is_plain, args))
            and not (grad and any(map(_REQUIRES_GRAD, args)))
        ):
            return self._of_plain(args)
        leaves: Sequence[Any] = args if is_flat else self._flat(args, kwargs)
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
        values = list(self._fixed)
        for number, leaf in zip(self._user, leaves, strict=True):
            values[number] = leaf
        self._binding.check(values)
        results = self._program([*arguments, *self._binding.own(values)])
        every = self._binding.finish(results, values)
        if self._writes:
            writes = [(n, values[to] if isinstance(to, int) else to) for n, to in self._writes]
            if self._donated:
                every, writes = apart_from_writes(every, writes)
            with torch.no_grad():
                for number, where in writes:
                    where.copy_(every[number])
        return pytree.tree_unflatten([every[k] for k in self._returned], self._out_spec)

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

    def explain(self, *, format: str = "text") -> str:
        """Every kernel, with lines of the model, and the operations that draw random numbers."""
        told = super().explain(format=format)
        if format != "text":
            return told
        return "\n".join([*(f"PyTorch draws {op}" for op in self._binding.draws.places), told])

    def _check(self, given: Input, leaf: Any, *, grad: bool) -> None:
        """Raise for a leaf that the program cannot be called with; `grad`: they are recorded."""
        if not given.is_tensor:
            check_number(leaf, given, self.name)
            return
        check_argument(leaf, given.name)
        if grad and leaf.requires_grad:
            raise RuntimeError(
                f"{self.name}: {given.name} requires a gradient, and an exported program "
                "computes none; call it under torch.no_grad(), or pass a detached tensor"
            )

    def _flat(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        leaves: list[Any]
        leaves, structure = pytree.tree_flatten((args, kwargs))
        if structure == self._in_spec:
            return leaves
        try:
            return leaves_of(args, kwargs, self._in_spec)
        except TypeError as error:
            raise TypeError(f"{self.name}: {error}") from None

    def __repr__(self) -> str:
        return f"<shlo_disc.torch.TorchExecutable {self.name}{self.signature}>"
