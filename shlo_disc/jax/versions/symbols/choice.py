"""The state of the search for symbols: every axis, and the edits that make it less general."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import export

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.expr import Expr
from shlo_disc.dynamic.monomial import Atom
from shlo_disc.jax.arguments.leaves import Leaf, abstract
from shlo_disc.jax.arguments.plan import Guard, Note, Pattern
from shlo_disc.jax.sizes.symbolic import SizeScope, as_bound, is_narrow
from shlo_disc.jax.versions.symbols import methods

PARAMETER_LEAVES = 6
"""An argument with this many leaves may be parameters, whose sizes are constants until they
change. The trace tells parameters from other arguments (`parameters.py`); with the constants right
at once, it need not be repeated. """

MANY_LEAVES = 16
"""Batches have fewer leaves: below this number, parameters are floats, and most are weights."""

_TAKEN = re.compile(r"d(\d+)\Z")


@dataclass
class Choice:
    """An expression for every axis, the sizes of the call at hand, and what has been assumed."""

    leaves: Sequence[Leaf]
    dims: list[tuple[Expr, ...]]
    hints: dict[str, int]
    """The value of each symbol in the call at hand."""
    fixed: frozenset[str] = frozenset()
    """Symbols the user stated; they stay unless the program itself compares them."""
    guards: list[Guard] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    issued: int = 0
    """Symbols named so far; a name is never used twice, so that notes stay readable."""
    replaced: dict[str, Expr] = field(default_factory=dict)
    """Every symbol that was substituted, in terms of the symbols in use."""

    def copy(self) -> Choice:
        """An independent copy."""
        return replace(
            self,
            dims=list(self.dims),
            hints=dict(self.hints),
            guards=list(self.guards),
            notes=list(self.notes),
            replaced=dict(self.replaced),
        )

    def current(self, size: Expr) -> Expr:
        """A size in terms of the symbols in use."""
        return size.substitute(self.replaced) if self.replaced else size

    def value(self, size: Expr) -> int:
        """The size in the call at hand; raises KeyError for a symbol that is not ours."""
        return size.evaluate(self.hints)

    @property
    def pattern(self) -> Pattern:
        """The choice as a pattern of shapes."""
        names = tuple(leaf.name for leaf in self.leaves)
        return Pattern(names, tuple(self.dims), tuple(self.guards), tuple(self.notes))

    def plain(self) -> tuple[Any, ...]:
        """The choice as plain data, without the sizes of the call; see :func:`choice_of`."""
        guards = [(g.left, g.relation, g.right, g.reason, g.where, g.stated) for g in self.guards]
        notes = [(note.text, note.reason, note.where) for note in self.notes]
        return tuple(self.dims), tuple(guards), tuple(notes), sorted(self.fixed), self.issued

    def live(self) -> list[str]:
        """The symbols in use, the likeliest constants first: sizes of 1, then later axes first."""
        order: dict[str, None] = {}
        for shape in reversed(self.dims):
            for size in reversed(shape):
                order.update(dict.fromkeys(sorted(size.symbols())))
        return sorted(order, key=lambda symbol: self.hints[symbol] != 1)

    def new_symbol(self, value: int) -> Expr:
        """A fresh symbol that is `value` in the call at hand."""
        stated = self.fixed | self.hints.keys()
        while (name := f"d{self.issued}") in stated:
            self.issued += 1
        self.issued += 1
        self.hints[name] = value
        return Expr.symbol(name)

    # -- edits ----------------------------------------------------------------------------------

    def substitute(self, values: Mapping[str, Expr], note: Note | None) -> None:
        """Replace symbols everywhere."""
        self.dims = [tuple(size.substitute(values) for size in shape) for shape in self.dims]
        self.guards = [
            guard
            for guard in (guard.substitute(dict(values)) for guard in self.guards)
            if guard.symbols()
        ]
        values = dict(values)
        self.replaced = {name: size.substitute(values) for name, size in self.replaced.items()}
        self.replaced.update(values)
        for symbol in values:
            self.hints.pop(symbol, None)
        self.fixed -= values.keys()
        if note is not None:
            self.notes.append(note)

    def pin(self, symbols: Iterable[str], reason: str, where: str) -> bool:
        """Make symbols constants; False when there were none to pin."""
        values = {s: Expr.const(self.hints[s]) for s in symbols if s in self.hints}
        if not values:
            return False
        text = ", ".join(f"{s} = {v}" for s, v in values.items())
        self.substitute(values, Note(self._placed(text, values), reason, where))
        return True

    def _placed(self, text: str, symbols: Iterable[str]) -> str:
        """`text` with the places of the symbols, since a pinned symbol is seen nowhere else."""
        places = [
            f"dimension {axis} of {leaf.name}"
            for symbol in symbols
            for leaf, shape in zip(self.leaves, self.dims, strict=True)
            for axis, size in enumerate(shape)
            if symbol in size.symbols()
        ]
        more = f" and {len(places) - 2} more" if len(places) > 2 else ""
        return f"{text} ({', '.join(places[:2])}{more})"

    def guard(self, left: Expr, relation: str, right: Expr, reason: str, where: str) -> bool:
        """Add a guard; False when it is there already or says nothing."""
        if not (left.symbols() | right.symbols()) or (relation != "!=" and (left - right).vanishes):
            return False
        if relation == "==" and (bound := as_bound(left, right, self.hints)) is not None:
            (left, right), relation = bound, ">="
            if right == 1:
                return False  # as every symbol is
        elif relation == "==":
            left, relation, right = _as_order(left, right)
        known = {(g.left, g.relation, g.right) for g in self.guards}
        if (left, relation, right) in known or (
            relation != ">=" and (right, relation, left) in known
        ):
            return False
        self.guards.append(Guard(left, relation, right, reason, where))
        return True

    def holds_from_on(self, a: Expr, b: Expr) -> bool:
        """True if two sizes are equal by a bound of a symbol, which is true of this call."""
        return as_bound(a, b, self.hints) is not None

    def multiple(self, symbol: str, factor: int, reason: str, where: str) -> bool:
        """Let a symbol be `factor` times a new one; False when its value is no larger multiple."""
        value = self.hints.get(symbol, 0)
        if factor < 2 or value % factor or symbol not in self.live():
            return False
        fixed = symbol in self.fixed
        part = self.new_symbol(value // factor)
        note = Note(self._placed(f"{symbol} = {part * factor}", [symbol]), reason, where)
        self.substitute({symbol: part * factor}, note)
        if fixed:
            self.fixed |= part.symbols()
        return True

    def unify(
        self, a: Expr, b: Expr, reason: str, where: str, *, even_fixed: bool = False
    ) -> dict[str, Expr] | None:
        """Two sizes that are equal in this call become equal always; the replacements, or None."""
        a, b = _within_bounds(a, b), _within_bounds(b, a)
        if (a - b).vanishes or self.holds_from_on(a, b):
            return {}
        for mod, zero in ((a, b), (b, a)):
            known = self._multiple_if_zero(mod, reason, where) if zero == 0 else None
            if known is not None:
                return known
        keep = frozenset() if even_fixed else self.fixed
        solution = self._solved(_primitive(a - b), keep) or self._paired(a, b, keep)
        if solution is None:
            return None
        note = Note(self._placed(f"{a} == {b}", solution), reason, where)
        before = self.copy()
        self.substitute(solution, note)
        if not self.pattern.is_solvable:
            self.__dict__.update(before.__dict__)
            return None
        return solution

    def _multiple_if_zero(self, size: Expr, reason: str, where: str) -> dict[str, Expr] | None:
        """For `mod(s, 4) == 0`: s becomes a multiple of 4. Of a product, its last such factor.

        JAX divides by -4 where a reshape has a -1, which is `mod(s + 3, 4) - 3 == 0`. Either may be
        multiplied by other sizes, as in a reshape of (b, t, s) to (b, t, 4, -1).
        """
        atoms = [atom for atom in size.atoms() if atom.op == "mod" and atom.args[1].is_const]
        if len(atoms) != 1:
            return None
        (remainder,) = atoms
        factor = abs(remainder.args[1].value)
        without = _with_atom(size, remainder, Expr.const(0))
        times = _with_atom(size, remainder, Expr.const(1)) - without
        if size != without + times * Expr.of_atom(remainder):
            return None
        offset = next((n for n in (0, factor - 1) if without == -times * n), None)
        if offset is None:
            return None
        divided = remainder.args[0] - offset
        symbols = sorted(divided.symbols(), key=_order, reverse=True)
        if divided != Expr.product(map(Expr.symbol, symbols)):
            return None
        for symbol in symbols:
            if self.multiple(symbol, factor, reason, where):
                return {symbol: Expr.symbol(f"d{self.issued - 1}") * factor}
        return None

    def _solved(self, difference: Expr, keep: frozenset[str]) -> dict[str, Expr] | None:
        """`{symbol: expression}` that makes `difference` zero; sizes must stay positive sums."""
        found = []
        for monomial, coefficient in difference.terms:
            if len(monomial) != 1 or monomial[0][1] != 1 or abs(coefficient) != 1:
                continue
            symbol = monomial[0][0].key
            if monomial[0][0].op or symbol in keep or symbol not in self.hints:
                continue
            value = (difference - Expr.symbol(symbol) * coefficient) * -coefficient
            if (
                symbol in value.symbols()
                or not value.is_polynomial
                or any(c < 0 for _, c in value.terms)
            ):
                continue
            # Of two symbols the later one goes, so that names stay with the first argument.
            found.append((len(value.terms), not value.is_const, -_order(symbol), symbol, value))
        if not found:
            return None
        *_, symbol, value = min(found, key=lambda item: item[:3])
        return {symbol: value}

    def _paired(self, a: Expr, b: Expr, keep: frozenset[str]) -> dict[str, Expr] | None:
        """Symbols of `b` replaced by symbols of `a` that have the same value (`b0*t0 == b1*t1`)."""
        left = sorted(a.symbols() - b.symbols(), key=_order)
        solution: dict[str, Expr] = {}
        for symbol in sorted(b.symbols() - a.symbols(), key=_order):
            twin = next((s for s in left if self.hints.get(s) == self.hints.get(symbol)), None)
            if twin is None:
                continue
            left.remove(twin)
            loser, winner = (symbol, twin) if symbol not in keep else (twin, symbol)
            if loser in keep or loser not in self.hints:
                return None
            solution[loser] = Expr.symbol(winner)
        if solution and a.substitute(solution) == b.substitute(solution):
            return solution
        return None

    def merge_equal_sizes(self) -> bool:
        """One symbol for all sizes equal in this call: the least general, surest sharing."""
        by_value: dict[int, str] = {}
        solution: dict[str, Expr] = {}
        for symbol in sorted(self.hints, key=_order):
            if symbol in self.fixed:
                continue
            first = by_value.setdefault(self.hints[symbol], symbol)
            if first != symbol:
                solution[symbol] = Expr.symbol(first)
        if not solution:
            return False
        text = ", ".join(f"{symbol} == {first}" for symbol, first in solution.items())
        self.substitute(solution, Note(text, "equal in the call that was compiled"))
        return True

    # -- towards JAX ----------------------------------------------------------------------------

    def specs(self) -> tuple[list[jax.ShapeDtypeStruct], SizeScope]:
        """The abstract value of every leaf, in one new symbolic scope, and the scope."""
        constraints = [
            f"{g.left} >= {g.right}"
            for g in self.guards
            if g.relation == ">=" and is_narrow(g.left, g.right)
        ]
        methods.install()
        scope = SizeScope(constraints, self.hints)

        @functools.cache  # a model has hundreds of leaves and few sizes; parsing takes 0.1 ms
        def size_of(size: Expr) -> Any:
            return size.value if size.is_const else export.symbolic_shape(str(size), scope=scope)[0]

        found = []
        for leaf, shape in zip(self.leaves, self.dims, strict=True):
            sizes = tuple(map(size_of, shape))
            found.append(abstract(sizes, leaf.dtype, leaf.weak_type))
        return found, scope

    def texts(self) -> list[list[str]]:
        """The sizes of every leaf in `jax.export`'s notation, for the compiler."""
        found = []
        for leaf, shape in zip(self.leaves, self.dims, strict=True):
            # A typed PRNG key is an array of words, whose sizes the type gives.
            found.append([*map(str, shape), *(["..."] if leaf.is_key else [])])
        return found


