"""Cases of `jax.scipy`, without `linalg`."""

from __future__ import annotations

import jax.scipy.ndimage
import jax.scipy.optimize
import jax.scipy.sparse.linalg as iterative
from jax.scipy import signal, special, stats

from tests.functions.cases import Case, Leave, case, each

SPECIAL = {
    **each(
        "dawsn digamma erf erfc erfcx expi expit fresnel gamma gammaln gammasgn i0 i0e i1 i1e log_ndtr "
        "log_softmax loggamma logsumexp ndtr sici softmax",
        "n m",
    ),
    **each("entr exp1 factorial spence", "positive: n m"),
    "erfinv": case("open: n m"),
    **each("logit ndtri", "unit: n m"),
    **each(
        "beta betaln boxcox boxcox1p gammainc gammaincc kl_div owens_t poch rel_entr xlog1py xlogy",
        "positive: n m", "positive: n m",
    ),
    "comb": case("count: n m", "index(4): n m"),
    "bernoulli": case(lambda x: special.bernoulli(6) * x, "n 7"),
    "bessel_jn": case(lambda x: special.bessel_jn(x, v=2), "positive: n m"),
    "betainc": case("positive: n m", "positive: n m", "unit: n m"),
    "expn": case("count: n m", "positive: n m"),
    "hyp1f1": case("positive: n", "above: n", "open: n"),
    "hyp2f1": case("positive: n", "positive: n", "above: n", "open: n"),
    "multigammaln": case(lambda x: special.multigammaln(x, 3), "above: n m"),
    "polygamma": case("count: n m", "positive: n m"),
    "sph_harm_y": case(
        lambda k, t, p: special.sph_harm_y(k, k, t, p, n_max=4), "index(4): n", "unit: n", "unit: n"
    ),
    "wofz": case("n"),
    "zeta": case("above: n m", "above: n m"),
}  # fmt: skip

SIGNAL = {
    **each("convolve correlate", "n", "m"),
    "convolve/two": case(lambda x, y: signal.convolve(x, y, mode="same"), "n+2 m+1", "3 2"),
    "convolve2d": case("n+2 m+1", "3 2"),
    "correlate2d": case("n+2 m+1", "3 2", reason="which operand is larger is asked with <= and =="),
    "fftconvolve": case("n", "m", reason="an array of one element is a factor"),
    "detrend": case("n m+1", reason="the ends of the pieces are sizes in an array of NumPy"),
    "detrend/constant": case(lambda x: signal.detrend(x, type="constant"), "n m"),
    "csd": case(lambda x, y: signal.csd(x, y, nperseg=8), "n+16", "n+16", reason="JAX makes a number of Python of the end of the times"),
    "istft": case(lambda x: signal.istft(x, nperseg=8), "5 n+2"),
    "stft": case(lambda x: signal.stft(x, nperseg=8), "n+16", reason="JAX makes a number of Python of the end of the times"),
    "welch": case(lambda x: signal.welch(x, nperseg=8), "n+16", reason="JAX makes a number of Python of the end of the times"),
}  # fmt: skip


def solved(name: str) -> Case:
    """A linear system by an iterative method."""
    function = getattr(iterative, name)
    return case(
        lambda a, b: function(a, b, maxiter=20)[0], "definite: n n", "n",
        sizes=((5, 4), (1, 6), (9, 1), (20, 3)),
    )  # fmt: skip


OTHERS: dict[str, tuple[dict[str, Case], Leave]] = {
    "jax.scipy.ndimage": (
        {
            "map_coordinates": case(
                lambda x, i, j: jax.scipy.ndimage.map_coordinates(x, [i, j], order=1), "n m", "positive: 7", "positive: 7"
            )
        },
        {},
    ),
    "jax.scipy.integrate": ({"trapezoid": case("n m")}, {}),
    "jax.scipy.cluster.vq": ({"vq": case("n 3", "m 3")}, {}),
    "jax.scipy.fft": (each("dct dctn idct idctn", "n m"), {}),
    "jax.scipy.optimize": (
        {
            "minimize": case(
                lambda x: jax.scipy.optimize.minimize(
                    lambda y: ((y - 1) ** 2).sum(), x, method="BFGS", options={"maxiter": 3}
                ).x,
                "n",
            )
        },
        {},
    ),
    "jax.scipy.sparse.linalg": ({name: solved(name) for name in "bicgstab cg gmres".split()}, {}),
}  # fmt: skip

