"""Loops and branches: bodies are random blocks of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.fuzz import facts as known
from tests.fuzz.facts import Facts, join
from tests.fuzz.generate import CALLS, Draft, Environment, Recorded, Rule, Scope
from tests.fuzz.program import Body, Value

SCALAR = ((),) * CALLS


def _carried(s: Scope) -> list[Value]:
    count = s.rng.randint(1, 3)
    chosen = [v for _ in range(count) if (v := s.find()) is not None]
    return list({v.name: v for v in chosen}.values())


def _parameters(s: Scope, like: Sequence[Value]) -> list[Value]:
    return [s.define("c", v.dtype, v.shapes, s.names.facts[v.name]) for v in like]


def _next(inner: Scope, parameters: Sequence[Value]) -> list[Value]:
    """A value of the same type for every parameter, computed where there is one."""
    results = []
    for p in parameters:
        same = [v for v in inner.made if (v.dtype, v.shapes) == (p.dtype, p.shapes)]
        shaped = [v for v in inner.made if v.shapes == p.shapes]
        found = None
        if same:
            found = inner.rng.choice(same)
        elif shaped:
            found = _converted(inner, inner.rng.choice(shaped), p)
        if found is None and not known.is_bool(p.dtype):
            made = inner.add(_changed(p))
            found = made[0] if made else None
        results.append(found or p)
    return results


def _changed(p: Value) -> Draft:
    def real(f: Facts) -> Facts | None:
        if known.is_complex(p.dtype) and f.special:
            return None
        if known.is_float(p.dtype):
            return Facts(0.5, 0.5 * f.error, None, f.special)
        return Facts(f.magnitude + 1)

    from tests.fuzz.complexes import INSIDE
    from tests.fuzz.ops import each

    if known.is_complex(p.dtype):  # `tanh` has poles there
        text = f"{INSIDE} * 0.5"
    else:
        text = "jnp.tanh($0) * 0.5" if known.is_float(p.dtype) else "$0 + 1"
    return Draft(text, [p], each(real, 8))


def _converted(inner: Scope, v: Value, p: Value) -> Value | None:
    if known.is_float(v.dtype) and not known.is_float(p.dtype):
        return None
    from tests.fuzz.ops import each

    def real(f: Facts) -> Facts:
        wraps = known.is_unsigned(p.dtype)
        return Facts(known.largest(p.dtype)) if wraps else f

    made = inner.add(Draft(f"$0.astype('{p.dtype}')", [v], each(real)))
    return made[0] if made else None


def _analyze(recorded: Sequence[Recorded], environment: Environment) -> bool:
    return all(r.analyze(environment) for r in recorded)


def _loop(
    trips: int,
    carried: int,
    parameters: Sequence[Value],
    inner: Scope,
    results: Sequence[Value],
    also: Callable[[Environment], list[Facts]] = lambda e: [],
    at: int = 0,
) -> Rule:
    """Facts of a loop: its body is followed as often as it may run, until they stay."""
    names = [p.name for p in parameters]
    recorded = list(inner.recorded)

    def rule(environment, operands, types):
        state = [environment[n] for n in operands[at : at + carried]]
        for _ in range(trips):
            environment |= dict(zip(names, state, strict=True))
            if not _analyze(recorded, environment):
                return None
            after = [join(f, environment[r.name]) for f, r in zip(state, results, strict=True)]
            if after == state:
                break
            state = after
        return [*state, *also(environment)]

    return rule


def _tuple(names: Sequence[str]) -> str:
    return "(" + "".join(f"{n}, " for n in names) + ")"


def _operands(start: int, count: int) -> str:
    return _tuple([f"${start + i}" for i in range(count)])


def fori(s: Scope) -> Draft | None:
    carry = _carried(s)
    bound = s.find(lambda v: v.dtype == "int32" and v.rank == 0)
    sized = s.find(lambda v: v.rank > 0)
    parameters = _parameters(s, carry)
    dynamic = bound is not None and s.chance(0.5)
    by_size = not dynamic and sized is not None and s.chance(0.3)
    trips = s.rng.randint(0, 4)
    limit, extra = str(trips), []
    if dynamic:
        limit, extra, trips = f"jnp.clip(${len(carry)}, 0, 4)", [bound], 4
    elif by_size:
        axis = s.rng.randrange(sized.rank)
        limit, extra = f"${len(carry)}.shape[{axis}]", [sized]
        trips = max(sized.sizes(axis))
    counter = s.define("i", "int32", SCALAR, Facts(max(trips, 1)))
    if s.x64 and not dynamic:
        return None  # the counter is int64 there; while_loop covers it
    inner = s.inner([*parameters, counter])
    inner.grow(s.rng.randint(1, 4))
    results = _next(inner, parameters)
    body = Body(
        s.names.fresh("f"),
        f"{counter.name}, c",
        f"{_tuple([p.name for p in parameters])} = c",
        (counter.name, *(p.name for p in parameters)),
        inner.block([r.name for r in results]),
        _operands(0, len(results)),
    )
    text = f"lax.fori_loop(0, {limit}, $F0, {_operands(0, len(carry))})"
    rule = _loop(max(trips, 1), len(carry), parameters, inner, results)
    return Draft(text, [*carry, *extra], rule, len(carry), (body,), True)


def while_loop(s: Scope) -> Draft | None:
    carry = _carried(s)
    if len(carry) == 0:
        return None
    parameters = _parameters(s, carry)
    dtype = s.rng.choice([t for t in s.dtypes if "int" in t])
    trips = s.rng.randint(1, 4)
    counter = s.define("i", dtype, SCALAR, Facts(trips))
    watched = next((i for i, v in enumerate(carry) if "int" in v.dtype), None)
    inner = s.inner([*parameters, counter])
    inner.grow(s.rng.randint(1, 4))
    results = _next(inner, parameters)
    condition = f"c[-1] < {trips}"
    if watched is not None and s.chance(0.5):
        condition = f"({condition}) & (jnp.sum(c[{watched}]) % 7 != 3)"
    body = Body(
        s.names.fresh("f"),
        "c",
        f"{_tuple([*(p.name for p in parameters), counter.name])} = c",
        (counter.name, *(p.name for p in parameters)),
        inner.block([r.name for r in results]),
        f"({''.join(f'${i}, ' for i in range(len(results)))}{counter.name} + 1)",
    )
    init = "".join(f"${i}, " for i in range(len(carry)))
    start = f"jnp.array(0, '{dtype}')"
    text = f"lax.while_loop(lambda c: {condition}, $F0, ({init}{start}))"
    rule = _loop(trips, len(carry), parameters, inner, results, lambda e: [Facts(trips)])
    return Draft(text, carry, rule, len(carry) + 1, (body,), True)


def scan(s: Scope) -> Draft | None:
    """Over the rows of one or two arrays, with results stacked."""
    carry = _carried(s)
    over = s.pick(lambda v: v.rank > 0 and max(v.sizes(0)) <= 33)
    rows = [over]
    second = s.find(lambda v: v.rank > 0 and v.sizes(0) == over.sizes(0))
    if second is not None and s.chance(0.4) and second.name != over.name:
        rows.append(second)
    parameters = _parameters(s, carry)
    row = [s.define("r", v.dtype, tuple(t[1:] for t in v.shapes), v.facts) for v in rows]
    inner = s.inner([*parameters, *row])
    inner.grow(s.rng.randint(1, 4))
    results = _next(inner, parameters)
    stacked = [v for v in inner.made if s.chance(0.4)][:2] or inner.made[-1:]
    if any(v.rank > 3 for v in stacked):
        return None
    everything = [*results, *stacked]
    body = Body(
        s.names.fresh("f"),
        "c, x",
        f"{_tuple([p.name for p in parameters])}, {_tuple([r.name for r in row])} = c, x",
        tuple(v.name for v in [*parameters, *row]),
        inner.block([r.name for r in everything]),
        f"{_operands(0, len(results))}, {_operands(len(results), len(stacked))}",
    )
    reverse = ", reverse=True" if s.chance(0.25) else ""
    text = (
        f"(lambda c, y: (*c, *y))(*lax.scan($F0, {_operands(0, len(carry))}, "
        f"{_operands(len(carry), len(rows))}{reverse}))"
    )
    names = [v.name for v in stacked]
    inside = _loop(
        max(1, *over.sizes(0)),
        len(carry),
        parameters,
        inner,
        results,
        lambda e: [e[n] for n in names],
    )

    def rule(environment, operands, types):
        pairs = zip(row, operands[len(carry) :], strict=True)
        environment |= {r.name: environment[n] for r, n in pairs}
        return inside(environment, operands, types)

    return Draft(text, [*carry, *rows], rule, len(carry) + len(stacked), (body,), True)


def branches(s: Scope) -> Draft | None:
    """cond and switch: every branch gives values of the same types."""
    like = _carried(s)
    if not like:
        return None
    chooser = s.find(lambda v: v.rank == 0 and not known.is_float(v.dtype) and v.facts.exact)
    boolean = chooser is not None and (known.is_bool(chooser.dtype) or s.chance(0.4))
    count = 2 if boolean else s.rng.randint(1, 3)
    scopes, bodies, results = [], [], []
    for _ in range(count):
        parameters = _parameters(s, like)
        inner = s.inner(parameters)
        inner.grow(s.rng.randint(0, 3))
        chosen = _next(inner, parameters)
        scopes.append((inner, parameters))
        results.append(chosen)
        bodies.append(
            Body(
                s.names.fresh("f"),
                ", ".join(p.name for p in parameters),
                "",
                tuple(p.name for p in parameters),
                inner.block([r.name for r in chosen]),
                _operands(0, len(chosen)),
            )
        )
    if chooser is None:
        return None
    n = len(like)
    passed = ", ".join(f"${i}" for i in range(n))
    if boolean:
        what = f"${n}" if known.is_bool(chooser.dtype) else f"${n} > 1"
        text = f"lax.cond({what}, $F0, $F1, {passed})"
    else:
        functions = ", ".join(f"$F{i}" for i in range(count))
        text = f"lax.switch(${n}, [{functions}], {passed})"

    def rule(environment, operands, types):
        if not environment[operands[n]].exact:
            return None
        found: list[list[Facts]] = []
        for (inner, parameters), chosen in zip(scopes, results, strict=True):
            environment |= {
                p.name: environment[o] for p, o in zip(parameters, operands[:n], strict=True)
            }
            if not _analyze(inner.recorded, environment):
                return None
            found.append([environment[c.name] for c in chosen])
        return [join(*each) for each in zip(*found, strict=True)]

    return Draft(text, [*like, chooser], rule, n, tuple(bodies), True)


def mapped(s: Scope) -> Draft | None:
    """A body under vmap or lax.map: batching rules."""
    x = s.pick(lambda v: v.rank > 0 and v.rank < 4 and max(v.sizes(0)) <= 33)
    row = s.define("r", x.dtype, tuple(t[1:] for t in x.shapes), x.facts)
    inner = s.inner([row])
    inner.grow(s.rng.randint(1, 3))
    if not inner.made:
        return None
    result = inner.made[-1]
    body = Body(s.names.fresh("f"), row.name, "", (row.name,), inner.block([result.name]), "$0")

    def rule(environment, operands, types):
        environment[row.name] = environment[operands[0]]
        return [environment[result.name]] if _analyze(inner.recorded, environment) else None

    name = s.rng.choice(["jax.vmap($F0)($0)", "jax.vmap($F0)($0)", "lax.map($F0, $0)"])
    return Draft(name, [x], rule, 1, (body,))


TABLE = {fori: 3, while_loop: 3, scan: 3, branches: 4, mapped: 2}
