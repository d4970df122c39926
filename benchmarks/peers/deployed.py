"""A process that runs one deployed model by one system, as `benchmarks/deploy.py` asks.

python deployed.py SYSTEM MODEL INPUTS

It loads the model, runs case 0 and prints `ready MS`, the milliseconds of loading alone. Then it
answers lines, each by a line:

run K FILE        -> done          (the first result of case K goes to FILE, raw)
time K COUNT S    -> MS MS ...     (of COUNT calls, after S seconds of untimed ones)

INPUTS is a folder with `cases.txt`: the number of cases; for each the number of arguments, and for
these the type, the rank and the sizes. `K-I.bin` has the elements of argument I of case K.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

Call = Callable[[], Any]
"""Runs and gives something that np.asarray takes."""
Loaded = Callable[[list[np.ndarray]], Call]


def ours(path: str) -> Loaded:
    """shlo_disc_runtime: numpy in, numpy out."""
    import shlo_disc_runtime

    program = shlo_disc_runtime.load(path)
    return lambda given: lambda: program(*given)[0]


def onnxruntime(path: str) -> Loaded:
    """ONNX Runtime from Python, with bound inputs and outputs: no copies at a call."""
    import onnxruntime as ort

    ort.set_default_logger_severity(3)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def prepared(given: list[np.ndarray]) -> Call:
        binding = session.io_binding()
        for row, array in zip(session.get_inputs(), given, strict=True):
            binding.bind_cpu_input(row.name, array)
        result = session.get_outputs()[0].name
        binding.bind_output(result)
        session.run_with_iobinding(binding)
        out = binding.copy_outputs_to_cpu()[0]
        binding.bind_output(
            result, "cpu", element_type=out.dtype, shape=out.shape, buffer_ptr=out.ctypes.data
        )

        def call() -> np.ndarray:
            session.run_with_iobinding(binding)
            return out

        return call

    return prepared


def inductor(path: str) -> Loaded:
    """AOTInductor's package, by PyTorch."""
    import torch

    program = torch._inductor.aoti_load_package(path)

    def prepared(given: list[np.ndarray]) -> Call:
        tensors = [torch.from_numpy(array) for array in given]

        def call() -> torch.Tensor:
            with torch.inference_mode():
                return program(*tensors)

        return call

    return prepared


def iree(path: str) -> Loaded:
    """IREE's module on its task system."""
    from iree import runtime

    config = runtime.Config("local-task")
    module = runtime.VmModule.mmap(config.vm_instance, path)
    context = runtime.SystemContext(config=config)
    context.add_vm_module(module)
    names = module.function_names
    function = context.modules[module.name][next(n for n in names if n[0] != "_" and "$" not in n)]

    def prepared(given: list[np.ndarray]) -> Call:
        arrays = [runtime.asdevicearray(config.device, array) for array in given]
        return lambda: function(*arrays).to_host()

    return prepared


def tvm(path: str) -> Loaded:
    """TVM's virtual machine of Relax."""
    import tvm as library
    from tvm import relax

    machine = relax.VirtualMachine(library.runtime.load_module(path), library.cpu())

    def prepared(given: list[np.ndarray]) -> Call:
        arrays = [library.runtime.tensor(array) for array in given]

        def call() -> np.ndarray:
            result = machine["main"](*arrays)
            one = result if hasattr(result, "numpy") else result[0]
            return one.numpy()

        return call

    return prepared


SYSTEMS: dict[str, Callable[[str], Loaded]] = {
    "ours": ours,
    "onnxruntime": onnxruntime,
    "inductor": inductor,
    "iree": iree,
    "tvm": tvm,
}


def cases(folder: Path) -> Iterator[list[np.ndarray]]:
    """The arguments of every case."""
    words = iter((folder / "cases.txt").read_text().split())
    for case in range(int(next(words))):
        arrays = []
        for index in range(int(next(words))):
            dtype, rank = next(words), int(next(words))
            sizes = [int(next(words)) for _ in range(rank)]
            arrays.append(np.fromfile(folder / f"{case}-{index}.bin", dtype).reshape(sizes))
        yield arrays


def main() -> None:
    """Answer requests until the input ends."""
    system, model, inputs = sys.argv[1:]
    # Only answers go to stdout; libraries like to print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    start = time.perf_counter()
    loaded = SYSTEMS[system](model)
    ms = (time.perf_counter() - start) * 1e3
    arguments = list(cases(Path(inputs)))
    calls = {0: loaded(arguments[0])}
    np.asarray(calls[0]())
    print(f"ready {ms:f}", file=answers, flush=True)
    for line in sys.stdin:
        what, number, *rest = line.split()
        case = int(number)
        if case not in calls:
            calls[case] = loaded(arguments[case])
        call = calls[case]
        if what == "run":
            np.ascontiguousarray(call()).tofile(rest[0])
            print("done", file=answers, flush=True)
            continue
        settled = time.perf_counter() + float(rest[1])
        while time.perf_counter() < settled:
            call()
        times = []
        for _ in range(int(rest[0])):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
        print(*times, file=answers, flush=True)


if __name__ == "__main__":
    main()
