"""Marks of tests that need an emulator of AArch64."""

import pytest

from tools import emulated

needs_emulator = pytest.mark.skipif(bool(emulated.missing()), reason=emulated.missing())
