"""Marks of tests that need an emulator of AArch64."""

from __future__ import annotations

import pytest

from tools import emulated

needs_emulator = pytest.mark.skipif(bool(emulated.missing()), reason=emulated.missing())
