"""Cases of `jax.numpy`."""

from __future__ import annotations

import jax.numpy as jnp

from tests.functions.cases import Case, Leave, case, each

ELEMENTWISE = {
    **each(
        "abs absolute angle around astype atleast_1d atleast_2d atleast_3d cbrt ceil conj conjugate copy "
        "cos cosh deg2rad degrees exp exp2 expm1 fabs floor frexp i0 imag isfinite isinf isnan isneginf "
        "isposinf isreal iscomplex logical_not modf nan_to_num negative positive rad2deg radians real "
        "rint round sign signbit sin sinc sinh spacing square tan tanh trunc",
        "n m",
    ),
    **each("arctan arcsinh asinh atan matrix_transpose transpose fliplr flipud", "n m"),
    **each("log log10 log1p log2 sqrt reciprocal", "positive: n m"),
    **each("acos arccos arcsin asin arctanh atanh", "open: n m"),
    **each("acosh arccosh", "above: n m"),
    **each("bitwise_count bitwise_invert bitwise_not invert", "int: n m"),
    **each(
        "add arctan2 atan2 copysign divide equal float_power floor_divide fmax fmin fmod greater "
        "greater_equal heaviside hypot isclose less less_equal logaddexp logaddexp2 logical_and logical_or "
        "logical_xor maximum minimum mod multiply not_equal remainder subtract true_divide "
        "divmod allclose array_equal array_equiv nextafter",
        "n m", "n m",
    ),
    **each("pow power", "positive: n m", "m"),
    **each("bitwise_and bitwise_or bitwise_xor gcd lcm", "int: n m", "int: m"),
    **each(
        "bitwise_left_shift bitwise_right_shift left_shift right_shift ldexp", "int: n m", "whole: m"
    ),
    "astype": case(lambda x: jnp.astype(x, "int16"), "n m"),
    "permute_dims": case(lambda x: jnp.permute_dims(x, (1, 0)), "n m"),
    "clip": case(lambda x: jnp.clip(x, -1, 1), "n m"),
    "clip/arrays": case("n m", "m", "n 1"),
    "float_power": case("positive: n m", "n m"),
    "power/integer": case(lambda x: jnp.power(x, 3), "int: n m"),
    "where": case("bool: n m", "n 1", "m"),
    "where/size": case(lambda x: jnp.where(x > 0, size=x.shape[0], fill_value=-1), "n"),
    "select": case(lambda a, b, x: jnp.select([a, b], [x, -x], 0.5), "bool: n m", "bool: n m", "n m"),
    "piecewise": case(lambda x: jnp.piecewise(x, [x < 0, x > 1], [-1.0, lambda y: y * 2, 0.0]), "n m"),
    "choose": case(lambda i, x: jnp.choose(i, [x, -x, 2 * x], mode="wrap"), "index(3): n m", "n m"),
    "vectorize": case(lambda x, y: jnp.vectorize(jnp.dot, signature="(k),(k)->()")(x, y), "n m", "n m"),
    "frompyfunc": case(lambda x: jnp.frompyfunc(jnp.add, 2, 1, identity=0).reduce(x), "n m"),
}  # fmt: skip


def along(name: str) -> Case:
    """Reductions over all, the first and the last axis."""
    function = getattr(jnp, name)
    return case(lambda x: (function(x), function(x, axis=0), function(x, axis=-1)), "n m")


