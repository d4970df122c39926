"""Every kind of fusion on a GPU: the tests of CPU kernels, by emitters of GPUs, interpreted.

They run at sizes 0, 1, primes and around tiles, in blocks of shuffled order. Memory is NaN first.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import jax
import jax.numpy as jnp
import pytest

import shlo_disc
from shlo_disc.lower.target import parse
from shlo_disc.passes.kinds import KINDS
from tests.gpu.run import gpu_plan, run_gpu
from tests.lower import (
    test_conv,
    test_dense,
    test_dense_epilogue,
    test_loop,
    test_reduction_regions,
    test_rng,
    test_row,
    test_scan,
    test_scatter,
    test_sort,
)

OF_THE_CPU: dict[ModuleType, tuple[str, ...]] = {
    test_conv: (
        "a_value_is_both_operands",
        "calls_without_kept_panels_make_them_first",
        "taps_and_places_on_narrower_targets",
    ),
    test_dense: (
        "few_columns_are_rows",
        "few_columns_of_sums_over_two_dimensions",
        "few_rows_read_a_shared_right_operand_in_place",
        "few_rows_read_columns_along_k_in_place",
        "few_rows_widen_columns_in_place",
        "fewer_rows_than_a_register_tile_has_are_few",
        "narrower_targets",
        "several_blocks_of_k",
        "small_products_have_the_bits_of_others",
        "a_late_text_is_the_one_that_would_be_written_now",
        "copies_are_functions_apart_from_the_sums",
        "tasks_cover_both_cores_and_their_cost_grows_with_the_work",
        "tiny_matrices_are_in_lanes_of_their_batch",
        "weights_are_packed_and_activations_are_not",
    ),
    test_dense_epilogue: (
        "several_blocks_of_k_keep_unfinished_sums_apart",
        "the_activation_is_in_a_kernel_of_its_own_once",
        "products_are_the_same_kernels_whatever_becomes_of_their_sums",
    ),
    test_loop: (
        "a_transpose_goes_through_tiles",
        "pairs_with_few_columns",
        "the_planner_and_the_emitter_agree_on_what_a_loop_may_hold",
        "transposes_with_few_columns",
    ),
    test_reduction_regions: ("windows_over_an_iota_are_no_arg_max",),
    test_rng: (),
    test_row: (
        "a_static_number_of_many_rows_is_never_split",
        "arg_max_takes_the_first_of_equals_and_the_first_nan",
        "few_long_rows_are_split_in_pieces",
        "rows_of_scratch_are_split_however_many_there_are",
        "the_residual_sum_is_written_once_and_read_back",
        "the_second_of_two_sums_is_taken_relative_to_the_piece",
    ),
    test_scan: ("short_rows_are_in_lanes",),
    test_scatter: (
        "a_maximum_stores_no_whole_vector_under_a_mask",
        "the_copy_is_a_step_of_its_own",
    ),
    test_sort: (),
}
"""Modules, and which of their tests are of the CPU: its plans, vectors and whole programs."""

for _module, _others in OF_THE_CPU.items():
    for _name, _test in list(vars(_module).items()):
        if _name.startswith("test_") and _name.removeprefix("test_") not in _others:
            globals()[f"{_module.__name__.rpartition('.')[2]}_{_name.removeprefix('test_')}"] = (
                _test
            )


def test_the_tests_left_out_exist() -> None:
    for module, others in OF_THE_CPU.items():
        assert {f"test_{name}" for name in others} <= vars(module).keys()


@pytest.fixture(autouse=True)
def _on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in OF_THE_CPU:
        if hasattr(module, "plan_of"):
            monkeypatch.setattr(module, "plan_of", lambda emit, text, machine=None: gpu_plan(text))
        if hasattr(module, "run"):
            monkeypatch.setattr(module, "run", run_gpu)


def test_every_kind_has_an_emitter() -> None:
    kinds = {name for name, kind in KINDS.items() if not kind.on_host}
    assert parse("cuda:sm_80").emitters.keys() == kinds
    assert parse("rocm:gfx942").emitters.keys() == kinds - {"attention"}  # is never planned there


def test_what_has_no_kernel_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    emitters = dict(parse("cuda:sm_80").emitters)
    del emitters["sort"]
    monkeypatch.setitem(vars(parse("cuda:sm_80")), "emitters", emitters)
    x = jax.ShapeDtypeStruct(jax.export.symbolic_shape("n"), "float32")
    program = jax.export.export(jax.jit(jnp.sort), platforms=["cpu"])(x)
    with pytest.raises(shlo_disc.UnsupportedError) as found:
        shlo_disc.compile(program, target="cuda:sm_80")
    here = rf"{Path(__file__).name}:\d+: target cuda:sm_80 has no kernel for stablehlo.sort"
    assert re.search(f"{here}; keep it outside", str(found.value))
