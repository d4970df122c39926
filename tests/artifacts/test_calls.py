"""Artifacts that call LAPACK, and handlers of XLA's FFI that are the user's."""

import ctypes
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from jax import lax

import shlo_disc
import shlo_disc_runtime
from shlo_disc import UnsupportedError, ral
from shlo_disc.artifacts import container, manifest
from shlo_disc.artifacts.read import read
from shlo_disc.base.errors import ArtifactError, ForeignCallError
from tests.artifacts.building import HERE, built, bundled, parts_of, put_together
from tests.artifacts.mutate import Opener
from tests.artifacts.programs import EXTERN
from tests.artifacts.test_save import RUN_HERE, same_bits
from tests.ffi import building

pytest.importorskip("llvmlite")

ROOT = HERE.parents[1]
SPEC = jax.ShapeDtypeStruct
TARGET = RUN_HERE[-1:]
SQUARE = ((2, 3, 3), (1, 1, 1), (3, 17, 17), (1, 70, 70))
TALL = ((2, 5, 3), (3, 4, 2), (1, 66, 40))
WIDE = ((2, 3, 5), (3, 2, 4), (1, 40, 66))
DTYPES = ("f4", "f8", "c8", "c16")


def matrices(shape, dtype, seed=0):
    """Well-conditioned, positive definite, Hermitian, and right-hand sides."""
    random = np.random.default_rng(seed)
    *_, m, n = shape
    a = random.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        a = a + 1j * random.standard_normal(shape)
    well = a + 3 * np.sqrt(n) * np.eye(m, n)
    adjoint = a.conj().swapaxes(-1, -2)
    definite = a @ adjoint + (n + 1) * np.eye(m)
    symmetric = (a + adjoint) / 2 + 4 * np.diag(np.arange(n)) if m == n else a
    right = random.standard_normal((*shape[:-1], 2))
    return [x.astype(dtype) for x in (well, definite, symmetric, right)]


def square(well, definite, symmetric, right):
    return {
        "cholesky": jnp.linalg.cholesky(definite),
        "det": jnp.linalg.det(well),
        "eig": lax.linalg.eig(well),
        "eigh": jnp.linalg.eigh(symmetric),
        "eigvalsh": jnp.linalg.eigvalsh(symmetric),
        "hessenberg": jsl.hessenberg(well),
        "inv": jnp.linalg.inv(well),
        "lu": lax.linalg.lu(well),
        "schur": lax.linalg.schur(well),
        "solve": jnp.linalg.solve(well, right),
        "triangular": lax.linalg.triangular_solve(well, right, left_side=True, lower=True),
        "triangular right": lax.linalg.triangular_solve(
            well, right.mT, transpose_a=True, conjugate_a=True, unit_diagonal=True
        ),
        "tridiagonal": lax.linalg.tridiagonal(symmetric),
        "tridiagonal solve": lax.linalg.tridiagonal_solve(
            well[..., 0, :], 8 + well[..., 0, :], well[..., 0, :], right
        ),
    }


def rectangular(x, *_):
    reflectors, factors = lax.linalg.qr(x)
    applied = {}
    if x.shape[-2] >= x.shape[-1]:
        for name, left, c in (("left", True, x), ("right", False, x.mT)):
            applied[name] = lax.linalg.ormqr(x, x[..., 0, :], c, left=left, transpose=not left)
    return {
        "lu": lax.linalg.lu(x),
        "ormqr": applied,
        "qr": (reflectors, factors),
        "qr complete": jnp.linalg.qr(x, mode="complete"),
        "qr pivoting": jsl.qr(x, pivoting=True, mode="economic"),
        "svd": jnp.linalg.svd(x, full_matrices=False),
        "svd full": jnp.linalg.svd(x),
        "svd by qr": lax.linalg.svd(x, algorithm=lax.linalg.SvdAlgorithm.QR),
        "svdvals": jnp.linalg.svd(x, compute_uv=False),
    }


