"""What a graph is found by on disk: all that lowering reads of it, in words.

    %y = aten.add.Tensor(%x, 1)      ==>      "aten::add.Tensor", ("node", "x"), 1, float32 [s77, 4]

What is not named here has no key, and its graph is lowered in every process.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
import torch
from torch._subclasses.fake_tensor import FakeTensor

from shlo_disc.torch.sizes import environment_of, expression


class UnnamedError(Exception):
    """Something has no name that is the same in every process; the text says what, behind "it"."""


_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_CONSTANTS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_NAMESPACES = frozenset({"aten", "prim", "prims"})
"""Of operations that PyTorch defines: its version says what they are."""
_MODULES = frozenset({"_operator", "builtins", "math", "torch"})
"""Of functions that graphs call on numbers."""


def named_graph(module: torch.fx.GraphModule, lines: Sequence[str], *more: Any) -> tuple[str, str]:
    """What lowering `module` depends on, and on `more`; and which of its `lines` are equal.

    Raises UnnamedError for what has no name.
    """
    names = _Names()
    told = names.of_graph(module), names.of(more)
    first = {line: number for number, line in reversed([*enumerate(lines)])}
    known = names.of_environment(module), _settings()
    return repr((told, known)), repr([first[line] for line in lines])


class _Names:
    """Names what is in one graph; expressions, which repeat, once."""

    def __init__(self) -> None:
        self._expressions: dict[Any, str] = {}
        self._symbols: dict[str, Any] = {}

    def of_graph(self, module: torch.fx.GraphModule) -> object:
        """All nodes in order."""
        return [self._node(module, node) for node in module.graph.nodes]

    def _node(self, module: torch.fx.GraphModule, node: torch.fx.Node) -> object:
        target: Any = str(node.target)
        if node.op == "get_attr":
            held = operator.attrgetter(target)(module)
            if isinstance(held, torch.fx.GraphModule):
                target = target, self.of_graph(held)
            elif not isinstance(held, torch.Tensor):
                raise UnnamedError(f"holds a {type(held).__name__}")
        elif node.op == "call_function":
            target = _function(node.target)
        elif node.op not in ("placeholder", "output"):
            raise UnnamedError(f"calls {node.target}, a part of its model")
        described = self._meta(node)
        return node.name, node.op, target, self.of(node.args), self.of(node.kwargs), described

    def _meta(self, node: torch.fx.Node) -> object:
        shape = node.meta.get("tensor_meta")
        if shape is not None:
            shape = repr(type(shape)), self.of(tuple(shape))
        return self.of(node.meta.get("val", ())), shape

    def of(self, value: Any) -> object:
        """`value` in plain data."""
        if type(value) in _PLAIN:
            return type(value).__name__, repr(value)
        if isinstance(value, FakeTensor):
            return self._tensor(value)
        if isinstance(value, torch.fx.Node):
            return "node", value.name
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return type(value).__name__, self._expression(expression(value))
        if isinstance(value, sympy.Basic):
            return "expression", self._expression(value)
        if isinstance(value, _CONSTANTS):
            return str(value)
        if isinstance(value, Mapping):
            return "mapping", [(self.of(k), self.of(v)) for k, v in value.items()]
        if isinstance(value, tuple | list):
            return "sequence", type(value) is list, [self.of(each) for each in value]
        if isinstance(value, slice):
            return "slice", self.of((value.start, value.stop, value.step))
        if type(value).__name__ == "ValueRanges":
            return "range", self.of((value.lower, value.upper, value.is_bool))
        if isinstance(value, torch._ops.OperatorBase):
            return _function(value)
        raise UnnamedError(f"has a {type(value).__name__} in its graph")

    def _tensor(self, x: Any) -> object:
        if type(x) is not FakeTensor or x.layout is not torch.strided or x.is_quantized:
            raise UnnamedError(f"has a {type(x).__name__} of {x.layout}")
        constant = x.constant
        return (
            *(str(x.dtype), str(x.device), x.requires_grad, x.is_conj(), x.is_neg()),
            self.of((*x.shape, *x.stride(), x.storage_offset())),
            None if constant is None else repr(constant.tolist()),
        )

    def _expression(self, e: Any) -> str:
        known = self._expressions.get(e)
        if known is None:
            if e.args:
                kind = type(e)
                inner = ", ".join(map(self._expression, e.args))
                known = f"{kind.__module__}.{kind.__qualname__}({inner})"
            else:
                if e.is_Symbol:
                    self._symbols[e.name] = e
                known = sympy.srepr(e)
            self._expressions[e] = known
        return known

    def of_environment(self, module: torch.fx.GraphModule) -> object:
        """What PyTorch knows of the symbols that were named, and of those that these lead to."""
        environment = environment_of([node.meta.get("val") for node in module.graph.nodes])
        if environment is None:
            return None
        guards = self.of([guard.expr for guard in environment.guards])
        facts: list[object] = []
        told: set[str] = set()
        while new := sorted(self._symbols.keys() - told):
            told.update(new)
            for name in new:
                symbol = self._symbols[name]
                found = [
                    known.get(symbol)
                    for known in (
                        environment.var_to_range, environment.backed_var_to_val,
                        environment.replacements,
                    )
                ]  # fmt: skip
                asserted = environment.deferred_runtime_asserts.get(symbol, ())
                found.append([one.expr for one in asserted])
                facts.append((name, self.of(found), symbol in environment.size_like))
        return guards, facts, self.of(sorted(environment.divisible, key=str))


def _function(function: object) -> str:
    """A function that a graph calls."""
    if isinstance(function, torch._ops.OpOverload):
        if function.namespace not in _NAMESPACES:
            raise UnnamedError(f"has {function}, which is no operation of PyTorch's own")
        return str(function._schema)
    if isinstance(function, torch._ops.HigherOrderOperator):
        return f"higher order {function.name()}"
    module, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    if module in _MODULES and getattr(sys.modules.get(module), name, None) is function:
        return f"{module}.{name}"
    raise UnnamedError(f"calls {name or function}")


def _settings() -> object:
    """What PyTorch's own decompositions read beside their arguments."""
    sdp = torch.backends.cuda
    return (
        torch.__version__,
        torch.version.git_version,
        str(torch.get_default_dtype()),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_float32_matmul_precision(),
        torch.is_autocast_enabled("cpu") and str(torch.get_autocast_dtype("cpu")),
        torch.backends.mkldnn.enabled,
        torch.backends.mkldnn.is_available(),
        sdp.flash_sdp_enabled(),
        sdp.mem_efficient_sdp_enabled(),
        sdp.math_sdp_enabled(),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
    )
