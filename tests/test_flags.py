"""Environment variables: a bad value is refused, with the name, the value and what is allowed."""

import os
import subprocess
import sys

import numpy as np
import pytest

import shlo_disc
from shlo_disc.base import flags

TEXT = "func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {\n  return %x : tensor<?xf32>\n}"

# Of every flag: values that are allowed, and values that are not.
SWITCH = (["0", "1"], ["2", "-1", "true", "yes", "on", " 1", "1 ", "0x1", "1.0", "\u0661"])
BYTES = (
    ["0", "4096", str(2**63 - 1)],
    ["-1", "1GB", "1e9", "0x10", "1_000", str(2**63), "9" * 40, "lots", "+5", " 7"],
)
VALUES = {
    "amx": (["0", "1", "soft"], ["2", "hard", "Soft", "soft "]),
    "cache": SWITCH,
    "cache_bytes": BYTES,
    "compile_ahead": SWITCH,
    "cache_dir": (["/tmp/somewhere/new", "~/new"], ["new", "./new", "../new"]),
    "debug": (["0", "1", "2", "3", "4", "5"], ["6", "-1", "2.0", "verbose", "05", "1\n"]),
    "cuda_library": (
        ["libcuda.so", "/opt/driver/libcuda.so.1"],
        ["/opt/driver/", "nvcuda.dll", "a.so/b"],
    ),
    "dump": (["/tmp/somewhere/new"], ["/dev/null"]),
    "fusion": SWITCH,
    "gpu_cubins": SWITCH,
    "gpu_graphs": SWITCH,
    "gpu_host_memory": SWITCH,
    "gpu_overlap": SWITCH,
    "gpu_pool_bytes": BYTES,
    "gpu_sync": SWITCH,
    "num_threads": (["0", "1", "1024"], ["1025", "-1", "two", "2.5", "4,4", "1e3", "9" * 40]),
    "on_unsupported": (["xla", "error"], ["eager", "XLA", "1"]),
    "pack_bytes": BYTES,
    "pool_bytes": BYTES,
    "rocm_library": (["libamdhip64.so.6"], ["amdhip64"]),
    "spec": SWITCH,
    "split": SWITCH,
    "trust_bytecode": SWITCH,
}
READERS = {
    "amx": flags.amx,
    "cache": flags.cache,
    "cache_bytes": flags.cache_bytes,
    "compile_ahead": flags.compile_ahead,
    "cache_dir": flags.cache_dir,
    "debug": flags.debug_level,
    "dump": flags.dump_dir,
    "fusion": flags.fusion,
    "gpu_cubins": flags.gpu_cubins,
    "num_threads": flags.num_threads,
    "on_unsupported": flags.on_unsupported,
    "spec": flags.spec_checks,
    "split": flags.split,
    "trust_bytecode": flags.trust_bytecode,
}


def test_every_flag_is_in_the_table():
    assert VALUES.keys() == flags.FLAGS.keys()


@pytest.mark.parametrize("key", VALUES)
def test_allowed_values(key, monkeypatch):
    flag = flags.FLAGS[key]
    read = READERS.get(key, lambda: flags.value(key))
    for text in ("", *VALUES[key][0]):
        monkeypatch.setenv(flag.name, text)
        read()
        assert flags.value(key) == (text or flag.default)
    monkeypatch.delenv(flag.name)
    assert flags.value(key) == flag.default


@pytest.mark.parametrize("key", VALUES)
def test_bad_values_are_refused(key, monkeypatch):
    flag = flags.FLAGS[key]
    read = READERS.get(key, lambda: flags.value(key))
    for text in VALUES[key][1]:
        monkeypatch.setenv(flag.name, text)
        with pytest.raises(ValueError, match=flag.name) as raised:
            read()
        why = "which is no directory" if key == "dump" else f"it must be {flag.kind.allowed}"
        assert f"{flag.name} is {text!r}" in str(raised.value)
        assert why in str(raised.value)


@pytest.mark.parametrize("key", [k for k in VALUES if k not in ("dump", "trust_bytecode")])
def test_a_compilation_refuses_a_bad_value_of_any_flag(key, monkeypatch):
    flag, bad = flags.FLAGS[key], VALUES[key][1][0]
    monkeypatch.setenv(flag.name, bad)
    with pytest.raises(ValueError, match=flag.name) as raised:
        shlo_disc.compile(TEXT)
    text = f"{flag.name} is {bad!r}; it must be {flag.kind.allowed}, or unset"
    assert str(raised.value) == text
    with pytest.raises(ValueError, match=flag.name) as raised:
        shlo_disc.jit(lambda x: x + 1)(np.ones(3, np.float32))
    assert str(raised.value) == text


def test_a_block_refuses_a_bad_value_when_it_is_entered():
    for key, (_, bad) in VALUES.items():
        if key == "dump":
            continue
        with pytest.raises(ValueError, match=flags.FLAGS[key].name):
            flags.overridden(**{key: bad[0]}).__enter__()


@pytest.mark.parametrize("name", ["NUM_THREADS", "PACK_BYTES", "POOL_BYTES"])
def test_the_runtime_refuses_bad_values(name):
    done = subprocess.run(
        [sys.executable, "-c", "from shlo_disc import ral; print(ral.num_threads())"],
        env={**os.environ, f"SHLO_DISC_{name}": "many"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode != 0
    assert f"ValueError: SHLO_DISC_{name} is 'many'; it must be a whole number" in done.stderr