def _primitive(difference: Expr) -> Expr:
    """The difference without its common factors, which are positive: zero in the same cases."""
    terms = difference.terms
    if not terms:
        return difference
    common = dict(terms[0][0])
    for monomial, _ in terms[1:]:
        powers = dict(monomial)
        common = {atom: min(p, powers[atom]) for atom, p in common.items() if atom in powers}
    # Only symbols are known to be at least 1.
    divisor = Expr(
        {tuple(sorted((a, p) for a, p in common.items() if not a.op)): difference.content}
    )
    return difference // divisor


def _with_atom(size: Expr, atom: Atom, value: Expr) -> Expr:
    """`size` with `value` in place of one of its atoms."""
    return size.rebuild(lambda a: value if a == atom else Expr.of_atom(a))


def _order(symbol: str) -> int:
    match = _TAKEN.match(symbol)
    return int(match[1]) if match else -1


def first_choice(
    leaves: Sequence[Leaf],
    mode: bool | str,
    stated: Sequence[Sequence[Expr | None] | None],
    constraints: Sequence[Guard],
    before: Sequence[Pattern],
    data: frozenset[int] = frozenset(),
) -> Choice:
    """The most general sensible start for a call: a symbol for every axis.

    `mode`: "auto", True or False. `stated`: what the user said of each leaf (None: nothing).
    `before`: the versions that did not fit this call; a size that was a constant in all of them and
    is the same now stays one. `data`: arguments that are known to be no parameters. Raises
    ValueError when the stated sizes cannot be those of the call.
    """
    choice = Choice(leaves, [], {})
    pattern = Pattern(
        tuple(leaf.name for leaf in leaves),
        tuple(
            tuple(said) if said is not None else (None,) * len(leaf.shape)
            for said, leaf in zip(stated, leaves, strict=True)
        ),
    )
    values = pattern.solve([leaf.shape for leaf in leaves])
    if values is None:
        raise ValueError("the sizes do not fit the stated shapes")
    choice.hints.update(zip(pattern.symbols, values, strict=True))
    choice.fixed = frozenset(pattern.symbols)
    parameters = parameter_groups(leaves) - data if mode == "auto" else frozenset()
    for index, (leaf, said) in enumerate(zip(leaves, stated, strict=True)):
        shape: list[Expr] = []
        for axis, value in enumerate(leaf.shape):
            size = said[axis] if said is not None else None
            if size is None:
                constant = leaf.group in parameters
                if before:
                    constant = all(str(p.dims[index][axis]) == str(value) for p in before)
                if value == 0 or mode is False or constant:
                    size = Expr.const(value)
                else:
                    size = choice.new_symbol(value)
            shape.append(size)
        choice.dims.append(tuple(shape))
    # An equality shapes the program (t = 4*k), so it is substituted and not only checked; in the
    # other constraints too, which therefore come first.
    choice.guards += [guard for guard in constraints if guard.relation != "=="]
    for guard in constraints:
        if guard.relation != "==":
            continue
        if choice.unify(guard.left, guard.right, guard.reason, "", even_fixed=True) is None:
            choice.guards.append(guard)
    if not before and parameters:
        choice.notes.append(_parameters_note(leaves, parameters))
    return choice


