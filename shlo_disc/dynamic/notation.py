"""The notation of sizes, `jax.export`'s: text to a tree, with no algebra.

sum   := term (("+" | "-") term)*            signed := ("+" | "-")* power
term  := signed (("*" | "//" | "%") signed)*   power  := base (("^" | "**") number)?
base  := number | name | "(" sum ")" | function "(" sum "," sum ")"
"""

from __future__ import annotations

import re
from typing import Any

FUNCTIONS = ("floordiv", "max", "min", "mod")

Tree = Any
"""A number, a name, or (operation, Tree, Tree); mypy has no recursive tuple that reads well."""

_TOKEN = re.compile(r"\s*(?:(\d+)|([^\W\d]\w*)|(//|\*\*|[-+*%^(),]))")

_MAX_DEPTH = 100
"""Nesting of parentheses and calls; a module from outside must not exhaust the stack."""

_MAX_POWER = 64

_MAX_DIGITS = 1000
"""Of a number; Python converts at most 4300 digits."""

_SHOWN = 200


def shortened(text: str) -> str:
    """`text`, or its beginning if it is long, for a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def parse(text: str) -> Tree:
    """The tree of a size expression; raises ValueError with the text and what is wrong."""
    return _Parser(text).expression()


class _Parser:
    """One method per line of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens: list[str] = []
        self._next = 0
        self._depth = 0
        position, end = 0, len(text.rstrip())
        while position < end:
            found = _TOKEN.match(text, position)
            if found is None:
                raise self._error(f"unexpected {text[position:].strip()[:1]!r}")
            self._tokens.append(found[0].strip())
            position = found.end()

    def expression(self) -> Tree:
        """The whole text."""
        result = self._sum()
        if self._peek():
            raise self._error(f"unexpected {self._peek()!r}")
        return result

    def _error(self, why: str) -> ValueError:
        return ValueError(f"{shortened(self._text)!r} is not a size expression: {why}")

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise self._error(f"{token!r} is missing")

    def _sum(self) -> Tree:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error("nested too deeply")
        result = self._term()
        while self._peek() in ("+", "-"):
            result = (self._take(), result, self._term())
        self._depth -= 1
        return result

    def _term(self) -> Tree:
        result = self._signed()
        while self._peek() in ("*", "//", "%"):
            result = (self._take(), result, self._signed())
        return result

    def _signed(self) -> Tree:
        sign = 1
        while self._peek() in ("+", "-"):
            sign *= 1 if self._take() == "+" else -1
        power = self._power()
        return power if sign == 1 else ("-", 0, power)

    def _power(self) -> Tree:
        base = self._base()
        if self._peek() not in ("^", "**"):
            return base
        self._take()
        exponent = self._take()
        if not exponent.isdecimal() or len(exponent) > 9 or int(exponent) > _MAX_POWER:
            raise self._error(
                f"the power {shortened(exponent)!r} is not a number up to {_MAX_POWER}"
            )
        return ("^", base, int(exponent))

    def _base(self) -> Tree:
        token = self._take()
        if token.isdecimal():
            if len(token) > _MAX_DIGITS:
                raise self._error(f"a number has {len(token)} digits; the limit is {_MAX_DIGITS}")
            return int(token)
        if token == "(":
            result = self._sum()
            self._expect(")")
            return result
        if token.isidentifier():
            return self._call(token) if self._peek() == "(" else token
        raise self._error(f"unexpected {token!r}" if token else "it ends too early")

    def _call(self, name: str) -> Tree:
        if name not in FUNCTIONS:
            raise self._error(f"unknown function {name!r} (known: {', '.join(FUNCTIONS)})")
        self._expect("(")
        left = self._sum()
        self._expect(",")
        right = self._sum()
        self._expect(")")
        return (name, left, right)
