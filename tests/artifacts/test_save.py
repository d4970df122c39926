"""What `save` writes: the bits of the program that was compiled here, and what it refuses."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.artifacts import container
from shlo_disc.artifacts.read import read
from shlo_disc.base.errors import ArtifactError, UnsupportedError
from shlo_disc.lower.cpu import machine
from tests.artifacts.programs import PROGRAMS, arguments, export
from tests.children import python
from tests.refused import unchanged

pytest.importorskip("llvmlite")

LEVELS = {"x86-64-v4": "cpu:avx512", "x86-64-v3": "cpu:avx2"}
RUN_HERE = [
    name
    for name, target in LEVELS.items()
    if machine.ARCHITECTURES[target[4:]].features <= machine.host_machine().features
]
SPEC = jax.ShapeDtypeStruct


def same_bits(first, second):
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_artifact_has_the_bits_of_the_compiled_program(name, saved):
    program, path = PROGRAMS[name], saved(name)
    for target in RUN_HERE:
        compiled = shlo_disc.compile(export(program), target=LEVELS[target])
        loaded = shlo_disc.load(path, target)
        assert str(loaded.signature) == str(compiled.signature)
        for sizes in program.sizes:
            given = arguments(program, sizes)
            same_bits(loaded(*given), compiled(*given))


def test_the_best_target_is_loaded_and_others_on_request(saved):
    path = saved("product")
    assert shlo_disc.load(path).record.target == LEVELS[RUN_HERE[0]]
    assert [row.name for row in read(path).manifest.targets] == [*LEVELS]
    with pytest.raises(UnsupportedError, match="no target 'x86-64-v5'"):
        shlo_disc.load(path, "x86-64-v5")


def test_a_host_without_avx512_writes_the_same_bytes_and_loads_avx2(saved, tmp_path, monkeypatch):
    path = saved("product")
    small = machine.Machine(32, cores=machine.host_machine().cores,
                            features=machine.ARCHITECTURES["avx2"].features | {"sse2"})  # fmt: skip
    executable = shlo_disc.compile(export(PROGRAMS["product"]))
    monkeypatch.setattr(machine, "host_machine", lambda: small)
    executable.save(tmp_path / "other.disc")
    assert (tmp_path / "other.disc").read_bytes() == path.read_bytes()
    assert shlo_disc.load(path).record.target == "cpu:avx2"
    with pytest.raises(UnsupportedError, match=r"x86-64-v4: .*avx512f.*; this CPU has none"):
        shlo_disc.load(path, "x86-64-v4")


def test_arm_beside_x86(saved, tmp_path):
    path = tmp_path / "m.disc"
    shlo_disc.compile(export(PROGRAMS["product"])).save(path, ["aarch64", "x86-64-v3"], cores=4)
    assert {row.name: row.machine for row in read(path).manifest.targets} == {
        "x86-64-v3": "x86-64",
        "aarch64": "aarch64",
    }
    given = arguments(PROGRAMS["product"], {"n": 7})
    same_bits(shlo_disc.load(path)(*given), shlo_disc.load(saved("product"), "x86-64-v3")(*given))
    with pytest.raises(UnsupportedError, match="aarch64: this machine is x86_64"):
        shlo_disc.load(path, "aarch64")


def test_registers_of_512_bits_are_used(saved):
    # LLVM prefers 256 bits for x86-64-v4 where it chooses by itself.
    artifact = read(saved("product"))
    found = {}
    for row in artifact.manifest.targets:
        code = b"".join(bytes(artifact.bytes_of(span)) for span in row.objects)
        found[row.name] = code.count(b"\x62")  # the first byte of instructions of AVX-512
    assert found["x86-64-v4"] > 4 * found["x86-64-v3"]


def test_cores_are_those_that_were_stated(tmp_path):
    executable = shlo_disc.compile(export(PROGRAMS["long sums"]))
    for cores in (1, 8):
        executable.save(tmp_path / f"{cores}.disc", ["x86-64-v3"], cores=cores)
        (row,) = read(tmp_path / f"{cores}.disc").manifest.targets
        assert row.cores == cores
    one, eight = (read(tmp_path / f"{n}.disc").manifest.targets[0] for n in (1, 8))
    assert len(one.kernels) < len(eight.kernels)  # those that cut a sum
    with pytest.raises(ValueError, match="cores must be at least 1"):
        executable.save(tmp_path / "0.disc", cores=0)


def test_a_function_of_jax_is_saved_by_its_leaves(tmp_path):
    @shlo_disc.jit
    def f(params, x):
        return {"y": x @ params["w"], "n": jnp.float32(x.shape[0])}

    compiled = f.lower({"w": SPEC((8, 4), "f4")}, SPEC((5, 8), "f4")).compile()
    compiled.save(tmp_path / "f.disc")
    loaded = shlo_disc.load(tmp_path / "f.disc")
    w = np.ones((8, 4), "f4")
    for n in (1, 5, 6):
        x = np.full((n, 8), n, "f4")
        same_bits(loaded(w, jnp.asarray(x)), jax.tree.leaves(f({"w": w}, x)))


def test_guards_say_what_the_compiled_program_says(tmp_path):
    text = """
    func.func public @main(%x: tensor<?x4xf32> {disc.shape = ["n", "4"]},
                           %y: tensor<?xf32> {disc.shape = ["2*n"]}) -> tensor<?x4xf32> {
      %z = stablehlo.add %x, %x : tensor<?x4xf32>
      return %z : tensor<?x4xf32>
    }"""
    executable = shlo_disc.compile(text, constraints=["n >= 3", "mod(n, 2) == 0"])
    executable.save(tmp_path / "m.disc")
    loaded = shlo_disc.load(tmp_path / "m.disc")
    wrong = [
        (np.ones((2, 4), "f4"), np.ones(4, "f4")),
        (np.ones((5, 4), "f4"), np.ones(10, "f4")),
        (np.ones((4, 4), "f4"), np.ones(7, "f4")),
        (np.ones((4, 3), "f4"), np.ones(8, "f4")),
        (np.ones((4, 4), "f8"), np.ones(8, "f4")),
        (np.ones(4, "f4"), np.ones(8, "f4")),
        (np.ones((4, 4), "f4"),),
    ]
    for given in wrong:
        with pytest.raises(TypeError) as one:
            executable(*given)
        with pytest.raises(TypeError) as other:
            loaded(*given)
        assert (type(one.value), str(one.value)) == (type(other.value), str(other.value))
    same_bits(loaded(np.ones((4, 4), "f4"), np.ones(8, "f4")), [np.full((4, 4), 2, "f4")])


REFUSED = {
    "calls back into Python at .*test_save.py": lambda x: jax.pure_callback(
        np.sin, SPEC(x.shape, x.dtype), x
    ),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_an_artifact_cannot_hold_is_refused_by_name(message, tmp_path):
    compiled = shlo_disc.jit(REFUSED[message]).lower(SPEC((3, 3), "f4")).compile()
    with pytest.raises(UnsupportedError, match=f"cannot be saved: it {message}"):
        compiled.save(tmp_path / "f.disc")
    assert not (tmp_path / "f.disc").exists()


def test_a_program_that_xla_runs_a_part_of_is_refused(tmp_path):
    f = shlo_disc.jit(lambda x: unchanged(x) + 1, on_unsupported="xla")
    compiled = f.lower(SPEC((3, 3), "f4")).compile()
    with pytest.raises(UnsupportedError, match="cannot be saved: it runs in parts"):
        compiled.save(tmp_path / "f.disc")


def test_a_loaded_artifact_is_not_saved_again(saved, tmp_path):
    with pytest.raises(UnsupportedError, match="cannot be saved: nobody knows its source"):
        shlo_disc.load(saved("integers")).save(tmp_path / "m.disc")


def rewritten(path, out, change):
    """An artifact of `path` whose manifest is what `change` makes of it, with true digests."""
    artifact, contents = read(path), container.Contents()
    for member in artifact.manifest.members:
        contents.add(member.name, bytes(artifact.members[member.name]))
    contents.write(out, change(artifact.manifest))


LIES = {
    "a part of no member": lambda row: replace(row, objects=(replace(row.objects[0], member=99),)),
    "a part before its member": lambda row: replace(
        row, objects=(replace(row.objects[0], member=-1),)
    ),
    "a part outside": lambda row: replace(row, objects=(replace(row.objects[0], offset=1 << 40),)),
    "no object file": lambda row: replace(row, run=replace(row.run, object_file=7)),
    "an object file before the first": lambda row: replace(
        row, prepare=replace(row.prepare, object_file=-1)
    ),
    "no such function": lambda row: replace(row, run=replace(row.run, name="ran")),
    "another object file": lambda row: replace(row, objects=row.objects[::-1]),
    "no constants": lambda row: replace(row, constants=()),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_is_refused(lie, saved, tmp_path):
    def change(whole):
        return replace(whole, targets=tuple(map(LIES[lie], whole.targets)))

    rewritten(saved("large weights"), tmp_path / "m.disc", change)
    with pytest.raises(ArtifactError):
        shlo_disc.load(tmp_path / "m.disc")


def test_other_targets_and_wrong_options_are_refused(tmp_path):
    executable = shlo_disc.compile(export(PROGRAMS["integers"]))
    with pytest.raises(UnsupportedError, match="artifacts for 'cpu:avx2' are not supported"):
        executable.save(tmp_path / "m.disc", ["cpu:avx2"])
    with pytest.raises(TypeError, match="targets must be names"):
        executable.save(tmp_path / "m.disc", "x86-64-v3")
    with pytest.raises(OSError, match="No such file"):
        executable.save(tmp_path / "nowhere" / "m.disc")
    assert list(tmp_path.iterdir()) == []


def test_arguments_become_constants(tmp_path):
    program = PROGRAMS["product"]
    executable = shlo_disc.compile(export(program))
    given = arguments(program, {"n": 7})
    executable.save(tmp_path / "m.disc", fixed={1: given[1]})
    loaded = shlo_disc.load(tmp_path / "m.disc")
    assert [spec.name for spec in loaded.signature.arguments] == ["x"]
    same_bits(loaded(given[0]), executable(*given))
    with pytest.raises(UnsupportedError, match="'x' cannot be a constant: it has sizes that vary"):
        executable.save(tmp_path / "other.disc", fixed={0: given[0]})


def test_damaged_files_are_refused(saved, tmp_path):
    data = saved("integers").read_bytes()
    path = tmp_path / "m.disc"
    for number in range(0, len(data), 997):
        path.write_bytes(data[:number] + bytes([data[number] ^ 0x41]) + data[number + 1 :])
        try:
            same_bits(shlo_disc.load(path)(np.ones((2, 9), "i4"))[:1], [np.zeros((2, 9), "i4")])
        except ArtifactError:
            continue
    for wrong in (b"", b"PK", data[:-1], data[: len(data) // 2], data + b"0"):
        path.write_bytes(wrong)
        with pytest.raises(ArtifactError):
            shlo_disc.load(path)


def test_loading_imports_no_compiler(saved):
    script = f"""
import sys, numpy, shlo_disc
loaded = shlo_disc.load({str(saved("product"))!r})
loaded.run_numpy([numpy.ones((3, 48), "f4"), numpy.ones((48, 96), "f4")])
print([name for name in sys.modules if name in ("jax", "torch_mlir", "llvmlite")])
"""
    assert python(script) == "[]"
