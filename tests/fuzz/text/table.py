"""All makers of random ops: importing the modules that have them fills the table."""

from tests.fuzz.text import control, moves, others, products, reductions, windows
from tests.fuzz.text.ops import TABLE

__all__ = ["MODULES", "TABLE"]

MODULES = (control, moves, others, products, reductions, windows)
