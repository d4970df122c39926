"""Operations that no program here has, with what to do instead.

The converter would leave them, or write bytecode of them that no MLIR reads.
"""

from __future__ import annotations

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.mixed.rewriter import Rule
from shlo_disc.ingest.size_values import Sizes
from shlo_disc.ir.mlir import ir


def _refused(advice: str) -> Rule:
    def rule(sizes: Sizes, op: ir.Operation) -> list[ir.Value]:
        raise UnsupportedError(f"it is not covered; {advice}")

    return rule


_SUPPRESSION = _refused(
    "use tf.image.non_max_suppression_padded(pad_to_max_output_size=True), or call it outside of "
    "the function"
)

REFUSED: dict[str, Rule] = {
    "CombinedNonMaxSuppression": _SUPPRESSION,
    **{f"NonMaxSuppressionV{number}": _SUPPRESSION for number in (2, 3, 4, 5)},
}
"""Op of TensorFlow -> a rule that raises UnsupportedError."""
