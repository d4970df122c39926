"""The backend of `torch.compile`: one compilation of a function for all its sizes.

    torch.compile(model, backend="shlo_disc", dynamic=True, options={"likely": {"x_0": 8}})

AOTAutograd gives functional graphs: one for inference, or one forward and one backward.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException, exceptions_allowed_to_be_fallback

from shlo_disc.errors import DeviceError, UnsupportedError
from shlo_disc.torch.aliases import Aliases
from shlo_disc.torch.convolution_rewrites import fix_steps
from shlo_disc.torch.effects import without_tokens
from shlo_disc.torch.equal_operations import equate_sizes, merge_equal_operations
from shlo_disc.torch.module_floats import specialise_module_floats
from shlo_disc.torch.options import Options
from shlo_disc.torch.part import Known, Part
from shlo_disc.torch.partition import Way, cut, operations, reason_of
from shlo_disc.torch.places import place_of
from shlo_disc.torch.random_numbers import save_draws
from shlo_disc.torch.recurrent import take_recurrent_layers
from shlo_disc.torch.sizes import has_floats

__all__ = ["CompiledGraph", "backend", "compilations"]

_log = logging.getLogger("shlo_disc")


def backend(
    graph: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    mode: str | None = None,
) -> Callable[..., Any]:
    """What `torch.compile` calls for a graph of Dynamo; its compiled form.

    `options`: `likely` gives values of sizes to have specialised kernels for, by names such as
    `x_0`; a graph ignores names it does not have. With `freeze` the weights of inference are packed
    once and must not change any more. `on_unsupported` is "eager": PyTorch runs the operations that
    are not covered, which is logged once; or "error". With `checks`, the default, indices and
    labels out of range and integers divided by 0 raise as in eager mode.

    Raises UnsupportedError for such an operation in the latter case, with its source line. Raises
    ValueError or TypeError for options. `torch.compile` reports these as BackendCompilerFailed.
    """
    chosen = Options.of(options, mode)
    specialise_module_floats(graph)
    names = _input_names(graph)

    def compiler(kind: str) -> Callable[..., Any]:
        def compiled(inner: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
            if kind == "forward":
                _keep_what_is_saved()
            return CompiledGraph(inner, kind, names, chosen).boxed()

        return compiled

    aot: Callable[..., Callable[..., Any]] = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        partition_fn=_partitioned,
    )
    try:
        return aot(take_recurrent_layers(graph), example_inputs)
    except _PASSED_ON:
        raise
    except Exception as error:
        if chosen.on_unsupported == "error":
            raise
        return UntracedGraph(graph, error)


_PASSED_ON = (
    DeviceError, TorchDynamoException, *exceptions_allowed_to_be_fallback,
)  # fmt: skip
"""What a user must know, and errors for which Dynamo traces again, or breaks the graph."""


def _partitioned(joint: torch.fx.GraphModule, inputs: Any, **more: Any) -> Any:
    """The forward and the backward graph of a joint one.

    Saves arguments, not their transposes, and computes cheap values again.
    """
    save_draws(joint.graph)
    equate_sizes(joint.graph)
    return min_cut_rematerialization_partition(joint, inputs, **more)


_TOLD: set[tuple[str, str]] = set()
"""What has been logged."""

_KEPT: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()


def compilations() -> list[CompiledGraph]:
    """The graphs that `torch.compile` has had compiled here, in order, and that are still used."""
    return sorted(_KEPT, key=lambda graph: graph.number)


class CompiledGraph:
    """One graph of `torch.compile`, compiled. Any number of threads may call it."""

    number: int
    """How many graphs there were before it, and it."""
    kind: str
    """`forward`, `backward` or `inference`; `untraced` for one that PyTorch runs whole."""
    name: str
    eager: dict[str, str]
    """Operations that PyTorch runs, by their places, each with the reason."""
    eager_count: int
    """How many operations PyTorch runs in a call."""
    parts: list[Part]
    """What was compiled; several for a graph that PyTorch runs a part of."""
    _run: Callable[[Sequence[Any]], Any]
    _aliases: Aliases | None
    _count = 0
    _lock = threading.Lock()

    def __init__(
        self, graph: torch.fx.GraphModule, kind: str, names: Sequence[str], options: Options
    ) -> None:
        self._begin(kind)
        self._options = options
        start = time.perf_counter()
        graph = without_tokens(graph)
        if kind == "inference":  # the others are merged by PyTorch's partitioner
            merge_equal_operations(graph)
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        fix_steps(graph.graph)
        self._known = _known(placeholders)
        own = [_name(node, names) for node in placeholders]
        _check_devices(graph, dict(zip(placeholders, own, strict=True)))
        self._aliases = None if kind == "backward" else Aliases(graph)
        if self._aliases is not None:
            graph = self._aliases.without(graph)
        weights = _weights(placeholders)
        try:
            whole = self._part(graph, self.name, own, weights, _seen(kind))
            self._run = whole
            self.parts = [whole]
        except Exception as error:
            if options.on_unsupported == "error":
                if not isinstance(error, UnsupportedError):
                    raise
                raise UnsupportedError(
                    f"{error}; options={{'on_unsupported': 'eager'}} has PyTorch run it"
                ) from error
            cut_up = self._cut(graph, self.name, own, weights, Way.KNOWN)
            self._run = lambda inputs: cut_up(*inputs)
            self._tell()
        self.seconds = time.perf_counter() - start
        """How long its compilation took."""
        _KEPT.add(self)

    def _begin(self, kind: str) -> None:
        """Have a number and a name, and nothing compiled."""
        with CompiledGraph._lock:
            CompiledGraph._count += 1
            self.number = CompiledGraph._count
        self.kind, self.name = kind, f"{kind}_{self.number}"
        self.eager, self.eager_count, self.parts = {}, 0, []
        self._aliases = None

    def _part(
        self,
        graph: torch.fx.GraphModule,
        name: str,
        names: Sequence[str],
        weights: Collection[int],
        seen: int | None = None,
    ) -> Part:
        return Part(
            graph,
            name,
            names=names,
            known=self._known,
            likely=self._options.likely,
            weights=weights,
            freeze=self._options.freeze and self.kind == "inference",
            seen=seen,
            checks=self._options.checks and self.kind != "backward",
        )

    def _cut(
        self,
        graph: torch.fx.GraphModule,
        name: str,
        names: Sequence[str],
        weights: Collection[int],
        way: Way,
    ) -> torch.fx.GraphModule:
        """`graph`, which does not compile as a whole, with its regions compiled.

        PyTorch runs all of a graph that cannot be cut.
        """
        try:
            whole, regions, left = cut(graph, self._known, way)
        except Exception as error:  # of PyTorch's partitioner
            reason = f"the graph cannot be cut: {reason_of(error)}"
            self._note([(place_of(node), reason) for node in operations(graph.graph)])
            return graph
        if not left and way is not Way.HALVES:  # the one region is what did not compile
            return self._cut(graph, name, names, weights, Way(way + 1))
        self._note(left)
        outer = {
            node: number
            for number, node in enumerate(n for n in whole.graph.nodes if n.op == "placeholder")
        }
        for node in whole.graph.nodes:
            if node.op != "call_module" or str(node.target) not in regions:
                continue
            region = getattr(whole, str(node.target))
            own = [names[outer[a]] if a in outer else a.name for a in node.args]
            packed = [k for k, a in enumerate(node.args) if outer.get(a) in weights]
            inner = f"{name}_{node.target}"
            try:
                part = self._part(region, inner, own, packed)
            except Exception as error:
                ops = operations(region.graph)
                if len(ops) == 1:
                    self._note([(place_of(ops[0]), reason_of(error))])
                else:
                    following = Way(min(way + 1, Way.HALVES))
                    setattr(
                        whole, str(node.target), self._cut(region, inner, own, packed, following)
                    )
                continue
            self.parts.append(part)
            setattr(whole, str(node.target), _Region(part, is_one=_has_one_result(region)))
        whole.recompile()
        return whole

    def _note(self, left: Sequence[tuple[str, str]]) -> None:
        """Remember what PyTorch runs, with the reasons."""
        self.eager.update(left)
        self.eager_count += len(left)

    def _tell(self) -> None:
        """Log what PyTorch runs, each operation of the model once."""
        new: dict[str, list[str]] = {}  # ops by reasons
        for op, why in self.eager.items():
            line = why.partition("\n")[0]
            if (op, line) not in _TOLD:
                new.setdefault(line, []).append(op)
                _TOLD.add((op, line))
        if new:
            told = "; ".join(f"{', '.join(ops)} ({why})" for why, ops in new.items())
            _log.warning("%s: PyTorch runs %s", self.name, told)

    def __call__(self, inputs: Sequence[Any]) -> Any:
        """The results of the graph on all its inputs: tensors and sizes, None as in the graph."""
        results = self._run(inputs)
        return results if self._aliases is None else self._aliases.restore(results, inputs)

    def boxed(self) -> Callable[[list[Any]], Any]:
        """A function of the list of inputs that empties it, so that they can be freed."""

        def call(inputs: list[Any]) -> Any:
            given = list(inputs)
            inputs.clear()
            return self(given)

        call._boxed_call = True  # type: ignore[attr-defined]
        call.graph = self  # type: ignore[attr-defined]
        return call

    def explain(self) -> str:
        """Every kernel, with lines of the model, and the operations that PyTorch runs."""
        texts = [f"PyTorch runs {op}: {reason}" for op, reason in self.eager.items()]
        if self.eager:
            texts.insert(0, f"PyTorch runs {self.eager_count} operations of each call")
        texts += [f"PyTorch draws {op}" for part in self.parts for op in part.draws.places]
        return "\n".join([*texts, *(part.executable.explain() for part in self.parts)])

    def as_text(self, stage: str = "disc") -> str:
        """The programs at a stage: see :meth:`shlo_disc.Executable.as_text`."""
        return "\n\n".join(part.executable.as_text(stage) for part in self.parts)

    def __repr__(self) -> str:
        signatures = "; ".join(str(part.executable.signature) for part in self.parts)
        return f"<shlo_disc.torch.CompiledGraph {self.name}{signatures}>"


class UntracedGraph(CompiledGraph):
    """A graph of Dynamo that PyTorch's own transformations fail for; PyTorch runs it."""

    def __init__(self, graph: torch.fx.GraphModule, error: Exception) -> None:
        self._begin("untraced")
        self.seconds = 0.0
        self._run = lambda inputs: graph(*inputs)
        reason = f"PyTorch cannot trace the graph that it is in: {reason_of(error)}"
        ops = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        self._note([(place_of(node), reason) for node in ops])
        self._tell()
        _KEPT.add(self)

    def __call__(self, *inputs: Any) -> Any:
        """The results of the graph."""
        return self._run(inputs)


