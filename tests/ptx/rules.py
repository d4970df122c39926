"""Rules of the assembler: data movement, conversions, memory, control, warps."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.ptx.assembler import (
    ALIGNED,
    ALONE,
    NAMED,
    SPACES,
    WINDOW,
    Assembler,
    parts_of,
    rule,
    space_of,
)
from tests.ptx.parser import Instruction, bytes_of


@rule("mov")
def _mov(a: Assembler, i: Instruction) -> None:
    to, source = i.operands
    (type_,) = i.types
    if to[0] == "{":
        bits = 8 * bytes_of(type_) // len(parts_of(to))
        a.emit("unpack", [*a.results(to), a.value(source, type_)], [bits])
    elif source[0] == "{":
        bits = 8 * bytes_of(type_) // len(parts_of(source))
        a.emit("pack", [a.register(to), *a.parts(source, f"b{bits}")], [bits])
    elif source in _SPECIAL:
        a.emit("special", [a.register(to)], [_SPECIAL[source]])
    else:
        a.plain(i)


_SPECIAL = {
    **{f"%{name}.{axis}": 3 * k + j for k, name in enumerate(("tid", "ntid", "ctaid", "nctaid"))
       for j, axis in enumerate("xyz")},
    **{f"%{name}": 12 + k for k, name in enumerate(
        ("laneid", "warpid", "nwarpid", "lanemask_eq", "lanemask_lt", "lanemask_le",
         "lanemask_gt", "lanemask_ge"))},
}  # fmt: skip
"""As warp.cpp numbers them."""


@rule("setp")
def _setp(a: Assembler, i: Instruction) -> None:
    """One or two results; `setp.lt.and.s32 p, x, y, q` combines the comparison with q."""
    compare, *others = i.mods
    has_second = "|" in i.text
    to, *args = i.operands
    second = args.pop(0) if has_second else ""
    (type_,) = i.types
    made = a.register(to)
    if type_.endswith("x2"):
        _setp_of_halves(a, f"setp.{compare}.{type_.removesuffix('x2')}", [to, second], args)
        return
    name = ".".join(["setp", compare, *(m for m in others if m not in _LOGIC), type_])
    joined = [m for m in others if m in _LOGIC]
    raw = a.register() if joined else made
    a.emit(name, [raw, *(a.value(o, type_) for o in args[:2])])
    if joined:
        other = a.value(args[2], "pred")
        if has_second:
            opposite = a.register()
            a.emit("not.pred", [opposite, raw])
            a.emit(f"{joined[0]}.pred", [a.register(second), opposite, other])
        a.emit(f"{joined[0]}.pred", [made, raw, other])
    elif has_second:
        a.emit("not.pred", [a.register(second), made])


def _setp_of_halves(a: Assembler, name: str, results: Sequence[str], args: Sequence[str]) -> None:
    """The lower halves give the first result, the upper ones the second."""
    halves = [[a.register(), a.register()] for _ in args]
    for pair, arg in zip(halves, args, strict=True):
        a.emit("unpack", [*pair, a.value(arg, "b32")], [16])
    for k, result in enumerate(results):
        a.emit(name, [a.register(result), *(pair[k] for pair in halves)])


_LOGIC = {"and", "or", "xor"}


@rule("selp")
def _selp(a: Assembler, i: Instruction) -> None:
    to, x, y, p = i.operands
    (type_,) = i.types
    operands = [a.value(x, type_), a.value(y, type_), a.value(p, "pred")]
    a.emit(f"selp.{type_}", [a.register(to), *operands])


@rule("add", "sub", "mad", "addc", "subc", "madc")
def _with_carry(a: Assembler, i: Instruction) -> None:
    if "cc" not in i.mods and i.name[-1] != "c":
        a.plain(i)
        return
    (type_,) = i.types
    form = [m for m in i.mods if m in ("lo", "hi")]
    if form == ["hi"] and type_[0] == "s":
        raise NotImplementedError(i.text)
    to, *args = i.operands
    reads = i.name[-1] == "c"
    handler = ".".join(["carry", i.name[:3], *form, type_[1:]])
    operands = [a.value(o, type_) for o in args]
    a.emit(handler, [a.register(to), *operands], [reads + 2 * ("cc" in i.mods)])


_TYPES = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16", "bf16", "f32", "f64", "tf32")
_ROUNDINGS = ("", "rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi")
_FLAGS = {"sat": 1, "relu": 2, "satfinite": 4, "ftz": 8}


@rule("cvt")
def _cvt(a: Assembler, i: Instruction) -> None:
    to, source = (t.replace("b", "u") if t[0] == "b" and t[1] != "f" else t for t in i.types)
    is_pair = to.endswith("x2")
    how = [m for m in i.mods if m in _ROUNDINGS]
    flags = sum(_FLAGS[m] for m in i.mods if m in _FLAGS)
    if len(how) > 1 or set(i.mods) - set(how) - set(_FLAGS):
        raise NotImplementedError(i.text)
    rounding = _ROUNDINGS.index(how[0]) if how else 0
    narrows = to[-2:] != "64" and bytes_of(to) < bytes_of(source)
    if to.lstrip("bt")[0] == "f" and source.lstrip("b")[0] == "f" and narrows and not how:
        raise NotImplementedError(f"{i.text}: a narrower float without a rounding")
    kinds = _TYPES.index(to.removesuffix("x2")) | _TYPES.index(source) << 8
    made, *args = i.operands
    operands = [a.register(made), *(a.value(o, source) for o in args)]
    a.emit("cvt.pair" if is_pair else "cvt", operands, [kinds, rounding, flags])


@rule("cvta")
def _cvta(a: Assembler, i: Instruction) -> None:
    base = max(space_of(i) - 1, 0) * WINDOW
    operands = [a.register(i.operands[0]), a.value(i.operands[1])]
    a.emit("cvta", operands, [-base if "to" in i.mods else base])


@rule("isspacep")
def _isspacep(a: Assembler, i: Instruction) -> None:
    operands = [a.register(i.operands[0]), a.value(i.operands[1])]
    a.emit("isspacep", operands, [SPACES[i.mods[0]]])


_ORDERS = "weak|volatile|relaxed|acquire|release|acq_rel|sc|cta|cluster|gpu|sys"
_ACCESS = re.compile(
    rf"global|const|local|shared|param|v[248]|nc|ca|cg|cs|lu|cv|wb|wt|unified|{_ORDERS}"
    r"|L[12]::(?!cache_hint)\w+"
)


def _expect(i: Instruction, known: re.Pattern[str]) -> None:
    """Refuse a modifier that may change what the instruction does."""
    for mod in i.mods:
        if not known.fullmatch(mod) and not known.fullmatch(mod.partition("::")[0]):
            raise NotImplementedError(f"{i.text}: .{mod}")


@rule("ld", "ldu", "st")
def _access(a: Assembler, i: Instruction) -> None:
    (type_,) = i.types
    _expect(i, _ACCESS)
    size = bytes_of(type_)
    if size > 8:
        raise NotImplementedError(i.text)
    count = next((int(m[1:]) for m in i.mods if re.fullmatch(r"v\d", m)), 1)
    space = space_of(i)
    a.touches(space, size)
    is_strong = bool({"volatile", "relaxed", "acquire", "release"} & set(i.mods))
    is_load = i.name != "st"
    place, values = i.operands if not is_load else reversed(i.operands)
    base, offset = a.address(place)
    flags = (type_[0] == "s") | 2 * is_strong
    imm = [offset, space, size | count << 8 | flags << 16]
    if is_load:
        operands = [*a.results(values), base]
        a.emit(f"ld.{size}", operands, imm)
    else:
        a.emit(f"st.{size}", [base, *a.parts(values, type_)], imm)


@rule("atom", "red")
def _atomic(a: Assembler, i: Instruction) -> None:
    (type_,) = i.types
    operation = next(m for m in i.mods if m in _ATOMIC)
    _expect(i, _ATOMIC_MODS)
    space = space_of(i)
    size = bytes_of(type_)
    a.touches(space, size)
    operands = list(i.operands)
    to = operands.pop(0) if i.name == "atom" else "_"
    base, offset = a.address(operands.pop(0))
    parts = [operation, *(["noftz"] if "noftz" in i.mods else []), type_]
    values = [a.value(o, type_) for o in operands]
    a.emit(f"atom.{'.'.join(parts)}", [a.register(to), base, *values], [offset, space])


_ATOMIC = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
_ATOMIC_MODS = re.compile("|".join(["global|shared|noftz", *_ATOMIC, _ORDERS]))


@rule("bra")
def _bra(a: Assembler, i: Instruction) -> None:
    a.emit("bra", [], target=i.operands[-1])


@rule("brx")
def _brx(a: Assembler, i: Instruction) -> None:
    index, table = i.operands
    targets = [a.constant(label) for label in a.kernel.tables[table]]
    a.emit("brx.idx", [a.value(index), *targets])


@rule("ret", "exit", "trap")
def _leave(a: Assembler, i: Instruction) -> None:
    a.emit(i.name, [])


@rule("bar", "barrier")
def _barrier(a: Assembler, i: Instruction) -> None:
    mods = [m for m in i.mods if m != "cta"]
    if mods[0] == "warp":
        a.emit("bar.warp.sync", [a.value(i.operands[0])], [0, 0, 0, 0], NAMED)
        return
    if mods[0] not in ("sync", "arrive", "red"):
        raise NotImplementedError(i.text)
    is_aligned = i.name == "bar" or "aligned" in mods
    operands, reduced, how = list(i.operands), [], 0
    if mods[0] == "red":
        result, predicate = operands.pop(0), operands.pop()
        how = ("popc", "and", "or").index(mods[1])
        reduced = [a.value(predicate), a.register(result)]
    numbers = [a.value(o) for o in operands]
    imm = [len(numbers) == 2, mods[0] != "arrive", len(reduced) > 0, how]
    a.emit("bar", [*numbers, *reduced], imm, ALIGNED if is_aligned else ALONE)


@rule("shfl")
def _shfl(a: Assembler, i: Instruction) -> None:
    to, *args = i.operands
    valid = args.pop(0) if "|" in i.text else "_"
    operands = [a.register(to), a.register(valid), *(a.value(o) for o in args)]
    a.emit(".".join([i.name, *i.mods, *i.types]), operands, [0, 0, 0, 5], NAMED)


@rule("vote", "redux", "match", "elect")
def _collective(a: Assembler, i: Instruction) -> None:
    results = 2 if "|" in i.text else 1
    operands = [a.register(o) for o in i.operands[:results]]
    if i.mods[0] == "all" and results == 1:
        operands.append(a.register())
    for text in i.operands[results:]:
        if text.startswith("!"):
            operands.append(a.register())
            a.emit("not.pred", [operands[-1], a.value(text[1:])])
        else:
            operands.append(a.value(text))
    imm = [0, 0, 0, len(operands) - 1]
    a.emit(".".join([i.name, *i.mods, *i.types]), operands, imm, NAMED)


@rule("fence")
def _fence(a: Assembler, i: Instruction) -> None:
    """Ordered as the text is, threads need no fence; the asynchronous proxy needs one."""
    is_proxy = i.mods[:2] in (("proxy", "async"), ("proxy", "async::generic"))
    is_shared = not any(m.startswith("global") for m in i.mods)
    a.emit("fence.proxy.async" if is_proxy and is_shared else "nop", [])


@rule("membar", "nop", "griddepcontrol", "setmaxnreg", "nanosleep", "prefetch",
       "prefetchu", "discard", "applypriority", "pmevent")  # fmt: skip
def _nothing(a: Assembler, i: Instruction) -> None:
    a.emit("nop", [])
