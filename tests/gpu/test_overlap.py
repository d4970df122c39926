"""Kernels that may start before the one in front has ended."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.base.errors import InternalError
from shlo_disc.lower.cuda.overlap import overlapping
from tests.children import forked

pytest.importorskip("llvmlite")


def program(architecture: str) -> str:
    """PTX of a softmax, a product and a sort."""

    def function(x):
        y = jax.nn.softmax(x.astype(jnp.float32)).astype(x.dtype)
        return jnp.sort(x, axis=-1), y @ x.T

    shapes = jax.export.symbolic_shape("n, m")
    x = jax.ShapeDtypeStruct(shapes, jnp.bfloat16)
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(x)
    return shlo_disc.compile(exported, target=f"cuda:{architecture}").as_text("ptx")


@pytest.mark.parametrize("architecture", [pytest.param("sm_80", marks=pytest.mark.slow), "sm_90a"])
def test_the_first_instruction_waits_from_sm_90_on(architecture):
    text = program(architecture)
    first = re.findall(
        r"\.entry\s[^{]*\{\n(?:\s*(?:\.|//)[^\n]*\n|\s*\n)*\s*([^\n]*);\n\s*([^\n]*);", text
    )
    assert len(first) == text.count(".entry ") > 2
    wanted = ("griddepcontrol.wait", "griddepcontrol.launch_dependents")
    assert {pair == wanted for pair in first} == {architecture != "sm_80"}
    assert text.count("griddepcontrol.wait") == len(first) * (architecture != "sm_80")


def test_a_text_without_kernels_is_refused():
    with pytest.raises(InternalError, match="0 of the kernels"):
        overlapping(".version 8.0\n.func f() { ret; }")
    with pytest.raises(InternalError, match="1 of the kernels"):
        overlapping(".entry f(\n)\n{\n\tret;\n}\n.entry g(\n);")


def test_they_are_launched_so(stand_in, gpu):
    f = shlo_disc.jit(lambda x: jnp.cumsum(x) * x.sum())
    x = jnp.arange(1000.0)
    early, launches = stand_in.count("early"), stand_in.count("launches")
    np.testing.assert_allclose(f(x), jnp.cumsum(x) * x.sum(), rtol=1e-6)
    assert stand_in.count("early") - early == stand_in.count("launches") - launches > 1


def test_the_environment_can_forbid_it():
    forked(
        """
        import jax, jax.numpy as jnp, shlo_disc
        from shlo_disc.executables.devices import stand_in_for
        from tests.gpu.stand_in import StandIn
        driver = StandIn.started()
        driver.library.stand_in_strict(0)
        with stand_in_for(jax.devices("cpu")[0], "cuda"):
            assert shlo_disc.jit(jnp.sum)(jnp.ones(9)) == 9
        assert driver.count("launches") > 0
        assert driver.count("early") == 0
        """,
        SHLO_DISC_GPU_OVERLAP="0",
    )
