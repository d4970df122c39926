"""A graph with compiled regions: what is compiled, what PyTorch runs, and why."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch

from shlo_disc.torch.nodes import output_of
from shlo_disc.torch.options import Options
from shlo_disc.torch.part import Part
from shlo_disc.torch.partition import Way, cut, operations, reason_of
from shlo_disc.torch.places import place_of
from shlo_disc.torch.prepare import Known

_log = logging.getLogger("shlo_disc")

_TOLD: set[tuple[str, str]] = set()
"""What has been logged."""


class Regions:
    """The compiled parts of one graph, and the operations that PyTorch runs.

    `known` is what is known of symbols.
    """

    def __init__(self, name: str, known: Known, options: Options) -> None:
        self.name = name
        self.eager: dict[str, str] = {}
        """Operations that PyTorch runs, by their places, each with the reason."""
        self.eager_count = 0
        """How many operations PyTorch runs in a call."""
        self.parts: list[Part] = []
        """What was compiled; several for a graph that PyTorch runs a part of."""
        self._known = known
        self._options = options

    def compile_whole(
        self,
        graph: torch.fx.GraphModule,
        names: Sequence[str],
        weights: Collection[int],
        seen: int | None,
    ) -> Part:
        """`graph` as one part. Raises what :class:`shlo_disc.torch.part.Part` raises."""
        part = Part(graph, self.name, names, self._known, self._options, weights, seen)
        self.parts = [part]
        return part

    def compile_regions(
        self, graph: torch.fx.GraphModule, names: Sequence[str], weights: Collection[int]
    ) -> Callable[[Sequence[Any]], Any]:
        """`graph`, which does not compile as a whole, as a function of all its inputs.

        Logs what PyTorch runs, each operation of the model once.
        """
        cut_up = self._cut(graph, self.name, names, weights, Way.KNOWN)
        self._tell()
        return lambda inputs: cut_up(*inputs)

    def leave(self, nodes: Iterable[torch.fx.Node], reason: str) -> None:
        """Remember and log that PyTorch runs all of `nodes`."""
        self._note([(place_of(node), reason) for node in nodes])
        self._tell()

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
                part = Part(region, inner, own, self._known, self._options, packed)
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
    return isinstance(output_of(graph.graph).args[0], torch.fx.Node)
