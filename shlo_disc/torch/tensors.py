"""Calls of programs with tensors: no element of a dense one is copied either way.

The one module that knows how memory goes between PyTorch and the runtime.
"""

from __future__ import annotations

import itertools
from _thread import _count as _thread_count  # `threading.active_count` takes a lock
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from shlo_disc import ral
from shlo_disc.base.errors import DeviceError, UnsupportedError
from shlo_disc.executables.data_sized import DataSizedExecutable
from shlo_disc.executables.executable import Executable

_OF_EVERY_TENSOR = (
    torch.Tensor.__torch_function__.__func__,
    torch._C._disabled_torch_function_impl,
)
"""What classes without functions of their own have."""


_OWN = frozenset((torch.Tensor, torch.nn.Parameter))
"""Classes of tensors that are PyTorch's own."""


def is_plain(tensor: Any) -> bool:
    """True for a tensor of PyTorch's own, in whose memory its elements are as they are.

    DLPack refuses those of other devices and layouts, nested and quantized ones.
    """
    return type(tensor) in _OWN and not (tensor.is_neg() or tensor.is_conj())


def check_argument(tensor: Any, name: str) -> None:
    """Raise TypeError, DeviceError or UnsupportedError unless a call can read `tensor`."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if not tensor.is_cpu:  # `device.type` takes longer than all that follows
        raise DeviceError(f"{name} is on {tensor.device}; the program runs on the CPU")
    if tensor.is_nested:
        raise UnsupportedError(f"{name} is nested; pass {name}.to_padded_tensor(0) and its mask")
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"{name} has the layout {tensor.layout}; pass {name}.to_dense()")
    if tensor.is_quantized:
        raise UnsupportedError(f"{name} is quantized; pass {name}.dequantize()")
    kind = type(tensor)
    if kind is not torch.Tensor and _is_special(kind):
        raise UnsupportedError(
            f"{name} is a {kind.__name__}, whose operations are its own; pass the tensor that it "
            "holds"
        )


def _is_special(kind: type) -> bool:
    """True for a class of tensors with operations of its own."""
    function = kind.__torch_function__  # type: ignore[attr-defined]
    return (
        kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__  # type: ignore[attr-defined]
        or getattr(function, "__func__", function) not in _OF_EVERY_TENSOR
    )


class TensorProgram:
    """A program of tensors. Any number of threads may call it.

    `weights` are arguments whose packed copies are kept from call to call. A copy serves while the
    weight has the same memory and version. If they are `frozen` the memory alone must be the same,
    and the elements must not change.

    `flag`: the number of a result that is given as a Python integer, a scalar of bool or int32.

    `are_donated`: results are written into the tensors that the program was compiled to take. Such
    a result shares memory and version with the tensor.
    """

    def __init__(
        self,
        program: Executable | DataSizedExecutable,
        *,
        weights: Collection[int] = (),
        frozen: Collection[int] = (),
        flag: int | None = None,
        are_donated: bool = False,
    ) -> None:
        known = {*weights, *frozen}
        self._others = [k for k in range(len(program.signature.arguments)) if k not in known]
        self._holds = not are_donated  # a donated tensor is what the result becomes
        packable = program.packable
        self._versioned = [k for k in packable if k in weights and k not in frozen]
        self._call = program.tensor_call(
            torch.Tensor,
            versioned=self._versioned,
            frozen=[k for k in packable if k in frozen],
            weights=ral.Weights(torch.Tensor.detach),
            over=_over if are_donated else None,
            flag=flag,
        )

    def __call__(self, leaves: list[Any], *, are_plain: bool = False) -> list[Any]:
        """The results on tensors and Python numbers, which :func:`check_argument` has passed.

        `are_plain`: all but the weights are :func:`is_plain`.

        `leaves` is the callee's from then on. As many threads work as PyTorch would take, at most.
        Other threads may give an argument other memory (`set_`, `.data =`): the call reads what it
        had. After a `resize_` to more memory ChangedArrayError is raised at best, since PyTorch
        frees the memory that the call reads.
        """
        is_held = self._holds and _thread_count() > 0
        for k in self._others if is_held or not are_plain else ():
            leaf = leaves[k]
            if not isinstance(leaf, torch.Tensor):
                continue
            if is_held:  # another thread may give it other memory; a view of it keeps this one
                leaf = leaves[k] = _view_of(leaf)
            if leaf.is_neg() or leaf.is_conj():
                leaves[k] = leaf.resolve_neg().resolve_conj()  # a view may stand for other elements
        versions: Sequence[int] = ()
        if self._versioned:
            try:
                versions = [leaves[k]._version for k in self._versioned]
            except RuntimeError:  # a tensor of inference mode
                versions = [_version(leaves[k]) for k in self._versioned]
        before = ral.limit_threads(torch.get_num_threads())
        try:
            return self._call(leaves, versions)
        finally:
            ral.limit_threads(before)


def _over(donated: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    """A tensor of these sizes in the memory of one that a result was written into.

    It has the storage itself, so that a chain of such calls keeps one tensor alive. Autograd sees
    by the version that the elements have changed.
    """
    if not donated.is_inference():
        torch.autograd.graph.increment_version(donated)
    alias = donated.detach()
    return alias if alias.shape == sizes else alias.view(sizes)


def _view_of(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same memory, which no gradient goes through."""
    if type(tensor) in _OWN:
        return tensor.detach()
    with _disable_current_modes():  # those of AOTAutograd refuse classes that they do not know
        return tensor.detach()


_NEVER_AGAIN = itertools.count(1 << 40)
"""Versions that no tensor has had."""


def _version(tensor: torch.Tensor) -> int:
    """The number of changes of `tensor`; a new number where PyTorch counts none."""
    return next(_NEVER_AGAIN) if tensor.is_inference() else int(tensor._version)
