"""Models of numpyro: densities and their gradients, potential functions, steps of inference."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.libraries.harness import REASON, check

numpyro = pytest.importorskip("numpyro", reason=REASON)
optax = pytest.importorskip("optax", reason=REASON)

import numpyro.distributions as dist  # noqa: E402
from numpyro import handlers  # noqa: E402
from numpyro.infer import SVI, Predictive, Trace_ELBO  # noqa: E402
from numpyro.infer.autoguide import AutoLaplaceApproximation, AutoNormal  # noqa: E402
from numpyro.infer.hmc import hmc  # noqa: E402
from numpyro.infer.hmc_util import velocity_verlet  # noqa: E402
from numpyro.infer.util import initialize_model, log_density  # noqa: E402

KEY = jax.random.key(0)


def logistic_regression(x, y=None):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(x.shape[1]), 1.0).to_event(1))
    b = numpyro.sample("b", dist.Normal(0.0, 5.0))
    return numpyro.sample("y", dist.Bernoulli(logits=x @ w + b), obs=y)


def labelled(b, t, rng):
    return rng.standard_normal((b, 4), "f"), rng.integers(0, 2, (b,)).astype("f")


WEIGHTS = {"w": jnp.array([0.1, -0.4, 0.3, 0.7]), "b": jnp.array(0.2)}


def gradient_of(model):
    return jax.value_and_grad(lambda params, *data: log_density(model, data, {}, params)[0])


@pytest.mark.slow
def test_log_density_of_a_logistic_regression():
    check(gradient_of(logistic_regression), lambda b, t, rng: (WEIGHTS, *labelled(b, t, rng)))


def eight_schools(sigma, y=None):
    """The README of numpyro."""
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", sigma.shape[0]):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def schools(b, t, rng):
    params = {
        "mu": np.float32(0.3), "tau": np.float32(1.2), "theta": rng.standard_normal((b,), "f"),
    }  # fmt: skip
    return params, np.abs(rng.standard_normal((b,), "f")) + 0.5, rng.standard_normal((b,), "f")


@pytest.mark.slow
def test_log_density_of_eight_schools():
    check(gradient_of(eight_schools), schools)


def hierarchical(group, x, y=None):
    """Varying intercepts and slopes: groups are five, observations any number."""
    mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    with numpyro.plate("groups", 5):
        a = numpyro.sample("a", dist.Normal(mu, sigma))
        b = numpyro.sample("b", dist.StudentT(3.0, 0.0, 1.0))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(a[group] + b[group] * x, noise), obs=y)


def grouped(b, t, rng):
    return (
        rng.integers(0, 5, (b,), "i4"), rng.standard_normal((b,), "f"),
        rng.standard_normal((b,), "f"),
    )  # fmt: skip


HIERARCHY = {
    "mu": jnp.array(0.1), "sigma": jnp.array(0.8), "noise": jnp.array(0.5),
    "a": jnp.linspace(-1, 1, 5), "b": jnp.linspace(0.5, -0.5, 5),
}  # fmt: skip


def test_log_density_of_a_hierarchical_model():
    check(gradient_of(hierarchical), lambda b, t, rng: (HIERARCHY, *grouped(b, t, rng)), count=2)


def potential(model, example):
    """(potential of unconstrained parameters and data, first parameters)."""
    info = initialize_model(jax.random.PRNGKey(0), model, model_args=example, dynamic_args=True)
    return info.potential_fn, info.param_info.z


@pytest.mark.slow
def test_potential_function():
    """What HMC differentiates: parameters are transformed to the real line."""
    energy, z = potential(hierarchical, grouped(3, 0, np.random.default_rng(0)))

    def gradient(z, *data):
        return jax.value_and_grad(energy(*data))(z)

    check(gradient, lambda b, t, rng: (z, *grouped(b, t, rng)))


MODELS = {}


def model(function):
    MODELS[function.__name__] = function
    return function


@model
def poisson_regression(x, y):
    w = numpyro.sample("w", dist.Laplace(jnp.zeros(4), 1.0).to_event(1))
    numpyro.sample("y", dist.Poisson(jnp.exp(0.1 * x @ w)), obs=jnp.abs(jnp.round(y * 2)))


@model
def negative_binomial(x, y):
    w = numpyro.sample("w", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
    c = numpyro.sample("c", dist.Gamma(2.0, 1.0))
    numpyro.sample("y", dist.NegativeBinomial2(jnp.exp(0.1 * x @ w), c), obs=jnp.abs(jnp.round(y)))


@model
def beta_binomial(x, y):
    p = numpyro.sample("p", dist.Beta(2.0, 3.0))
    numpyro.sample("y", dist.Binomial(10, p), obs=jnp.clip(jnp.round(jnp.abs(y) * 3), 0, 10))


@model
def categorical(x, y):
    w = numpyro.sample("w", dist.Normal(jnp.zeros((4, 3)), 1.0).to_event(2))
    numpyro.sample("y", dist.Categorical(logits=x @ w), obs=(jnp.abs(y) > 0.5).astype(int))


@model
def mixture(x, y):
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.ones(3)))
    means = numpyro.sample("means", dist.Normal(jnp.zeros(3), 2.0).to_event(1))
    with numpyro.plate("data", y.shape[0]):
        mixing = dist.Categorical(probs=weights)
        numpyro.sample("y", dist.MixtureSameFamily(mixing, dist.Normal(means, 1.0)), obs=y)


@model
def autoregressive(x, y):
    """A state space model through numpyro's scan."""
    from numpyro.contrib.control_flow import scan

    a = numpyro.sample("a", dist.Uniform(-1.0, 1.0))

    def transition(before, now):
        numpyro.sample("y", dist.Normal(a * before, 1.0), obs=now)
        return now, None

    scan(transition, jnp.zeros(()), y)