@pytest.fixture(scope="module")
def linear(tmp_path_factory):
    """A function, and its artifact, for an element type."""
    folder, made = tmp_path_factory.mktemp("lapack"), {}

    def of(function, dtype, first):
        path = folder / f"{function.__name__}-{dtype}-{first[-1]}.disc"
        if path not in made:
            with jax.enable_x64(True):
                made[path] = jitted = shlo_disc.jit(function)
                given = [SPEC(first, dtype)] * 3 + [SPEC((*first[:-1], 2), dtype)]
                jitted.lower(*given).compile().save(path, TARGET)
        return made[path], path

    return of


CASES = {"square": (square, SQUARE), "tall": (rectangular, TALL), "wide": (rectangular, WIDE)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_linear_algebra_has_the_bits_of_the_compiled_program(case, dtype, linear):
    """In a process with JAX by jaxlib's handlers, in the runtime by those of the library."""
    function, shapes = CASES[case]
    jitted, path = linear(function, dtype, shapes[0])
    loaded, alone = shlo_disc.load(path), shlo_disc_runtime.load(path, lapack=bundled("scipy"))
    other = shlo_disc_runtime.load(path, lapack=bundled("numpy"))  # integers of 64 bits
    with jax.enable_x64(True):
        for shape in shapes:
            given = matrices(shape, dtype)
            want = jax.tree.leaves(jitted(*given))
            same_bits(loaded(*given), want)
            same_bits(alone(*given), want)
            for got, one in zip(other(*given), want, strict=True):
                assert (got.shape, got.dtype) == (one.shape, one.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("library", ["scipy", "numpy"])
def test_linear_algebra_is_that_of_numpy(dtype, library, linear):
    jitted, path = linear(square, dtype, SQUARE[0])
    tolerance = 2e-3 if dtype in ("f4", "c8") else 1e-10
    loaded = shlo_disc_runtime.load(path, lapack=bundled(library))
    for shape in SQUARE:
        given = matrices(shape, dtype)
        well, definite, symmetric, right = (
            x.astype(np.promote_types(x.dtype, "f8")) for x in given
        )
        with jax.enable_x64(True):
            names = jax.eval_shape(jitted, *given)
        got = jax.tree.unflatten(jax.tree.structure(names), loaded(*given))

        def close(found, wanted, what):
            scale = max(1.0, float(np.abs(wanted).max()))
            np.testing.assert_allclose(
                found, wanted, rtol=tolerance, atol=tolerance * scale, err_msg=what
            )

        close(got["cholesky"], np.linalg.cholesky(definite), "cholesky")
        det = np.linalg.det(well)
        fits = np.abs(det) < np.finfo(dtype).max  # large matrices have larger ones
        if fits.any():
            close(got["det"][fits], det[fits], "det")
        close(got["inv"], np.linalg.inv(well), "inv")
        close(got["solve"], np.linalg.solve(well, right), "solve")
        close(got["eigvalsh"], np.linalg.eigvalsh(symmetric), "eigvalsh")
        values, vectors = got["eigh"]
        close((vectors * values[..., None, :]) @ vectors.conj().swapaxes(-1, -2), symmetric, "eigh")
        values, left, vectors = got["eig"]
        close(well @ vectors, vectors * values[..., None, :], "eig")
        adjoint = left.conj().swapaxes(-1, -2)
        close(adjoint @ well, values[..., None] * adjoint, "left eigenvectors")
        form, vectors = got["schur"]
        close(vectors @ form @ vectors.conj().swapaxes(-1, -2), well, "schur")
    jitted, path = linear(rectangular, dtype, TALL[0])
    loaded = shlo_disc_runtime.load(path, lapack=bundled(library))
    for shape in TALL:
        (x, *_), wide = matrices(shape, dtype), np.promote_types(dtype, "f8")
        with jax.enable_x64(True):
            names = jax.eval_shape(jitted, *matrices(shape, dtype))
        got = jax.tree.unflatten(jax.tree.structure(names), loaded(*matrices(shape, dtype)))
        x = x.astype(wide)
        for name in ("svd", "svd by qr"):
            u, s, v = got[name]
            least = min(x.shape[-2:])
            close((u[..., :least] * s[..., None, :]) @ v[..., :least, :], x, name)
        q, r = got["qr complete"]
        close(q @ r, x, "qr")
        q, r, p = got["qr pivoting"]
        close(q @ r, np.take_along_axis(x, p[..., None, :], -1), "qr pivoting")


def test_what_fails_is_nan_as_in_jax(tmp_path):
    def program(x):
        return jnp.linalg.cholesky(x), lax.linalg.eig(x)[0], jnp.linalg.inv(x)

    jitted = shlo_disc.jit(program)
    jitted.lower(SPEC((3, 4, 4), "f4")).compile().save(tmp_path / "m.disc", TARGET)
    x = np.stack([-np.eye(4), np.full((4, 4), np.nan), np.zeros((4, 4)), np.eye(4)]).astype("f4")
    want = jax.tree.leaves(jitted(x))
    assert np.isnan(want[0][:3]).any()
    assert np.isnan(want[1][1]).all()
    same_bits(shlo_disc_runtime.load(tmp_path / "m.disc")(x), want)
    same_bits(shlo_disc.load(tmp_path / "m.disc")(x), want)


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0)])
def test_matrices_without_elements(shape, tmp_path):
    jitted = shlo_disc.jit(lambda x: (jnp.linalg.cholesky(x), jnp.linalg.svd(x)))
    jitted.lower(SPEC(shape, "f4")).compile().save(tmp_path / "m.disc", TARGET)
    x = np.zeros(shape, "f4")
    want = jax.tree.leaves(jitted(x))
    same_bits(shlo_disc_runtime.load(tmp_path / "m.disc")(x), want)
    same_bits(shlo_disc.load(tmp_path / "m.disc")(x), want)


