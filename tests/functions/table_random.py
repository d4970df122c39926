"""Cases of `jax.random`."""

from __future__ import annotations

import jax
from jax import random

from tests.functions.cases import Case, Leave, case


def shaped(name: str, *before: float) -> Case:
    """A function of a key and a shape."""
    function = getattr(random, name)
    return case(lambda key, x: function(key, *before, shape=x.shape), "key:", "n m")


def parameters(name: str, *arguments: str) -> Case:
    """A function of a key and parameters."""
    return case(getattr(random, name), "key:", *arguments)


RANDOM = {
    **{
        name: shaped(name)
        for name in (
            "bernoulli bits cauchy exponential gumbel laplace logistic lognormal maxwell normal rademacher "
            "uniform"
        ).split()
    },
    "ball": case(lambda key, x: random.ball(key, 3, shape=x.shape), "key:", "n m"),
    "bernoulli/array": parameters("bernoulli", "unit: n m"),
    "beta": parameters("beta", "positive: n m", "positive: n m"),
    "binomial": parameters("binomial", "count: n", "unit: n"),
    "bits/bytes": case(lambda key, x: random.bits(key, x.shape, "uint8"), "key:", "n m"),
    "categorical": parameters("categorical", "n m"),
    "categorical/several": case(
        lambda key, x: random.categorical(key, x, axis=0, shape=(3, x.shape[1])), "key:", "n m"
    ),
    "categorical/without": case(
        lambda key, x: random.categorical(key, x, shape=(2, x.shape[0]), replace=False), "key:", "n m+1"
    ),
    "chisquare": parameters("chisquare", "positive: n m"),
    "choice": case(lambda key, x: random.choice(key, x, (4,)), "key:", "n"),
    "choice/size": case(lambda key, x: random.choice(key, x, (x.shape[0],)), "key:", "n m"),
    "choice/without": case(
        lambda key, x: random.choice(key, x, (1,), replace=False), "key:", "n"
    ),
    "choice/half": case(
        lambda key, x: random.choice(key, x, ((x.shape[0] + 1) // 2,), replace=False), "key:", "n m"
    ),
    "choice/probabilities": case(
        lambda key, x, p: random.choice(key, x, (4,), p=p), "key:", "n", "probabilities: n"
    ),
    "choice/both": case(
        lambda key, x, p: random.choice(key, x, (1,), replace=False, p=p), "key:", "n", "probabilities: n"
    ),
    "choice/number": case(lambda key, x: random.choice(key, x.shape[0], (4,)), "key:", "n"),
    "clone": case("key: n"),
    "dirichlet": parameters("dirichlet", "positive: n m+1"),
    "double_sided_maxwell": case(
        lambda key, x: random.double_sided_maxwell(key, 0.5, 2.0, x.shape), "key:", "n m"
    ),
    "f": parameters("f", "above: n", "above: n"),
    "fold_in": case("key:", "whole:"),
    "fold_in/each": case(jax.vmap(random.fold_in), "key: n", "whole: n"),
    "gamma": parameters("gamma", "positive: n m"),
    "generalized_normal": shaped("generalized_normal", 1.5),
    "geometric": parameters("geometric", "unit: n m"),
    "key": case("whole:"),
    "PRNGKey": case("whole:"),
    "key_data": case("key: n"),
    "loggamma": parameters("loggamma", "positive: n m"),
    "multinomial": parameters("multinomial", "count: n", "probabilities: n 3"),
    "multivariate_normal": parameters("multivariate_normal", "n", "definite: n n"),
    "normal/half": case(lambda key, x: random.normal(key, x.shape, "bfloat16"), "key:", "n m"),
    "normal/keys": case(jax.vmap(lambda key: random.normal(key, (3,))), "key: n"),
    "orthogonal": case(lambda key, x: random.orthogonal(key, x.shape[0]), "key:", "n", sizes=((5, 4), (1, 6), (9, 1), (20, 3))),
    "pareto": parameters("pareto", "positive: n m"),
    "permutation": parameters("permutation", "n m"),
    "permutation/independent": case(
        lambda key, x: random.permutation(key, x, axis=1, independent=True), "key:", "n m"
    ),
    "permutation/number": case(lambda key, x: random.permutation(key, x.shape[0]), "key:", "n"),
    "poisson": parameters("poisson", "positive: n m"),
    "randint": case(lambda key, x: random.randint(key, x.shape, 0, 10), "key:", "n m"),
    "randint/size": case(lambda key, x: random.randint(key, (7,), 0, x.shape[0]), "key:", "n"),
    "rayleigh": parameters("rayleigh", "positive: n m"),
    "split": case(random.split, "key:"),
    "split/size": case(lambda key, x: random.split(key, x.shape[0]), "key:", "n"),
    "t": parameters("t", "positive: n m"),
    "triangular": case(lambda key, x: random.triangular(key, -1.0, 0.5, 1.0, x.shape), "key:", "n m"),
    "truncated_normal": case(
        lambda key, x: random.truncated_normal(key, -1.0, 2.0, x.shape), "key:", "n m"
    ),
    "wald": parameters("wald", "positive: n m"),
    "weibull_min": shaped("weibull_min", 1.5, 2.0),
    "wrap_key_data": case("word: n 2"),
}  # fmt: skip

LEFT_OUT: Leave = {"gives no array": "key_dtype key_impl"}
