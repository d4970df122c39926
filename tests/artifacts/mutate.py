"""Opens damaged artifacts: `python -m tests.artifacts.mutate LIBRARY FOLDER COUNT SEED`.

`FOLDER` is that of checks.c. Each artifact is refused with a named error, or it gives the results
of the whole one. Some have a manifest or code that was damaged before its digest was made; these
are opened and asked, not run. Prints how many were refused, by code of the error.
"""

from __future__ import annotations

import ctypes
import random
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path

from shlo_disc.artifacts import container
from shlo_disc_runtime.library import Handler, Options
from tests.artifacts.building import manifest_of, parts_of, put_together, with_code

FILE, DAMAGED, NEWER, NO_TARGET, NO_HANDLER = 2, 3, 4, 5, 19
KINDS = ("file", "manifest", "code", "weights", "manifest of weights", "manifest of packs",
         "manifest of kernels", "manifest of calls")  # fmt: skip
EDGES = (0, 1, 2, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)


class Array(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_char_p), ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("rank", ctypes.c_int32),
        ("weight", ctypes.c_void_p),
    ]  # fmt: skip


class Buffer(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("sizes", ctypes.c_void_p),
        ("memory", ctypes.c_void_p),
    ]  # fmt: skip


class Spec(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("name", ctypes.c_char_p), ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("sizes", ctypes.POINTER(ctypes.c_int64)),
        ("texts", ctypes.POINTER(ctypes.c_char_p)), ("is_donated", ctypes.c_int32),
        ("is_packable", ctypes.c_int32), ("donated_to", ctypes.c_int64),
    ]  # fmt: skip


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to three changes: bits, bytes, numbers, pieces cut, doubled, moved or zeroed."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(out) + 1)
        length = min(rng.choice((1, 2, 4, 8, 64, 500, 5000)), len(out) - at)
        match rng.randrange(8):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.randrange(256)
            case 2 | 3:
                size = rng.choice((2, 4, 8))
                if at + size <= len(out):
                    edge = rng.choice((*EDGES, len(out), len(out) - at, at))
                    out[at : at + size] = struct.pack("<Q", edge)[:size]
            case 4:
                del out[at : at + length]
            case 5:
                out[at:at] = out[at : at + length]
            case 6:
                out[at : at + length] = bytes(length)
            case 7:
                del out[rng.choice((at, len(out) - 1, len(out) - 80)) :]
        if not out:
            return b""
    return bytes(out)


class Opener:
    """The library; it checks what opened artifacts tell and give."""

    def __init__(self, library: str, folder: Path | None = None):
        self.library = lib = ctypes.CDLL(library)
        lib.disc_error_message.restype = ctypes.c_char_p
        lib.disc_program_arguments.restype = lib.disc_program_results.restype = ctypes.c_size_t
        for name in ("open", "open_memory", "argument", "result", "run"):
            getattr(lib, f"disc_program_{name}").restype = ctypes.c_void_p
        self.handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: None)
        address = ctypes.cast(self.handler, ctypes.c_void_p)
        self.handlers = Handler(b"nobody.has_it", execute=address)
        self.options = Options(ctypes.sizeof(Options), handler_count=1)
        self.options.handlers = ctypes.pointer(self.handlers)
        if folder is None:
            return
        self.inputs = [(folder / name).read_bytes() for name in ("x", "y", "w")]
        self.wanted = [(folder / f"want{i}").read_bytes() for i in range(2)]

    def check(self, error: int | None) -> None:
        if error is not None:
            raise AssertionError(self.library.disc_error_message(ctypes.c_void_p(error)))

    def run(self, program: ctypes.c_void_p) -> None:
        sizes = [(ctypes.c_int64 * len(row))(*row) for row in ((5, 33), (5, 33), (33, 48))]
        rows = [
            Array(d, s, None, 11, len(s), None) for d, s in zip(self.inputs, sizes, strict=True)
        ]
        results = (Buffer * 2)()
        self.check(self.library.disc_program_run(program, (Array * 3)(*rows), 3, results, 2))
        for result, wanted in zip(results, self.wanted, strict=True):
            assert ctypes.string_at(result.data, result.bytes) == wanted
            self.library.disc_memory_release(ctypes.c_void_p(result.memory))

    def ask(self, program: ctypes.c_void_p) -> None:
        for kind in ("argument", "result"):
            for i in range(getattr(self.library, f"disc_program_{kind}s")(program)):
                spec = Spec(ctypes.sizeof(Spec))
                ask = getattr(self.library, f"disc_program_{kind}")
                self.check(ask(program, ctypes.c_size_t(i), ctypes.byref(spec)))
                assert spec.name is not None
                assert all(spec.texts[k] is not None for k in range(spec.rank))
                assert all(spec.sizes[k] >= -1 for k in range(spec.rank))

    def outcome(self, file: bytes | Path, runs: bool = False) -> tuple[int, str]:
        """The code and the message of the error; (0, ""): it is opened, and right."""
        program = ctypes.c_void_p()
        if isinstance(file, Path):
            opened = self.library.disc_program_open
            error = opened(bytes(file), ctypes.byref(self.options), ctypes.byref(program))
        else:
            opened, size = self.library.disc_program_open_memory, ctypes.c_size_t(len(file))
            options = ctypes.byref(self.options)
            error = opened(file, size, options, ctypes.byref(program))
        if error is not None:
            error = ctypes.c_void_p(error)
            code = self.library.disc_error_code(error)
            message = self.library.disc_error_message(error).decode()
            self.library.disc_error_free(error)
            assert code in (FILE, DAMAGED, NEWER, NO_TARGET, NO_HANDLER), message
            assert message
            return code, message
        self.ask(program)
        if runs:
            self.run(program)
        self.library.disc_program_close(program)
        return 0, ""


