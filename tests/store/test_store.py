"""The kernel store: what was written is read, and everything else is a miss."""

from __future__ import annotations

import errno
import os
import random
import signal
import stat
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import jax
import platformdirs
import pytest
from click.testing import CliRunner

from shlo_disc import cache
from shlo_disc.lower.cpu import code_key
from shlo_disc.store import entries, folder, format
from shlo_disc.store.entries import COUNTS, Store
from shlo_disc.tools.disc_cache import main

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
CODE = bytes(random.Random(0).randbytes(3000))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


@pytest.fixture
def store(tmp_path) -> Store:
    tmp_path.chmod(0o700)
    return Store(tmp_path / "v1")


@pytest.fixture
def file(store) -> Path:
    """The file of an entry."""
    store.write(KEY, CODE)
    return store.path(KEY)


def counted(action) -> dict[str, int]:
    """What `action` counts."""
    before = COUNTS.now()
    action()
    return {name: n - before[name] for name, n in COUNTS.now().items() if n != before[name]}


def test_memory_is_allocated_for_what_is_read_alone(store):
    content = bytes(100_000)
    store.write(KEY, content)
    tracemalloc.start()
    try:
        assert store.read(KEY) == content
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * len(content)


def test_what_is_written_is_read(store):
    assert counted(lambda: store.read(KEY)) == {"missing": 1}
    assert counted(lambda: store.write(KEY, CODE)) == {"stored": 1}
    store.write(OTHER, b"")
    assert (store.read(KEY), store.read(OTHER)) == (CODE, b"")
    assert not list((store.root / "tmp").iterdir())
    for path in (store.root, store.root / "kernels", store.path(KEY).parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    assert stat.S_IMODE(store.path(KEY).stat().st_mode) == 0o600


def test_mutations_are_misses(store, file):
    whole = file.read_bytes()
    random_ = random.Random(1)
    for _ in range(3000):
        at, value = random_.randrange(len(whole)), random_.randrange(256)
        with pytest.raises(format.DamagedError) if value != whole[at] else _nothing():
            format.unpacked(KEY, whole[:at] + bytes([value]) + whole[at + 1 :])
    for length in range(0, len(whole), 7):
        with pytest.raises(format.DamagedError):
            format.unpacked(KEY, whole[:length])
    with pytest.raises(format.DamagedError):
        format.unpacked(KEY, whole + b"\0")


class _nothing:
    def __enter__(self): ...

    def __exit__(self, *_): ...


def of_another_key(path, store):
    store.write(OTHER, CODE)
    path.write_bytes(store.path(OTHER).read_bytes())


def newer(path, store):
    path.write_bytes(path.read_bytes().replace(b"\1\0\0\0", b"\2\0\0\0", 1))


def link(path, store):
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def pipe(path, store):
    path.unlink()
    os.mkfifo(path)


def in_place(path, store):
    path.unlink()
    path.mkdir()


UNUSABLE = {
    "empty": lambda path, _: path.write_bytes(b""),
    "truncated": lambda path, _: os.truncate(path, 1000),
    "longer": lambda path, _: path.write_bytes(path.read_bytes() + b"\0"),
    "newer": newer,
    "of another key": of_another_key,
    "others may write": lambda path, _: path.chmod(0o666),
    "the group may write": lambda path, _: path.chmod(0o660),
    "link": link,
    "pipe": pipe,
    "folder": in_place,
    "foreign": lambda path, _: os.chown(path, 12345, -1),
}


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=needs_root if k == "foreign" else ()) for k in UNUSABLE]
)
def test_what_cannot_be_used_is_a_miss_and_replaced(store, file, kind):
    UNUSABLE[kind](file, store)
    found = []
    counts = counted(lambda: found.append(store.read(KEY)))
    assert found == [None]
    assert sum(counts.values()) == 1
    assert counts.keys() <= {"damaged", "unreadable"}
    store.write(KEY, CODE)
    assert store.read(KEY) == (None if kind == "folder" else CODE)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO])
@pytest.mark.parametrize("step", ["open", "write", "rename"])
def test_a_file_that_the_system_does_not_take_is_left_out(store, monkeypatch, number, step):
    store.write(OTHER, CODE)

    def fail(*_, **__):
        raise OSError(number, os.strerror(number))

    class Full:
        def __init__(self, descriptor, _):
            self.descriptor = descriptor

        def __enter__(self):
            return self

        def __exit__(self, *_):
            os.close(self.descriptor)

        write = fail

    with monkeypatch.context() as patch:
        if step == "open":
            patch.setattr(entries.os, "open", fail)
        elif step == "write":
            patch.setattr(entries, "open", Full, raising=False)
        else:
            patch.setattr(Path, "replace", fail)
        assert counted(lambda: store.write(KEY, CODE)) == {"not_stored": 1}
    assert (store.read(KEY), store.read(OTHER)) == (None, CODE)
    assert not list((store.root / "tmp").iterdir())


