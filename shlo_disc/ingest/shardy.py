"""Take Shardy out of MLIR text: it says where arrays lie, not what is computed.

    sdy.mesh @mesh = <["x"=4]>                            ==>  (nothing)
    %2 = sdy.sharding_constraint %1 <@mesh, [...]> : T    ==>  %2 = "stablehlo.custom_call"(%1) {call_target_name = "Sharding"} : (T) -> T
    {sdy.sharding = #sdy.sharding<@mesh, [...]>}          ==>  {sdy.sharding = unit}

Text, because no bindings at hand know the `sdy` dialect, so that such a module cannot be parsed. Later
steps drop these calls and the attributes.
"""  # noqa: E501 - the example

from __future__ import annotations

import re

from shlo_disc.base.errors import UnsupportedError

_MESH = re.compile(r"^\s*sdy\.mesh @.*$", re.MULTILINE)
_CONSTRAINT = re.compile(
    r"^(\s*%[\w.]+ = )sdy\.(?:sharding_constraint|reshard|propagation_barrier) (%[\w.#]+).*?"
    r" : (tensor<[^>]*>)(.*)$",
    re.MULTILINE,
)
_ATTRIBUTE = re.compile(r"#sdy\.\w+(?=<)")
_OTHER = re.compile(r"(?<![\"\w.#@/])(sdy\.[a-z]\w*)(?! = unit)\b")
"""Any other use, attributes aside that have lost their value."""
_BRACKETS = {"<": 1, "[": 1, "{": 1, "(": 1, ">": -1, "]": -1, "}": -1, ")": -1}


def without_shardy(text: str) -> str:
    """`text` without the `sdy` dialect.

    Raises UnsupportedError for Shardy operations that compute, such as those of `shard_map`.
    """
    text = _without_attributes(_MESH.sub("", text))
    text = _CONSTRAINT.sub(
        r'\1"stablehlo.custom_call"(\2) {call_target_name = "Sharding"} : (\3) -> \3\4', text
    )
    found = _OTHER.search(text)
    if found is not None:
        line = text.count("\n", 0, found.start()) + 1
        raise UnsupportedError(
            f"line {line}: {found[1]}: a program divided over devices (shard_map); compile the "
            "function that runs on one device"
        )
    return text


def _without_attributes(text: str) -> str:
    """Replace every `#sdy.name<...>` by `unit`; brackets may nest."""
    parts: list[str] = []
    start = 0
    while found := _ATTRIBUTE.search(text, start):
        parts.append(text[start : found.start()])
        depth, end = 0, found.end()
        quoted = False
        while end < len(text):
            char = text[end]
            if char == '"':
                quoted = not quoted
            elif not quoted and text[end - 1 : end + 1] != "->":
                depth += _BRACKETS.get(char, 0)
            end += 1
            if depth == 0:
                break
        parts.append("unit")
        start = end
    return "".join(parts) + text[start:]
