"""The symbolic shape of every value of a module, and the facts and guards found on the way.

    analyze(module).shape(value)  ->  (Expr("b"), Expr("2*t"), Expr("768"))

A pure function of the IR: ask again after a rewrite. It reads raw shape arithmetic as well as
`disc.shape` and `disc.dim`. Shape rules are found by op name in :data:`RULES`; sizes written as
integer tensors are followed by `shape_values.py`.

A precondition of an op that does not follow from known facts becomes a guard. A call is refused
rather than computed on sizes that the specification leaves undefined.

A guard of an op inside a `while`, `case` or `if` is marked (`in_region`): the region may not run.
What is compiled relies on it all the same. A call that breaks such a guard needs the program with
its regions apart (`passes/split_programs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shlo_disc.base.errors import InvalidModuleError, UnsupportedError
from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.arithmetic import Condition, Entry, SizeArithmetic, is_wide
from shlo_disc.dynamic.asked import Entries, IntegerType, Shape
from shlo_disc.dynamic.constraints import Constraints
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.float_values import DIGITS
from shlo_disc.dynamic.program import Check
from shlo_disc.dynamic.relations import RELATIONS, lower_bound, parse_constraint
from shlo_disc.dynamic.rules import DYNAMIC, MOVING_RULES, Rule, refuse
from shlo_disc.dynamic.rules_compute import COMPUTE_RULES
from shlo_disc.dynamic.seen import SEEN, short_sizes
from shlo_disc.dynamic.shape_values import MAX_ELEMENTS, FloatType, follow
from shlo_disc.dynamic.size_sources import (
    GLOBAL,
    SizeFromData,
    SizeOfRegion,
    control_around,
    sources_of_size,
)
from shlo_disc.ir import attributes as attr
from shlo_disc.ir.builders import number_of, rank_of
from shlo_disc.ir.comparisons import conjuncts, less_than
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import ir, ops_of, terminator

SIZE_SYMBOLS = "disc.size_symbols"
"""On an argument whose elements are sizes: their symbols."""

SIGNED_SYMBOLS = "disc.signed_symbols"
"""On such an argument: the symbols that may be negative, as padding may."""

IN_REGION = "in_region"
"""On a `disc.guard` that a region needs, which may not run."""

REGION_SIZES = "disc.region_sizes"
"""On an argument with SIZE_SYMBOLS: those that are sizes in regions alone."""

COMPUTED = "disc.computed"
"""On an argument that no caller passes: an earlier program of several in turn computes it."""

CONSTRAINTS = "disc.constraints"
"""On `main`: relations of the sizes that every call must satisfy. One that says `s >= 0` lowers the
bound of a symbol of `disc.shape`, which is 1 without it.
"""

RULES: dict[str, Rule] = {**MOVING_RULES, **COMPUTE_RULES}
"""Op name -> result shapes from operand shapes; ops with regions that run are in REGION_RULES."""


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class _Type:
    """What the analysis asks of a tensor type, worked out once per type."""

    sizes: list[int]
    static: Shape | None
    """The shape, when no dimension is dynamic."""
    number: IntegerType | FloatType | None
    """Set for a static integer type of at most MAX_ELEMENTS elements, or float type of fewer."""

    @property
    def integer(self) -> IntegerType | None:
        """The static integer type."""
        return self.number if isinstance(self.number, IntegerType) else None


MAX_FLOATS = 4
"""Elements of a float tensor that sizes are computed in."""


class ShapeAnalysis:
    """What :func:`analyze` found; queries are by SSA value."""

    def __init__(self) -> None:
        self.constraints = Constraints()
        self.arithmetic = SizeArithmetic(self.constraints)
        self.at_call: Mapping[str, int] | None = None
        """Sizes of a call (`seen.py`); None: none was seen."""
        self.seen: Mapping[str, int] | None = None
        """Short sizes of a call (`seen.py`); None: none was seen."""
        self.guards: list[Check] = []
        self.arguments: list[Shape] = []
        """The shape of every argument of `main`, as written or as made up."""
        self.size_arguments: dict[int, tuple[str, ...]] = {}
        """Arguments whose elements are sizes, and the symbols of these."""
        self.computed: set[int] = set()
        """Arguments that an earlier program computes."""
        self.sized: set[ir.Value] = set()
        """Integers computed from size arguments that end in a size: they must not wrap."""
        self.region_sized: Mapping[ir.Value, ir.Operation] = {}
        """Those of them that are sizes in a region only, and the operation of main around it."""
        self.holders: dict[ir.Operation, None] = {}
        """The `case`, `if` and `while` of main whose regions need guards."""
        self._holder: ir.Operation | None = None
        self._rounds: list[tuple[ir.Value, Expr, Expr]] = []
        """Of the loops around: a counter, its first number, and the bound that it is below."""
        self.may_be_negative: set[ir.Value] = set()
        """Arguments that amounts of padding, or what 0 bounds, are computed from."""
        self.nonnegative: Mapping[str, bool] = {}
        """Symbols of their elements that are sizes as well; True for those of regions alone."""
        self.region_symbols: set[str] = set()
        """Symbols of elements that are sizes in regions alone."""
        self.positive: set[str] = set()
        """Symbols that are at least 1 in every call: those of `disc.shape` but `lowered`."""
        self.lowered: tuple[str, ...] = ()
        """Symbols that a constraint allows to be 0."""
        self._shapes: dict[ir.Value, Shape] = {}
        self._contents: dict[ir.Value, Entries] = {}
        self._types: dict[ir.Type, _Type | None] = {}
        self._parsed: dict[ir.Attribute, Expr] = {}
        self._element_symbols: set[str] = set()
        self._proved: set[tuple[Expr, str, Expr]] = set()
        """Preconditions that hold, by proof or by guard."""

    # -- questions ------------------------------------------------------------------------------

    @property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the argument shapes, in order of appearance, after those of elements."""
        found = {name: None for names in self.size_arguments.values() for name in names}
        for shape in self.arguments:
            for size in shape:
                found.update(dict.fromkeys(sorted(size.symbols())))
        return tuple(found)

    def shape(self, value: ir.Value) -> Shape:
        """The size of every dimension of a ranked tensor value, in canonical terms."""
        known = self._shapes.get(value)
        if known is None:
            # A value inside a reducer or comparator: scalars, whose type says all.
            kind = self._type(value.type)
            if kind is None or kind.static is None:
                raise UnsupportedError(f"the shape of a {value.type} is not known")
            known = self._shapes[value] = kind.static
        return known

    def scalar(self, value: ir.Value) -> Expr | None:
        """What an integer tensor of one element holds, when it is computed from sizes only."""
        entries = self._contents.get(value)
        if entries is None or len(entries) != 1 or not isinstance(entries[0], Expr):
            return None
        return entries[0]

    def contents(self, value: ir.Value) -> tuple[Expr, ...] | None:
        """The elements of a small integer tensor of rank 0 or 1 computed from sizes only."""
        entries = self._contents.get(value)
        if entries is None or len(self.shape(value)) > 1:
            return None
        return self.elements(value)

    def elements(self, value: ir.Value) -> tuple[Expr, ...] | None:
        """As `contents`, of any rank, in row-major order (`padding` operands have rank 2)."""
        entries = self._contents.get(value)
        if entries is None:
            return None
        numbers = tuple(e for e in entries if isinstance(e, Expr))
        return numbers if len(numbers) == len(entries) else None

    def entries(self, value: ir.Value) -> Entries | None:
        """What is known of each element of a small integer or i1 tensor."""
        return self._contents.get(value)

    def truth(self, value: ir.Value) -> Entry:
        """What is known of a rank-0 i1 computed from sizes."""
        entries = self._contents.get(value)
        return entries[0] if entries is not None and len(entries) == 1 else None

    def carry(self, old: ir.Value, new: ir.Value) -> None:
        """`new` has the shape and the contents of `old`."""
        if old in self._shapes:
            self._shapes[new] = self._shapes[old]
        else:
            self._shapes.pop(new, None)  # of a value that is gone, at whose address it is
        if old in self._contents:
            self._contents[new] = self._contents[old]
        else:
            self._contents.pop(new, None)

    def agrees_with(self, fresh: ShapeAnalysis) -> bool:
        """True if this analysis says of the values in `fresh`, and of calls, what that one says.

        Guards may be in another order, which is that of operations: fusions move these.
        """
        return (
            fresh._shapes.items() <= self._shapes.items()
            and fresh._contents == {v: e for v, e in self._contents.items() if v in fresh._shapes}
            and set(fresh.guards) == set(self.guards)
            and fresh.arguments == self.arguments
            and fresh.size_arguments == self.size_arguments
        )

    # -- for rules ------------------------------------------------------------------------------

    def declared(self, value: ir.Value) -> list[int]:
        """The sizes in the type of `value`, DYNAMIC for `?`."""
        kind = self._type(value.type)
        if kind is None:
            raise UnsupportedError(f"a value of type {value.type} is not a ranked tensor")
        return kind.sizes

    def sizes_operand(self, op: ir.Operation, index: int) -> Shape:
        """The contents of a shape operand; raises UnsupportedError when they depend on data."""
        found = self.elements(op.operands[index])
        if found is None:
            raise SizeFromData.of(op, index)
        return found

    def same_shape(self, op: ir.Operation, values: Sequence[ir.Value]) -> Shape:
        """The common shape of values the specification wants equal."""
        result = self.shape(values[0])
        for value in values[1:]:
            shape = self.shape(value)
            if shape != result:
                if len(shape) != len(result):
                    raise InvalidModuleError(
                        f"{source_line(op)}: {op.name} wants operands of one rank"
                    )
                result = tuple(
                    self.require_equal(op, a, b) for a, b in zip(result, shape, strict=True)
                )
        return result

    def require_equal(self, op: ir.Operation, a: Expr, b: Expr) -> Expr:
        """The specification wants `a == b`: returns the one to go on with."""
        self.require(op, a, "==", b)
        return b if b.is_const else a

    def require(
        self, op: ir.Operation, lhs: Expr, relation: str, rhs: Expr, message: str = ""
    ) -> None:
        """The specification wants `lhs relation rhs`: a guard, and then a fact, if not proved.

        `message` says in the guard what is wrong otherwise.
        """
        if relation == "==" and lhs == rhs:
            return
        key = (lhs, relation, rhs)
        if key in self._proved:
            return
        self._proved.add(key)
        implied = self.constraints.implies(lhs, relation, rhs)
        if implied:
            return
        if relation == ">=" and self._holds_in_round(op, lhs - rhs):
            self._proved.discard(key)
            return
        what = f": {message}" if message else f" needs {lhs} {relation} {rhs}"
        text = f"{source_line(op)}: {op.name}{what}"
        # Nothing satisfies both this and what regions need, which may not run.
        holder = self._holder or next(iter(self.holders), None)
        if implied is False and holder is not None:
            raise SizeOfRegion(text, holder)
        if lhs.is_const and rhs.is_const:
            raise InvalidModuleError(text)
        self._assume(Check(lhs, relation, rhs, text))

    def _holds_in_round(self, op: ir.Operation, size: Expr) -> bool:
        """True if `size >= 0` holds in every round of a loop, and `op` cannot leave the loop.

        A loop `while (i = first; i < bound)` has a round only where `bound > first`. An `op` that
        is at a place computed from `i` is in the rounds alone.
        """
        return any(
            self.constraints.at_least(size + first + 1, bound) and _reads(op.operands[1:], counter)
            for counter, first, bound in self._rounds
        )

    def parsed(self, text: ir.Attribute) -> Expr:
        """The expression in a string attribute."""
        found = self._parsed.get(text)
        if found is None:
            string = ir.StringAttr(text).value
            try:
                found = Expr.parse(string)
            except ValueError as error:
                raise InvalidModuleError(str(error)) from None
            found = self._parsed[text] = self.constraints.canonical(found)
        return found

    # -- the walk -------------------------------------------------------------------------------

    def _type(self, kind: ir.Type) -> _Type | None:
        """Facts of a type; None of what is no ranked tensor."""
        try:
            return self._types[kind]
        except KeyError:
            found = self._types[kind] = _described(kind)
            return found

    def _function(self, func: ir.Operation, known: Sequence[Check]) -> None:
        block = func.regions[0].blocks[0]
        constraints = _constraints(func)
        if SEEN in func.attributes:
            numbers = ir.DictAttr(func.attributes[SEEN])
            seen = {one.name: ir.IntegerAttr(one.attr).value for one in numbers}
            self.at_call, self.seen = seen, short_sizes(seen)
        self.lowered = tuple(
            dict.fromkeys(
                bound[0]
                for _, terms in constraints
                if (bound := lower_bound(*terms)) is not None and bound[1] <= 0
            )
        )
        given = ir.ArrayAttr(func.attributes["arg_attrs"]) if "arg_attrs" in func.attributes else ()
        for index, argument in enumerate(block.arguments):
            attributes = ir.DictAttr(given[index]) if len(given) else {}
            if COMPUTED in attributes:
                self.computed.add(index)
            shape = self._argument(argument, index, attributes)
            self._shapes[argument] = shape
            self.arguments.append(shape)
            if SIZE_SYMBOLS in attributes or argument in self.sized:
                self._size_argument(argument, index, attributes)
        for text, terms in constraints:
            self._constraint(text, *terms)
        for guard in known[len(self.guards) :]:  # what is above gives the same ones again
            self._assume(guard)
        self._block(block)
        self._finish()

    def _argument(self, argument: ir.Value, index: int, attributes: Any) -> Shape:
        declared = self.declared(argument)
        if "disc.shape" not in attributes:
            return tuple(
                Expr.symbol(f"d{index}_{axis}") if n == DYNAMIC else Expr.const(n)
                for axis, n in enumerate(declared)
            )
        written = [self.parsed(d) for d in ir.ArrayAttr(attributes["disc.shape"])]
        if len(written) != len(declared):
            raise InvalidModuleError(
                f"argument {index} has rank {len(declared)}, but its disc.shape has {len(written)} "
                f"sizes: {', '.join(map(str, written))}"
            )
        for size, n in zip(written, declared, strict=True):
            if is_wide(size):
                raise InvalidModuleError(
                    f"argument {index}: disc.shape says {size}, which has a number beyond 64 bits"
                )
            for name in sorted(size.symbols().difference(self.lowered)):
                self.positive.add(name)
                self.constraints.add_lower(Expr.symbol(name), 1)
            if n != DYNAMIC and size.is_const and size.value != n:
                raise InvalidModuleError(
                    f"argument {index}: disc.shape says {size}, the type {argument.type} says {n}"
                )
            if self.constraints.implies(size, ">=", 0) is False:
                raise InvalidModuleError(f"argument {index}: disc.shape says {size}, below 0")
        for axis, n in enumerate(declared):
            if n != DYNAMIC and not written[axis].is_const:
                message = (
                    f"argument {index}: the type has {n} for dimension {axis}, {written[axis]}"
                )
                self._assume(Check(written[axis], "==", Expr.const(n), message))
        return tuple(written)

    def _constraint(self, text: str, lhs: Expr, relation: str, rhs: Expr) -> None:
        """What was stated of the sizes: a guard, and then a fact, if not implied."""
        lhs, rhs = self.constraints.canonical(lhs), self.constraints.canonical(rhs)
        implied = self.constraints.implies(lhs, relation, rhs)
        if implied is False:
            lhs, relation, rhs = Expr.const(0), "==", Expr.const(1)
        if implied is not True:
            self._assume(Check(lhs, relation, rhs, f"the program is compiled for {text}"))

    def _size_argument(self, argument: ir.Value, index: int, attributes: Any) -> None:
        """The elements of `argument` are sizes: a symbol for each, from 0 if it has no sign."""
        kind = self._type(argument.type)
        assert kind is not None
        assert kind.integer is not None
        if SIZE_SYMBOLS in attributes:
            names = [ir.StringAttr(name).value for name in ir.ArrayAttr(attributes[SIZE_SYMBOLS])]
        elif GLOBAL in attributes:
            names = [ir.StringAttr(attributes[GLOBAL]).value]
        else:
            names = [f"n{index}_{k}" for k in range(kind.integer.elements)]
        self.size_arguments[index] = tuple(names)
        self._element_symbols.update(names)
        _, width, is_unsigned, _ = kind.integer
        holder, around = f"argument {index}", self.region_sized.get(argument)
        if COMPUTED in attributes:
            holder = f"the result of {ir.StringAttr(attributes['disc.name']).value}"
        is_regional = around is not None
        in_regions = {n for n in names if is_regional or self.nonnegative.get(n)}
        if REGION_SIZES in attributes:
            in_regions = {ir.StringAttr(n).value for n in ir.ArrayAttr(attributes[REGION_SIZES])}
        self.region_symbols |= in_regions
        signed: set[str] = set()
        if SIGNED_SYMBOLS in attributes:
            signed = {ir.StringAttr(n).value for n in ir.ArrayAttr(attributes[SIGNED_SYMBOLS])}
        elif argument in self.may_be_negative and GLOBAL not in attributes and not is_unsigned:
            signed = set(names) - self.nonnegative.keys()
        for name in names:
            symbol = Expr.symbol(name)
            if name in signed:
                self.constraints.add_signed(name)
                self.constraints.add_lower(symbol, -1 << width - 1)
            else:
                message = f"{holder} holds the size {name}, which must not be negative"
                with self._within(around):
                    self._assume(
                        Check(symbol, ">=", Expr.const(0), message, in_region=name in in_regions)
                    )
            if width < 64:
                most = (1 << (width if is_unsigned else width - 1)) - 1
                self.constraints.add_upper(symbol, most)
        self._contents[argument] = tuple(Expr.symbol(name) for name in names)

    def fitted(self, op: ir.Operation, entry: Expr, kind: IntegerType) -> Expr:
        """`entry` under a guard that it does not wrap in the element type of `op`'s result."""
        low = 0 if kind.is_unsigned else -(1 << kind.width - 1)
        high = low + (1 << kind.width) - 1
        with self._within(self.region_sized.get(op.results[0])):
            if kind.width < 64:
                self.require(op, entry, "<=", Expr.const(high))
            if kind.width < 64 or kind.is_unsigned:
                self.require(op, entry, ">=", Expr.const(low))
        return entry

    def _finish(self) -> None:
        """Put every shape in terms of the symbols that stand for equal ones."""
        canonical = self.constraints.canonical
        known: dict[Shape, Shape] = {}
        for value, shape in self._shapes.items():
            final = known.get(shape)
            if final is None:
                final = known[shape] = tuple(map(canonical, shape))
            self._shapes[value] = final
        for value, entries in self._contents.items():
            if any(isinstance(e, Expr) and not e.is_const for e in entries):
                self._contents[value] = tuple(
                    canonical(e) if isinstance(e, Expr) else e for e in entries
                )

    def _block(self, block: ir.Block) -> None:
        for view in block.operations:
            op = view.operation
            results = op.results
            if not len(results):
                self._effect(op)
                continue
            region_rule = REGION_RULES.get(op.name)
            if region_rule is not None:
                with self._within(None if op.name == "disc.fusion" else op):
                    region_rule(self, op)
                continue
            kinds = [self._type(r.type) for r in results]
            self._infer(op, kinds)
            for region in op.regions:  # of scalars; what it reads from outside may be arrays
                self._block(region.blocks[0])
            kind = kinds[0]
            if len(kinds) == 1 and kind is not None and kind.number is not None:
                entries = follow(self, op, kind.number)
                if entries is not None and not (entries and all(e is None for e in entries)):
                    self._contents[results[0]] = entries

    @contextmanager
    def _within(self, holder: ir.Operation | None) -> Iterator[None]:
        """Guards that are found meanwhile are those of the regions of `holder`, if there is one."""
        before = self._holder
        self._holder = before or holder
        try:
            yield
        finally:
            self._holder = before

    def _infer(self, op: ir.Operation, kinds: Sequence[_Type | None]) -> None:
        """Set the shapes of the results of an op without regions that run."""
        static = [None if kind is None else kind.static for kind in kinds]
        if None not in static and not self._has_dynamic_operand(op):
            shapes: Sequence[Shape | None] = static
        elif any(kind is None for kind in kinds):
            if any(kind is not None and kind.static is None for kind in kinds):
                raise refuse(op, "results that are no tensors", "keep it outside")
            shapes = static
        else:
            shapes = self._refined(op, static)
        for result, shape in zip(op.results, shapes, strict=True):
            if shape is not None:
                self._shapes[result] = shape

    def _has_dynamic_operand(self, op: ir.Operation) -> bool:
        for value in op.operands:
            kind = self._type(value.type)
            if kind is not None and kind.static is None:
                return True
        return False

    def _refined(self, op: ir.Operation, static: Sequence[Shape | None]) -> list[Shape]:
        """The shapes by the op's rule, with the static sizes of the result types."""
        rule = RULES.get(op.name)
        if rule is None:
            known = [shape for shape in static if shape is not None]
            if len(known) == len(static):
                return known
            raise refuse(
                op, "no shape rule for a dynamic result", "give it static sizes, or report the op"
            )
        refined = []
        for result, shape in zip(op.results, rule(self, op), strict=True):
            declared = self.declared(result)
            if len(declared) != len(shape):
                raise InvalidModuleError(
                    f"{source_line(op)}: {op.name} gives rank {len(shape)}, but its type has rank "
                    f"{len(declared)}"
                )
            for n, size in zip(declared, shape, strict=True):
                if n not in (DYNAMIC, size):
                    self.require_equal(op, size, Expr.const(n))
                if self._element_symbols and not self._element_symbols.isdisjoint(size.symbols()):
                    self.require(op, size, ">=", Expr.const(0))
            refined.append(
                tuple(
                    size if n == DYNAMIC else Expr.const(n)
                    for n, size in zip(declared, shape, strict=True)
                )
            )
        return refined

    # -- guards ---------------------------------------------------------------------------------

    def _effect(self, op: ir.Operation) -> None:
        """An op without results: a guard, an assertion, or nothing to the analysis."""
        if op.name == "disc.guard":
            lhs, rhs = (self.parsed(op.attributes[side]) for side in ("lhs", "rhs"))
            relation, in_region = attr.text(op, "op"), IN_REGION in op.attributes
            if self.constraints.implies(lhs, relation, rhs) is not True:
                message = attr.text(op, "message")
                self._assume(Check(lhs, relation, rhs, message, in_region=in_region))
        elif (
            op.name == "stablehlo.custom_call"
            and attr.text(op, "call_target_name") == "shape_assertion"
        ):
            self._assertion(op)

    def _assertion(self, op: ir.Operation) -> None:
        condition = self.arithmetic.settled(self.truth(op.operands[0]))
        if condition is None and not self.sized.issuperset(sources_of_size(op.operands[0])):
            raise SizeFromData.of(op, 0)
        if condition is True:
            return
        message = self._assertion_message(op)
        if condition is False:
            self._assume(Check(Expr.const(0), "==", Expr.const(1), message))
            return
        for part in _conjuncts(condition):
            comparison = part.comparison if part is not None else None
            if comparison is None:
                raise refuse(
                    op,
                    f"a shape assertion that is not a comparison of sizes ({message})",
                    "assert comparisons of argument sizes",
                )
            if self.constraints.implies(*comparison) is not True:
                self._assume(Check(*comparison, message))

    def _assertion_message(self, op: ir.Operation) -> str:
        """The message with {0}, {1}, ... replaced by the sizes they stand for."""
        text = attr.text(op, "error_message") if "error_message" in op.attributes else ""
        for index, value in enumerate(list(op.operands)[1:]):
            size = self.scalar(value)
            text = text.replace(f"{{{index}}}", "?" if size is None else str(size))
        return text or "shape assertion"

    def _is_beyond(self, guard: Check) -> bool:
        """The truth of a guard with a number beyond i64, in which the host computes.

        Raises UnsupportedError unless a symbol is compared with that number.
        """
        for value, relation, number in (
            (guard.lhs, guard.op, guard.rhs),
            (guard.rhs, _MIRRORED.get(guard.op, guard.op), guard.lhs),
        ):
            atom = value.lone_atom
            if number.is_const and atom is not None and not atom.op:
                return RELATIONS[relation](0, number.value)
        raise UnsupportedError(
            f"{guard.message}: {guard.lhs} {guard.op} {guard.rhs} has a number beyond 64 bits"
        )

    def _assume(self, guard: Check) -> None:
        """Every call checks `guard` first, so everything compiled may rely on it."""
        if is_wide(guard.lhs) or is_wide(guard.rhs):
            if self._is_beyond(guard):
                return
            guard = replace(guard, lhs=Expr.const(0), op="==", rhs=Expr.const(1))
        if self._holder is not None:
            self.holders[self._holder] = None
            guard = replace(guard, in_region=True)
        self.guards.append(guard)
        self.constraints.assume(guard.lhs, guard.op, guard.rhs)


