"""profile(): times of kernels, floors, and the trace."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.report.peak import peak
from shlo_disc.report.profile import marked_host


def step(x, w):
    return jnp.tanh(x @ w).sum(0)


X, W = jnp.ones((64, 96)), jnp.ones((96, 80))


def test_every_kernel_has_a_time_work_and_a_floor():
    f = shlo_disc.jit(step)
    found = f.profile(X, W)
    assert [kernel.number for kernel in found.kernels] == [1, 2]
    dense = found.kernels[0]
    assert dense.kind == "dense"
    assert dense.variants == ("dense_packed",)
    assert dense.flops == 2 * 64 * 96 * 80
    assert dense.bytes_moved == 4 * (64 * 96 + 96 * 80 + 64 * 80)
    assert 0 < dense.floor_ms < dense.ms <= found.marked_ms
    assert sum(kernel.ms for kernel in found.kernels) <= found.marked_ms * 1.5
    assert "dense_packed" in str(found)


def test_a_marked_call_gives_the_same_results():
    f = shlo_disc.jit(step)
    expected = np.asarray(f(X, W))
    exe = f.lower(X, W).compile().executable
    from shlo_disc.lower.cpu import codegen

    _, run = codegen.compile_host(marked_host(exe.host))
    call = exe.call_marked(run, [X, W])
    np.testing.assert_array_equal(np.asarray(call.results[0]), expected)
    assert call.begin <= call.marks[0, 2] <= call.marks[-1, 2] <= call.end
    np.testing.assert_array_equal(call.marks[::2, 0], call.marks[1::2, 0])
    np.testing.assert_array_equal(call.marks[:, 1], [0, 1] * (len(call.marks) // 2))


def test_launches_in_loops_are_counted_every_time():
    def f(x):
        return jax.lax.scan(lambda c, v: (jnp.sin(c) + v, c), jnp.zeros(8), x)

    found = shlo_disc.jit(f).profile(jnp.ones((37, 8)))
    runs = {kernel.runs for kernel in found.kernels if kernel.name.count("sine")}
    assert runs == {37}


def test_branches_not_taken_cost_nothing():
    def f(x, flag):
        return jax.lax.cond(flag, jnp.sin, lambda x: x @ x, x)

    found = shlo_disc.jit(f).profile(jnp.ones((8, 8)), jnp.asarray(True))
    by_kind = {kernel.kind: kernel for kernel in found.kernels}
    assert by_kind["dense"].runs == by_kind["dense"].launches == 0
    assert by_kind["dense"].ms == by_kind["dense"].floor_ms == 0


def test_the_trace_is_in_the_trace_event_format(tmp_path):
    found = shlo_disc.jit(step).profile(X, W)
    trace = json.loads(found.save(tmp_path / "call.trace").read_text())
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(events) == sum(kernel.launches for kernel in found.kernels)
    ends = 0.0
    for event in events:
        assert event["ts"] >= ends
        assert event["dur"] > 0
        ends = event["ts"] + event["dur"]
    assert events[0]["args"]["flops"] == 2 * 64 * 96 * 80


def test_files_by_their_ending(tmp_path):
    found = shlo_disc.jit(step).profile(X, W)
    content = json.loads(found.save(tmp_path / "call.json").read_text())
    assert content["kernels"][0]["of_floor"] == pytest.approx(found.kernels[0].of_floor)
    assert "<!doctype html>" in found.save(tmp_path / "call.html").read_text()
    assert "GFLOP/s" in found.save(tmp_path / "call.txt").read_text()
    with pytest.raises(ValueError, match=r"\.html, \.json"):
        found.save(tmp_path / "call.png")


def test_no_call_is_no_profile():
    f = shlo_disc.jit(step)
    exe = f.lower(X, W).compile().executable
    with pytest.raises(ValueError, match="at least one call"):
        exe.profile(X, W, calls=0)


def test_the_machine_is_faster_the_smaller_the_data():
    found = peak("cpu")
    speeds = [speed for _, speed in found.bandwidth]
    assert found.gflops > 1
    assert speeds[0] > speeds[-1] > 0.5
    assert found.floor_ms(found.gflops * 1e6, 0) == pytest.approx(1.0)
    assert found.floor_ms(0, speeds[-1] * 1e9) == pytest.approx(1000.0)


def test_wrong_arguments_raise_what_a_call_raises():
    exe = shlo_disc.compile("""func.func @main(%x: tensor<?xf32>, %n: tensor<1xi32>)
        -> (tensor<?xf32>, tensor<?xi32>) {
      %0 = stablehlo.tanh %x : tensor<?xf32>
      %1 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %0, %1 : tensor<?xf32>, tensor<?xi32> }""")
    x, n = np.ones(3, "f4"), np.int32([2])
    for wrong in ((), (x,), (n, n), (x, "n"), (x, x)):
        with pytest.raises(TypeError) as called:
            exe(*wrong)
        with pytest.raises(TypeError, match=re.escape(str(called.value))):
            exe.profile(*wrong)

    class ByDLPack:
        def __dlpack__(self, **options):
            return x.__dlpack__(**options)

        def __dlpack_device__(self):
            return 1, 0

    assert exe.profile(ByDLPack(), n, calls=1).sizes == {"d0_0": 3, "n1_0": 2}


def test_every_program_of_a_chain_has_a_profile():
    exe = shlo_disc.compile("""func.func @main(%a: tensor<1xi32>, %b: tensor<1xi32>)
        -> tensor<?xi32> {
      %n = stablehlo.divide %a, %b : tensor<1xi32>
      %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
      return %0 : tensor<?xi32> }""")
    first, second = exe.profile(np.int32([7]), np.int32([2]), calls=1)
    assert (first.name, second.name) == ("main_1", "main_2")
    assert list(second.sizes.values()) == [3]


def test_a_program_without_kernels():
    """Disassembling code of none ended the process."""
    exe = shlo_disc.compile("func.func @main() { return }")
    assert exe.as_text("asm") == ""
    assert "define" not in exe.as_text("llvm")
    assert exe.profile(calls=1).kernels == ()
    assert "0 kernels" in exe.explain()
