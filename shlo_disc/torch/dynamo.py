"""The backend of `torch.compile`: one compilation of a function for all its sizes.

    torch.compile(model, backend="shlo_disc", dynamic=True, options={"likely": {"x_0": 8}})

AOTAutograd gives functional graphs: one for inference, or one forward and one backward.
"""

from __future__ import annotations

import dataclasses
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import TorchDynamoException, exceptions_allowed_to_be_fallback
from torch._functorch import config as functorch_config
from torch._subclasses.fake_tensor import disable_fake_tensor_cache

from shlo_disc.base.errors import CacheMismatchError, DeviceError, UnsupportedError
from shlo_disc.base.threads import lets_others_run
from shlo_disc.torch.aliases import Aliases
from shlo_disc.torch.convolution_rewrites import fix_steps
from shlo_disc.torch.effects import without_tokens
from shlo_disc.torch.equal_operations import merge_equal_operations, merge_equal_sizes_of_data
from shlo_disc.torch.module_floats import specialise_module_floats
from shlo_disc.torch.options import Options
from shlo_disc.torch.partition import reason_of
from shlo_disc.torch.places import place_of
from shlo_disc.torch.prepare import Known
from shlo_disc.torch.random_numbers import save_draws
from shlo_disc.torch.recurrent import take_recurrent_layers
from shlo_disc.torch.regions import Regions
from shlo_disc.torch.sizes import environment_of, has_floats


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
        with _shapes_computed_anew(example_inputs):
            return lets_others_run(aot)(take_recurrent_layers(graph), example_inputs)
    except _PASSED_ON:
        raise
    except Exception as error:
        if chosen.on_unsupported == "error":
            raise
        return UntracedGraph(graph, error, chosen)


@contextmanager
def _shapes_computed_anew(inputs: Sequence[Any]) -> Iterator[None]:
    """PyTorch keeps no shapes of operations on fake tensors whose sizes are symbols.

    Its keys ask for each size and stride, which simplifies and guards them. Of views in windows
    that takes a third of all that `torch.compile` does; of static sizes it is cheap.
    """
    mode = torch._guards.detect_fake_mode(inputs)
    is_dynamic = mode is not None and mode.shape_env is not None and mode.shape_env.var_to_range
    with disable_fake_tensor_cache(mode) if is_dynamic else nullcontext():
        yield


_PASSED_ON = (
    CacheMismatchError, DeviceError, TorchDynamoException, *exceptions_allowed_to_be_fallback,
)  # fmt: skip
"""What a user must know, and errors for which Dynamo traces again, or breaks the graph."""


def _partitioned(joint: torch.fx.GraphModule, inputs: Any, **more: Any) -> Any:
    """The forward and the backward graph of a joint one.

    Saves arguments, not their transposes, and computes cheap values again.
    """
    save_draws(joint.graph)
    joint.graph.eliminate_dead_code()
    merge_equal_operations(joint.graph)
    with functorch_config.patch(cse=False):
        return min_cut_rematerialization_partition(joint, inputs, **more)


_KEPT: weakref.WeakSet[CompiledGraph] = weakref.WeakSet()


def compilations() -> list[CompiledGraph]:
    """The graphs that `torch.compile` has had compiled here, in order, and that are still used."""
    return sorted(_KEPT, key=lambda graph: graph.number)


