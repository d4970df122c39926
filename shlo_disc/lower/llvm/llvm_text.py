"""LLVM IR text of torch-mlir's LLVM, as the older LLVM of llvmlite reads it.

Newer LLVM prints floats as the shortest decimal, `f0x...`, `+inf` or `+nan(0x...)`; the older one
reads only exact decimals and hexadecimal. Every literal becomes hexadecimal with the same bits.
"""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

from shlo_disc.ir.element_types import FLOATS

_NEWER_ATTRIBUTES = re.compile(r"\bnocreateundeforpoison ")

_TYPES: dict[str, np.dtype[Any]] = {
    "half": np.dtype(np.float16),
    "bfloat": np.dtype(ml_dtypes.bfloat16),
    "float": np.dtype(np.float32),
    "double": np.dtype(float),
}

_NAMES = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
"""What MLIR calls them."""

_SHORT = {"half": "0xH", "bfloat": "0xR"}
"""How literals of 16 bits begin."""

_TOKEN = re.compile(
    r'"(?:[^"\\]|\\.)*"|;.*'  # strings and comments are left alone
    r"|\b(?:half|bfloat|float|double)\b"
    r"|(?<![\w.%@$!#-])[+-]?(?:\d+\.\d*(?:[eE][+-]?\d+)?|f0x[0-9A-Fa-f]+|inf|s?q?nan"
    r"(?:\(0x[0-9A-Fa-f]+\))?)(?![\w.])"
)


def for_older_llvm(text: str) -> str:
    """The same module without what only the newer LLVM can read."""
    return "\n".join(_line(line) for line in text.split("\n"))


def _line(line: str) -> str:
    if line.startswith("attributes #"):
        return _NEWER_ATTRIBUTES.sub("", line)
    type_ = ""

    def literal(match: re.Match[str]) -> str:
        nonlocal type_
        token = match[0]
        if token in _TYPES:
            type_ = token
            return token
        return token if token[0] in '";' or not type_ else _hexadecimal(token, type_)

    return _TOKEN.sub(literal, line)


def _hexadecimal(token: str, type_: str) -> str:
    """A literal of `type_`: floats are written as the double of the same value."""
    dtype = _TYPES[type_]
    bits = np.dtype(f"u{dtype.itemsize}")
    body = token.lstrip("+-")
    if body.startswith("f0x"):
        value = np.array(int(body[3:], 16), bits).view(dtype)
    elif "nan" in body:
        raw = int(np.array(np.inf, dtype).view(bits))
        raw |= 0 if body.startswith("snan") else 1 << (FLOATS[_NAMES[type_]].fraction - 1)
        if payload := re.search(r"0x[0-9A-Fa-f]+", body):
            raw |= int(payload[0], 16)
        value = np.array(raw, bits).view(dtype)
    else:
        value = np.array(float(body) if type_ == "bfloat" else body, dtype)
    if token[0] == "-":
        value = np.negative(value)
    if type_ in _SHORT:
        return f"{_SHORT[type_]}{int(value.view(bits)):04X}"
    if type_ == "float" and np.isnan(value):  # a conversion would make a signalling NaN quiet
        raw = int(value.view(bits))
        return f"0x{raw >> 31 << 63 | 0x7FF << 52 | (raw & 0x7FFFFF) << 29:016X}"
    return f"0x{int(value.astype(np.float64).view(np.uint64)):016X}"