def test_a_store_that_is_removed_is_made_again(store, file):
    for path in sorted(store.root.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert store.read(KEY) is None
    store.write(KEY, CODE)
    assert store.read(KEY) == CODE


def filled(store: Store, count: int) -> list[bytes]:
    """Keys of `count` entries, the least recently used first."""
    keys = [k.to_bytes(32, "big") for k in range(count)]
    for age, key in enumerate(reversed(keys), 1):
        store.write(key, CODE)
        then = time.time() - 3600 * age
        os.utime(store.path(key), (then, then))
    return keys


def test_the_store_is_bounded(store, monkeypatch):
    keys = filled(store, 10)
    size = len(format.packed(KEY, CODE))
    monkeypatch.setenv("SHLO_DISC_CACHE_BYTES", str(8 * size))
    store.write(KEY, CODE)  # a scan was a moment ago
    assert len(list(store.entries())) == 11
    os.utime(store.root / "lock", (0, 0))
    store.write(KEY, CODE)
    kept = [key for key in keys if store.read(key)]
    assert kept == keys[-6:]  # the new one, and what makes 90 %
    assert store.read(KEY) == CODE


def test_a_scan_leaves_a_scan_of_another_process_alone(store, monkeypatch):
    import fcntl

    filled(store, 3)
    monkeypatch.setenv("SHLO_DISC_CACHE_BYTES", "0")
    os.utime(store.root / "lock", (0, 0))
    with open(store.root / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        store.write(KEY, CODE)
        assert len(list(store.entries())) == 4
    os.utime(store.root / "lock", (0, 0))
    store.write(KEY, CODE)
    assert not list(store.entries())


def test_use_is_noted_once_a_day(store, file):
    for age, noted in [(3600, False), (100_000, True)]:
        then = time.time() - age
        os.utime(file, (then, then))
        store.read(KEY)
        assert (time.time() - file.stat().st_mtime < 60) == noted


def test_files_of_writers_that_died_are_removed(store, file):
    left = [store.root / "tmp" / name for name in ("old", "new")]
    for path in left:
        path.write_bytes(b"part")
    os.utime(left[0], (0, 0))
    store.prune(1 << 30)
    assert [path.exists() for path in left] == [False, True]
    assert store.read(KEY) == CODE


# ---------------------------------------------------------------- where it is


@pytest.fixture
def settings(monkeypatch, tmp_path):
    """Nothing is said of the store, in the environment or to JAX."""
    for name in ("SHLO_DISC_CACHE", "SHLO_DISC_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    return monkeypatch


def test_which_folder_is_used(settings, tmp_path):
    assert folder.configured() == tmp_path / "shlo_disc"
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_enable_compilation_cache
    try:
        jax.config.update("jax_compilation_cache_dir", "/some/where")
        assert folder.configured() == Path("/some/where/shlo_disc")
        jax.config.update("jax_compilation_cache_dir", "gs://bucket/place")
        assert folder.configured() == tmp_path / "shlo_disc"
        settings.setenv("SHLO_DISC_CACHE_DIR", "/our/own")
        assert folder.configured() == Path("/our/own")
        jax.config.update("jax_enable_compilation_cache", False)
        assert folder.configured() is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before[0])
        jax.config.update("jax_enable_compilation_cache", before[1])
    settings.setenv("SHLO_DISC_CACHE", "0")
    assert folder.configured() is None
    assert cache.dir() is None


def test_what_jax_would_say_that_is_not_imported(settings, tmp_path):
    settings.delitem(sys.modules, "jax")
    assert folder.configured() == tmp_path / "shlo_disc"
    settings.setenv("JAX_COMPILATION_CACHE_DIR", "/some/where")
    assert folder.configured() == Path("/some/where/shlo_disc")
    settings.setenv("JAX_ENABLE_COMPILATION_CACHE", "False")
    assert folder.configured() is None


@pytest.mark.parametrize(
    ("above", "mode", "reason"),
    [
        (0o700, 0o700, None),
        (0o755, 0o755, None),
        (0o1777, 0o700, None),
        (0o777, 0o700, "others may write to .*above"),
        (0o775, 0o700, "others may write to .*above"),
        (0o700, 0o770, "others may write to .*kept"),
        (0o700, 0o1777, "others may write to .*kept"),
    ],
)
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path, caplog, above, mode, reason):
    path = tmp_path / "above" / "kept"
    path.mkdir(parents=True)
    path.chmod(mode)
    path.parent.chmod(above)
    used = [folder.opened(path) for _ in range(3)]
    lines = [r.getMessage() for r in caplog.records]
    if reason is None:
        assert (used, lines) == ([path] * 3, [])
    else:
        assert used == [None] * 3
        assert len(lines) == 1  # said once
        with pytest.raises(AssertionError, match=reason):
            raise AssertionError(lines[0])


@needs_root
def test_a_folder_of_another_user_is_not_used(tmp_path, caplog):
    path = tmp_path / "above" / "kept"
    path.mkdir(parents=True)
    os.chown(path.parent, 12345, -1)
    assert folder.opened(path) is None
    assert "belongs to user 12345" in caplog.text


def test_a_folder_that_cannot_be_made_is_no_matter(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    assert folder.opened(tmp_path / "file" / "below") is None
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    assert folder.opened(tmp_path / "circle") is None
    assert not caplog.records


def test_a_folder_is_made_for_its_user_alone(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "real")
    found = folder.opened(tmp_path / "link")
    assert found == tmp_path / "real"
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
    assert (found / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f068")


# ---------------------------------------------------------------- keys

ROWS = [("text", ("k1",), 3, "", "cse", False), ("text2", ("k1",), 3, "", "cse", False),
        ("text", ("k2",), 3, "", "cse", False), ("text", ("k1",), 1, "", "cse", False),
        ("text", ("k1",), 3, "-avx512f", "cse", False), ("text", ("k1",), 3, "", "cse,cse", False),
        ("text", ("k1",), 3, "", "cse", True)]  # fmt: skip


def test_each_thing_that_code_depends_on_changes_its_key(monkeypatch):
    keys = [code_key.code_key(*row) for row in ROWS]
    assert len(set(keys)) == len(ROWS)
    assert [code_key.code_key(*row) for row in ROWS] == keys
    for name, other in [("cpu_identity", lambda: b"another CPU"), ("_compiler", lambda: "LLVM 99"),
                        ("_generator", lambda: b"other sources"), ("VERSION", 2)]:  # fmt: skip
        with monkeypatch.context() as patch:
            patch.setattr(code_key, name, other)
            keys.append(code_key.code_key(*ROWS[0]))
    assert len(set(keys)) == len(keys)


def test_the_compiler_is_told_by_the_digest_of_its_library():
    identity = code_key._compiler.__wrapped__()
    assert "sha256=" in identity
    assert identity.startswith("torch-mlir ")


# ---------------------------------------------------------------- processes

WORK = """
import os, random, sys
from pathlib import Path
from shlo_disc.store.entries import COUNTS, Store
os.environ["SHLO_DISC_CACHE_BYTES"] = "60000"
store, seed, count = Store(Path(sys.argv[1])), int(sys.argv[2]), int(sys.argv[3])
random_ = random.Random(seed)
def code(n):
    return random.Random(n).randbytes(100 + 53 * n)
print("begun", flush=True)
for k in range(count):
    n = random_.randrange(40)
    key = n.to_bytes(32, "big")
    found = store.read(key)
    assert found in (None, code(n)), n
    if found is None:
        store.write(key, code(n))
    if k % 50 == 49:
        store.prune(30_000)
if len(sys.argv) > 4 and os.fork() == 0:
    assert all(store.read(n.to_bytes(32, "big")) in (None, code(n)) for n in range(40))
    store.write((99).to_bytes(32, "big"), b"of a child")
    os._exit(0)
counts = COUNTS.now()
assert not counts["damaged"] and not counts["unreadable"] and not counts["not_stored"], counts
"""


def started(store: Store, seed: int, *rest: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WORK, str(store.root), str(seed), *map(str, rest)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_eight_processes_at_once(store):
    children = [started(store, seed, 300, "fork") for seed in range(8)]
    for child in children:
        _, error = child.communicate(timeout=300)
        assert child.returncode == 0, error
    assert store.read((99).to_bytes(32, "big")) in (None, b"of a child")
    assert all(entry.content() is not None for entry in store.entries())
    assert not list((store.root / "tmp").iterdir())


def test_processes_that_are_killed_leave_whole_entries(store):
    for seed in range(4):
        child = started(store, seed, 10**9)
        assert child.stdout.readline() == "begun\n"
        time.sleep(0.05 * seed)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
    assert all(entry.content() is not None for entry in store.entries())
    done = started(store, 9, 100)
    assert done.communicate(timeout=60)[1] == ""


# ---------------------------------------------------------------- the tool


def test_the_tool(store, file):
    filled(store, 3)

    def told(*arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(main, ["--dir", str(store.root.parent), *arguments])
        assert done.exit_code == status, done.output
        return done.output

    assert len(told("ls").splitlines()) == 4
    assert KEY.hex() in told("ls").splitlines()[0]
    assert "entries 4" in told("stats")
    assert "removed 1 " in told("prune", "--older-than", "150m")
    assert "removed 1 " in told("prune", "--to", "7k")
    # What the store holds is random here, so that the loader refuses it.
    assert "2 entries, 2 damaged" in told("verify", status=1)
    assert "2 damaged" in told("verify", "--remove", status=1)
    assert "0 entries, 0 damaged" in told("verify")
    store.write(KEY, CODE)
    assert "removed 1 " in told("clear")
    assert CliRunner().invoke(main, ["--dir", "/nowhere", "ls"]).exit_code == 1