def choice_of(plain: tuple[Any, ...], leaves: Sequence[Leaf]) -> Choice | None:
    """The choice that was `plain`, for other sizes; None where these do not fit it."""
    dims, guards, notes, fixed, issued = plain
    pattern = Pattern(
        tuple(leaf.name for leaf in leaves), dims, tuple(Guard(*row) for row in guards)
    )
    values = pattern.solve([leaf.shape for leaf in leaves])
    if values is None:
        return None
    return Choice(
        leaves,
        list(dims),
        dict(zip(pattern.symbols, values, strict=True)),
        frozenset(fixed),
        list(pattern.guards),
        [Note(*row) for row in notes],
        issued,
    )


def _parameters_note(leaves: Sequence[Leaf], groups: frozenset[int]) -> Note:
    arguments = dict.fromkeys(
        re.split(r"[\[.]", leaf.name)[0] for leaf in leaves if leaf.group in groups
    )
    return Note(
        f"the sizes of {', '.join(arguments)} are constants",
        "the argument is used as parameters; a call with other sizes makes them symbols",
    )


def parameter_groups(leaves: Sequence[Leaf]) -> frozenset[int]:
    """The arguments (by `Leaf.group`) that have as many leaves and shapes as parameters do.

    Caches of keys and values have many leaves of few shapes, and batches have integers.
    """
    return frozenset(
        group for group, members in _groups(leaves).items() if _are_like_parameters(members)
    )


