"""Makes a model for another system, as `benchmarks/deploy` asks.

python making.py SYSTEM CASE WEIGHTS INPUTS OUT

WEIGHTS is an npz file; INPUTS is as `deployed.py` reads it. Prints
the version of the system.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import module
from deployed import cases

DIMENSIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "bert": (("batch", "length"), ("batch", "length")),
    "mlp": (("batch",),),
    "resnet": (("batch",),),
}
"""The leading dimensions of each argument; these vary."""

LIMITS = {"batch": (1, 4096), "length": (1, 512)}


def _tensors(inputs: Path) -> tuple[torch.Tensor, ...]:
    """Arguments with sizes above one, which `torch.export` takes for numbers."""
    return tuple(torch.from_numpy(array) for array in list(cases(inputs))[-1])


def _exported(case: str, weights: Path, inputs: Path) -> Any:
    known = {name: torch.export.Dim(name, min=a, max=b) for name, (a, b) in LIMITS.items()}
    dynamic = tuple({k: known[name] for k, name in enumerate(row)} for row in DIMENSIONS[case])
    model = module(case, dict(np.load(weights)))
    with torch.no_grad():
        return torch.export.export(model, _tensors(inputs), dynamic_shapes=dynamic)


def _onnx(case: str, weights: Path, inputs: Path, out: Path) -> None:
    given = _tensors(inputs)
    names = [f"x{k}" for k in range(len(given))]
    axes = {x: dict(enumerate(row)) for x, row in zip(names, DIMENSIONS[case], strict=True)}
    torch.onnx.export(
        module(case, dict(np.load(weights))), given, str(out), input_names=names,
        dynamic_axes=axes, opset_version=20, dynamo=False,
    )  # fmt: skip


def onnxruntime(case: str, weights: Path, inputs: Path, out: Path) -> str:
    """ONNX, with the fusions of ONNX Runtime's optimizer for BERT."""
    import onnxruntime as ort

    _onnx(case, weights, inputs, out)
    if case == "bert":
        from onnxruntime.transformers import optimizer

        model = optimizer.optimize_model(
            str(out), model_type="bert", num_heads=12, hidden_size=768, opt_level=1
        )
        model.save_model_to_file(str(out))
    return str(ort.__version__)


def inductor(case: str, weights: Path, inputs: Path, out: Path) -> str:
    """A package of AOTInductor, its weights frozen into it."""
    program = _exported(case, weights, inputs)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        torch._inductor.aoti_compile_and_package(program, package_path=str(out))
    return str(torch.__version__)


def iree(case: str, weights: Path, inputs: Path, out: Path) -> str:
    """A module of IREE for this processor, of ONNX: its StableHLO knows no sizes of JAX."""
    from iree import compiler
    from iree.compiler.tools.import_onnx.__main__ import main as imported
    from iree.compiler.tools.import_onnx.__main__ import parse_arguments

    with tempfile.TemporaryDirectory() as folder:
        model, module_path = Path(folder) / "model.onnx", Path(folder) / "model.mlir"
        _onnx(case, weights, inputs, model)
        imported(parse_arguments([str(model), "-o", str(module_path)]))
        compiler.compile_file(
            str(module_path), input_type="onnx", target_backends=["llvm-cpu"],
            output_file=str(out),
            extra_args=["--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3"],
        )  # fmt: skip
    return version("iree-base-compiler")


def tvm(case: str, weights: Path, inputs: Path, out: Path) -> str:
    """A library of TVM: its default pipeline, without tuning."""
    import tvm as library
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    made = from_exported_program(_exported(case, weights, inputs), unwrap_unit_return_tuple=True)
    target = library.target.Target.from_device(library.cpu())
    with target:
        relax.build(relax.get_pipeline("zero")(made), target).export_library(str(out))
    return str(library.__version__)


MAKERS: dict[str, Callable[[str, Path, Path, Path], str]] = {
    "onnxruntime": onnxruntime,
    "inductor": inductor,
    "iree": iree,
    "tvm": tvm,
}


def main() -> None:
    """Make one model."""
    system, case, weights, inputs, out = sys.argv[1:]
    print(MAKERS[system](case, Path(weights), Path(inputs), Path(out)))


if __name__ == "__main__":
    main()