def _constraints(func: ir.Operation) -> list[tuple[str, tuple[Expr, str, Expr]]]:
    """The relations that `func` states, as text and parsed.

    Raises InvalidModuleError for text that is none.
    """
    if CONSTRAINTS not in func.attributes:
        return []
    texts = [ir.StringAttr(text).value for text in ir.ArrayAttr(func.attributes[CONSTRAINTS])]
    try:
        return [(text, parse_constraint(text)) for text in texts]
    except ValueError as error:
        raise InvalidModuleError(str(error)) from None


def _described(kind: ir.Type) -> _Type | None:
    if not isinstance(kind, ir.RankedTensorType):
        return None
    sizes = list(kind.shape)
    if DYNAMIC in sizes:
        return _Type(sizes, None, None)
    static = tuple(Expr.const(n) for n in sizes)
    element = kind.element_type
    count = 1
    for n in sizes:
        count *= n
    number: IntegerType | FloatType | None = None
    if isinstance(element, ir.IntegerType) and count <= MAX_ELEMENTS:
        number = IntegerType(tuple(sizes), element.width, element.is_unsigned, count)
    elif 0 < count <= MAX_FLOATS and (digits := DIGITS.get(str(element))) is not None:
        number = FloatType(tuple(sizes), digits, count)
    return _Type(sizes, static, number)