def alone(script):
    """What a process without JAX prints."""
    script = f"""
import sys
sys.path[:] = [p for p in sys.path if p] + [{str(ROOT)!r}]
for name in ("jax", "jaxlib", "torch_mlir", "llvmlite", "shlo_disc.base"):
    sys.modules[name] = None
import json, numpy, shlo_disc_runtime
{script}
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_without_jax_finds_lapack(linear, tmp_path):
    _, path = linear(square, "f4", SQUARE[0])
    given = matrices((2, 5, 5), "f4")
    np.savez(tmp_path / "x.npz", *given)
    alone(f"""
program = shlo_disc_runtime.load({str(path)!r})
given = numpy.load({str(tmp_path / "x.npz")!r})
numpy.savez({str(tmp_path / "y.npz")!r}, *program(*given.values()))
assert "scipy" not in sys.modules
""")
    same_bits(np.load(tmp_path / "y.npz").values(), shlo_disc.load(path)(*given))


def test_a_missing_lapack_is_an_error_that_says_what_to_do(linear, tmp_path, monkeypatch):
    _, path = linear(square, "f4", SQUARE[0])
    with pytest.raises(shlo_disc_runtime.UnsupportedError) as error:
        shlo_disc_runtime.load(path, lapack=tmp_path / "none.so")
    for part in (
        r"test_calls.py:",
        "@lapack_",
        "needs LAPACK",
        "DISC_LAPACK",
        "lapack=",
        "none.so",
    ):
        assert part in str(error.value)
    monkeypatch.setenv("DISC_LAPACK", str(tmp_path / "other.so"))
    with pytest.raises(shlo_disc_runtime.UnsupportedError, match=r"other\.so"):
        shlo_disc_runtime.load(path)
    monkeypatch.setenv("DISC_LAPACK", str(bundled("numpy")))
    assert shlo_disc_runtime.load(path).signature.arguments
    with pytest.raises(shlo_disc_runtime.UnsupportedError, match="has no function s"):
        shlo_disc_runtime.load(path, lapack="libc.so.6")


# ---- handlers of the user's ---------------------------------------------------------------------


def call(name, *results):
    return jax.ffi.ffi_call(f"test_ffi.{name}", results if len(results) > 1 else results[0])


def users(x):
    """Attributes, several results, the thread pool, states of stages."""
    like = SPEC(x.shape, x.dtype)
    y, sums = call("affine", like, SPEC(x.shape[:1], "f4"))(x, x[0, :1], scale=np.float32(2))
    power = call("power", like)(y, exponent=np.int64(3))
    told = call("dump", SPEC((200,), np.uint8))(x, a={"b": "c"}, d=np.arange(3), f=True)
    total = call("pooled", SPEC((1,), "f4"))(x)
    return power, sums, told, total, call("later", like)(jnp.abs(x))


HANDLERS = ("affine", "dump", "later", "pooled")


@pytest.fixture(scope="module")
def library():
    return Path(building.registered()._name)


@pytest.fixture(scope="module")
def external(library, tmp_path_factory):
    """The artifact of :func:`users`, and the compiled function."""
    path, jitted = tmp_path_factory.mktemp("external") / "m.disc", shlo_disc.jit(users)
    jitted.lower(SPEC((5, 4), "f4")).compile().save(path, TARGET, ffi="extern")
    return path, jitted


def handlers_of(library):
    loaded = ctypes.CDLL(str(library))
    loaded.power_id.restype = loaded.power_info.restype = ctypes.c_void_p
    power = {
        "instantiate": loaded.power_instantiate,
        "execute": loaded.power,
        "type_id": loaded.power_id(),
        "type_info": loaded.power_info(),
    }
    found = {f"test_ffi.{name}": getattr(loaded, name) for name in HANDLERS}
    return loaded, found | {"test_ffi.power": power}


def test_handlers_of_the_user_are_called(external, library):
    path, jitted = external
    loaded, functions = handlers_of(library)
    capsules = functions | {"test_ffi.dump": jax.ffi.pycapsule(loaded.dump)}
    addresses = functions | {"test_ffi.dump": ctypes.cast(loaded.dump, ctypes.c_void_p).value}
    programs = [shlo_disc.load(path)]
    programs += [
        shlo_disc_runtime.load(path, handlers=given) for given in (functions, capsules, addresses)
    ]
    for rows in (1, 5, 64):
        x = np.arange(4 * rows, dtype="f4").reshape(rows, 4)
        want = jax.tree.leaves(jitted(x))
        for program in programs:
            same_bits(program(x), want)
    assert [row.name for row in read(path).manifest.foreign].count("test_ffi.power") == 1


def test_states_are_deleted_with_the_program_in_a_process_without_jax(external, library, tmp_path):
    path, jitted = external
    x = np.arange(12, dtype="f4").reshape(3, 4)
    np.save(tmp_path / "x.npy", x)
    alone(f"""
