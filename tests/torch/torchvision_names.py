"""Names of torchvision for timm, which imports some and calls none here.

torchvision's wheel is a CUDA build; its import fails beside PyTorch for CPUs.
"""

import contextlib
import enum
import sys
import types

_MODULES = (
    "torchvision", "torchvision.datasets", "torchvision.io", "torchvision.models",
    "torchvision.models.feature_extraction", "torchvision.ops", "torchvision.ops.misc",
    "torchvision.transforms", "torchvision.transforms.functional", "torchvision.transforms.v2",
    "torchvision.utils",
)  # fmt: skip


class _Names(types.ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextlib.contextmanager
def without_torchvision():
    """Has `import torchvision` find names only; afterwards it is not there again."""
    modes = enum.Enum(
        "InterpolationMode",
        {m: m.lower() for m in ("NEAREST", "NEAREST_EXACT", "BILINEAR", "BICUBIC", "BOX",
                                "HAMMING", "LANCZOS")},
    )  # fmt: skip
    before = {name: sys.modules.get(name) for name in _MODULES}
    for name in _MODULES:
        module = sys.modules[name] = _Names(name)
        module.__path__, module.__spec__, module.InterpolationMode = [], None, modes
        parent, _, own = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], own, module)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
