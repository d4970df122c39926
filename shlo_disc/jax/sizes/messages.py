"""What a shape error of JAX says: the sizes it names, read back as expressions.

`jax.export` has no structured errors, so the text is all there is. Only sizes are read from it,
never decisions: a sentence we misread costs generality or one more trace, not correctness.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from typing import TypeVar

from shlo_disc.dynamic.expr import Expr
from shlo_disc.jax_private.states import is_library_file

_Error = TypeVar("_Error", bound=BaseException)

_INCONCLUSIVE = re.compile(r"comparison '(.*?)' (>=|<=|>|<|==) '(.*?)' is inconclusive")
_CONSTANT = re.compile(r"Symbolic dimension '(.*?)' used in a context that requires a constant")
_INFIX = re.compile(r"([\w+*^(), -]+?) (?:!=|vs\.?) ([\w+*^(), -]+)")
_QUOTED = re.compile(r"'([^']*)'")
_ALONG = re.compile(r"along dimension (\d+)")
_STDLIB = os.path.dirname(os.__file__) + os.sep


class ShapeError:
    """One exception of a trace, with the sizes in its message as expressions over `symbols`."""

    def __init__(self, error: BaseException, symbols: Mapping[str, int]) -> None:
        self.error = error
        self.symbols = symbols
        # JAX adds "This error arises for ..." with the list of all arguments: those name
        # everything.
        self.text = str(error).split("This error arises")[0]
        self.where = user_line(error)

    @property
    def sentence(self) -> str:
        """The first line, as a reason."""
        if "cannot be interpreted as an integer" in self.text:
            return "the program uses it as a Python integer"
        line = next((line for line in self.text.splitlines() if line.strip()), "")
        return f"{type(self.error).__name__}: {line.strip()}"[:200]

    @property
    def fingerprint(self) -> tuple[type, str, str]:
        """Equal for the same complaint about the same line, whatever the sizes are called."""
        plain = re.sub(r"\b[A-Za-z_]\w*\b|\d+", self._hide, self.text)
        return type(self.error), plain, self.where

    def _hide(self, match: re.Match[str]) -> str:
        word = match[0]
        return "#" if word in self.symbols or word.isdigit() else word

    # -- readings -------------------------------------------------------------------------------

    def comparison(self) -> tuple[Expr, str, Expr] | None:
        """`'a' < 'b' is inconclusive`."""
        found = _INCONCLUSIVE.search(self.text)
        if found is None:
            return None
        left, right = self._size(found[1]), self._size(found[3])
        return (left, found[2], right) if left is not None and right is not None else None

    def must_be_constant(self) -> Expr | None:
        """`'a' used in a context that requires a constant`."""
        found = _CONSTANT.search(self.text)
        return self._size(found[1]) if found else None

    @property
    def is_broadcast(self) -> bool:
        """Is it about shapes to be broadcast against each other, where a 1 fits everything?"""
        return "broadcast" in self.text

    def functions(self, *names: str) -> Iterator[tuple[str, Expr, Expr]]:
        """Every `mod(a, b)`, `min(a, b)`, ... in the text, innermost last."""
        for match in re.finditer(rf"\b({'|'.join(names)})\(", self.text):
            depth, start, parts = 0, match.end(), []
            for k in range(match.end(), len(self.text)):
                char = self.text[k]
                if char == "," and depth == 0:
                    parts.append(self.text[start:k])
                    start = k + 1
                elif char == ")" and depth == 0:
                    parts.append(self.text[start:k])
                    break
                depth += (char == "(") - (char == ")")
            sizes = [self._size(part) for part in parts]
            if len(sizes) == 2 and sizes[0] is not None and sizes[1] is not None:
                yield match[1], sizes[0], sizes[1]

    def shapes(self) -> list[list[Expr]]:
        """Every `(a, b, ...)` or `[a, b, ...]` all of whose entries are sizes."""
        found: list[list[Expr]] = []
        open_at: list[int] = []
        for k, char in enumerate(self.text):
            if char in "([":
                open_at.append(k)
            elif char in ")]" and open_at:
                start = open_at.pop()
                if re.search(r"\w$", self.text[:start]) and char == ")":
                    word = re.search(r"\w+$", self.text[:start])
                    if word and word[0] in ("mod", "floordiv", "max", "min"):
                        continue
                sizes = [self._size(part) for part in _split(self.text[start + 1 : k])]
                if sizes and all(size is not None for size in sizes):
                    found.append([size for size in sizes if size is not None])
        return found

    def pairs(self) -> list[tuple[Expr, Expr]]:
        """Sizes the message sets against each other: entries of two shapes, sides of `!=`."""
        found: list[tuple[Expr, Expr]] = []
        along = _ALONG.search(self.text)
        for a, b in itertools.combinations(self.shapes(), 2):
            if len(a) == len(b):
                skip = int(along[1]) if along else -1
                found += [pair for k, pair in enumerate(zip(a, b, strict=True)) if k != skip]
            else:
                found += list(zip(reversed(a), reversed(b), strict=False))
        for match in _INFIX.finditer(self.text):
            # "... but d3 // 1 != d6": the sizes are the last words before and the first after.
            left = self._size(match[1].split(" but ")[-1].replace(" // 1", ""))
            right = self._size(match[2])
            if left is not None and right is not None:
                found.append((left, right))
        return [(a, b) for a, b in found if a != b]

    def named(self) -> list[str]:
        """The symbols in quotes, shapes and functions, in order."""
        found: dict[str, None] = {}
        quoted = (self._size(match[1]) for match in _QUOTED.finditer(self.text))
        several = itertools.chain.from_iterable(self.shapes())
        inside = (
            size for _, a, b in self.functions("mod", "floordiv", "min", "max") for size in (a, b)
        )
        loose = (Expr.symbol(w) for w in re.findall(r"\bd\d+\b", self.text) if w in self.symbols)
        for size in itertools.chain(quoted, several, inside, loose):
            if size is not None:
                found.update(dict.fromkeys(sorted(size.symbols())))
        return list(found)

    def _size(self, text: str) -> Expr | None:
        try:
            size = Expr.parse(text)
        except ValueError:
            return None
        return size if size.symbols() <= self.symbols.keys() else None


def _split(text: str) -> list[str]:
    """The parts between top-level commas."""
    parts, depth, start = [], 0, 0
    for k, char in enumerate(text):
        if char == "," and depth == 0:
            parts.append(text[start:k])
            start = k + 1
        depth += (char in "([") - (char in ")]")
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def without_frames(error: _Error) -> _Error:
    """The error, to be kept: it and those behind it no longer hold the frames they came through.

    An error may be behind itself: `raise error from error` makes that.
    """
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        found.__traceback__ = None
        found = found.__cause__ or found.__context__
    return error


def user_line(error: BaseException) -> str:
    """`model.py:7`: the innermost line of the traceback that is the user's; "" without one."""
    found = ""
    trace = error.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        standard = file.startswith(_STDLIB) and "site-packages" not in file
        if not standard and not is_library_file(file) and not file.startswith("<"):
            found = f"{file}:{trace.tb_lineno}"
        trace = trace.tb_next
    return found