def _conjuncts(condition: Entry) -> list[Condition | None]:
    if not isinstance(condition, Condition):
        return [None]
    if condition.op != "AND":
        return [condition]
    return [*sorted(condition.parts, key=lambda part: str(part.comparison))]


# -- ops with regions that run ------------------------------------------------------------------


def _returned(block: ir.Block) -> list[ir.Value]:
    return list(terminator(block).operands)


def _fusion(s: ShapeAnalysis, op: ir.Operation) -> None:
    """A cluster: its arguments are its operands, in shape and contents."""
    block = op.regions[0].blocks[0]
    for argument, value in zip(block.arguments, op.operands, strict=True):
        s._shapes[argument] = s.shape(value)
        if value in s._contents:
            s._contents[argument] = s._contents[value]
    s._block(block)
    for result, value in zip(op.results, _returned(block), strict=True):
        s._shapes[result] = s.shape(value)
        if value in s._contents:
            s._contents[result] = s._contents[value]


def _while(s: ShapeAnalysis, op: ir.Operation) -> None:
    """Carried sizes must not change; carried contents are known only where nothing changes them.

    Induction: an iteration that gets the initial sizes returns them.
    """
    values = list(op.operands)
    shapes = [s.shape(v) for v in values]
    condition, body = op.regions[0].blocks[0], op.regions[1].blocks[0]
    returned = _returned(body)
    known = len(s._rounds)
    for block in (condition, body):
        for index, argument in enumerate(block.arguments):
            s._shapes[argument] = shapes[index]
            if returned[index] == body.arguments[index] and values[index] in s._contents:
                s._contents[argument] = s._contents[values[index]]
        s._block(block)
        if block == condition:
            s._rounds += _bounded_counters(s, op)
    del s._rounds[known:]
    for index, value in enumerate(returned):
        for before, after in zip(shapes[index], s.shape(value), strict=True):
            if s.constraints.implies(before, "==", after) is False:
                raise SizeOfRegion(
                    f"{source_line(op)}: {op.name}: value {index} carried by the loop grows from "
                    f"{before} to {after} elements; carry a buffer of the final size and update "
                    "slices of it",
                    op,
                )
            s.require(
                op,
                before,
                "==",
                after,
                f"value {index} carried by the loop has {before} elements at first and {after} "
                "after a step; carry a buffer of the final size and update slices of it",
            )
    for index, result in enumerate(op.results):
        s._shapes[result] = shapes[index]
        argument = body.arguments[index]
        if returned[index] == argument and argument in s._contents:
            s._contents[result] = s._contents[argument]


