"""A sample of the random programs, and tests of the fuzzer itself."""

import signal

import jax
import pytest

import shlo_disc
from shlo_disc.jax.equations import at_sizes
from tests.fuzz import batches, complexes, control, ops
from tests.fuzz.check import check
from tests.fuzz.cut import SHARE
from tests.fuzz.facts import Facts
from tests.fuzz.generate import generate
from tests.fuzz.program import Argument, Block, Program, Step, Value
from tests.fuzz.shrink import shrunk, tidy

SAMPLE = range(3)


def assert_right(seeds, jobs):
    failures = [
        f"{outcome.failure}\n{generate(seed).script()}"
        for seed, outcome in batches.check_seeds(seeds, jobs)
        if outcome.failure and outcome.legal
    ]
    assert not failures, "\n\n".join(failures)


@pytest.mark.usefixtures("child_environment")
def test_random_programs_are_as_with_jax():
    assert_right(SAMPLE, jobs=1)


@pytest.mark.slow
@pytest.mark.usefixtures("child_environment")
@pytest.mark.parametrize("first", range(0, 3000, 20))
def test_many_random_programs_are_as_with_jax(first):
    assert_right(range(first, first + 20), jobs=2)


def one_step(text, dtype="float32", kind="unit"):
    """A program of one argument and one step."""
    shapes = ((2, 3), (5, 3))
    step = Step(("v2",), text, ("x1",))
    value = Value("v2", dtype, shapes, Facts(1))
    argument = Argument("x1", dtype, shapes, kind, 0)
    return Program(0, False, (argument,), Block((step,), ("v2",)), {"v2": value})


def test_a_program_is_a_function_of_its_seed():
    texts = {generate(7).script() for _ in range(3)}
    assert len(texts) == 1
    assert generate(8).script() not in texts


@pytest.mark.slow
def test_every_operation_is_drawn(monkeypatch):
    drawn = set()
    for table in (ops.TABLE, complexes.TABLE, control.TABLE):
        for maker, weight in list(table.items()):

            def counted(scope, maker=maker):
                found = maker(scope)
                if found is not None:
                    drawn.add(maker)
                return found

            monkeypatch.delitem(table, maker)
            monkeypatch.setitem(table, counted, weight)
    wanted = len(ops.TABLE) + len(complexes.TABLE) + len(control.TABLE)
    for seed in range(60):
        generate(seed)
        if len(drawn) == wanted:
            break
    assert len(drawn) == wanted, len(drawn)


def test_a_right_program_passes():
    outcome = check(one_step("jnp.abs($0) + 1.0"))
    assert outcome.failure is None
    assert outcome.compilations == 1


@pytest.mark.parametrize(
    ("wrong", "signature"),
    [
        (lambda f: lambda *x: jax.tree.map(lambda y: y + 2.0**-20, f(*x)), "exact float32"),
        (lambda f: lambda *x: jax.tree.map(lambda y: y.astype("float16"), f(*x)), "type"),
        (lambda f: lambda *x: list(f(*x)), "structure"),
    ],
)
def test_a_difference_is_found(monkeypatch, wrong, signature):
    monkeypatch.setattr(shlo_disc, "jit", lambda f: jax.jit(wrong(f)))
    failure = check(one_step("jnp.abs($0) + 1.0")).failure
    assert (failure.kind, failure.signature) == ("difference", signature)


def test_another_result_of_a_later_call_is_found(monkeypatch):
    calls = []

    def unstable(f):
        def called(*x):
            calls.append(x)
            return jax.tree.map(lambda y: y + (len(calls) > 2) * 2.0**-20, f(*x))

        called.warmup = lambda *_: None
        return called

    monkeypatch.setattr(shlo_disc, "jit", unstable)
    assert check(one_step("jnp.abs($0) + 1.0")).failure.kind == "unstable"


@pytest.mark.unsanitized
@pytest.mark.usefixtures("child_environment")
def test_a_crash_is_told_and_costs_one_program():
    crash = one_step(f"__import__('os').kill(__import__('os').getpid(), {int(signal.SIGSEGV)})")
    hang = one_step("__import__('time').sleep(60)")
    right = one_step("jnp.abs($0) + 1.0")
    with batches.Checker() as checker:
        failure = checker.check(crash).failure
        assert (failure.kind, failure.signature) == ("crash", "crash -11")
        assert checker.check(right).failure is None
    with batches.Checker(limit_s=5) as checker:
        assert checker.check(hang).failure.kind == "hang"


def test_a_program_is_made_small():
    programs = (tidy(generate(seed)) for seed in range(100))
    program = next(p for p in programs if "jnp.sort" in p.source() and not p.x64)

    def fails(candidate):
        """It is legal, and sorts."""
        try:
            jax.eval_shape(candidate.function(), *candidate.inputs(0))
        except Exception:
            return False
        return "jnp.sort" in candidate.source()

    small = shrunk(program, fails)
    assert fails(small)
    assert len(small.block.steps) <= 2, small.source()
    assert small.calls == 1


@pytest.mark.usefixtures("child_environment")
def test_programs_cut_at_random_are_as_with_jax(monkeypatch):
    monkeypatch.setenv(SHARE, "0.3")
    assert_right(range(100, 102), jobs=1)


def test_a_wrong_cut_is_found(monkeypatch):
    """XLA's share is run at the sizes of the call: numbers of another call are a difference."""
    monkeypatch.setenv(SHARE, "1")
    first = {}

    def stale(size, sizes):
        return first.setdefault(str(size), original(size, sizes))

    original = at_sizes._size
    monkeypatch.setattr(at_sizes, "_size", stale)
    program = one_step("jnp.full($0.shape, 2.0) + $0")
    assert check(program).failure.kind in ("difference", "error")
    monkeypatch.setattr(at_sizes, "_size", original)
    assert check(program).failure is None
