"""Artifacts of several parts: sizes that come from data, and regions with sizes of their own."""

import ctypes
import itertools
import random
import subprocess
from dataclasses import replace

import numpy as np
import pytest

import shlo_disc
import shlo_disc_runtime
from shlo_disc.artifacts import container, manifest
from shlo_disc.artifacts.read import read
from shlo_disc.base.errors import ShapeMismatchError
from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc_runtime.library import Array, Buffer, check, library
from tests import test_region_sizes as region_sizes
from tests.artifacts.building import HERE, built, manifest_of, parts_of, put_together
from tests.artifacts.mutate import mutated
from tests.artifacts.test_save import LEVELS, RUN_HERE, same_bits
from tests.children import at_once
from tests.test_data_sized import COUNT, POSITIVE, VECTORS

pytest.importorskip("llvmlite")

V, I1, I32, S = "tensor<?xf32>", "tensor<i1>", "tensor<i32>", "tensor<1xi32>"
LOOP = f"""
func.func @main(%x: {V}, %n: {I32}, %w: tensor<96x96xf32>) -> ({V}, {V}, tensor<?x96xf32>) {{
  %c0 = stablehlo.constant dense<0> : {I32}
  %c1 = stablehlo.constant dense<1> : {I32}
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %none = stablehlo.constant dense<0> : {S}
  %t = stablehlo.tanh %x : {V}
  %l:2 = stablehlo.while(%i = %c0, %a = %x) : {I32}, {V}
  cond {{
    %c = stablehlo.compare LT, %i, %n : ({I32}, {I32}) -> {I1}
    stablehlo.return %c : {I1}
  }} do {{
    %k = stablehlo.reshape %i : ({I32}) -> {S}
    %p = stablehlo.dynamic_pad %a, %z, %k, %none, %none
      : ({V}, tensor<f32>, {S}, {S}, {S}) -> {V}
    %odd = stablehlo.and %i, %c1 : {I32}
    %b = "stablehlo.case"(%odd) ({{
      %0 = stablehlo.concatenate %p, %t, dim = 0 : ({V}, {V}) -> {V}
      stablehlo.return %0 : {V}
    }}, {{
      %0 = stablehlo.exponential %p : {V}
      stablehlo.return %0 : {V}
    }}) : ({I32}) -> {V}
    %j = stablehlo.add %i, %c1 : {I32}
    stablehlo.return %j, %b : {I32}, {V}
  }}
  %m = stablehlo.get_dimension_size %l#1, dim = 0 : ({V}) -> {I32}
  %m1 = stablehlo.reshape %m : ({I32}) -> {S}
  %wide = stablehlo.constant dense<96> : {S}
  %shape = stablehlo.concatenate %m1, %wide, dim = 0 : ({S}, {S}) -> tensor<2xi32>
  %rows = stablehlo.dynamic_broadcast_in_dim %l#1, %shape, dims = [0]
    : ({V}, tensor<2xi32>) -> tensor<?x96xf32>
  %d = stablehlo.dot_general %rows, %w, contracting_dims = [1] x [0]
    : (tensor<?x96xf32>, tensor<96x96xf32>) -> tensor<?x96xf32>
  return %l#1, %t, %d : {V}, {V}, tensor<?x96xf32>
}}"""
BRANCHES = f"""
func.func @main(%x: {V}, %y: {V}, %p: {I1}) -> ({V}, {I32}) {{
  %r = "stablehlo.if"(%p) ({{
    {COUNT}
    %s = stablehlo.real_dynamic_slice %x, %first, %k, %step : ({V}, {S}, {S}, {S}) -> {V}
    stablehlo.return %s : {V}
  }}, {{ stablehlo.return %y : {V} }}) : ({I1}) -> {V}
  %t = stablehlo.add %r, %r : {V}
  %m = stablehlo.get_dimension_size %r, dim = 0 : ({V}) -> {I32}
  return %t, %m : {V}, {I32}
}}"""
TWO = f"""
func.func @main(%x: {V}, %y: {V}, %p: {I1}) -> ({V}, {V}) {{
  %r:2 = "stablehlo.if"(%p) ({{
    {COUNT}
    %s = stablehlo.real_dynamic_slice %x, %first, %k, %step : ({V}, {S}, {S}, {S}) -> {V}
    stablehlo.return %s, %x : {V}, {V}
  }}, {{ stablehlo.return %y, %x : {V}, {V} }}) : ({I1}) -> ({V}, {V})
  %a = stablehlo.add %r#0, %r#0 : {V}
  %b = stablehlo.negate %r#1 : {V}
  return %a, %b : {V}, {V}
}}"""
W = np.random.default_rng(0).normal(size=(96, 96)).astype("f4")
REGION = f"""
func.func public @main(%x: {V}, %y: {V}, %p: {I1}) -> {V} {{
  %r = "stablehlo.if"(%p) ({{
    %z = stablehlo.add %x, %y : {V}
    stablehlo.return %z : {V}
  }}, {{
    stablehlo.return %x : {V}
  }}) : ({I1}) -> {V}
  return %r : {V}
}}"""
"""One program, unless the arguments have other sizes than the first region needs."""
PROGRAMS = {
    "in turn": (POSITIVE, [[x] for x in VECTORS]),
    "branches": (BRANCHES, [[x, x[:2], np.bool_(p)] for x in VECTORS for p in (False, True)]),
    "two of a branch": (TWO, [[x, x[:2], np.bool_(p)] for x in VECTORS for p in (False, True)]),
    "guarded": (
        REGION,
        [[x, y, np.bool_(p)] for x in VECTORS for y, p in ((x, True), (x, False), (x[1:], False))],
    ),
    "loop": (LOOP, [[x, np.int32(n), W] for x in VECTORS[:4] for n in (0, 1, 5)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_artifact_has_the_bits_of_the_compiled_program(name, saved):
    text, calls = PROGRAMS[name]
    for target in RUN_HERE:
        compiled = shlo_disc.compile(text, target=LEVELS[target])
        loaded = shlo_disc.load(saved(name), target)
        alone = shlo_disc_runtime.load(saved(name), target=target)
        assert isinstance(loaded, DataSizedExecutable) == (name != "guarded")
        assert str(loaded.signature) == str(compiled.signature) == str(alone.signature)
        for given in calls:
            want = compiled.run_numpy(given)
            same_bits(loaded.run_numpy(given), want)
            same_bits(alone(*given), want)


def test_errors_are_those_of_the_compiled_program(saved):
    compiled, alone = shlo_disc.compile(REGION), shlo_disc_runtime.load(saved("guarded"))
    given = np.ones(3, "f4"), np.ones(2, "f4"), np.bool_(True)
    with pytest.raises(ShapeMismatchError, match=r"stablehlo\.add needs"):
        compiled(*given)
    with pytest.raises(ShapeMismatchError, match=r"stablehlo\.add needs"):
        shlo_disc.load(saved("guarded"))(*given)
    told = r"stablehlo\.add needs .*the arguments are .* float32\[3\], .* float32\[2\]"
    with pytest.raises(shlo_disc_runtime.ShapeMismatchError, match=told):
        alone(*given)
    for wrong in (given[:1], (given[0].astype("f8"), *given[1:]), (given[0][None], *given[1:])):
        with pytest.raises(TypeError):
            alone(*wrong)


def test_what_branches_need_counts_where_they_run(tmp_path):
    """What the compiled program refuses is refused, and all else has its bits."""
    compiled = shlo_disc.compile(region_sizes.BRANCHES, target="cpu:avx2")
    compiled.save(tmp_path / "m.disc", ["x86-64-v3"])
    alone = shlo_disc_runtime.load(tmp_path / "m.disc")
    refused = 0
    for a, b, k, n in itertools.product((0, 1, 3, 5), (0, 1, 3), range(-1, 7), (-1, 0, 2, 70000)):
        given = [np.arange(a, dtype="f4"), np.arange(b, dtype="f4"), np.int32(k), np.int32([n])]
        try:
            want = compiled.run_numpy(given)
        except ShapeMismatchError:
            refused += 1
            with pytest.raises(shlo_disc_runtime.ShapeMismatchError):
                alone(*given)
        else:
            same_bits(alone(*given), want)
    assert 100 < refused < 300


IMPOSSIBLE = f"""
func.func @main(%x: tensor<4xf32>, %p: {I1}) -> {V} {{
  %one = stablehlo.constant dense<1> : {S}
  %two = stablehlo.constant dense<2> : {S}
  %s = stablehlo.add %one, %two : {S}
  %w = stablehlo.add %two, %two : {S}
  %r = "stablehlo.if"(%p) ({{
    %0 = stablehlo.dynamic_reshape %x, %s : (tensor<4xf32>, {S}) -> {V}
    stablehlo.return %0 : {V}
  }}, {{
    %0 = stablehlo.dynamic_reshape %x, %w : (tensor<4xf32>, {S}) -> {V}
    stablehlo.return %0 : {V}
  }}) : ({I1}) -> {V}
  return %r : {V}
}}"""


def test_a_branch_that_is_valid_at_no_size_fails_where_it_runs(tmp_path):
    shlo_disc.compile(IMPOSSIBLE).save(tmp_path / "m.disc", ["x86-64-v3"])
    kinds = {step.kind for step in manifest_of((tmp_path / "m.disc").read_bytes()).steps}
    assert kinds == {"program", "sequence", "branches", "impossible"}
    alone, x = shlo_disc_runtime.load(tmp_path / "m.disc"), np.arange(4, dtype="f4")
    same_bits(alone(x, False), [x])
    with pytest.raises(shlo_disc_runtime.ShapeMismatchError, match="dynamic_reshape needs 4 =="):
        alone(x, True)


def test_arguments_that_steps_alone_read_have_memory(saved):
    alone, x = shlo_disc_runtime.load(saved("branches")), np.ones(3, "f4")
    rows, sizes = (Array * 3)(), (ctypes.c_int64 * 1)(3)
    for row in rows[:2]:
        row.data, row.sizes, row.dtype, row.rank = x.ctypes.data, sizes, 11, 1
    with pytest.raises(ValueError, match=r"argument 2 .*its memory is a null pointer"):
        check(library().disc_program_run(alone._handle, rows, 3, (Buffer * 2)(), 2))


def test_threads_call_one_program_at_once(saved):
    alone = shlo_disc_runtime.load(saved("loop"))
    calls = PROGRAMS["loop"][1]
    want = [alone(*given) for given in calls]

    def call(number):
        for _ in range(10):
            same_bits(alone(*calls[number]), want[number])

    at_once(call, range(len(calls)))


def test_weights_beside_it_and_packed_copies(tmp_path):
    text, calls = PROGRAMS["loop"]
    made = shlo_disc.compile(text)
    made.save(tmp_path / "m.disc", ["x86-64-v3"], fixed={2: W}, weights="separate")
    want = shlo_disc.compile(text, target="cpu:avx2").run_numpy(calls[-1])
    same_bits(shlo_disc_runtime.load(tmp_path / "m.disc")(*calls[-1][:2]), want)
    given = calls[-1][:2]
    made.save(tmp_path / "packed.disc", ["x86-64-v3"], fixed={2: W}, packed_for=given)
    assert read(tmp_path / "packed.disc").manifest.packs
    same_bits(shlo_disc_runtime.load(tmp_path / "packed.disc")(*given), want)
    same_bits(shlo_disc.load(tmp_path / "packed.disc").run_numpy(given), want)


def test_a_program_of_c(saved, tmp_path):
    program = built(HERE / "parts.c", tmp_path)
    ran = subprocess.run([program, saved("in turn")], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("0 failures\n", "", 0)


def _step(place, **changed):
    """A change of one step of the loop's artifact; steps are as `steps_of_the_loop` says."""

    def change(known):
        steps = [*known.steps]
        steps[place] = replace(steps[place], **changed)
        return {"steps": tuple(steps)}

    return change


def _part(place, **changed):
    def change(known):
        parts = [*known.parts]
        parts[place] = replace(parts[place], **changed)
        return {"parts": tuple(parts)}

    return change


def test_steps_of_the_loop(saved):
    known = read(saved("loop")).manifest
    step = manifest.Step
    assert known.steps == (
        step("program", 0),
        step("program", 1),
        step("program", 2),
        step("program", 3),
        step("program", 4),
        step("program", 5),
        step("branches", 8, (4, 5)),
        step("program", 6),
        step("sequence", 0, (3, 6, 7)),
        step("guarded", 0, (2, 8), (2, 3)),
        step("loop", 0, (1, 9), (3, 0)),
        step("program", 7),
        step("sequence", 0, (0, 10, 11)),
    )


LIES = [
    (lambda k: {"steps": ()}, "steps without programs, or programs without"),
    (lambda k: {"parts": ()}, "steps without programs, or programs without"),
    (lambda k: {"parts": k.parts[:-1], "targets": k.targets[:-1]}, "an index out of bounds"),
    (lambda k: {"targets": k.targets[:-1]}, "a target lacks programs"),
    (
        lambda k: {"targets": (*k.targets[:-1], replace(k.targets[-1], name="x"))},
        "several machines",
    ),
    (lambda k: {"arguments": k.arguments[:1]}, "other arguments than the values so far"),
    (lambda k: {"arguments": k.arguments[::-1]}, "other arguments or results than the whole"),
    (lambda k: {"results": k.results[:1]}, "other arguments or results than the whole"),
    (_step(0, kind="walk"), "an unknown kind of step"),
    (_step(0, number=-1), "an index out of bounds"),
    (_step(0, number=99), "an index out of bounds"),
    (_step(5, number=4), "a program is in two steps"),
    (_step(0, steps=(0,)), "the steps are no tree"),
    (_step(6, steps=(4, 4)), "the steps are no tree"),
    (_step(6, steps=(9, 4)), "the steps are no tree"),
    (_step(6, steps=(4,)), "the steps are no tree"),
    (_step(6, steps=()), "a wrong number of steps"),
    (_step(6, number=0), "the number of a branch is no scalar"),
    (_step(6, number=99), "an index out of bounds"),
    (_step(6, kind="loop"), "the condition of a loop is no scalar of bool"),
    (_step(8, kind="branches", number=1), "there is no other sequence"),
    (_step(9, kind="branches", number=0), "the number of a branch is no scalar"),
    (_step(9, steps=(8, 2)), "what is guarded is no program"),
    (_step(10, kind="guarded"), "what is guarded is no program"),
    (_step(10, numbers=(3, 99)), "an index out of bounds"),
    (_step(10, numbers=(3,)), "a program has other arguments than the values so far"),
    (_step(12, kind="impossible"), "a wrong number of steps"),
    (_step(12, kind="branches", number=1), "the whole is no sequence"),
    (_step(12, steps=(0, 11, 10)), "a sequence ends with no program"),
    (_part(0, results=()), "an index out of bounds"),
    (_part(5, results=()), "steps of which one runs give other types"),
    (_part(1, results=()), "the condition of a loop is no scalar of bool"),
    (_part(0, arguments=()), "a program has other arguments than the values so far"),
    (
        lambda k: {
            "targets": (replace(k.targets[0], kernels=()), *k.targets[1:]),
            "devices": (manifest.Device(0, "cuda", "sm_90", (), (), ()),),
        },
        "the programs of a target are for several GPUs",
    ),
]


@pytest.mark.parametrize(("change", "why"), LIES)
def test_steps_that_lie_are_refused(change, why, saved, tmp_path):
    parts = parts_of(saved("loop").read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    packed = manifest.packed(replace(known, **change(known)))
    (tmp_path / "m.disc").write_bytes(put_together(parts | {container.MANIFEST: packed}))
    with pytest.raises(shlo_disc_runtime.ArtifactError, match=f"the manifest: .*{why}"):
        shlo_disc_runtime.load(tmp_path / "m.disc")


def test_deep_trees_are_refused(saved, tmp_path):
    parts = parts_of(saved("in turn").read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    step = manifest.Step
    chain = [step("impossible")]
    for number in range(100_000):
        chain.append(step("branches", 0, (number,)))
    kinds = [step("program", 0), step("program", 1), step("sequence", steps=(0, len(chain) + 1, 1))]
    moved = [replace(s, steps=tuple(k + 2 for k in s.steps)) for s in chain]
    packed = manifest.packed(replace(known, steps=(*kinds[:2], *moved, kinds[2])))
    (tmp_path / "m.disc").write_bytes(put_together(parts | {container.MANIFEST: packed}))
    with pytest.raises(shlo_disc_runtime.ArtifactError):
        shlo_disc_runtime.load(tmp_path / "m.disc")


def test_damaged_manifests_are_refused_or_run(saved, tmp_path):
    """What is opened has steps that fit; some of these run without end, so none is run."""
    parts = parts_of(saved("loop").read_bytes())
    path, refused = tmp_path / "m.disc", 0
    for seed in range(1000):
        changed = mutated(parts[container.MANIFEST], random.Random(seed))
        path.write_bytes(put_together(parts | {container.MANIFEST: changed}))
        try:
            shlo_disc_runtime.load(path)
        except (shlo_disc_runtime.ArtifactError, shlo_disc_runtime.UnsupportedError):
            refused += 1
    assert 500 < refused < 1000
