"""`check` names the fusion that is wrong, wherever it is; `bisect` the pass."""

from dataclasses import replace

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base import flags
from shlo_disc.debug.bisect import bisect, first_change
from shlo_disc.debug.check import check
from shlo_disc.debug.stage import load, stage_files
from shlo_disc.lower.plan import Kernel, Launch
from shlo_disc.lower.target import parse
from tests.debug.programs import dumped, small


def arguments(executable):
    return dumped().arguments


@pytest.fixture(scope="module")
def report():
    return check(load(dumped().path("plan-buffers")), arguments)


def test_a_right_program_agrees_with_the_interpreter(report):
    assert report.is_equal, report.first_wrong
    assert not any(run.no_reference for run in report.checked)
    kinds = {run.kind for run in report.checked}
    assert kinds >= {"dense", "host", "loop", "scan", "sort", "dynamic_update_slice"}


def test_every_fusion_is_run_in_every_iteration(report):
    executable = load(dumped().path("plan-buffers")).compiled()
    around = [" ".join(use.inside) for use in executable.host.uses]
    inside = {n for n, text in enumerate(around) if "while" in text}
    branches = {n for n, text in enumerate(around) if "case" in text}
    seen = {}
    for run in report.checked:
        seen.setdefault(run.number, []).append(run.iterations)
    for number, iterations in seen.items():
        assert iterations == ([(0,), (1,)] if number in inside else [()])
    assert set(range(len(executable.host.uses))) - set(seen) < branches  # the one not taken
    condition = 5  # four iterations and the end
    others = sum(len(seen[n]) for n in seen if n not in inside)
    names = [use.name for n, use in enumerate(executable.host.uses) if n in inside]
    assert report.runs == others + condition + 4 * (len(names) - 1)


def test_the_walk_is_the_program(report):
    assert len(report.whole) == len(dumped().results)
    assert all(d.max_error == 0 and d.is_equal for d in report.whole)


def broken(monkeypatch, kind, change):
    """Kernels of `kind` whose texts `change` has gone over."""
    target = parse("cpu")
    emit = target.emitters[kind]

    def wrong(fusion, machine):
        plan = emit(fusion, machine)

        def step(launch):
            if not isinstance(launch, Launch):
                then, otherwise = (tuple(map(step, s)) for s in (launch.then, launch.otherwise))
                return replace(launch, then=then, otherwise=otherwise)
            return replace(launch, kernel=Kernel(launch.kernel.name, change(launch.kernel.text)))

        return replace(plan, steps=tuple(map(step, plan.steps)))

    monkeypatch.setitem(target.emitters, kind, wrong)


def test_a_wrong_kernel_is_named_with_its_first_element(monkeypatch):
    broken(monkeypatch, "scan", lambda text: text.replace("arith.addf", "arith.maximumf"))
    found = check(load(dumped().path("plan-buffers")), arguments)
    assert not found.is_equal
    first = found.first_wrong
    assert (first.kind, first.name) == ("scan", "scan")
    assert first.where[0].startswith(__file__.rpartition("/")[0])
    (difference,) = first.differences
    assert len(difference.index) == 2
    assert difference.got != difference.want
    before = found.checked[: found.checked.index(first)]
    assert before
    assert all(run.is_equal for run in before)
    assert all(d.is_equal for d in found.whole)  # both ways are wrong in the same way


def test_what_only_the_buffers_make_wrong_is_told_apart(tmp_path):
    """Two values that live at the same time get one slot."""
    text = """
    func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
      %a = stablehlo.tanh %x : tensor<?xf32>
      %b = stablehlo.cosine %x : tensor<?xf32>
      %y = stablehlo.subtract %a, %b : tensor<?xf32>
      return %y : tensor<?xf32>
    }"""
    with flags.overridden(dump=tmp_path / "dump", fusion=0):
        shlo_disc.compile(text)
    (folder,) = (tmp_path / "dump").iterdir()
    planned = stage_files(folder)[-1]
    x = [np.arange(7, dtype=np.float32)]
    assert check(load(planned), lambda _: x).is_equal
    bad = tmp_path / "bad.mlir"
    bad.write_text(planned.read_text().replace('"slot:1"', '"slot:0"'))
    found = check(load(bad), lambda _: x)
    assert found.first_wrong is None
    assert not found.is_equal
    (difference,) = found.whole
    assert difference.index == (0,)
    assert (difference.got, difference.want) == (0.0, -1.0)


def small_arguments(executable):
    return dumped(small).arguments


@pytest.fixture(scope="module")
def changed(tmp_path_factory):
    """The dump as if `simplify` had put `abs` for `tanh`."""
    folder = tmp_path_factory.mktemp("changed")
    late = False
    for path in dumped(small).files:
        late |= path.name.endswith("-simplify.mlir")
        text = path.read_text()
        assert text.count("stablehlo.tanh") == 1
        (folder / path.name).write_text(
            text.replace("stablehlo.tanh", "stablehlo.abs") if late else text
        )
    return sorted(folder.iterdir())


@pytest.mark.parametrize("engine", ["as-is", "reference"])
def test_the_first_pass_that_changes_results_is_named(changed, engine):
    files = [changed[k] for k in (0, 4, 5, 15)]
    outcomes = bisect(files, small_arguments, engine=engine)
    assert [o.not_run for o in outcomes] == [""] * 4
    assert [o.is_equal for o in outcomes] == [True, True, False, False]
    assert first_change(outcomes).path.name == "05-simplify.mlir"
    assert first_change(outcomes[:2]) is None


def test_resuming_all_passes_gives_the_program_of_each_file():
    outcomes = bisect(dumped(small).files[::7], small_arguments, engine="compiled", rtol=0.0)
    assert first_change(outcomes) is None


def test_a_file_that_cannot_run_says_why(changed, tmp_path):
    bad = tmp_path / "04-bad.mlir"
    bad.write_text(changed[4].read_text().replace("stablehlo.tanh", "stablehlo.cbrt_of"))
    outcomes = bisect([changed[0], bad], small_arguments, engine="reference")
    assert outcomes[0].is_equal
    assert "the module is malformed" in outcomes[1].not_run
    with pytest.raises(ValueError, match=r"no file can be run: 00-input\.mlir: no answer in 0 s"):
        bisect(changed[:2], small_arguments, engine="reference", limit_s=0.0)
