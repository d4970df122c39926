"""Programs of diffrax and optimistix, whose errors call back into Python (`equinox.error_if`)."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from tests.libraries.harness import REASON, check, close

diffrax = pytest.importorskip("diffrax", reason=REASON)
optx = pytest.importorskip("optimistix", reason=REASON)


def field(t, y, rate):
    return jnp.sin(t) - rate * y


def unit(rng, *sizes):
    return rng.uniform(0.1, 1, sizes).astype("f")


def solve(y0, rate, end=1.0, solver=None, **options):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field), solver or diffrax.Heun(), 0.0, end, 0.1, y0, args=rate, **options
    )


@pytest.mark.slow
def test_fixed_steps():
    check(lambda y0, rate: solve(y0, rate).ys, lambda b, t, rng: (unit(rng, b, t), unit(rng, t)))


@pytest.mark.slow
def test_an_error_of_the_solver_is_raised():
    f = shlo_disc.jit(lambda y0, end: solve(y0, y0, end, max_steps=8).ys)
    for n in (3, 5):
        y0 = np.ones(n, np.float32)
        assert f(y0, 0.5).shape == (1, n)
        with pytest.raises(jax.errors.JaxRuntimeError, match="maximum number of solver steps"):
            jax.block_until_ready(f(y0, 2.0))
    assert f.cache_info().misses == 1


@pytest.mark.slow
def test_gradient_through_fixed_steps():
    def gradient(y0, rate):
        return jax.value_and_grad(lambda y0: (solve(y0, rate, max_steps=16).ys ** 2).sum())(y0)

    check(gradient, lambda b, t, rng: (unit(rng, b, t), unit(rng, t)), count=2)


@pytest.mark.slow
def test_adaptive_steps_saved_at_times():
    """`len(ts)` and `math.sqrt(y.size)` of the norm ask for numbers: other sizes, another version.

    With equal times and another split of the size nothing is compiled again.
    """

    def adaptive(y0, rate, ts):
        return solve(
            y0, rate, saveat=diffrax.SaveAt(ts=ts),
            stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-6),
        ).ys  # fmt: skip

    f, g = shlo_disc.jit(adaptive), jax.jit(adaptive)
    for (b, t, times), versions in (((2, 6, 5), 1), ((4, 3, 5), 1), ((4, 3, 7), 2)):
        rng = np.random.default_rng([b, t])
        args = unit(rng, b, t), unit(rng, t), np.linspace(0, 1, times, dtype="f")
        close(f(*args), g(*args), f"{b} x {t}", 1e-3)
        assert f.cache_info().misses == versions, f.guards()


@pytest.mark.slow
def test_fixed_point_and_minimum():
    def found(y, p):
        point = optx.fixed_point(
            lambda y, p: 0.5 * jnp.cos(y) + p, optx.FixedPointIteration(1e-5, 1e-5), y, args=p
        )
        least = optx.minimise(
            lambda x, p: jnp.mean((x[0] - p) ** 2) + x[1] ** 2,
            optx.BFGS(1e-4, 1e-4), jnp.ones(2), args=p,
        )  # fmt: skip
        return point.value, least.value

    check(found, lambda b, t, rng: (unit(rng, b + 1), unit(rng, b + 1)), tolerance=1e-3)


@pytest.mark.parametrize("solver", ["newton", "levenberg"])
def test_what_needs_linear_algebra_calls_lapack(solver):

    def newton(y, p):
        return optx.root_find(
            lambda y, p: y - jnp.tanh(p * y) - p, optx.Newton(1e-5, 1e-5), y, args=p
        ).value

    def levenberg(y, p):
        return optx.least_squares(
            lambda x, p: x[0] * jnp.exp(-x[1] * p) - p,
            optx.LevenbergMarquardt(1e-4, 1e-4), jnp.ones(2), args=p,
        ).value + y.sum()  # fmt: skip

    program = {"newton": newton, "levenberg": levenberg}[solver]
    y = unit(np.random.default_rng(0), 4)
    f = shlo_disc.jit(program)
    for n in (4, 3):
        close(f(y[:n], y[:n]), jax.jit(program)(y[:n], y[:n]), solver)
    assert "@lapack_" in f.explain()


@pytest.mark.slow
def test_gradient_of_an_implicit_solver():
    root_finder = diffrax.VeryChord(rtol=1e-5, atol=1e-5, norm=optx.max_norm)

    def gradient(y0, rate):
        def loss(y0):
            solver = diffrax.ImplicitEuler(root_finder=root_finder)
            return (solve(y0, rate, solver=solver, max_steps=16).ys ** 2).sum()

        return jax.grad(loss)(y0)

    check(gradient, lambda b, t, rng: (unit(rng, t), unit(rng, t)), count=2, tolerance=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "root_find",
        pytest.param("least_squares", marks=pytest.mark.slow),
        pytest.param("fixed_point", marks=pytest.mark.slow),
    ],
)
def test_gradients_of_solutions(name):
    solvers = {
        "root_find": (lambda y, p: y**3 + y - p, optx.Newton(1e-5, 1e-5)),
        "least_squares": (lambda y, p: y**2 - p, optx.LevenbergMarquardt(1e-5, 1e-5)),
        "fixed_point": (lambda y, p: jnp.cos(y) * p / 2, optx.FixedPointIteration(1e-5, 1e-5)),
    }
    function, solver = solvers[name]

    def loss(p, y):
        return jnp.sin(getattr(optx, name)(function, solver, y, args=p).value).sum()

    check(
        jax.grad(loss), lambda b, t, rng: (unit(rng, t), np.ones(t, "f")), count=2, tolerance=1e-3
    )