REDUCTIONS = {
    **{
        name: along(name)
        for name in (
            "all any amax amin argmax argmin average count_nonzero cumprod cumsum max mean median min "
            "nancumprod nancumsum ptp prod std sum var sort argsort flip"
        ).split()
    },
    **each(
        "nanargmax nanargmin nanmax nanmean nanmedian nanmin nanprod nanstd nansum nanvar", "nan: n m"
    ),
    **{f"{name}/axis": case(lambda x, f=getattr(jnp, name): f(x, axis=1), "n m") for name in ("nanmax", "nanmean", "nanmedian")},
    **each("cumulative_prod cumulative_sum", "n"),
    "cumulative_sum/initial": case(lambda x: jnp.cumulative_sum(x, axis=0, include_initial=True), "n m"),
    "var/ddof": case(lambda x: jnp.var(x, axis=0, ddof=1, keepdims=True), "n m"),
    "sum/where": case(lambda x, w: jnp.sum(x, axis=1, where=w), "n m", "bool: n m"),
    **{
        name: case(lambda x, f=getattr(jnp, name): f(x, 30.0, axis=0), "n m")
        for name in ("percentile", "nanpercentile")
    },
    **{
        name: case(lambda x, q, f=getattr(jnp, name): f(x, q, axis=-1), "n m", "unit: 3")
        for name in ("quantile", "nanquantile")
    },
    **{
        f"quantile/{method}": case(lambda x, q, k=method: jnp.quantile(x, q, method=k), "n", "unit: 3")
        for method in ("lower", "nearest", "midpoint")
    },
    "average/weights": case(lambda x, w: jnp.average(x, 0, w), "n m", "positive: n"),
    "ptp": along("ptp"),
    "trapezoid": case("n m"),
    "apply_along_axis": case(lambda x: jnp.apply_along_axis(lambda row: row.sum() + row, 0, x), "n m"),
    "apply_over_axes": case(lambda x: jnp.apply_over_axes(jnp.sum, x, [0, 1]), "n m 2"),
    "argpartition": case(lambda x: jnp.argpartition(x, 0), "n m"),
    "partition": case(lambda x: jnp.partition(x, 0, axis=0), "n m"),
    "lexsort": case(lambda a, b: jnp.lexsort((a, b)), "index(3): n", "n"),
    "sort_complex": case("n"),
    "sort/descending": case(lambda x: jnp.sort(x, axis=0, descending=True), "n m"),
    "argsort/descending": case(lambda x: jnp.argsort(x, descending=True), "index(4): n m"),
    "unwrap": case("n m+1"),
    "diff": case("n m+1"),
    "diff/second": case(lambda x: jnp.diff(x, n=2, axis=0, prepend=0.0, append=x[:1]), "n m"),
    "ediff1d": case("n+1"),
    "gradient": case("n+1 m+1"),
}  # fmt: skip

