"""The data of `describe` as text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST = 160
"""Characters of a formula; of longer ones the JSON has all."""


def _packing(memory: Mapping[str, Any]) -> str:
    """What happens to the packed copies of `memory["packed_arguments"]`."""
    if memory["keeps_packed"]:
        return "copies kept packed beside"
    return "packed anew in each call"


def as_text(program: dict[str, Any]) -> str:
    """Kernels in order with kind, source line, variants, work and why they read what they read."""
    stages = ", ".join(f"{stage} {ms:.0f}" for stage, ms in program["compile_ms"].items())
    kernels = program["kernels"]
    total = sum(program["compile_ms"].values())
    counts = {"loaded": program["loaded_kernels"], "not needed so far": program["late_kernels"]}
    said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    different = f"{program['distinct_kernels']} different" + (f" ({said})" if said else "")
    lines = [
        f"{program['name']}: {len(kernels)} kernels, {different}, {program['code_bytes']:,} bytes "
        f"of machine code; compiled in {total:.0f} ms ({stages})"
    ]
    if program["not_kept"]:
        lines.append(f"every process compiles it: it {program['not_kept']}")
    elif program.get("traced_anew"):
        lines.append(f"every process traces it with symbols: it {program['traced_anew']}")
    elif program["lowered_anew"]:
        lines.append(f"every process lowers it: it {program['lowered_anew']}")
    given = program["sizes"]
    at = ""
    if given:
        at = " at " + ", ".join(f"{name} = {value}" for name, value in sorted(given.items()))
    memory = program["memory"]
    lines.append(f"temporary memory: {_value(memory['temporary'], ' bytes')}{at}")
    for number, slot in enumerate(memory["slots"]):
        holders = ", ".join(map(str, slot["holds"])) or "loop carries"
        lines.append(f"  slot {number}: {_value(slot['bytes'], ' bytes')}, kernels {holders}")
    if memory["packed_arguments"]:
        names = memory["packed_arguments"]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        lines.append(f"  {_packing(memory)}: {shown}")
    if copied := program["copied_arguments"]["calls"]:
        names = [f"{name} in {count} calls" for name, count in copied.items()]
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        lines.append(
            f"copied before it was read, not being dense: {shown}; "
            f"{program['copied_arguments']['bytes']:,} bytes in all"
        )
    if any(program["gpu_calls"].values()):
        lines.append(_gpu_calls(program["gpu_calls"]))
    if unused := program["unused_donations"]:
        shown = ", ".join(f"{name} in {count} calls" for name, count in unused.items())
        lines.append(f"donated, but not overwritten: {shown}")
    lines.append(f"work: {_work(program['work'])}{at}")
    if program["bounds"]:
        lines.append(f"sizes of a call: {', '.join(program['bounds'])}")
    if program["checks"]:
        lines.append("checked at every call:")
        lines += [f"  {check}" for check in program["checks"]]
    if program["unfused"]:
        lines.append("fusions planned again as smaller ones, because of mistakes in shlo_disc:")
        for one in program["unfused"]:
            lines.append(
                f"  {one['name']} of kind {one['kind']} at {', '.join(one['where'])}, "
                f"{one['parts']} smaller kernels: {one['reason']}"
            )
    lines.append("kernels:")
    width = max((len(kernel["name"]) for kernel in kernels), default=0)
    for kernel in kernels:
        where = kernel["where"][0]
        more = f" and {len(kernel['where']) - 1} more lines" if len(kernel["where"]) > 1 else ""
        inside = "".join(f" in {place}" for place in kernel["inside"])
        lines.append(
            f"{kernel['number']:4} {kernel['kind']:10} {kernel['name']:{width}} {where}{more}"
            f"{inside}: {variants(kernel['variants'])}"
        )
        lines.append(f"       {_work(kernel['work'])}")
        lines += [f"       {reason}" for reason in kernel["why"]]
        lines += [f"       not fused with {reason}" for reason in kernel["not_fused"]]
    return "\n".join(lines)


def variants(steps: Sequence[dict[str, Any]]) -> str:
    """`a, then b`; `a if b*t <= 32, else c`; `a where operand 1 is kept packed, else ...`.

    Counts of calls stand behind a choice as `[3:1]`, the side taken is marked with `*`.
    """
    return ", then ".join(_variant(step) for step in steps)


def _variant(step: dict[str, Any]) -> str:
    if "launch" in step:
        return str(step["launch"])
    then, otherwise = variants(step["then"]), variants(step["otherwise"])
    if "if" not in step:
        operands = ", ".join(map(str, step["if_kept_packed"]))
        return f"({then} where operand {operands} is kept packed, else {otherwise})"
    if step.get("holds") is not None:
        then, otherwise = (f"*{then}", otherwise) if step["holds"] else (then, f"*{otherwise}")
    count = " [{}:{}]".format(*step["calls"]) if "calls" in step else ""
    condition = step.get("says") or _short(step["if"])
    end = f", else {otherwise}" if step["otherwise"] else ""
    return f"({then} if {condition}{count}{end})"


def _gpu_calls(calls: Mapping[str, int]) -> str:
    """How calls on GPUs were made."""
    return (
        f"calls on GPUs: {calls['direct']} waited for the device, {calls['enqueued']} enqueued by "
        f"XLA; {calls['graphs']} launched as graphs"
    )


def _work(work: dict[str, Any]) -> str:
    parts = [
        f"reads {_value(work['bytes_read'], ' bytes')}",
        f"writes {_value(work['bytes_written'], ' bytes')}",
        f"{_value(work['flops'], ' operations')}",
    ]
    if work["transcendentals"]["formula"] != "0":
        parts.append(_value(work["transcendentals"], " transcendentals"))
    return ", ".join(parts)


def _value(formula: dict[str, Any], unit: str) -> str:
    text = str(formula["formula"])
    if "value" not in formula:
        return f"{_short(text)}{unit}"
    number = f"{formula['value']:,}"
    if text == str(formula["value"]):
        return f"{number}{unit}"
    return f"{_short(text)} = {number}{unit}"


def _short(formula: str) -> str:
    return formula if len(formula) <= _LONGEST else f"{formula[:_LONGEST]}..."
