"""PyTorch programs: compiled once, run at every size.

    exe = shlo_disc.torch.compile(torch.export.export(model, args, dynamic_shapes=...))
    exe(x)

Needs the extra `torch`. JAX is not imported.
"""

from typing import TYPE_CHECKING

from shlo_disc.base.front_ends import Tested, check_tested, late_imports

if TYPE_CHECKING:
    from shlo_disc.torch.dynamo import CompiledGraph, backend, compilations
    from shlo_disc.torch.executables import TorchExecutable
    from shlo_disc.torch.exported import compile

__all__ = ["CompiledGraph", "TorchExecutable", "backend", "compilations", "compile"]

check_tested("torch", [Tested("PyTorch", "2.13", ("torch",))])

__getattr__ = late_imports(
    __name__,
    {
        "CompiledGraph": "shlo_disc.torch.dynamo",
        "TorchExecutable": "shlo_disc.torch.executables",
        "backend": "shlo_disc.torch.dynamo",
        "compilations": "shlo_disc.torch.dynamo",
        "compile": "shlo_disc.torch.exported",
    },
)
