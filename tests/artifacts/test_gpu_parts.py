"""Artifacts of several parts for GPUs, on the stand-in: values stay on the device."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest

import shlo_disc
import shlo_disc_runtime
from shlo_disc.artifacts import container, manifest
from shlo_disc.artifacts.read import read
from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc_runtime.library import Buffer, library
from tests.artifacts.building import parts_of, put_together
from tests.artifacts.cards import enqueue, rows_of
from tests.artifacts.test_parts import PROGRAMS, W
from tests.artifacts.test_save import same_bits
from tests.children import at_once

pytest.importorskip("llvmlite")

pytestmark = pytest.mark.usefixtures("stand_in")

TARGET = "cuda:sm_90"
FEW = {name: (text, calls[:4]) for name, (text, calls) in PROGRAMS.items()}
"""The stand-in interprets kernels, which takes long."""
FEW["loop"] = (PROGRAMS["loop"][0], PROGRAMS["loop"][1][3:6])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpu-parts")

    def path_of(name):
        path = folder / f"{name.replace(' ', '-')}.disc"
        if not path.exists():
            shlo_disc.compile(FEW[name][0]).save(path, [TARGET, "x86-64-v3"])
        return path

    return path_of


@pytest.mark.parametrize("name", FEW)
def test_an_artifact_has_the_bits_of_the_compiled_program(name, saved, stand_in):
    text, calls = FEW[name]
    compiled = shlo_disc.compile(text, target=TARGET)
    loaded, alone = (load(saved(name)) for load in (shlo_disc.load, shlo_disc_runtime.load))
    assert isinstance(loaded, DataSizedExecutable) == (name != "guarded")
    assert alone.target == TARGET
    launched = 0
    for given in calls:
        want = compiled.run_numpy(given)
        same_bits(loaded.run_numpy(given), want)
        launches = stand_in.count("launches")
        same_bits(alone(*given), want)
        launched += stand_in.count("launches") - launches
    assert launched > 0
    assert not stand_in.pending


def test_the_processor_runs_it_where_there_is_no_gpu(saved):
    text, calls = FEW["loop"]
    alone = shlo_disc_runtime.load(saved("loop"), target="x86-64-v3")
    compiled = shlo_disc.compile(text, target="cpu:avx2")
    for given in calls:
        same_bits(alone(*given), compiled.run_numpy(given))


def test_every_program_has_its_kernels(saved):
    known = read(saved("loop")).manifest
    assert [device.target for device in known.devices] == [*range(len(known.parts))]
    assert {row.name for row in known.targets[: len(known.parts)]} == {TARGET}


def test_values_stay_on_the_device(saved, stand_in):
    """What comes to the host are numbers that steps depend on, and results."""
    calls = FEW["loop"][1]
    alone, before = shlo_disc_runtime.load(saved("loop")), stand_in.count("to_host_bytes")
    results = alone(*calls[-1])
    numbers = stand_in.count("to_host_bytes") - before - sum(result.nbytes for result in results)
    assert 0 < numbers <= 8 * 8 * int(calls[-1][1])


@pytest.mark.parametrize("name", ["in turn", "branches", "guarded"])
def test_memory_of_the_device_and_a_stream(name, saved, card):
    text, calls = FEW[name]
    compiled = shlo_disc.compile(text, target=TARGET)
    program = shlo_disc_runtime.load(saved(name))
    stream = card.stream()
    for given in calls:
        want = compiled.run_numpy(given)
        for its in (stream, None):
            results = (Buffer * len(want))()
            enqueue(program, its, rows_of(card, [np.asarray(x) for x in given]), results)
            if its:
                card.wait(its)
            for result, wanted in zip(results, want, strict=True):
                assert result.bytes == wanted.nbytes
                assert ctypes.string_at(result.data, result.bytes) == wanted.tobytes()
                library().disc_memory_release(result.memory)


def test_errors_are_those_of_the_compiled_program(saved):
    alone = shlo_disc_runtime.load(saved("guarded"))
    x = np.ones(3, "f4")
    with pytest.raises(shlo_disc_runtime.ShapeMismatchError, match=r"stablehlo\.add needs"):
        alone(x, x[1:], np.bool_(True))


def test_threads_call_one_program_at_once(saved):
    alone, calls = shlo_disc_runtime.load(saved("in turn")), FEW["in turn"][1]
    want = [alone(*given) for given in calls]

    def call(number):
        for _ in range(3):
            same_bits(alone(*calls[number]), want[number])

    at_once(call, range(len(calls)))


def test_without_memory_of_the_device(saved, stand_in):
    """Each allocation of a call fails once; memory is given back."""
    alone = shlo_disc_runtime.load(saved("in turn"))
    given = FEW["in turn"][1][3]
    want = alone(*given)
    stand_in.memory(0)
    with pytest.raises(MemoryError):
        alone(np.zeros(1 << 20, "f4"))
    stand_in.memory(1 << 30)
    same_bits(alone(*given), want)


def lies(known):
    first, *others = known.devices
    yield replace(known, devices=(first,)), "for several GPUs"
    yield replace(known, devices=(*others, replace(first, architecture="sm_80"))), "several GPUs"
    yield replace(known, devices=(first, first, *others)), "a target has kernels twice"


def test_kernels_of_some_programs_are_refused(saved, tmp_path):
    parts = parts_of(saved("in turn").read_bytes())
    for lie, told in lies(manifest.unpacked(parts[container.MANIFEST])):
        packed = manifest.packed(lie)
        (tmp_path / "m.disc").write_bytes(put_together(parts | {container.MANIFEST: packed}))
        with pytest.raises(shlo_disc_runtime.ArtifactError, match=told):
            shlo_disc_runtime.load(tmp_path / "m.disc")


def test_weights_inside_and_beside_it(tmp_path):
    text, calls = FEW["loop"]
    made = shlo_disc.compile(text)
    want = shlo_disc.compile(text, target=TARGET).run_numpy(calls[-1])
    for weights in ("inside", "separate"):
        path = tmp_path / f"{weights}.disc"
        made.save(path, [TARGET], fixed={2: W}, weights=weights)
        same_bits(shlo_disc_runtime.load(path)(*calls[-1][:2]), want)
