"""Tensors as the runtime takes them, and results as tensors; no element is copied either way.

The one module that knows how memory goes between PyTorch and the runtime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shlo_disc.data_sized import DataSizedExecutable
from shlo_disc.errors import DeviceError, UnsupportedError
from shlo_disc.executable import Executable

__all__ = ["check_argument", "frozen", "run", "to_array"]

_NO_NUMPY = {
    torch.bfloat16: (torch.int16, "bfloat16"),
    torch.float8_e4m3fn: (torch.int8, "float8_e4m3fn"),
    torch.float8_e4m3fnuz: (torch.int8, "float8_e4m3fnuz"),
    torch.float8_e5m2: (torch.int8, "float8_e5m2"),
    torch.float8_e5m2fnuz: (torch.int8, "float8_e5m2fnuz"),
}
"""Types that `Tensor.numpy` refuses: integers of their width, and the NumPy type of ml_dtypes."""


def _extension_types() -> dict[str, tuple[torch.dtype, np.dtype[Any], torch.dtype]]:
    import ml_dtypes  # noqa: PLC0415 - registers them with NumPy

    return {
        name: (kind, np.dtype(getattr(ml_dtypes, name)), integers)
        for kind, (integers, name) in _NO_NUMPY.items()
    }


_BY_NAME = _extension_types()


def check_argument(tensor: Any, name: str) -> None:
    """Raise TypeError, DeviceError or UnsupportedError unless a call can read `tensor`."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
    if tensor.device.type != "cpu":
        raise DeviceError(f"{name} is on {tensor.device}; the program runs on the CPU")
    if tensor.layout != torch.strided:
        raise UnsupportedError(f"{name} has the layout {tensor.layout}; pass {name}.to_dense()")
    if tensor.is_quantized:
        raise UnsupportedError(f"{name} is quantized; pass {name}.dequantize()")
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise UnsupportedError(
            f"{name} is a {type(tensor).__name__}, whose operations are its own; pass the tensor "
            "that it holds"
        )


def to_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """The memory of `tensor`, which is on the CPU, as an array of the same strides."""
    array: npt.NDArray[Any]
    plain = tensor.detach()
    if plain.is_neg():
        plain = plain.resolve_neg()
    if plain.is_conj():
        plain = plain.resolve_conj()
    if tensor.dtype in _NO_NUMPY:
        integers, name = _NO_NUMPY[tensor.dtype]
        array = plain.view(integers).numpy().view(_BY_NAME[name][1])
    else:
        array = plain.numpy()
    return array


def frozen(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """As :func:`to_array`, dense, and read-only: the memory must not change any more."""
    array = to_array(tensor.detach().contiguous())
    array.flags.writeable = False
    return array


def run(program: Executable | DataSizedExecutable, leaves: Sequence[Any]) -> list[torch.Tensor]:
    """The results of `program` on tensors, frozen weights and Python numbers."""
    arrays = [to_array(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    return [_tensor(array) for array in program.run_numpy(arrays)]


def _tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    known = _BY_NAME.get(array.dtype.name)
    if known is None:
        return torch.from_numpy(array)
    kind, _, integers = known
    return torch.from_numpy(array.view(f"i{integers.itemsize}")).view(kind)