SHAPES = {
    "append": case(lambda x, y: jnp.append(x, y, axis=0), "n m", "3 m"),
    "append/flat": case("n m", "n"),
    "array": case("n m"),
    "asarray": case("n m"),
    "array_split": case(lambda x: jnp.array_split(x, 3, axis=1), "n 8"),
    "block": case(lambda x, y: jnp.block([[x, y], [y, x]]), "n m", "n m"),
    "broadcast_arrays": case("n 1", "m"),
    "broadcast_to": case(lambda x, y: jnp.broadcast_to(x, y.shape), "m", "n m"),
    "column_stack": case(lambda x, y: jnp.column_stack((x, y)), "n m", "n"),
    "concat": case(lambda x, y: jnp.concat((x, y), axis=1), "n m", "n 3"),
    "concatenate": case(lambda x, y: jnp.concatenate((x, y)), "n m", "m m"),
    "concatenate/flat": case(lambda x, y: jnp.concatenate((x, y), axis=None), "n m", "m m"),
    "dsplit": case(lambda x: jnp.dsplit(x, 2), "n m 4"),
    "dstack": case(lambda x, y: jnp.dstack((x, y)), "n m", "n m"),
    "expand_dims": case(lambda x: jnp.expand_dims(x, (0, 2)), "n m"),
    "flip/all": case("n m"),
    "hsplit": case(lambda x: jnp.hsplit(x, 2), "n 4"),
    "hstack": case(lambda x, y: jnp.hstack((x, y)), "n m", "n 2"),
    "insert": case(lambda x: jnp.insert(x, 1, 7.0, axis=0), "n m"),
    "insert/several": case(lambda x: jnp.insert(x, jnp.array([0, 1]), 7.0), "n"),
    "delete": case(lambda x: jnp.delete(x, 0, axis=0), "n m"),
    "delete/several": case(lambda x: jnp.delete(x, jnp.array([0, 1]), axis=0, assume_unique_indices=True), "n+2 m"),
    "moveaxis": case(lambda x: jnp.moveaxis(x, 0, -1), "n m 2"),
    "pad": case(lambda x: jnp.pad(x, ((1, 2), (0, 1))), "n m"),
    **{
        f"pad/{mode}": case(lambda x, k=mode: jnp.pad(x, ((2, 1), (0, 1)), mode=k), "n m")
        for mode in "edge linear_ramp maximum mean median minimum reflect symmetric wrap".split()
    },
    "ravel": case("n m"),
    "repeat": case(lambda x: jnp.repeat(x, 3, axis=1), "n m"),
    "repeat/flat": case(lambda x: jnp.repeat(x, 2), "n m"),
    "repeat/counts": case(lambda x, c: jnp.repeat(x, c, axis=0, total_repeat_length=2 * x.shape[0]), "n m", "index(3): n"),
    "reshape": case(lambda x: jnp.reshape(x, (x.shape[1], -1)), "n m"),
    "reshape/order": case(lambda x: jnp.reshape(x, -1, order="F"), "n m"),
    "resize": case(lambda x: jnp.resize(x, (2, 7)), "n m"),
    "resize/larger": case(lambda x: jnp.resize(x, (x.shape[0] + 3, x.shape[1])), "n m"),
    "roll": case(lambda x: jnp.roll(x, 2), "n m"),
    "roll/axis": case(lambda x: jnp.roll(x, -1, axis=0), "n m"),
    "roll/axes": case(lambda x: jnp.roll(x, (1, 2), axis=(0, 1)), "n m"),
    "roll/less": case(lambda x: jnp.roll(x[1:], 1, axis=0), "n+1 m"),
    "roll/traced": case(lambda x, k: jnp.roll(x, k, axis=0), "n m", "int:"),
    "rollaxis": case(lambda x: jnp.rollaxis(x, 2), "n m 2"),
    "rot90": case("n m"),
    "split": case(lambda x: jnp.split(x, [1, 3]), "n+3 m"),
    "split/equal": case(lambda x: jnp.split(x, 2, axis=0), "2*n m"),
    "squeeze": case("n 1 m", reason="sizes of 1 decide the rank of the result"),
    "squeeze/axis": case(lambda x: jnp.squeeze(x, 1), "n 1 m"),
    "stack": case(lambda x, y: jnp.stack((x, y), axis=1), "n m", "n m"),
    "swapaxes": case(lambda x: jnp.swapaxes(x, 0, 1), "n m 2"),
    "tile": case(lambda x: jnp.tile(x, (2, 3)), "n m"),
    "unstack": case(lambda x: jnp.unstack(x, axis=1), "n 3"),
    "vsplit": case(lambda x: jnp.vsplit(x, 2), "4 m"),
    "vstack": case(lambda x, y: jnp.vstack((x, y)), "n m", "m"),
    "diag": case("n"),
    "diag/matrix": case(lambda x: jnp.diag(x, 1), "n m+1"),
    "diagflat": case(lambda x: jnp.diagflat(x, 1), "n"),
    "diagonal": case("n m"),
    "diagonal/batch": case(lambda x: jnp.diagonal(x, axis1=1, axis2=2), "n m m"),
    "fill_diagonal": case(lambda x: jnp.fill_diagonal(x, 3.0, inplace=False), "n m"),
    "tril": case("n m"),
    "triu": case(lambda x: jnp.triu(x, 1), "n m"),
    "trace": case("n m"),
    "kron": case("n m", "m 2"),
    "packbits": case("bit: n m"),
    "packbits/axis": case(lambda x: jnp.packbits(x, axis=0, bitorder="little"), "bit: n m"),
    "packbits/whole": case("bit: 8*n m"),
    "unpackbits": case("byte: n m"),
}  # fmt: skip

