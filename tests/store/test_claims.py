"""Claims: one process compiles, others wait for it, and nobody waits for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import shlo_disc
from shlo_disc.store import claims
from shlo_disc.store.entries import Store, current

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))

HOLDER = """
import os, sys, time
from pathlib import Path
from shlo_disc.store.entries import Store
store, key = Store(Path(sys.argv[1])), bytes(range(32))
held = store.claim(key)
print("held", flush=True)
for line in sys.stdin:
    if line == "make\\n":
        store.write(key, b"made")
    if line == "fork\\n" and os.fork() == 0:
        time.sleep(60)
        os._exit(0)
    if line == "release\\n":
        held.release()
    if line == "is awaited\\n":
        while not held.is_awaited:
            time.sleep(0.001)
    print("done", flush=True)
"""


class Holder:
    """Another process, which has claimed KEY."""

    def __init__(self, store: Store) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(store.root)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self.process.stdout.readline() == "held\n"

    def do(self, what: str) -> None:
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


@pytest.fixture
def store(tmp_path) -> Store:
    tmp_path.chmod(0o700)
    return Store(tmp_path / "v1")


@pytest.fixture
def holder(store):
    found = Holder(store)
    yield found
    os.killpg(found.process.pid, signal.SIGKILL)  # its forked children, too
    found.process.communicate()


@pytest.fixture
def waiting(store, holder):
    """What a claim in a thread of this process gives once `holder` knows that it is awaited."""
    got = []
    thread = threading.Thread(target=lambda: got.append(store.claim(KEY)))
    thread.start()
    holder.do("is awaited")

    def result() -> claims.Claim | None:
        thread.join(60)
        assert not thread.is_alive()
        return got[0]

    assert not got
    return result


def files(store: Store) -> list[Path]:
    return list((store.root / "claims").iterdir())


def test_nobody_waits_for_a_claim_that_is_free(store):
    held = store.claim(KEY)
    assert held is not None
    assert not held.is_awaited
    assert len(files(store)) == 1
    held.release()
    assert files(store) == []
    again = store.claim(KEY)
    assert again is not None
    again.release()


def test_a_process_waits_for_what_another_makes(store, holder, waiting):
    holder.do("make")
    holder.do("release")
    assert waiting() is None
    assert store.read(KEY) == b"made"


def test_a_holder_that_makes_nothing_hands_its_claim_over(store, holder, waiting):
    holder.do("release")
    found = waiting()
    assert found is not None
    found.release()


def test_a_holder_that_is_killed_hands_its_claim_over(store, holder, waiting):
    holder.process.kill()
    found = waiting()
    assert found is not None
    found.release()
    assert files(store) == []


def test_a_forked_child_holds_nothing(store, holder, waiting):
    holder.do("fork")
    holder.do("make")
    holder.do("release")
    assert waiting() is None


def test_a_wait_ends(store, holder, monkeypatch):
    monkeypatch.setattr(claims, "LONGEST_WAIT_S", 0.1)
    start = time.monotonic()
    assert store.claim(KEY) is None
    assert 0.1 <= time.monotonic() - start < 5


def test_who_holds_a_claim_waits_for_none(store, holder):
    """Or two processes could wait for each other."""
    own = store.claim(OTHER)
    assert own is not None
    start = time.monotonic()
    assert store.claim(KEY) is None
    assert time.monotonic() - start < claims.LONGEST_WAIT_S / 2
    own.release()


def test_threads_of_one_process_do_not_wait(store):
    held = store.claim(KEY)
    assert store.claim(KEY) is None
    held.release()


@pytest.mark.parametrize("at", ["v1", "v1/claims"])
def test_a_folder_without_place_for_claims(tmp_path, at):
    (tmp_path / at).parent.mkdir(exist_ok=True)
    (tmp_path / at).write_text("a file")
    assert Store(tmp_path / "v1").claim(KEY) is None


def test_abandoned_claims_go(store, monkeypatch):
    held = store.claim(KEY)
    old = time.time() - 2 * 60 * 60
    os.utime(files(store)[0], (old, old))
    store.prune(1 << 30)
    assert files(store) == []
    held.release()


PROGRAM = """
import sys
import jax.numpy as jnp
import numpy as np
import shlo_disc
print("ready", flush=True)
sys.stdin.readline()
f = shlo_disc.jit(lambda x: jnp.tanh(x @ x.T).sum(0))
x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)
np.testing.assert_allclose(f(x), np.tanh(x @ x.T).sum(0), rtol=1e-5)
text = '''
func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {
  %b = stablehlo.exponential %a : tensor<?xf32>
  return %b : tensor<?xf32>
}
'''
(y,) = shlo_disc.compile(text).run_numpy([x[0]])
np.testing.assert_allclose(y, np.exp(x[0]), rtol=1e-5)
info = f.cache_info()
counts = shlo_disc.cache.stats()
print(info.misses - info.loaded, counts["programs_loaded"], flush=True)
"""


def told(program: str, folder: Path, count: int) -> list[list[str]]:
    """What each of `count` processes prints that begin `program` together."""
    environment = {"SHLO_DISC_CACHE": "1", "SHLO_DISC_CACHE_DIR": str(folder),
                   "SHLO_DISC_COMPILE_AHEAD": "1"}  # fmt: skip
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    rows = [process.communicate(timeout=300)[0].split() for process in processes]
    assert all(process.returncode == 0 for process in processes)
    return rows


def test_processes_that_begin_together_compile_once(tmp_path):
    rows = told(PROGRAM, tmp_path / "store", 4)
    assert sorted(row[0] for row in rows) == ["0", "0", "0", "1"]
    assert sum(int(row[1]) for row in rows) == 6, rows


MEETING = """
import sys, time
from pathlib import Path
import jax
import numpy as np
import shlo_disc
own, folder = int(sys.argv[1]), Path(FOLDER)
def meet(x):
    (folder / str(own)).touch()
    end = time.monotonic() + 25
    while not (folder / str(1 - own)).exists():
        assert time.monotonic() < end
        time.sleep(0.01)
    return x
print("ready", flush=True)
sys.stdin.readline()
f = shlo_disc.jit(lambda x: jax.pure_callback(meet, jax.ShapeDtypeStruct(x.shape, x.dtype), x) + 1)
print(np.asarray(f(np.ones(3, np.float32))).sum(), flush=True)
"""


def test_first_calls_may_wait_for_each_other(tmp_path):
    """As those of MPI do: then a process does not wait until the other one has run."""
    program = MEETING.replace("FOLDER", repr(str(tmp_path)))
    assert told(program, tmp_path / "store", 2) == [["6.0"], ["6.0"]]


def test_calls_leave_no_claims(own_store):
    x = np.ones((3, 4), np.float32)

    def refused(x):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        shlo_disc.jit(refused)(x)
    f = shlo_disc.jit(lambda x: jnp.tanh(x).sum(1) + 17)
    f(x)
    shlo_disc.finish_compiling()
    store = current("calls")
    assert files(store) == []
    assert len(list(store.entries())) > 2
