"""Calls with tensors of a framework, through DLPack's table of C functions.

    call = executable.tensor_call(torch.Tensor)
    (y,) = call((x, w))

The compiler knows no framework: a type of tensors tells how they are read and made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


class TensorCall:
    """A program for tensors; see :meth:`shlo_disc.Executable.tensor_call`.

    Any number of threads may call one object.
    """

    def __init__(
        self, tensor_type: type | None, call: Callable[[Sequence[Any], Sequence[int]], list[Any]]
    ) -> None:
        self.tensor_type = tensor_type
        """The type of the results; None: capsules of DLPack."""
        self._call = call

    def __call__(self, leaves: Sequence[Any], versions: Sequence[int] = ()) -> list[Any]:
        """Run on the arguments in order; new results of :attr:`tensor_type`.

        `versions` has an integer from 0 for every versioned argument, in the order in which these
        were named. An argument keeps its memory during the call unless another thread replaces it:
        then ChangedArrayError tells so.

        Raises what :meth:`shlo_disc.Executable.__call__` raises, ValueError for another number of
        versions or a negative one, and TypeError for one that is no integer.
        """
        return self._call(leaves, versions)
