"""XLA's code of references is loaded by the next process, and bad files are compiled anew."""

import os

from tests import references
from tests.children import forked


def told(folder):
    """What a process computes, and how many programs it loaded and compiled for that."""
    return forked(f"""
        import warnings
        from pathlib import Path
        import jax, numpy as np
        from tests import references
        warnings.simplefilter("ignore")  # JAX tells of files that it cannot read
        references.keep(Path({str(folder)!r}))
        found = jax.jit(lambda x: x * 2 + 1)(np.arange(3, dtype=np.int32))
        print(found, references.COUNTS["loaded"], references.COUNTS["compiled"])
    """)


def test_the_next_process_loads_what_one_compiled(tmp_path):
    folder = tmp_path / "references"
    assert told(folder) == "[1 3 5] 0 1"
    (file,) = folder.iterdir()
    assert told(folder) == "[1 3 5] 1 0"
    whole = file.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"\0" * len(whole)):
        file.write_bytes(damaged)
        assert told(folder).startswith("[1 3 5]")
        assert told(folder) == "[1 3 5] 1 0"
        assert len(file.read_bytes()) > len(whole) // 2


def test_files_not_used_for_longest_are_removed(tmp_path):
    for age, name in enumerate("abcd"):
        (tmp_path / name).write_bytes(b"x" * 10)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    references.prune(tmp_path, 25)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    references.prune(tmp_path / "none", 25)


def test_another_cpu_has_other_files(tmp_path):
    kept = references.References(tmp_path)
    kept.put("key", b"code")
    assert references.References(tmp_path).get("key") == b"code"
    kept._cpu += " another feature"
    assert kept.get("key") is None