LOOKUPS = {
    "take": case(lambda x, i: jnp.take(x, i, axis=0), "n m", "index(n): m"),
    "take/flat": case("n m", "index(n*m): 3"),
    "take/clip": case(lambda x, i: jnp.take(x, i, axis=1, mode="clip"), "n m", "int: 5"),
    "take_along_axis": case(lambda x, i: jnp.take_along_axis(x, i, axis=1), "n m", "index(m): n 3"),
    "put": case(lambda x, i, y: jnp.put(x, i, y, inplace=False), "n m", "places: n", "n"),
    "put_along_axis": case(
        lambda x, i, y: jnp.put_along_axis(x, i, y, axis=1, inplace=False), "n m", "index(m): n 1", "n 1"
    ),
    "place": case(lambda x, k, y: jnp.place(x, k, y, inplace=False), "n m", "bool: n m", "3"),
    "compress": case(lambda k, x: jnp.compress(k, x, axis=0, size=k.shape[0], fill_value=-1), "bool: n", "n m"),
    "extract": case(lambda k, x: jnp.extract(k, x, size=x.size, fill_value=0), "bool: n m", "n m"),
    "argwhere": case(lambda x: jnp.argwhere(x, size=x.shape[0], fill_value=-1), "bool: n m"),
    "nonzero": case(lambda x: jnp.nonzero(x, size=x.shape[0], fill_value=-1), "bool: n m"),
    "flatnonzero": case(lambda x: jnp.flatnonzero(x, size=x.size, fill_value=-1), "bool: n m"),
    "searchsorted": case("sorted: n", "n m"),
    "searchsorted/right": case(lambda a, v: jnp.searchsorted(a, v, side="right"), "sorted: n", "m"),
    "digitize": case("n m", "sorted: m"),
    "interp": case("n", "rising: m", "m"),
    "isin": case("index(9): n m", "index(9): m"),
    "bincount": case(lambda x, w: jnp.bincount(x, w, length=10), "whole: n", "n"),
    "bincount/size": case(lambda x, y: jnp.bincount(x, length=y.shape[0]), "whole: n", "m"),
    "histogram": case("n"),
    "histogram/edges": case("n m", "sorted: m+1"),
    "histogram2d": case(lambda x, y: jnp.histogram2d(x, y, bins=4), "n", "n"),
    "histogramdd": case(lambda x: jnp.histogramdd(x, bins=3), "n 2"),
    "histogram_bin_edges": case("n"),
    "ravel_multi_index": case(
        lambda i, j, x: jnp.ravel_multi_index((i, j), x.shape, mode="clip"), "index(n): 7", "index(m): 7", "n m", reason="JAX multiplies the sizes with NumPy",
    ),
    "unravel_index": case(lambda i, x: jnp.unravel_index(i, x.shape), "index(n*m): 7", "n m"),
    "unique": case(lambda x: jnp.unique(x, size=x.size, fill_value=-1), "index(9): n m"),
    "unique/all": case(
        lambda x: jnp.unique(x, return_index=True, return_inverse=True, return_counts=True, size=x.shape[0]),
        "index(9): n",
    ),
    "unique/axis": case(lambda x: jnp.unique(x, axis=0, size=x.shape[0]), "index(2): n m", reason="each column is a key of the sort"),
    "unique_all": case(lambda x: jnp.unique_all(x, size=x.size), "index(9): n m"),
    "unique_counts": case(lambda x: jnp.unique_counts(x, size=x.size), "index(9): n m"),
    "unique_inverse": case(lambda x: jnp.unique_inverse(x, size=x.size), "index(9): n m"),
    "unique_values": case(lambda x: jnp.unique_values(x, size=x.size), "index(9): n m"),
    "intersect1d": case(lambda x, y: jnp.intersect1d(x, y, size=x.shape[0], fill_value=-1), "index(9): n", "index(9): m"),
    "setdiff1d": case(lambda x, y: jnp.setdiff1d(x, y, size=x.shape[0], fill_value=-1), "index(9): n", "index(9): m"),
    "setxor1d": case(lambda x, y: jnp.setxor1d(x, y, size=x.shape[0], fill_value=-1), "index(9): n", "index(9): m"),
    "union1d": case(lambda x, y: jnp.union1d(x, y, size=x.shape[0], fill_value=-1), "index(9): n", "index(9): m"),
}  # fmt: skip

PRODUCTS = {
    **each("matmul dot inner", "n m", "m m"),
    "inner": case("n m", "n m"),
    "outer": case("n", "m"),
    "vdot": case("n m", "n m"),
    "vecdot": case("n m", "n m"),
    "matvec": case("n m 3", "3"),
    "vecmat": case("n m", "m 3"),
    "matmul/batch": case("n 3 m", "n m 2"),
    "dot/vector": case("n m", "m"),
    "tensordot": case(lambda x, y: jnp.tensordot(x, y, axes=([1], [0])), "n m 2", "m 3"),
    "tensordot/two": case("n m 3", "m 3 2"),
    "einsum": case(lambda x, y: jnp.einsum("nk,mk->nm", x, y), "n 3", "m 3"),
    "einsum/three": case(lambda x, y, z: jnp.einsum("ij,jk,k->i", x, y, z), "n m", "m 3", "3"),
    "cross": case("n 3", "n 3"),
    "convolve": case("n", "m"),
    "convolve/same": case(lambda x, y: jnp.convolve(x, y, mode="same"), "n", "3"),
    "correlate": case(lambda x, y: jnp.correlate(x, y, mode="full"), "n", "m"),
    "corrcoef": case("n+1 m+1"),
    "cov": case("n+1 m+1"),
    "cov/two": case("n+1", "n+1"),
    "poly": case("n", reason="a Python loop over the roots", sizes=((5, 4), (1, 6), (9, 1), (12, 3))),
    "polyadd": case("n", "m"),
    "polysub": case("n", "m"),
    "polymul": case("n", "m"),
    "polyder": case("n+1"),
    "polyint": case("n"),
    "polyval": case("m", "n"),
    "polydiv": case("n", "2", reason="a Python loop over the coefficients"),
    "polyfit": case(lambda x, y: jnp.polyfit(x, y, 2), "n+3", "n+3", reason="JAX makes a number of Python of a tolerance with the size"),
    "vander": case(lambda x: jnp.vander(x, 4), "n"),
    "vander/square": case("open: n", sizes=((5, 4), (1, 6), (9, 1), (12, 3))),
}  # fmt: skip