@model
def censored(x, y):
    loc = numpyro.sample("loc", dist.Normal(0.0, 1.0))
    numpyro.sample("y", dist.TruncatedNormal(loc, 1.0, low=-10.0), obs=y)
    numpyro.factor("penalty", -(loc**2) * y.shape[0])


def features(b, t, rng):
    return rng.standard_normal((b, 4), "f"), rng.standard_normal((b,), "f")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_potential_of(name):
    energy, z = potential(MODELS[name], features(3, 0, np.random.default_rng(0)))

    def gradient(z, *data):
        return jax.value_and_grad(energy(*data))(z)

    check(gradient, lambda b, t, rng: (z, *features(b, t, rng)), tolerance=1e-3)


@pytest.mark.parametrize(
    "guide",
    [
        pytest.param(guide, marks=pytest.mark.slow)
        for guide in (AutoNormal, AutoLaplaceApproximation)
    ],
)
def test_step_of_variational_inference(guide):
    default = guide is AutoNormal  # in every run of the tests, so it is small
    optimizer = optax.sgd(1e-2) if default else optax.adam(1e-2)
    svi = SVI(logistic_regression, guide(logistic_regression), optimizer, Trace_ELBO())
    state = svi.init(jax.random.PRNGKey(1), *labelled(3, 0, np.random.default_rng(0)))
    check(
        svi.update,
        lambda b, t, rng: (state, *labelled(b, t, rng)),
        tolerance=1e-3,
        count=2 if default else 4,
    )


@pytest.mark.slow
def test_step_with_an_optimizer_of_numpyro():
    """Its state is a named tuple with a flattening of its own; several particles."""
    guide = AutoNormal(logistic_regression)
    svi = SVI(logistic_regression, guide, numpyro.optim.Adam(1e-2), Trace_ELBO(num_particles=3))
    state = svi.init(jax.random.PRNGKey(1), *labelled(3, 0, np.random.default_rng(0)))
    check(svi.update, lambda b, t, rng: (state, *labelled(b, t, rng)), tolerance=1e-3)


@pytest.mark.slow
def test_leapfrog():
    energy, z = potential(hierarchical, grouped(3, 0, np.random.default_rng(0)))

    def kinetic(inverse_mass, r):
        return 0.5 * sum((inverse_mass * leaf**2).sum() for leaf in jax.tree.leaves(r))

    def step(z, r, *data):
        init, update = velocity_verlet(energy(*data), kinetic)
        return update(0.1, 1.0, init(z, r))

    r = jax.tree.map(jnp.ones_like, z)
    check(step, lambda b, t, rng: (z, r, *grouped(b, t, rng)))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["HMC", "NUTS"])
def test_transition_of(algorithm):
    energy, z = potential(logistic_regression, labelled(3, 0, np.random.default_rng(0)))
    init, sample = hmc(potential_fn_gen=energy, algo=algorithm)
    first = labelled(3, 0, np.random.default_rng(0))
    state = init(
        z, num_warmup=5, rng_key=jax.random.PRNGKey(2), model_args=first, step_size=0.1,
        trajectory_length=0.5, max_tree_depth=3,
    )  # fmt: skip

    def step(state, *data):
        return sample(state, model_args=data)

    check(step, lambda b, t, rng: (state, *labelled(b, t, rng)), tolerance=1e-2)


@pytest.mark.slow
def test_predictive():
    samples = {"w": jnp.ones((5, 4)) * 0.2, "b": jnp.zeros(5)}

    def predict(key, x):
        return Predictive(logistic_regression, samples)(key, x)["y"]

    check(predict, lambda b, t, rng: (jax.random.PRNGKey(3), rng.standard_normal((b, 4), "f")))


@pytest.mark.slow
def test_simulation():
    """A model run forward: sampling from its priors."""

    def simulate(key, x):
        with handlers.seed(rng_seed=key):
            return logistic_regression(x)

    check(simulate, lambda b, t, rng: (KEY, rng.standard_normal((b, 4), "f")))
