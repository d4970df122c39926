"""Times PyTorch and ONNX Runtime on request: JSON lines in, JSON lines out.

{"op": "load", "case": NAME, "weights": FILE.npz}      -> {"systems": [...]}
{"op": "inputs", "inputs": FILE.npz, "outputs": FILE}  -> {"systems": [...], "failed": {...}}
{"op": "time", "system": NAME, "count": N, "settle": S} -> {"ms": [...]}
{"op": "request", "system": NAME, "inputs": FILE.npz, "outputs": FILE} -> {"ms": ...}

`outputs` gets one array a system, so that the caller can check them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from cases import module

Call = Callable[[], Any]


RUN_ONCE = frozenset({"torch.compile", "torch.compile, frozen"})
"""Systems that run inputs once to be ready for them."""


class Server:
    """The systems that run the present case."""

    def __init__(self) -> None:
        self.systems: dict[str, Callable[[list[np.ndarray]], Call]] = {}
        self.calls: dict[str, Call] = {}
        self.failed: dict[str, str] = {}

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the systems; compilation happens at the first inputs."""
        self.calls.clear()
        self.failed.clear()
        name = request["case"]
        weights = dict(np.load(request["weights"]))
        self.systems = {"ONNX Runtime": _onnx(name, weights)}
        if name == "lstm":
            # Inductor unrolls the layer step by step; eager PyTorch calls oneDNN's whole layer.
            self.systems["torch"] = _eager(name, weights)
        else:
            self.systems["torch.compile"] = _compiled(name, weights, freezing=False)
            self.systems["torch.compile, frozen"] = _compiled(name, weights, freezing=True)
        return {"systems": list(self.systems)}

    def inputs(self, request: dict[str, Any]) -> dict[str, Any]:
        """Other inputs: every system runs them once."""
        arrays = dict(np.load(request["inputs"]))
        given = [arrays[str(k)] for k in range(len(arrays))]
        outputs = {}
        self.calls.clear()
        for name, make in self.systems.items():
            if name in self.failed:
                continue
            try:
                call = make(given)
                outputs[name] = np.asarray(call())
                self.calls[name] = call
            except Exception as error:  # a peer that cannot is a result, and the others go on
                self.failed[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        np.savez(request["outputs"], **outputs)
        return {"systems": list(self.calls), "failed": self.failed}

    def request(self, request: dict[str, Any]) -> dict[str, Any]:
        """One call of one system as a service has it: with what it compiles for these inputs."""
        name = request["system"]
        arrays = dict(np.load(request["inputs"]))
        given = [arrays[str(k)] for k in range(len(arrays))]
        start = time.perf_counter()
        call = self.systems[name](given)
        output = None if name in RUN_ONCE else call()
        elapsed = (time.perf_counter() - start) * 1e3
        np.savez(request["outputs"], **{name: np.asarray(call() if output is None else output)})
        return {"ms": elapsed}

    def time(self, request: dict[str, Any]) -> dict[str, Any]:
        """Times of calls, after `settle` seconds of untimed ones."""
        call = self.calls[request["system"]]
        settled = time.perf_counter() + request.get("settle", 0.0)
        while time.perf_counter() < settled:
            call()
        times = []
        for _ in range(request["count"]):
            start = time.perf_counter()
            call()
            times.append((time.perf_counter() - start) * 1e3)
        return {"ms": times}


def _tensors(given: list[np.ndarray]) -> list[torch.Tensor]:
    return [torch.from_numpy(array) for array in given]


def _eager(name: str, weights: dict[str, np.ndarray]) -> Callable[[list[np.ndarray]], Call]:
    network = module(name, weights)

    def make(given: list[np.ndarray]) -> Call:
        tensors = _tensors(given)

        def call() -> torch.Tensor:
            with torch.inference_mode():
                return network(*tensors)

        return call

    return make


def _compiled(
    name: str, weights: dict[str, np.ndarray], freezing: bool
) -> Callable[[list[np.ndarray]], Call]:
    """`torch.compile(dynamic=True)`: one compilation for all shapes."""
    torch._dynamo.reset()
    network = torch.compile(module(name, weights), dynamic=True)

    def make(given: list[np.ndarray]) -> Call:
        tensors = _tensors(given)

        def call() -> torch.Tensor:
            with torch.no_grad():
                return network(*tensors)

        with torch._inductor.config.patch(freezing=freezing):
            call()
        return call

    return make


def _onnx(name: str, weights: dict[str, np.ndarray]) -> Callable[[list[np.ndarray]], Call]:
    """ONNX Runtime with all its graph optimisations, and its fusions for BERT."""
    sessions: dict[int, onnxruntime.InferenceSession] = {}

    def session(given: list[np.ndarray]) -> onnxruntime.InferenceSession:
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "model.onnx")
            names = [f"x{k}" for k in range(len(given))]
            axes = {n: list(range(array.ndim)) for n, array in zip(names, given, strict=True)}
            if name == "lstm":
                axes = {"x0": [0, 1]}
            elif name in ("gemm", "layer-norm"):
                axes = {"x0": [0]}
            elif name == "attention":
                axes = {n: [0, 1] for n in names}
            torch.onnx.export(
                module(name, weights), tuple(_tensors(given)), path, input_names=names,
                dynamic_axes=axes, opset_version=20, dynamo=False,
            )  # fmt: skip
            if name == "bert":
                from onnxruntime.transformers import optimizer

                model = optimizer.optimize_model(
                    path, model_type="bert", num_heads=12, hidden_size=768, opt_level=1
                )
                model.save_model_to_file(path)
            options = onnxruntime.SessionOptions()
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
            options.intra_op_num_threads = torch.get_num_threads()
            return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def make(given: list[np.ndarray]) -> Call:
        # The exporter wants the width of a layer norm as a number: a session each.
        width = given[0].shape[-1] if name == "layer-norm" else 0
        if width not in sessions:
            sessions[width] = session(given)
        mine = sessions[width]
        feeds = {i.name: x for i, x in zip(mine.get_inputs(), given, strict=True)}
        return lambda: mine.run(None, feeds)[0]

    return make


def main() -> None:
    """Answer requests until the input ends."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(3)
    # Only answers go to stdout; exporters like to print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = Server()
    versions = {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__}
    print(json.dumps({"versions": versions, "threads": torch.get_num_threads()}), file=answers,
          flush=True)  # fmt: skip
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(server, request.pop("op"))(request)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