CREATION = {
    "arange": case(lambda x: jnp.arange(x.shape[0]), "n m"),
    "arange/step": case(lambda x: jnp.arange(1, 2 * x.shape[0], 2), "n m"),
    "arange/float": case(lambda x: jnp.arange(x.shape[0], dtype="float32"), "n"),
    **{
        name: case(lambda x, name=name: getattr(jnp, name)(x.shape[0]), "n")
        for name in "bartlett blackman hamming hanning eye identity tri".split()
    },
    "kaiser": case(lambda x: jnp.kaiser(x.shape[0], 3.0), "n"),
    "eye/wide": case(lambda x: jnp.eye(x.shape[0], x.shape[1], k=1), "n m"),
    "tri/wide": case(lambda x: jnp.tri(x.shape[0], x.shape[1], k=1), "n m"),
    **{
        name: case(lambda x, f=getattr(jnp, name): f((x.shape[1], x.shape[0])), "n m")
        for name in "empty ones zeros".split()
    },
    **each("empty_like ones_like zeros_like", "n m"),
    "full": case(lambda x, y: jnp.full(x.shape, y), "n m", "m"),
    "full_like": case(lambda x: jnp.full_like(x, 2.5), "n m"),
    "fromfunction": case(lambda x: jnp.fromfunction(lambda i, j: i + 2 * j, x.shape), "n m"),
    "indices": case(lambda x: jnp.indices(x.shape), "n m"),
    "ix_": case("places: n", "places: m"),
    "meshgrid": case("n", "m"),
    "diag_indices": case(lambda x: jnp.diag_indices(x.shape[0]), "n"),
    "diag_indices_from": case("n n"),
    **{
        name: case(lambda a, b, f=getattr(jnp, name): f(a, b), "positive:", "positive:")
        for name in ("geomspace", "linspace", "logspace")
    },
    "linspace/size": case(lambda x: jnp.linspace(0.0, 1.0, x.shape[0]), "n"),
    "logspace/size": case(lambda x: jnp.logspace(0.0, 1.0, x.shape[0]), "n"),
    "geomspace/size": case(lambda x: jnp.geomspace(1.0, 2.0, x.shape[0]), "n"),
    **{
        name: case(lambda x, f=getattr(jnp, name): f(x.shape[0]), "n", sizes=((5, 4), (1, 6), (9, 1), (12, 3)))
        for name in ("tril_indices", "triu_indices")
    },
    **each("tril_indices_from triu_indices_from", "n n", sizes=((5, 4), (1, 6), (9, 1), (12, 3))),
    "mask_indices": case(
        lambda x: jnp.mask_indices(3, jnp.triu, size=6), "n"
    ),
}  # fmt: skip

NUMPY: dict[str, Case] = {
    **ELEMENTWISE, **REDUCTIONS, **SHAPES, **LOOKUPS, **PRODUCTS, **CREATION,
}  # fmt: skip

LEFT_OUT: Leave = {
    "gives no array": "array_repr array_str broadcast_shapes can_cast einsum_path get_printoptions "
    "iscomplexobj isdtype isrealobj isscalar issubdtype iterable ndim printoptions promote_types "
    "result_type save savez set_printoptions shape size",
    "its argument is no array": "frombuffer fromfile fromiter fromstring load from_dlpack",
    "its result has a size that depends on values": "trim_zeros",
    "jax.jit refuses it": "roots",
}