def _bounded_counters(
    s: ShapeAnalysis, loop: ir.Operation
) -> Iterator[tuple[ir.Value, Expr, Expr]]:
    """The values that change in a loop and start below a bound: `(value, first, bound)`."""
    condition, body = (region.blocks[0] for region in loop.regions)
    arguments, returned = list(condition.arguments), _returned(body)
    for part in conjuncts(_source(_returned(condition)[0])):
        test = less_than(part)
        if test is None or (tested := _source(test[0])) not in arguments:
            continue
        k = arguments.index(tested)
        first, bound = s.elements(loop.operands[k]), s.elements(test[1])
        if first and bound and returned[k] != body.arguments[k]:
            yield body.arguments[k], first[0], bound[0]


def _source(value: ir.Value) -> ir.Value:
    """The value of an argument of a cluster outside of it, and of a result of one inside of it."""
    while True:
        owner = value.owner
        if isinstance(owner, ir.Block):
            owner, place = owner.owner, ir.BlockArgument(value).arg_number
            values = owner.operands
        else:
            place = ir.OpResult(value).result_number
            values = _returned(owner.regions[0].blocks[0]) if owner.name == "disc.fusion" else ()
        if owner.name != "disc.fusion":
            return value
        value = values[place]


def _reads(values: Iterable[ir.Value], wanted: ir.Value) -> bool:
    """True if one of `values` is computed from `wanted` by operations without regions that run."""
    todo = list(values)
    seen: set[ir.Value] = set()
    while todo:
        value = _source(todo.pop())
        if value == wanted:
            return True
        if value not in seen and not isinstance(value.owner, ir.Block):
            todo += value.owner.operands
        seen.add(value)
    return False


