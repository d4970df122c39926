"""simplify: every rule of the fold passes and of simplify-algebra, in one sweep.

    maximum (broadcast -inf), %x; reshape (reshape %y); ...  ==>  what is left of them

Why     The rules feed each other: a folded constant is an identity's operand, a folded reshape
        shows the broadcast below it. One sweep needs one shape analysis, which costs more than all
        the rules.
Needs   `resolve-shapes`.   Keeps  every result, bit for bit, as each rule does.
Cost    O(ops).
Source  the passes its rules come from; each runs alone under its own name too.
"""

from __future__ import annotations

from shlo_disc.passes import (
    fold_broadcasts,
    fold_constants,
    fold_converts,
    fold_reductions,
    fold_reshapes,
    fold_selects,
    fold_transposes,
    fold_updates,
    simplify_algebra,
)
from shlo_disc.passes.base import register
from shlo_disc.passes.rules import Rule, RulePass, imported_rules

LATE = {
    name: imported_rules(name, *(f"stablehlo.{op}" for op in ops))
    for name, ops in (
        ("fold_gathers", ("dynamic_gather", "gather")),
        ("fold_reverses", ("convolution", "dynamic_conv")),
        ("fold_scatters", ("dynamic_update_slice", "scatter")),
        ("fold_slices", ("real_dynamic_slice", "slice")),
    )
}
"""The rules of modules that few programs need."""

_TABLES = (
    fold_converts.RULES,  # fewer types to fold through
    fold_constants.RULES,  # identities look for constants
    simplify_algebra.RULES,
    LATE["fold_gathers"],  # before reshapes: it leaves some
    fold_reductions.RULES,
    fold_reshapes.RULES,
    LATE["fold_reverses"],
    fold_broadcasts.RULES,
    fold_transposes.RULES,
    fold_selects.RULES,
    LATE["fold_scatters"],  # before updates: these are added at fewer places
    fold_updates.RULES,
    LATE["fold_slices"],
)


def _merged() -> dict[str, tuple[Rule, ...]]:
    merged: dict[str, tuple[Rule, ...]] = {}
    for table in _TABLES:
        for name, rules in table.items():
            merged[name] = (*merged.get(name, ()), *rules)
    return merged


RULES = _merged()

SIMPLIFY = register(RulePass("simplify", RULES))