class _Region(torch.nn.Module):  # type: ignore[misc]
    """A compiled region in a graph that PyTorch runs."""

    def __init__(self, part: Part, *, is_one: bool) -> None:
        super().__init__()
        self._part = part
        self._is_one = is_one

    def forward(self, *inputs: Any) -> Any:
        """The result, or the tuple of results."""
        results = self._part(inputs)
        return results[0] if self._is_one else tuple(results)


def _has_one_result(graph: torch.fx.GraphModule) -> bool:
    """True for a graph that returns a value, not a tuple of them."""
    (output,) = (node for node in graph.graph.nodes if node.op == "output")
    return isinstance(output.args[0], torch.fx.Node)


# -- names --------------------------------------------------------------------------------------


def _input_names(graph: torch.fx.GraphModule) -> list[str]:
    """The paths of the inputs of a graph of Dynamo: `layers.0.weight`, `x`."""
    found = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            source = getattr(node.meta.get("grapharg"), "source", None)
            found.append(node.name if source is None else _path(_text_of(source)))
    return found


def _text_of(source: Any) -> str:
    return str(source.name() if callable(source.name) else source.name)


def _path(source: str) -> str:
    """`L['self']._modules['a']._parameters['weight']` as `a.weight`."""
    path = re.sub(r"\._(?:modules|parameters|buffers)\['([^']*)'\]", r".\1", source)
    path = re.sub(r"^[LG]\['([^']*)'\]", r"\1", path)
    return path.removeprefix("self.")