PLACED = {
    "jax.scipy.stats.cauchy": "cdf isf logcdf logpdf logsf pdf ppf sf",
    "jax.scipy.stats.expon": "cdf logcdf logpdf logsf pdf ppf sf",
    "jax.scipy.stats.gumbel_l": "cdf logcdf logpdf logsf pdf ppf sf",
    "jax.scipy.stats.gumbel_r": "cdf logcdf logpdf logsf pdf ppf sf",
    "jax.scipy.stats.laplace": "cdf logpdf pdf",
    "jax.scipy.stats.logistic": "cdf isf logpdf pdf ppf sf",
    "jax.scipy.stats.norm": "cdf isf logcdf logpdf logsf pdf ppf sf",
    "jax.scipy.stats.uniform": "cdf logpdf pdf ppf",
}
"""Distributions of a place and a scale."""

ONE_PARAMETER = {
    "jax.scipy.stats.chi2": "cdf logcdf logpdf logsf pdf sf",
    "jax.scipy.stats.gamma": "cdf logcdf logpdf logsf pdf sf",
    "jax.scipy.stats.gennorm": "cdf logpdf pdf",
    "jax.scipy.stats.pareto": "cdf logcdf logpdf logsf pdf ppf sf",
    "jax.scipy.stats.t": "logpdf pdf",
    "jax.scipy.stats.vonmises": "logpdf pdf",
}

WITH_ARGUMENTS = {
    "jax.scipy.stats.bernoulli": {
        **each("cdf logpmf pmf", "index(2): n m", "unit: m"),
        "ppf": case("unit: n m", "unit: m"),
    },
    "jax.scipy.stats.beta": each(
        "cdf logcdf logpdf logsf pdf sf", "unit: n m", "positive: m", "positive: n 1"
    ),
    "jax.scipy.stats.betabinom": each("logpmf pmf", "whole: n", "count: n", "positive: n", "positive: n"),
    "jax.scipy.stats.binom": each("logpmf pmf", "whole: n", "count: n", "unit: n"),
    "jax.scipy.stats.dirichlet": each("logpdf pdf", "probabilities: m", "positive: m"),
    "jax.scipy.stats.geom": each("logpmf pmf", "count: n m", "unit: m"),
    "jax.scipy.stats.multinomial": each("logpmf pmf", "index(4): m", "count:", "probabilities: m"),
    "jax.scipy.stats.multivariate_normal": each(
        "logpdf pdf", "m n", "n", "definite: n n", sizes=((5, 4), (2, 6), (9, 1), (20, 3))
    ),
    "jax.scipy.stats.nbinom": each("logpmf pmf", "whole: n m", "count: m", "unit: n 1"),
    "jax.scipy.stats.poisson": {
        **each("cdf logpmf pmf", "whole: n m", "positive: m"),
        "entropy": case("positive: n m"),
    },
    "jax.scipy.stats.truncnorm": {
        **{
            name: case(lambda x, f=getattr(stats.truncnorm, name): f(x, -1.0, 2.0), "n m")
            for name in "cdf logcdf logpdf logsf pdf sf".split()
        },
    },
    "jax.scipy.stats.wrapcauchy": each("logpdf pdf", "positive: n m", "unit: m"),
    "jax.scipy.stats": {
        "mode": case("index(3): n m"),
        "rankdata": case("index(5): n m"),
        "rankdata/axis": case(lambda x: stats.rankdata(x, "dense", axis=0), "index(5): n m"),
        "sem": case("n+1 m"),
    },
}  # fmt: skip


def distribution(names: str, *parameters: str) -> dict[str, Case]:
    """Functions of a distribution; `ppf` and `isf` take probabilities."""
    return {
        name: case("unit: n m" if name in ("ppf", "isf") else "n m", *parameters)
        for name in names.split()
    }


MODULES: dict[str, tuple[dict[str, Case], Leave]] = {
    "jax.scipy.special": (SPECIAL, {}),
    "jax.scipy.signal": (SIGNAL, {}),
    **OTHERS,
    **{module: (distribution(names, "m", "positive: n 1"), {}) for module, names in PLACED.items()},
    **{module: (distribution(names, "above: m"), {}) for module, names in ONE_PARAMETER.items()},
    **{module: (cases, {}) for module, cases in WITH_ARGUMENTS.items()},
}