def _branches(s: ShapeAnalysis, op: ir.Operation) -> None:
    """All branches must give the same sizes; contents are known where they agree."""
    blocks = [region.blocks[0] for region in op.regions]
    for block in blocks:
        s._block(block)
    rows = [_returned(block) for block in blocks]
    for index, result in enumerate(op.results):
        shape = s.shape(rows[0][index])
        for row in rows[1:]:
            for axis, size in enumerate(s.shape(row[index])):
                if s.constraints.implies(shape[axis], "==", size) is False:
                    raise SizeOfRegion(
                        f"{source_line(op)}: {op.name}: the branches give {shape[axis]} and {size} "
                        f"for dimension {axis} of result {index}, a size that depends on data; "
                        "pad both to one size",
                        op,
                    )
                s.require(
                    op,
                    shape[axis],
                    "==",
                    size,
                    f"the branches give {shape[axis]} and {size} for dimension {axis} of result "
                    f"{index}; pad both to one size",
                )
        s._shapes[result] = shape
        entries = {s._contents.get(row[index]) for row in rows}
        common = entries.pop()
        if common is not None and not entries:
            s._contents[result] = common


REGION_RULES: dict[str, Callable[[ShapeAnalysis, ir.Operation], None]] = {
    "disc.fusion": _fusion,
    "stablehlo.case": _branches,
    "stablehlo.if": _branches,
    "stablehlo.while": _while,
}