def _name(node: torch.fx.Node, names: Sequence[str]) -> str:
    """The path of a placeholder of AOTAutograd that is an input of Dynamo's graph."""
    index = _input_index(node)
    return str(node.name) if index is None or index >= len(names) else names[index]


def _input_index(node: torch.fx.Node) -> int | None:
    """Which input of Dynamo's graph a placeholder of AOTAutograd is; None for another value."""
    described = node.meta.get("desc")
    return int(described.idx) if type(described).__name__ == "PlainAOTInput" else None


def _known(placeholders: Sequence[torch.fx.Node]) -> Known:
    """What the environment of a graph knows of its symbols."""
    mode = torch._guards.detect_fake_mode([node.meta.get("val") for node in placeholders])
    if mode is None or mode.shape_env is None:
        return Known()
    environment = mode.shape_env
    # Dynamo checks all of them before each call. Those on floats say nothing to the compiler.
    conditions = [guard.expr for guard in environment.guards if not has_floats(guard.expr)]
    return Known(_symbol_names(environment), environment.var_to_range, conditions)


def _symbol_names(environment: Any) -> dict[str, str]:
    """Symbol -> `x_0` for dimension 0 of the argument `x`, the same in forward and backward."""
    found: dict[str, str] = {}
    for symbol, sources in environment.var_to_sources.items():
        if not sources:
            continue
        name = re.sub(r"\.size\(\)\[(\d+)\]$", r"_\1", _path(_text_of(sources[0])))
        name = re.sub(r"\W+", "_", name).strip("_")
        while name in found.values():
            name += "_"
        found[symbol.name] = name
    return found


def _check_devices(graph: torch.fx.GraphModule, names: Mapping[torch.fx.Node, str]) -> None:
    """Raise DeviceError for a tensor that is not on the CPU; `names` are those of placeholders."""
    for node in graph.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            what = names.get(node) or place_of(node)
            raise DeviceError(f"{what} is on {value.device}; the program runs on the CPU")


def _keep_what_is_saved() -> None:
    """Have PyTorch run a backward again, as often as it is asked to.

    It takes the backward program to write into what the forward one saves. None does so here.
    """
    context = torch._guards.TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []


def _seen(kind: str) -> int | None:
    """How many results of a forward graph go to the caller; the backward one reads the others."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if kind != "forward" or metadata is None:
        return None
    return len(metadata.tokens) + int(metadata.num_forward)


def _weights(placeholders: Sequence[torch.fx.Node]) -> frozenset[int]:
    """Which placeholders are parameters or buffers, whose memory stays where it is."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    static = frozenset(() if metadata is None else metadata.static_input_indices)
    return frozenset(
        number for number, node in enumerate(placeholders) if _input_index(node) in static
    )
