"""Samples of PyTorch's own table of operations (`op_db`), exported with dynamic sizes.

What compiles gives what PyTorch gives. What does not is refused by UnsupportedError with a line. An
abort of the process would end the run; no other error may come.
"""

from __future__ import annotations

import functools
import random
import re
import sys
import types
import unittest
import warnings

import pytest
import torch
from torch.export import Dim, export
from torch.utils import _pytree as pytree

import shlo_disc.torch
from shlo_disc.base.errors import UnsupportedError
from tests.torch.models import Of

SAMPLED = 20
SEED = 16

UNDEFINED = frozenset({
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided",
})  # fmt: skip
"""Their elements are any."""

NOT_EXPORTED = frozenset({
    "_segment_reduce", "allclose", "combinations", "corrcoef", "cov", "equal", "geqrf",
    "histogram", "histogramdd", "jiterator_2inputs_2outputs", "jiterator_4inputs_with_extra_args",
    "jiterator_binary", "jiterator_binary_return_by_ref", "jiterator_unary", "linalg.lstsq",
    "narrow", "nn.functional.ctc_loss", "nn.functional.gaussian_nll_loss",
    "nn.functional.one_hot", "resize_", "resize_as_", "sparse.mm", "sparse.sampled_addmm",
    "to_sparse", "torch.ops.aten._efficient_attention_forward",
    "torch.ops.aten._flash_attention_forward",
})  # fmt: skip
"""Operations some samples of which PyTorch itself cannot export or call on this machine."""

RANDOM = re.compile(
    "rand|dropout|bernoulli|cauchy|exponential|geometric|normal|multinomial|uniform"
)

PLACE = re.compile(r"^\S+:\d+: |of its sizes|sizes of shlo_disc")
"""What a refusal says: where the operation is, or what the program requires of its sizes."""


@functools.cache
def operations():
    """Name -> the entries of `op_db`; the stand-in is for a package that its module imports."""
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase
    stand_in.assert_expected_inline = None
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[str, list] = {}
    for op in op_db:
        found.setdefault(op.name, []).append(op)
    return found


def names_of_run():
    """The names of all operations, in order."""
    try:
        return sorted(operations())
    except ImportError as error:  # the stand-in is too little for this version
        pytest.skip(f"PyTorch's table of operations: {error}")


def samples(op):
    """The first sample and the middle one, as (function, tensors)."""
    dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str, default=None)
    if dtype is None:
        return
    given = list(op.sample_inputs("cpu", dtype, requires_grad=False))
    for sample in [*given[:1], *given[len(given) // 2 : len(given) // 2 + 1]][: len(given)]:
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        places = [k for k, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

        def function(*tensors, leaves=leaves, spec=spec, places=places):
            found = list(leaves)
            for place, tensor in zip(places, tensors, strict=True):
                found[place] = tensor
            args, kwargs = pytree.tree_unflatten(found, spec)
            return op.op(*args, **kwargs)

        if places:
            yield function, tuple(leaves[k].detach() for k in places)


def exported(function, tensors):
    """With dynamic sizes where PyTorch can, else with fixed ones; None where it cannot at all."""
    dims = tuple({k: Dim.AUTO for k, n in enumerate(x.shape) if n > 1} for x in tensors)
    for dynamic in ((dims,), None):
        try:
            return export(Of(function), tensors, dynamic_shapes=dynamic)
        except Exception:
            continue
    return None


def check(name, function, tensors):
    """One sample: it is equal to PyTorch's, or refused with a line."""
    program = exported(function, tensors)
    if program is None:
        assert name in NOT_EXPORTED, "PyTorch cannot export it"
        return
    want = function(*(x.clone() for x in tensors))
    exe = None
    refused = ""
    try:
        exe = shlo_disc.torch.compile(program)
    except UnsupportedError as error:
        refused = str(error)
    if exe is None:
        assert PLACE.search(refused), refused
        return
    got = exe(*(x.clone() for x in tensors))
    got, want = pytree.tree_leaves(got), pytree.tree_leaves(want)
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if isinstance(b, torch.Tensor) and (name in UNDEFINED or RANDOM.search(name)):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
        else:
            atol = max(1e-4, 1e-7 * largest(b))  # an element of a matrix exponential is a sum
            torch.testing.assert_close(a, b, equal_nan=True, rtol=1e-3, atol=atol)


def largest(x):
    """The largest finite magnitude of the elements of `x`; 0 where there is none."""
    if not isinstance(x, torch.Tensor) or not (x.is_floating_point() or x.is_complex()):
        return 0.0
    return float(x.abs().double().nan_to_num(0, 0, 0).amax()) if x.numel() else 0.0


def run(name):
    for op in operations()[name]:
        for function, tensors in samples(op):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.manual_seed(0)
                check(name, function, tensors)


@pytest.mark.parametrize("place", range(SAMPLED))
def test_a_sample_of_operations(place):
    run(random.Random(SEED).sample(names_of_run(), SAMPLED)[place])


@pytest.mark.slow
def test_every_operation():
    failed = []
    for name in names_of_run():
        try:
            run(name)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}"[:300])
    assert not failed, "\n".join(failed)