class CompiledGraph(Regions):
    """One graph of `torch.compile`, compiled. Any number of threads may call it."""

    number: int
    """How many graphs there were before it, and it."""
    kind: str
    """`forward`, `backward` or `inference`; `untraced` for one that PyTorch runs whole."""
    _run: Callable[[Sequence[Any]], Any]
    _aliases: Aliases | None = None
    _count = 0
    _lock = threading.Lock()

    @lets_others_run
    def __init__(
        self, graph: torch.fx.GraphModule, kind: str, names: Sequence[str], options: Options
    ) -> None:
        start = time.perf_counter()
        graph = without_tokens(graph)
        if kind == "inference":  # the others are merged where they are cut apart
            merge_equal_sizes_of_data(graph)
        placeholders = [node for node in graph.graph.nodes if node.op == "placeholder"]
        fix_steps(graph.graph)
        super().__init__(
            self._begin(kind),
            _known(placeholders),
            dataclasses.replace(
                options,
                freeze=options.freeze and kind == "inference",
                checks=options.checks and kind != "backward",
            ),
        )
        own = [_name(node, names) for node in placeholders]
        _check_devices(graph, dict(zip(placeholders, own, strict=True)))
        self._aliases = None if kind == "backward" else Aliases(graph)
        if self._aliases is not None:
            graph = self._aliases.without(graph)
        weights = _weights(placeholders)
        try:
            if _is_empty(graph.graph) and not self._known.conditions:
                self._run = lambda _: []
            else:
                self._run = self.compile_whole(graph, own, weights, _seen(kind))
        except CacheMismatchError:
            raise
        except Exception as error:
            if options.on_unsupported == "error":
                if not isinstance(error, UnsupportedError):
                    raise
                raise UnsupportedError(
                    f"{error}; options={{'on_unsupported': 'eager'}} has PyTorch run it"
                ) from error
            self._run = self.compile_regions(graph, own, weights)
        self.seconds = time.perf_counter() - start
        """How long its compilation took."""
        _KEPT.add(self)

    def _begin(self, kind: str) -> str:
        """Have a number; the name that goes with it."""
        with CompiledGraph._lock:
            CompiledGraph._count += 1
            self.number = CompiledGraph._count
        self.kind = kind
        return f"{kind}_{self.number}"

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

    def __repr__(self) -> str:
        signatures = "; ".join(str(part.executable.signature) for part in self.parts)
        return f"<shlo_disc.torch.CompiledGraph {self.name}{signatures}>"


class UntracedGraph(CompiledGraph):
    """A graph of Dynamo that PyTorch's own transformations fail for; PyTorch runs it."""

    def __init__(self, graph: torch.fx.GraphModule, error: Exception, options: Options) -> None:
        Regions.__init__(self, self._begin("untraced"), Known(), options)
        self.seconds = 0.0
        self._run = lambda inputs: graph(*inputs)
        self.leave(
            (node for node in graph.graph.nodes if node.op.startswith("call_")),
            f"PyTorch cannot trace the graph that it is in: {reason_of(error)}",
        )
        _KEPT.add(self)

    def __call__(self, *inputs: Any) -> Any:
        """The results of the graph."""
        return self._run(inputs)


def _is_empty(graph: torch.fx.Graph) -> bool:
    """True for a graph without operations and results: Dynamo makes some around graph breaks."""
    return all(
        node.op == "placeholder" or (node.op == "output" and not node.args[0])
        for node in graph.nodes
    )


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
    environment = environment_of([node.meta.get("val") for node in placeholders])
    if environment is None:
        return Known()
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
    if (metadata := _metadata()) is not None:
        metadata.bw_donated_idxs = []


def _metadata() -> Any:
    """What AOTAutograd has found out of the graph that is compiled."""
    context = torch._guards.TracingContext.try_get()
    return None if context is None else context.fw_metadata


def _seen(kind: str) -> int | None:
    """How many results of a forward graph go to the caller; the backward one reads the others."""
    metadata = _metadata()
    if kind != "forward" or metadata is None:
        return None
    return len(metadata.tokens) + int(metadata.num_forward)


def _weights(placeholders: Sequence[torch.fx.Node]) -> frozenset[int]:
    """Which placeholders are parameters or buffers, whose memory stays where it is."""
    metadata = _metadata()
    static = frozenset(() if metadata is None else metadata.static_input_indices)
    return frozenset(
        number for number, node in enumerate(placeholders) if _input_index(node) in static
    )
