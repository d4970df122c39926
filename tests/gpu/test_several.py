"""Several GPUs in one program of JAX: four CPU devices stand for them, with four of the stand-in.

XLA takes them for CPUs: its collectives and its partitioner are those of CPUs.
"""

from types import SimpleNamespace

import jax
import pytest

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.jax.derived import primitive
from tests.frontend.test_sharded import in_one_process

pytest.importorskip("llvmlite")

PRELUDE = """
    import contextlib, threading
    from shlo_disc.executables.devices import stand_in_for
    from tests.gpu.stand_in import StandIn

    driver = StandIn.started()
    driver.library.stand_in_strict(0)
    driver.library.stand_in_devices(4)
    gpus = contextlib.ExitStack()
    for ordinal, device in enumerate(jax.devices("cpu")):
        gpus.enter_context(stand_in_for(device, "cuda", ordinal))

    def F(*shape):
        return random.integers(-4, 5, shape).astype(np.float32)

    def launches():
        return np.array([driver.library.stand_in_launches_on(k) for k in range(4)])

    as_arrays = alike

    def alike(got, want):
        as_arrays(got, want, atol=1e-4)
        assert not driver.errors
"""

CHECKS = {
    "blocks and sums inside jax.jit": """
        def mixed(w, x):
            return jnp.tanh(x @ w) * 2, x.sum(0), (x @ w).mean()

        f = shlo_disc.jit(mixed)
        ours, theirs = jax.jit(lambda w, x: f(w, x)), jax.jit(mixed)
        for b in (8, 12, 8):
            before = launches()
            args = F(3, 5), on(line, F(b, 3), "i")
            alike(ours(*args), theirs(*args))
            assert (launches() > before).all()  # each GPU has its block
        assert exchanged(ours, *args) == {"all-reduce"}
        assert f.cache_info().misses == 1, f.cache_info()
        args = on(square, F(4, 6), None, "j"), on(square, F(6, 4), "i")
        alike(ours(*args), theirs(*args))
    """,
    "gradients of a training step": """
        def loss(w, x, y):
            return ((jnp.tanh(x @ w) - y) ** 2).mean()

        f = shlo_disc.jit(loss)
        ours = jax.jit(lambda *args: jax.value_and_grad(f)(*args))
        theirs = jax.jit(jax.value_and_grad(loss))
        for b in (8, 4):
            args = on(line, F(3, 2)), on(line, F(b, 3), "i"), on(line, F(b, 2), "i")
            with jax.default_matmul_precision("highest"):
                alike(ours(*args), theirs(*args))
        assert exchanged(ours, *args) == {"all-reduce"}
    """,
    "calls with arrays on several GPUs": """
        def function(x):
            return {"y": jnp.tanh(x) * 3, "sum": x.sum()}

        f, g = shlo_disc.jit(function), jax.jit(function)
        for b in (4, 8, 8, 8):
            before = launches()
            x = on(line, F(b, 3), "i")
            alike(f(x), g(x))
            assert (launches() > before).all()
        assert f.cache_info().misses == 1
        assert "runs as jax.jit" not in f.explain()
        sort = shlo_disc.jit(lambda x: jnp.sort(x, 0))
        alike(sort(x), jax.jit(lambda x: jnp.sort(x, 0))(x))
        assert "argument x is spread over 4 devices" in sort.explain()
    """,
    "what cannot be split is gathered": """
        sort = shlo_disc.jit(lambda x: jnp.sort(x, 0))
        x = on(line, F(8, 3), "i")
        ours = jax.jit(lambda x: sort(x))
        np.testing.assert_array_equal(ours(x), np.sort(x, 0))
        assert exchanged(ours, x) == {"all-gather"}
    """,
    "one GPU after the other": """
        f = shlo_disc.jit(lambda x: jnp.cumsum(x) + x.sum())
        x = F(7)
        for turn in range(4):  # from the third call on XLA enqueues it
            for k, device in enumerate(jax.devices()):
                before = launches()
                y = f(jax.device_put(x, device))
                assert y.devices() == {device}
                np.testing.assert_allclose(y, np.cumsum(x) + x.sum())
                assert set(np.flatnonzero(launches() > before)) == {k}
        assert f.cache_info().misses == 1
    """,
    "shard_map": """
        f = shlo_disc.jit(lambda x, w: jnp.tanh(x @ w))

        def program(f):
            def run(x, w):
                return f(x, w) + jax.lax.psum(x.sum(), "i")
            return jax.jit(jax.shard_map(run, mesh=line, in_specs=(P("i"), P()), out_specs=P("i")))

        for b in (8, 4):
            before = launches()
            x, w = F(b, 4), F(4, 4)
            with jax.default_matmul_precision("highest"):
                alike(program(f)(x, w), program(lambda x, w: jnp.tanh(x @ w))(x, w))
                grad = lambda f: jax.grad(lambda x, w: program(f)(x, w).sum(), (0, 1))(x, w)
                alike(grad(f), grad(lambda x, w: jnp.tanh(x @ w)))
            assert (launches() > before).all()
        assert f.cache_info().misses <= 4  # with its derivatives
    """,
    "a handler of the host": """
        f = shlo_disc.jit(jnp.linalg.cholesky)
        ours = jax.jit(lambda a: f(a))
        a = F(8, 3, 3)
        a = a @ a.mT + 9 * np.eye(3, dtype="f4")
        got = ours(on(line, a, "i"))  # no blocks: the operand is gathered
        np.testing.assert_allclose(got, np.linalg.cholesky(a), rtol=1e-4, atol=1e-4)
    """,
    "threads": """
        f = shlo_disc.jit(lambda x: jnp.tanh(x).sum(0) * 2)
        xs = [on(line, F(4 * (k + 1), 3), "i") for k in range(3)]
        want, wrong = [np.tanh(x).sum(0) * 2 for x in xs], []

        def work(k):
            for _ in range(3):
                if not np.allclose(f(xs[k % 3]), want[k % 3], atol=1e-4):
                    wrong.append(k)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert wrong == []
    """,
}


def test_gpus_that_differ_are_refused(monkeypatch):
    targets = iter(["cuda:sm_90a", "cuda:sm_80"])
    monkeypatch.setattr(primitive, "place_of", lambda _: SimpleNamespace(target=next(targets)))
    monkeypatch.setattr(jax, "local_devices", lambda backend: [0, 1])
    with pytest.raises(UnsupportedError, match=r"f is used .* differ: cuda:sm_80, cuda:sm_90a"):
        primitive._target_on("cuda", "f", is_alone=False)


SHORT = ("blocks and sums inside jax.jit", "one GPU after the other")


@pytest.mark.parametrize(
    "names", [SHORT, pytest.param(tuple(CHECKS.keys() - SHORT), marks=pytest.mark.slow)]
)
def test_several_gpus(names):
    checks = {name: code for name, code in CHECKS.items() if name in names}
    in_one_process({**checks, "the end": "gpus.close()"}, PRELUDE)