class Apart:
    """Artifacts whose weights are beside them, in a folder of their own."""

    def __init__(self, folder: Path, scratch: Path):
        self.path, self.weights = (scratch / name for name in ("m.disc", "apart.disc.safetensors"))
        self.files = (folder / "apart.disc").read_bytes(), (folder / self.weights.name).read_bytes()
        self.parts = parts_of(self.files[0])

    def write(self, kind: str, rng: random.Random) -> Path:
        """Write both files, one of which is damaged."""
        file, weights = self.files
        if kind == "weights":
            weights = mutated(weights, rng)
        else:
            changed = mutated(self.parts[container.MANIFEST], rng)
            file = put_together(self.parts | {container.MANIFEST: changed})
        self.path.write_bytes(file)
        self.weights.write_bytes(weights)
        return self.path


def main(library: str, folder: Path, count: int, seed: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        apart = Apart(folder, Path(scratch))
        _main(Opener(library, folder), apart, folder, count, seed)


def _main(opener: Opener, apart: Apart, folder: Path, count: int, seed: int) -> None:
    file = (folder / "m.disc").read_bytes()
    parts, known = parts_of(file), manifest_of(file)
    manifests = {
        "manifest": parts,
        "manifest of packs": parts_of((folder / "packed.disc").read_bytes()),
        "manifest of kernels": parts_of((folder / "gpu.disc").read_bytes()),
        "manifest of calls": parts_of((folder / "calls.disc").read_bytes()),
    }
    host = next(i for i, m in enumerate(known.members) if m.name == "code/x86-64-v3.bin")
    assert opener.outcome(file, True) == (0, "")
    counts: Counter[tuple[str, int]] = Counter()
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        kind = KINDS[number % len(KINDS)]
        data: bytes | Path
        if "weights" in kind:
            data = apart.write(kind, rng)
        elif kind == "file":
            data = mutated(file, rng)
        elif kind.startswith("manifest"):
            whole = manifests[kind]
            changed = mutated(whole[container.MANIFEST], rng)
            data = put_together(whole | {container.MANIFEST: changed})
        else:
            name = known.members[host].name
            data = put_together(with_code(parts, host, mutated(parts[name], rng)))
        try:
            code, _ = opener.outcome(data, kind in ("file", "weights"))
            counts[kind, code] += 1
        except AssertionError as error:
            sys.exit(f"mutation {number} of seed {seed}: {error}")
    print(sorted(counts.items()))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
