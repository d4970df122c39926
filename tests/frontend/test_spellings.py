"""The table of spellings, which warnings and docs/differs.md show, is true of every row."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import shlo_disc
from shlo_disc.jax.sizes.spellings import SPELLINGS, advice

NAMES = {
    "body": lambda i, x: x + i,
    "jax": jax,
    "jnp": jnp,
    "lax": lax,
    "math": math,
    "np": np,
    "step": lambda total, row: (total + row, row),
}


def traced(expression):
    """The different versions for three lengths of a function that computes `expression`."""
    code = compile(expression, "<expression>", "eval")

    def f(x):
        eval(code, {**NAMES, "x": x, "n": x.shape[0]})
        return x * 1

    made = shlo_disc.jit(f)
    patterns = [made.lower(np.ones(n, np.float32)).pattern for n in (7, 11, 13)]
    return list({id(pattern): pattern for pattern in patterns}.values())


@pytest.mark.parametrize("row", SPELLINGS, ids=lambda row: row.pins[0])
def test_spelling(row):
    for expression in row.pins:
        versions = traced(expression)
        assert len(versions) == 3, expression
        reasons = [note.reason for note in versions[0].notes]
        assert any(row.said in reason for reason in reasons), (expression, reasons)
        if row.said:
            assert any(expression in advice(reason) for reason in reasons)
    for expression in row.keeps:
        assert len(traced(expression)) == 1, expression


def test_no_advice_for_other_reasons():
    assert advice("the program compares d0 with 4") == ""
