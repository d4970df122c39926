"""Where in the user's model a node comes from."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_FRAME = re.compile(r'File "([^"<]+)", line (\d+)')  # but for code that PyTorch has made
_OF_PYTORCH = str(Path(torch.__file__).parent)


def _frames(node: torch.fx.Node) -> list[tuple[str, str]]:
    """File and line of each frame of the stack trace of `node`, the innermost last."""
    return _FRAME.findall(node.meta.get("stack_trace") or "")


def place_of(node: torch.fx.Node) -> str:
    """The op with its source line, if that is known."""
    is_wrapped = node.target is torch.ops.higher_order.with_effects
    op = node.args[1] if is_wrapped else node.target
    if not isinstance(op, torch._ops.OperatorBase | str):  # a function, of a graph of Dynamo
        op = getattr(op, "__name__", op)
    frames = _frames(node)
    return f"{op} at {':'.join(frames[-1])}" if frames else str(op)


def where(node: torch.fx.Node) -> str:
    """The source line of `node`, and its op: what messages begin with."""
    note_place(node)
    return f"{node.meta.get('place', 'unknown location')}: {node.target}"


def note_place(node: torch.fx.Node) -> None:
    """Leave one frame of the stack trace of `node`: the innermost one of the model.

    Where all are PyTorch's, the submodule is named with the innermost one: `encoder.0: linear.py`.
    """
    frames = _frames(node)
    if not frames:
        return
    own = [frame for frame in frames if not frame[0].startswith(_OF_PYTORCH)]
    file, line = own[-1] if own else frames[-1]
    if not own:
        stack = list((node.meta.get("nn_module_stack") or {"": ("", "")}).values())
        file = f"{stack[-1][0]}: {Path(file).name}" if stack[-1][0] else Path(file).name
    node.meta["stack_trace"] = f'File "{file}", line {line}, in forward'
    node.meta["place"] = f"{file}:{line}"
