"""A random StableHLO module, and how it prints: for the compiler and for the oracles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tests.fuzz.program import Argument, Program, Step, Value
from tests.fuzz.text import types as known
from tests.fuzz.text.spelled import SPELLED
from tests.gpu.as_gpu import asked, with_all_digits

FUNCTIONS = ("func.call", "stablehlo.composite")
"""Ops whose body is a function of its own; `$F0` in the attributes is its name."""


@dataclass(frozen=True)
class Module(Program):
    """The steps are operations in the generic form.

    `Step.text` is the op's name and its attributes. Bodies are its regions; a body of one of
    FUNCTIONS is a function.
    """

    is_typed_later: ClassVar[bool] = False

    def text(self) -> str:
        """The module with `?` for sizes that differ from call to call."""
        return self._printed(None)

    def source(self) -> str:
        return self.text()

    def oracle(self, call: int) -> str:
        """A module without arguments, at the sizes of a call.

        The arguments are constants behind a barrier, and the results have types that NumPy knows.
        """
        return self._printed(call)

    def inputs(self, call: int) -> list[Any]:
        return [known.array(a.kind, a.dtype, a.shapes[call], a.seed + call) for a in self.arguments]

    def script(self) -> str:
        """A file that compiles the module, calls it, and prints what the oracles say beside it."""
        calls = [f"    ({self.spelled_inputs(c)}, ORACLE{c})," for c in range(self.calls)]
        texts = [f'ORACLE{c} = """\n{self.oracle(c)}"""' for c in range(self.calls)]
        return _SCRIPT.format(
            seed=self.seed,
            text=with_all_digits(self.text()) if asked() else self.text(),
            target=asked() or "cpu",
            oracles="\n\n".join(texts),
            calls="\n".join(calls),
        )

    def argument_of(self, value: Value) -> Argument | None:
        facts: Any = value.facts
        if facts.known is not None or known.is_quantized(value.dtype):
            return None
        kind = "unit" if facts.grain is None or facts.grain >= 3 else "small"
        return Argument(value.name, value.dtype, value.shapes, kind, _number(value.name) * 7)

    # --- printing ---------------------------------------------------------------------------

    def _printed(self, call: int | None) -> str:
        lines: list[str] = ["module {"]
        functions: list[str] = []
        body = list(self._lines(self.block.steps, call, "    ", functions))
        results = self.block.results
        if call is None:
            kinds = [self.kind(n, call) for n in results]
            names = ", ".join(f"%{a.name}: {self.kind(a.name, call)}" for a in self.arguments)
            end = [f"%{n}" for n in results]
        else:
            names = ""
            first: list[str] = []
            for a, array in zip(self.arguments, self.inputs(call), strict=True):
                kind = self.kind(a.name, call)
                constant = f"stablehlo.constant dense<{known.dense(array, a.dtype)}> : {kind}"
                first += [f"    %{a.name}_c = {constant}"]
                first += [f"    %{a.name} = stablehlo.optimization_barrier %{a.name}_c : {kind}"]
            body = first + body
            kinds, end = [], []
            for index, name in enumerate(results):
                more, found = oracle_result(self.values[name], self.kind(name, call), call, index)
                body += [f"    {line}" for line in more]
                end += [f"%{n}" for n, _ in found]
                kinds += [k for _, k in found]
        lines.append(f"  func.func public @main({names}) -> ({', '.join(kinds)}) {{")
        lines += body
        lines += [f'    "func.return"({", ".join(end)}) : ({", ".join(kinds)}) -> ()', "  }"]
        return "\n".join([*lines, *functions, "}"]) + "\n"

    def kind(self, name: str, call: int | None) -> str:
        """The type of a value as MLIR prints it."""
        return type_text(self.values[name], call)

    def _kinds(self, names: tuple[str, ...], call: int | None) -> str:
        return ", ".join(self.kind(n, call) for n in names)

    def _lines(
        self, steps: tuple[Step, ...], call: int | None, indent: str, functions: list[str]
    ) -> Iterator[str]:
        for step in steps:
            facts: Any = self.values[step.results[0]].facts if step.results else None
            if call is not None and facts is not None and facts.known is not None:
                yield indent + self._constant(step.results[0], call)
                continue
            op, _, attributes = step.text.partition(" ")
            regions: list[str] = []
            for body in step.bodies:
                if op in FUNCTIONS:
                    functions.append(self._function(body, call, functions))
                    continue
                inner = indent + "    "
                regions.append("\n".join(self._region(body, call, inner, functions)))
            for index, body in enumerate(step.bodies):
                attributes = attributes.replace(f"$F{index}", body.name)
            left = ", ".join(f"%{n}" for n in step.results)
            given = ", ".join(f"%{n}" for n in step.operands)
            text = f'"{op}"({given})'
            if regions:
                text += " (" + ", ".join(f"{{\n{r}\n{indent}}}" for r in regions) + ")"
            if attributes:
                text += f" {{{attributes}}}"
            if call is not None and len(step.results) == 1 and self._is_narrow(op, step):
                yield from (indent + line for line in self._in_f32(step, op, attributes, call))
                continue
            if op == "fuzz.tuple":
                yield from (indent + line for line in self._tuple(step, attributes, call))
                continue
            if call is not None and op in SPELLED:
                kinds = [self.kind(n, call) for n in (*step.operands, *step.results)]
                lines = SPELLED[op](step, kinds, attributes)
                yield from (indent + line for line in lines)
                continue
            operands, results = (self._kinds(n, call) for n in (step.operands, step.results))
            yield f"{indent}{left + ' = ' if left else ''}{text} : ({operands}) -> ({results})"

    def _tuple(self, step: Step, attributes: str, call: int | None) -> Iterator[str]:
        """A tuple, perhaps in another tuple, and the element that is the result."""
        index, way = attributes.split()
        (name,) = step.results
        kinds = self._kinds(step.operands, call)
        kind, whole = f"tuple<{kinds}>", f"%{name}_t"
        given = ", ".join(f"%{n}" for n in step.operands)
        yield f'{whole} = "stablehlo.tuple"({given}) : ({kinds}) -> {kind}'
        if way == "nested":
            outer = f"tuple<{kind}, {self.kind(step.operands[0], call)}>"
            first = f"{whole}, %{step.operands[0]}"
            both = outer.removeprefix("tuple<").removesuffix(">")
            yield f'{whole}o = "stablehlo.tuple"({first}) : ({both}) -> {outer}'
            yield (
                f'{whole}i = "stablehlo.get_tuple_element"({whole}o) {{index = 0 : i32}} : '
                f"({outer}) -> {kind}"
            )
            whole += "i"
        yield (
            f'%{name} = "stablehlo.get_tuple_element"({whole}) {{index = {index} : i32}} : '
            f"({kind}) -> {self.kind(name, call)}"
        )

    def _is_narrow(self, op: str, step: Step) -> bool:
        if not op.startswith("chlo."):
            return False
        dtype = self.values[step.operands[0]].dtype
        return known.is_float(dtype) and known.bits(dtype) < 16

    def _in_f32(self, step: Step, op: str, attributes: str, call: int) -> Iterator[str]:
        """A function of CHLO on narrow floats: oracles know it for wider ones only."""
        wide = []
        for index, name in enumerate(step.operands):
            kind = type_text(replace(self.values[name], dtype="f32"), call)
            wide.append((f"%{step.results[0]}w{index}", kind))
            yield f"{wide[-1][0]} = stablehlo.convert %{name} : ({self.kind(name, call)}) -> {kind}"
        (result,) = step.results
        value = self.values[result]
        kind = self.kind(result, call)
        is_wide = known.is_float(value.dtype)
        end = type_text(replace(value, dtype="f32"), call) if is_wide else kind
        names, kinds = (", ".join(part) for part in zip(*wide, strict=True))
        attributes = f" {{{attributes}}}" if attributes else ""
        middle = f"%{result}w" if end != kind else f"%{result}"
        yield f'{middle} = "{op}"({names}){attributes} : ({kinds}) -> {end}'
        if end != kind:
            yield f"%{result} = stablehlo.convert {middle} : ({end}) -> {kind}"

    def _constant(self, name: str, call: int) -> str:
        value = self.values[name]
        facts: Any = value.facts
        numbers = np.array(facts.known[call]).reshape(value.shapes[call])
        text = known.dense(numbers, value.dtype)
        return f"%{name} = stablehlo.constant dense<{text}> : {self.kind(name, call)}"

    def _region(
        self, body: Any, call: int | None, indent: str, functions: list[str]
    ) -> Iterator[str]:
        names = ", ".join(f"%{n}: {self.kind(n, call)}" for n in body.defined)
        if names:
            yield f"{indent}^bb0({names}):"
        yield from self._lines(body.block.steps, call, indent + "  ", functions)
        results = body.block.results
        end = ", ".join(f"%{n}" for n in results)
        yield f'{indent}  "stablehlo.return"({end}) : ({self._kinds(results, call)}) -> ()'

    def _function(self, body: Any, call: int | None, functions: list[str]) -> str:
        names = ", ".join(f"%{n}: {self.kind(n, call)}" for n in body.defined)
        results = body.block.results
        kinds = self._kinds(results, call)
        lines = [f"  func.func private @{body.name}({names}) -> ({kinds}) {{"]
        lines += self._lines(body.block.steps, call, "    ", functions)
        end = ", ".join(f"%{n}" for n in results)
        lines += [f'    "func.return"({end}) : ({kinds}) -> ()', "  }"]
        return "\n".join(lines)


def _number(name: str) -> int:
    return int(re.sub(r"\D", "", name))


def type_text(value: Value, call: int | None) -> str:
    """The type of a value: with `?`, or at the sizes of a call."""
    facts: Any = value.facts
    shape = value.shapes[call or 0]
    dims = [
        "?" if call is None and is_dynamic else str(size)
        for size, is_dynamic in zip(shape, facts.dynamic, strict=True)
    ]
    return f"tensor<{'x'.join([*dims, value.dtype])}>"


def oracle_result(
    value: Value, kind: str, call: int, index: int
) -> tuple[list[str], list[tuple[str, str]]]:
    """How a result leaves an oracle: lines, and the names and types that are returned."""

    def to(dtype: str) -> str:
        other = replace(value, dtype=dtype)
        return type_text(other, call)

    name, made = f"%{value.name}", f"r{index}"
    if known.is_complex(value.dtype):
        real = to(known.real_of(value.dtype))
        lines = [
            f"%{made}{p} = stablehlo.{p} {name} : ({kind}) -> {real}" for p in ("real", "imag")
        ]
        return lines, [(f"{made}{p}", real) for p in ("real", "imag")]
    if known.is_quantized(value.dtype):
        raise ValueError("results are not quantized")
    size = known.bits(value.dtype)
    op, target = "convert", {1: "ui8", 2: "i8", 4: "i8"}.get(size, "f32")
    if known.is_float(value.dtype):
        if size < 8:
            target = "f32"
        elif value.dtype not in ("f32", "f64"):
            op, target = "bitcast_convert", f"ui{size}"
        else:
            return [], [(value.name, kind)]
    elif size >= 8:
        return [], [(value.name, kind)]
    line = f"%{made} = stablehlo.{op} {name} : ({kind}) -> {to(target)}"
    return [line], [(made, to(target))]


_SCRIPT = '''"""Random module {seed}, made small. Run it at the root of the repository."""
import numpy as np

import shlo_disc
from shlo_disc.debug.interpreter import NoReferenceError
from tests.fuzz.text.oracles import Interpreter, Xla
from tests.fuzz.text.types import array

TEXT = """
{text}"""

{oracles}

CALLS = [
{calls}
]


def main():
    f = shlo_disc.compile(TEXT, target="{target}")
    for inputs, oracle in CALLS:
        found = f.run_numpy(inputs)
        print("ours       ", *found, sep="\\n")
        for name, engine in (("interpreter", Interpreter()), ("XLA        ", Xla())):
            with engine:
                try:
                    wanted = engine.results(oracle, [np.asarray(f).dtype for f in found])
                except NoReferenceError as error:
                    wanted = [error]
            print(name, *wanted, sep="\\n")


if __name__ == "__main__":
    main()
'''