def analyze(module: ir.Module | ir.Operation) -> ShapeAnalysis:
    """The shapes, facts and guards of `main` (or of the one function of a module).

    `module`: a module in the normal form of `ingest`, before or after `resolve-shapes`, or a
    `func.func`. Raises UnsupportedError for a size that depends on data or an op without a shape
    rule, and InvalidModuleError for sizes that contradict the specification.
    """
    root = module.operation
    main = root if root.name == "func.func" else _main(root)
    known: list[Check] = []
    sized: set[ir.Value] = set()
    may_be_negative: set[ir.Value] = set()
    nonnegative: dict[str, bool] = {}
    region_sized: dict[ir.Value, ir.Operation] = {}
    holders: dict[ir.Operation, None] = {}
    while True:
        analysis = ShapeAnalysis()
        analysis.sized, analysis.may_be_negative = sized, may_be_negative
        analysis.nonnegative = nonnegative
        analysis.region_sized, analysis.holders = region_sized, holders
        try:
            analysis._function(main, known)
        except UnsupportedError as error:
            if isinstance(error, SizeFromData):
                more = sources_of_size(error.operand)
                if not more <= sized:
                    around = control_around(error.operation)
                    if around is not None:
                        region_sized |= dict.fromkeys(more - sized, around)
                    sized, known, may_be_negative = sized | more, [], _sources_of_signs(main)
                    continue
            # Guards are checked before anything runs, so they hold in front of their operation,
            # too: cse moves the division of an exported `3*b + 1` in front of its assertion.
            told = dict.fromkeys(guard.terms for guard in known)
            added = [guard for guard in analysis.guards if guard.terms not in told]
            if not added or isinstance(error, SizeOfRegion):
                raise
            known = [*known, *added]
            continue
        # What has a sign in one place and is a size in another is never negative.
        sizes: dict[str, bool] = {}
        for guard in analysis.guards:
            atom = guard.lhs.lone_atom
            if atom is not None and (guard.op, guard.rhs) == (">=", Expr.const(0)):
                sizes[atom.key] = sizes.get(atom.key, True) and guard.in_region
        if analysis.constraints.signed.isdisjoint(sizes):
            return analysis
        nonnegative, known = sizes | nonnegative, []


def _sources_of_signs(main: ir.Operation) -> set[ir.Value]:
    """What numbers that may be negative are computed from: padding, and what 0 bounds.

    `select(n < 0, n + size, n)` of an index, `max(n, 0)` of a size.
    """
    found: set[ir.Value] = set()
    for op in ops_of(main, "stablehlo.dynamic_pad"):
        for value in (op.operands[2], op.operands[3]):
            found |= sources_of_size(value)
    for name in ("compare", "maximum", "minimum"):
        for op in ops_of(main, f"stablehlo.{name}"):
            if any(rank_of(side) == 0 and number_of(side) in (0, -1) for side in op.operands):
                for value in op.operands:
                    found |= sources_of_size(value)
    return found


def _main(module: ir.Operation) -> ir.Operation:
    functions = [
        view.operation
        for view in module.regions[0].blocks[0].operations
        if view.operation.name == "func.func" and len(view.operation.regions[0].blocks)
    ]
    mains = [f for f in functions if attr.text(f, "sym_name") == "main"]
    chosen = mains or functions
    if len(chosen) != 1:
        raise InvalidModuleError(f"one function @main is needed, there are {len(functions)}")
    return chosen[0]