import ctypes
library = ctypes.CDLL({str(library)!r})
library.power_id.restype = library.power_info.restype = ctypes.c_void_p
library.powers.restype = ctypes.c_int64
handlers = {{f"test_ffi.{{name}}": getattr(library, name) for name in {HANDLERS!r}}}
handlers["test_ffi.power"] = dict(
    instantiate=library.power_instantiate, execute=library.power,
    type_id=library.power_id(), type_info=library.power_info())
program = shlo_disc_runtime.load({str(path)!r}, handlers=handlers)
assert library.powers() == 1
numpy.savez({str(tmp_path / "y.npz")!r}, *program(numpy.load({str(tmp_path / "x.npy")!r})))
del program
assert library.powers() == 0
""")
    same_bits(np.load(tmp_path / "y.npz").values(), jax.tree.leaves(jitted(x)))


def test_handlers_that_are_missing_are_named(external, library):
    path, _ = external
    _, given = handlers_of(library)
    without = {name: one for name, one in given.items() if name != "test_ffi.pooled"}
    with pytest.raises(shlo_disc_runtime.UnsupportedError) as error:
        shlo_disc_runtime.load(path, handlers=without)
    for part in ("test_calls.py:", "FFI target @test_ffi.pooled", "was not given", "handlers={"):
        assert part in str(error.value)
    power = {"execute": given["test_ffi.power"]["execute"]}
    with pytest.raises(shlo_disc_runtime.UnsupportedError, match="a handler of the stage inst"):
        shlo_disc_runtime.load(path, handlers=given | {"test_ffi.power": power})
    with pytest.raises(TypeError, match="must be a capsule, a function of ctypes or an address"):
        shlo_disc_runtime.load(path, handlers=given | {"test_ffi.power": "power"})
    with pytest.raises(ValueError, match="'run'"):
        shlo_disc_runtime.load(path, handlers=given | {"test_ffi.power": {"run": 1}})


def checked(x):
    return jax.ffi.ffi_call("test_ffi.checked", SPEC(x.shape, x.dtype))(x) + 1


def test_a_handler_that_fails_is_an_error_with_its_line(library, tmp_path):
    compiled = shlo_disc.jit(checked).lower(SPEC((4,), "f4")).compile()
    with pytest.raises(UnsupportedError) as refused:
        compiled.save(tmp_path / "m.disc", TARGET)
    for part in ("@test_ffi.checked", "test_calls.py:", "ffi='extern'"):
        assert part in str(refused.value)
    with pytest.raises(ValueError, match="ffi must be None or 'extern'"):
        compiled.save(tmp_path / "m.disc", TARGET, ffi="intern")
    assert not (tmp_path / "m.disc").exists()
    compiled.save(tmp_path / "m.disc", TARGET, ffi="extern")
    handlers = {"test_ffi.checked": ctypes.CDLL(str(library)).checked}
    program = shlo_disc_runtime.load(tmp_path / "m.disc", handlers=handlers)
    np.testing.assert_array_equal(program(np.ones(3, "f4"))[0], np.full(3, 1.5, "f4"))
    where = r"test_calls\.py:\d+: @test_ffi\.checked.* element 1 is negative"
    with pytest.raises(shlo_disc_runtime.ForeignCallError, match=where):
        program(np.array([1, -1], "f4"))
    with pytest.raises(ForeignCallError, match="element 1 is negative"):
        shlo_disc.load(tmp_path / "m.disc")(np.array([1, -1], "f4"))


def test_a_target_that_nobody_has_registered_is_saved_from_a_shell(tmp_path):
    (tmp_path / "m.mlir").write_text(EXTERN)
    command = [sys.executable, "-m", "shlo_disc.tools.disc_compile", str(tmp_path / "m.mlir")]
    command += ["-o", str(tmp_path / "m.disc"), "--target", TARGET[0]]
    without = subprocess.run(command, capture_output=True, text=True, check=False)
    assert without.returncode == 1
    assert "@nobody.has_it" in without.stderr
    subprocess.run([*command, "--ffi", "extern"], check=True)
    with pytest.raises(UnsupportedError, match=r"@nobody\.has_it.*or loaded: jax\.ffi\.register"):
        shlo_disc.load(tmp_path / "m.disc")
    for given in ({}, {"prepare": 1 << 20}):
        with pytest.raises(shlo_disc_runtime.UnsupportedError, match="of the stage execute, which"):
            shlo_disc_runtime.load(tmp_path / "m.disc", handlers={"nobody.has_it": given})
    dump = [sys.executable, "-m", "shlo_disc.tools.disc_dump", str(tmp_path / "m.disc")]
    told = subprocess.run(dump, capture_output=True, text=True, check=True).stdout
    assert "calls the FFI target @nobody.has_it (" in told


def test_from_c(linear, external, library, tmp_path):
    """handlers.c runs both artifacts, with handlers by name and a named LAPACK."""
    path, jitted = external
    x = np.arange(12, dtype="f4").reshape(3, 4)
    (tmp_path / "x").write_bytes(x.tobytes())
    for number, array in enumerate(jax.tree.leaves(jitted(x))):
        (tmp_path / f"want{number}").write_bytes(np.asarray(array).tobytes())
    compiled = shlo_disc.jit(jnp.linalg.cholesky).lower(SPEC((3, 3), "f4")).compile()
    compiled.save(tmp_path / "cholesky.disc", TARGET)
    (tmp_path / "extern.disc").write_bytes(path.read_bytes())
    program = built(HERE / "handlers.c", tmp_path, "-ldl")
    command = [program, tmp_path, library, bundled("scipy")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("0 failures\n", "", 0)


# ---- manifests that lie -------------------------------------------------------------------------


def lied(path, **changes):
    parts = parts_of(path.read_bytes())
    known = manifest.unpacked(parts[container.MANIFEST])
    changes = {name: value(known) if callable(value) else value for name, value in changes.items()}
    rows = tuple(replace(row, **changes) for row in known.foreign)
    packed = manifest.packed(replace(known, foreign=rows))
    return put_together(parts | {container.MANIFEST: packed})


def deep(levels):
    found = ()
    for _ in range(levels):
        found = (manifest.ForeignAttribute("a", 2, 0, 0, b"", found),)
    return found


SCALAR = manifest.ForeignAttribute("uplo", 3, 6, 1, b"L", ())
LIES = [
    ({"target": 9}, "an index out of bounds"),
    ({"target": -1}, "an index out of bounds"),
    ({"on_device": 1}, "a handler of GPUs in a program of the processor"),
    ({"stages": (4,)}, "an index out of bounds"),
    ({"operands": (manifest.ForeignBuffer("float31", 2),)}, "an unknown dtype"),
    ({"operands": (manifest.ForeignBuffer("float32", 1 << 40),)}, "a number out of bounds"),
    ({"size_attributes": (7,)}, "an index out of bounds"),
    ({"attributes": (replace(SCALAR, kind=9),)}, "a number out of bounds"),
    ({"attributes": (replace(SCALAR, bytes=b""),)}, "other bytes than its type"),
    ({"attributes": (replace(SCALAR, size=2, bytes=b"LL"),)}, "other bytes than its type"),
    ({"attributes": (replace(SCALAR, kind=1, size=1 << 61, data_type=5),)}, "other bytes than its"),
    ({"attributes": (replace(SCALAR, data_type=99),)}, "other bytes than its type"),
    ({"attributes": (replace(SCALAR, entries=(SCALAR,)),)}, "is no dictionary"),
    ({"attributes": deep(65)}, "too many dictionaries"),
    ({"attributes": ()}, "lacks the attribute uplo"),
    ({"attributes": (replace(SCALAR, kind=1),)}, "lacks the attribute uplo"),
    ({"operands": ()}, "operands or results of other types"),
    ({"results": ()}, "operands or results of other types"),
    ({"operands": (manifest.ForeignBuffer("float32", 1),)}, "operands or results of other types"),
    ({"name": "lapack_dpotrf_ffi"}, "operands or results of other types"),
    ({"name": "lapack_spotri_ffi"}, "none of the functions of LAPACK"),
    ({"name": "lapack__ffi"}, "none of the functions of LAPACK"),
    ({"name": "somebody.has_it"}, "was not given"),
    ({"stages": (0, 3)}, "needs a handler of the stage instantiate"),
]  # fmt: skip


@pytest.fixture(scope="module")
def cholesky(tmp_path_factory):
    path = tmp_path_factory.mktemp("cholesky") / "m.disc"
    shlo_disc.jit(jnp.linalg.cholesky).lower(SPEC((3, 3), "f4")).compile().save(path, TARGET)
    return path


@pytest.mark.parametrize(("lie", "why"), LIES)
def test_calls_that_lie_are_refused(lie, why, cholesky, monkeypatch):
    monkeypatch.setenv("DISC_LAPACK", str(bundled("scipy")))
    opener = Opener(ral.library())
    assert opener.outcome(lied(cholesky)) == (0, "")
    code, message = opener.outcome(lied(cholesky, **lie))
    assert why in message
    assert code in (3, 19)


def test_python_reads_them_with_care(cholesky, tmp_path):
    limit = sys.getrecursionlimit()
    for change in ({"target": 9}, {"attributes": deep(1000)}):
        sys.setrecursionlimit(20_000)
        (tmp_path / "m.disc").write_bytes(lied(cholesky, **change))
        sys.setrecursionlimit(limit)
        with pytest.raises(ArtifactError):
            shlo_disc.load(tmp_path / "m.disc")
    assert json.dumps(read(cholesky).manifest.foreign[0].name) == '"lapack_spotrf_ffi"'
