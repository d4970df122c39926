"""An executable as plain data: kernels, choices left to run time, memory, work.

The result holds only dicts, lists, strings, numbers and None, so that `json.dumps` takes it. Sizes
are formulas over the symbols of the signature as text; with `sizes` given, numbers stand beside
them (`bytes_read` and `bytes_read_at`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from shlo_disc.dynamic.expr import Expr
from shlo_disc.lower.host.record import HostProgram, KernelUse, Work
from shlo_disc.lower.plan import FfiCall, FftCall, If, Launch, Step
from shlo_disc.passes.place import At, Place
from shlo_disc.report.reported import Described, Reported

Json = dict[str, Any]


def describe(
    executable: Reported,
    sizes: Mapping[str, int] | None = None,
    calls: Sequence[tuple[Mapping[str, int], int]] = (),
) -> Json:
    """Everything about an executable.

    `sizes` gives values of all symbols of the signature; KeyError names one that is missing.
    `calls` are sizes the program was called at and how often: every variant then tells how many
    calls chose it (where copies kept packed decide, the runtime does not say which it was).
    """
    copies = executable.copies
    out: Json = {
        **describe_program(executable, sizes, calls),
        "compile_ms": {stage: round(ms, 3) for stage, ms in executable.stage_ms},
        "passes": [
            {"name": record.name, "ms": round(record.time_ms, 3), "changed": record.changed}
            for record in executable.passes
        ],
        "loaded_kernels": executable.loaded_kernels,
        "late_kernels": executable.late_kernels,
        "code_bytes": executable.code_bytes,
        "not_kept": executable.not_kept,
        "lowered_anew": executable.lowered_anew,
        "copied_arguments": {"calls": copies.calls, "bytes": copies.bytes},
        "gpu_calls": executable.gpu_calls._asdict(),
        "unused_donations": executable.unused_donations,
    }
    return out


def describe_program(
    described: Described,
    sizes: Mapping[str, int] | None = None,
    calls: Sequence[tuple[Mapping[str, int], int]] = (),
) -> Json:
    """As :func:`describe`, without what only this process knows of the program."""
    host, program = described.host, described.program
    memory = memory_formula(host)
    return {
        "name": described.name,
        "arguments": [str(argument) for argument in described.signature.arguments],
        "results": [str(result) for result in described.signature.results],
        "symbols": list(program.symbol_names),
        "bounds": [_bounds(*bounds) for bounds in program.bounds],
        "sizes": None if sizes is None else dict(sizes),
        "calls": sum(count for _, count in calls),
        "checks": described.checked,
        "distinct_kernels": len(host.kernels),
        "memory": {
            "temporary": _formula(memory, sizes),
            "slots": [
                {"bytes": _formula(size, sizes), "holds": _holders(host, Place(At.SLOT, index))}
                for index, size in enumerate(host.arena)
            ],
            "workspaces": [[_formula(size, sizes) for size in block] for block in host.workspaces],
            "packed_arguments": [program.names[index] for index in sorted(host.packed_arguments)],
            "keeps_packed": True,
        },
        "work": _work(total_work(host), sizes),
        "unfused": [
            {
                "name": unfused.name,
                "kind": unfused.kind,
                "where": list(unfused.where),
                "reason": unfused.reason,
                "parts": unfused.parts,
            }
            for unfused in described.unfused
        ],
        "kernels": [
            _kernel(number, use, sizes, calls, described.on_host)
            for number, use in enumerate(host.uses)
        ],
    }


def _bounds(name: str, low: int | None, high: int | None) -> str:
    """`b >= 0`, `1 <= t <= 512`."""
    if high is None:
        return name if low is None else f"{name} >= {low}"
    return f"{name} <= {high}" if low is None else f"{low} <= {name} <= {high}"


def memory_formula(host: HostProgram) -> Expr:
    """Bytes of the arena of a call: buffers that share a slot by liveness, and the largest
    workspace of one kernel. Results and packed weights come on top.
    """
    total = Expr.const(0)
    for slot in host.arena:
        total = total + _aligned(slot)
    largest = Expr.const(0)
    for workspaces in host.workspaces:
        block = Expr.const(0)
        for size in workspaces:
            block = block + _aligned(size)
        largest = Expr.max(largest, block)
    return total + largest


def total_work(host: HostProgram) -> Work:
    """Of a call; bodies of loops and all branches once."""
    zero = Expr.const(0)
    reads, writes, flops, transcendentals = zero, zero, zero, zero
    for use in host.uses:
        reads, writes = reads + use.work.reads, writes + use.work.writes
        flops = flops + use.work.flops
        transcendentals = transcendentals + use.work.transcendentals
    return Work(reads, writes, flops, transcendentals)


def _kernel(
    number: int,
    use: KernelUse,
    sizes: Mapping[str, int] | None,
    calls: Sequence[tuple[Mapping[str, int], int]],
    copied: Set[str],
) -> Json:
    on_host = [s.target for s in use.plan.steps if isinstance(s, FfiCall) and s.target in copied]
    copies = [
        f"@{name}: runs on the host, which waits for the GPU; operands and results are copied"
        for name in on_host
    ]
    return {
        "number": number + 1,
        "kind": use.kind,
        "name": use.name,
        "where": list(use.where),
        "inside": list(use.inside),
        "ops": dict(use.ops),
        "reads": list(use.reads),
        "writes_to": list(map(str, use.places)),
        "not_fused": list(use.not_fused),
        "why": [*use.why, *copies],
        "work": _work(use.work, sizes),
        "variants": _variants(use.plan.steps, sizes, calls),
        "on_host": on_host,
    }


def _variants(
    steps: Sequence[Step],
    sizes: Mapping[str, int] | None,
    calls: Sequence[tuple[Mapping[str, int], int]],
) -> list[Json]:
    """The plan as a tree: launches, and choices with the number of calls that took each side."""
    out: list[Json] = []
    for step in steps:
        if isinstance(step, Launch):
            out.append({"launch": step.kernel.name, "tasks": str(step.extent)})
            continue
        if isinstance(step, FfiCall):
            out.append({"launch": f"@{step.target}", "tasks": "1"})
            continue
        if isinstance(step, FftCall):
            out.append({"launch": "fft", "tasks": str(step.batch)})
            continue
        node: Json
        if isinstance(step, If):
            yes = [call for call in calls if step.condition.holds(call[0])]
            no = [call for call in calls if not step.condition.holds(call[0])]
            condition = step.condition
            node = {"if": str(condition)}
            if step.says:
                node["says"] = step.says
            if sizes is not None:
                node["holds"] = condition.holds(sizes)
            if calls:
                node["calls"] = [sum(count for _, count in yes), sum(count for _, count in no)]
        else:
            yes = no = list(calls)
            node = {"if_kept_packed": [part.operand for part in step.parts]}
        node["then"] = _variants(step.then, sizes, yes)
        node["otherwise"] = _variants(step.otherwise, sizes, no)
        out.append(node)
    return out


def _work(work: Work, sizes: Mapping[str, int] | None) -> Json:
    return {
        "bytes_read": _formula(work.reads, sizes),
        "bytes_written": _formula(work.writes, sizes),
        "flops": _formula(work.flops, sizes),
        "transcendentals": _formula(work.transcendentals, sizes),
    }


def _formula(size: Expr, sizes: Mapping[str, int] | None) -> Json:
    out: Json = {"formula": str(size)}
    if sizes is not None:
        out["value"] = size.evaluate(sizes)
    elif size.is_const:
        out["value"] = size.value
    return out


def _holders(host: HostProgram, place: Place) -> list[int]:
    """The numbers of the kernels that write to a place, from 1."""
    return [number for number, use in enumerate(host.uses, 1) if place in use.places]


def _aligned(size: Expr) -> Expr:
    return (size + 63) // 64 * 64