def _groups(leaves: Sequence[Leaf]) -> dict[int, list[Leaf]]:
    groups: dict[int, list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf.group, []).append(leaf)
    return groups


def _are_like_parameters(leaves: Sequence[Leaf]) -> bool:
    arrays = [leaf for leaf in leaves if leaf.shape]
    shapes = {leaf.shape for leaf in arrays}
    are_several = len(shapes) > 2 or len(set(map(len, shapes))) > 1  # matrices, biases, scales
    if len(leaves) < PARAMETER_LEAVES or not are_several:
        return False
    return len(leaves) >= MANY_LEAVES or all(
        jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in arrays
    )


def data_groups(leaves: Sequence[Leaf], weights: set[int]) -> frozenset[int]:
    """Those of `parameter_groups` that are data after all.

    `weights`: leaves that the program uses as weights. Parameters are arguments with some weights
    (of many leaves an eighth: a program may combine the others first), and arguments of just the
    same shapes (gradients, moments of an optimiser).
    """
    groups = parameter_groups(leaves)
    members: dict[int, list[int]] = {group: [] for group in groups}
    for index, leaf in enumerate(leaves):
        if leaf.group in groups:
            members[leaf.group].append(index)
    sure = {group for group, found in members.items() if _have_weights(found, weights)}
    known = {leaves[k].shape for group in sure for k in members[group]}
    return frozenset(
        group
        for group in groups - sure
        if not {leaves[k].shape for k in members[group] if leaves[k].shape} <= known
    )


def _have_weights(members: Sequence[int], weights: set[int]) -> bool:
    share = 8 if len(members) >= MANY_LEAVES else 2
    return share * len(weights.intersection(members)) >= len(members)


def _as_order(a: Expr, b: Expr) -> tuple[Expr, str, Expr]:
    """`t == min(t, 512)` as `512 >= t`; other equations as they are."""
    for size, bounded in ((a, b), (b, a)):
        atom = bounded.lone_atom
        if atom is not None and atom.op in ("min", "max") and size in atom.args:
            other = atom.args[atom.args[0] == size]
            return (other, ">=", size) if atom.op == "min" else (size, ">=", other)
    return a, "==", b


def _within_bounds(size: Expr, other: Expr) -> Expr:
    """`e` for a size `max(e, 2)` that equals 4, or `min(e, 8)`: the bound is not reached."""
    while other.is_const and (atom := size.lone_atom) is not None:
        bounds = [k for k, bound in enumerate(atom.args) if bound.is_const]
        if atom.op not in ("max", "min") or len(bounds) != 1:
            break
        bound = atom.args[bounds[0]].value
        if bound >= other.value if atom.op == "max" else bound <= other.value:
            break
        size = atom.args[1 - bounds[0]]
    return size
