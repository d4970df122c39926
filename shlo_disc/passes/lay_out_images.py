"""lay-out-images: what convolutions read and write lies in memory with its features last.

    %y = convolution %x, %w, [b, f, 0, 1] x [o, i, 0, 1] -> [b, f, 0, 1]
    %z = maximum %y, %floor : [b, c, h, w]
    ==>
    %t = transpose %x : [b, h, w, c]
    %u = convolution %t, %w, [b, 0, 1, f] x [o, i, 0, 1] -> [b, 0, 1, f]
    %v = maximum %u, %floor : [b, h, w, c]
    %z = transpose %v : [b, c, h, w]

Why     With features last a window is runs of neighbours, and a convolution is a product whose
        right operand is its kernel, which is packed once. Otherwise the image is the right operand,
        packed at every call. PyTorch's images have their features in front of rows and columns.
Needs   `resolve-shapes`; after `simplify`, which writes broadcasts and slices plainly.
Keeps   every result; sums of convolutions may be in another order.
Cost    O(ops around convolutions).
Source  Layout assignment in XLA; channels-last memory format in PyTorch.

A region is grown from a convolution over ops whose elements depend on elements near their place.
These are element-wise ops, windows, pads, slices and concatenations. If the region has several
convolutions, all of it is turned, and transposes stand at its ends only. Reductions and other
convolutions read it as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import ClassVar

import numpy as np

from shlo_disc.base.records import dataclass
from shlo_disc.dynamic.known_shapes import KnownShapes
from shlo_disc.ir.attributes import broadcast_dims
from shlo_disc.ir.convolutions import ImageDims, conv_numbers
from shlo_disc.ir.mlir import at, ir, ops_of, producer, stablehlo
from shlo_disc.passes.base import Pass, register
from shlo_disc.passes.op_classes import BROADCASTS, ELEMENTWISE, is_splat_constant
from shlo_disc.passes.rules import Facts, permuted

LEAST_FEATURES = 8
"""Features of a result from which on a convolution wants them last; so many fill a vector of f32.

Filters of images of one channel run along columns better.
"""

LEAST_CONVOLUTIONS = 2
"""Convolutions of a region from which on it is turned.

Measured on AVX-512, 2 cores, for the transposes at the ends. One alone is 1 to 1.8 times as fast
with its features in front. Seven in a row take 0.3 to 0.95 of the time with their features last.
"""

_CONVOLUTIONS = ("stablehlo.convolution", "stablehlo.dynamic_conv")

_DIMENSION = {
    "disc.reduce_window": "dimension",
    "disc.scan": "dimension",
    "stablehlo.concatenate": "dimension",
    "stablehlo.iota": "iota_dimension",
}
"""Ops with one dimension as an attribute."""

_VECTORS = {"stablehlo.dynamic_pad": (2, 3, 4), "stablehlo.real_dynamic_slice": (1, 2, 3)}
"""Operands that have a number for each dimension."""

_ARRAYS = frozenset({
    "base_dilations", "edge_padding_high", "edge_padding_low", "interior_padding", "limit_indices",
    "start_indices", "strides", "window_dilations", "window_dimensions", "window_strides",
})  # fmt: skip
"""Attributes that have a number for each dimension."""

_TURNED = (
    (ELEMENTWISE - {"stablehlo.bitcast_convert"})
    | set(_DIMENSION)
    | set(_VECTORS)
    | {
        "stablehlo.pad",
        "stablehlo.reduce_window",
        "stablehlo.reverse",
        "stablehlo.select_and_scatter",
        "stablehlo.slice",
    }
)
"""Ops whose operands and results of one rank are turned together."""


@dataclass(frozen=True)
class LayOutImages(Pass):
    """See the module."""

    name: ClassVar[str] = "lay-out-images"

    def run(self, module: ir.Module, shapes: KnownShapes) -> int:
        """Rewrite `module`; the number of ops that were turned."""
        seeds = [op for op in ops_of(module, *_CONVOLUTIONS) if _wants_features_last(op)]
        if len(seeds) < LEAST_CONVOLUTIONS:
            return 0
        facts = Facts(shapes.now())
        regions: list[_Region] = []
        for seed in seeds:
            if not any(seed in region.seeds for region in regions):
                regions.append(_Region.around(seed, seeds, facts))
        large = [region for region in regions if len(region.seeds) >= LEAST_CONVOLUTIONS]
        for region in large:
            region.others = [other for other in large if other is not region]
        return sum(region.turn() for region in large)


def _wants_features_last(op: ir.Operation) -> bool:
    """True for a convolution whose images have their features behind the batch."""
    kind = op.results[0].type
    dims = ImageDims(0, 1, tuple(range(2, kind.rank)))
    numbers = conv_numbers(op)
    if kind.rank < 3 or numbers.input != dims or numbers.output != dims:
        return False
    groups = ir.IntegerAttr(op.attributes["feature_group_count"]).value
    return bool(kind.is_dynamic_dim(1) or kind.shape[1] // groups >= LEAST_FEATURES)


@dataclass
class _Region:
    """What is turned in one block. Dimension k was dimension `order[k]` before."""

    block: ir.Block
    rank: int
    facts: Facts
    seeds: set[ir.Operation] = field(default_factory=set)
    """Convolutions that want their features last."""
    images: dict[ir.Value, None] = field(default_factory=dict)
    """Values to be turned, as they are before."""
    made: dict[ir.Value, ir.Value] = field(default_factory=dict)
    """Each of them, turned."""
    others: list[_Region] = field(default_factory=list)
    """The other regions of the module, which may have values of this one at their ends."""

    def __post_init__(self) -> None:
        self.order = [0, *range(2, self.rank), 1]
        self.place = [self.order.index(d) for d in range(self.rank)]

    @staticmethod
    def around(seed: ir.Operation, wanting: Sequence[ir.Operation], facts: Facts) -> _Region:
        """The region of `seed`, with what else of `wanting` is in it."""
        region = _Region(seed.block, seed.results[0].type.rank, facts)
        others = {op for op in wanting if op.block == region.block}
        pending = [seed.results[0]]
        while pending:
            value = pending.pop()
            if value in region.images or not region._of_rank([value]):
                continue
            region.images[value] = None
            readers = [use.owner.operation for use in value.uses]
            for op in (producer(value), *readers):
                if op is None or op.block != region.block:
                    continue
                if op in others and value in (op.operands[0], op.results[0]):
                    region.seeds.add(op)
                    pending += [op.operands[0], op.results[0]]
                elif region._is_turned(op):
                    pending += region._of_rank([*op.operands, *op.results])
        return region

    def turn(self) -> int:
        """Rewrite the region; how many ops it has."""
        inside = [v.operation for v in self.block.operations if self._touches(v.operation)]
        turned = [op for op in inside if self._rewrite(op)]
        gone = set(turned)
        for op in turned:
            for result in op.results:
                if any(use.owner.operation not in gone for use in result.uses):
                    with at(op):
                        back = self.facts.transpose(self.made[result], self.place)
                    self._replace(result, back)
        for op in reversed(turned):
            op.erase()
        return len(turned)

    def _touches(self, op: ir.Operation) -> bool:
        return any(v in self.images for v in (*op.operands, *op.results))

    def _of_rank(self, values: Iterable[ir.Value]) -> list[ir.Value]:
        return [
            v
            for v in values
            if isinstance(v.type, ir.RankedTensorType) and v.type.rank == self.rank
        ]

    def _is_turned(self, op: ir.Operation) -> bool:
        """True for an op whose images are turned together."""
        if op.name == "stablehlo.reduce":
            return bool(self._of_rank([op.operands[0]]))
        if op.name not in _TURNED or len(self._of_rank(op.results)) != len(op.results):
            return False
        vectors = (op.operands[k] for k in _VECTORS.get(op.name, ()))
        return all(self.facts.contents(v) is not None for v in vectors)

    # ---- rewriting

    def _rewrite(self, op: ir.Operation) -> bool:
        """Build `op` on turned images in front of it; False for an op that stays as it is."""
        with at(op):
            if op.name in _CONVOLUTIONS:
                self._convolution(op)
            elif op.name == "stablehlo.reduce" and self._is_turned(op):
                self._reduction(op)
            elif op.name in BROADCASTS and op.results[0] in self.images:
                self._broadcast(op)
            elif is_splat_constant(op) and op.results[0] in self.images:
                self._splat(op)
            elif self._is_turned(op):
                self._near(op)
            else:
                return False
        return True

    def _turned(self, value: ir.Value) -> ir.Value:
        """`value` in the new order; transposed here if nothing has computed it so."""
        if value not in self.images:
            return value
        if value not in self.made:
            self.made[value] = self.facts.transpose(value, self.order)
        return self.made[value]

    def _near(self, op: ir.Operation) -> None:
        operands = [self._turned(v) for v in op.operands]
        for k in _VECTORS.get(op.name, ()):
            numbers = self.facts.contents(op.operands[k])
            assert numbers is not None
            element = op.operands[k].type.element_type
            operands[k] = self.facts.shape_operand(tuple(numbers[d] for d in self.order), element)
        copy = self._copied(op, operands, turned=True)
        if op.name in _DIMENSION:
            name = _DIMENSION[op.name]
            axis = ir.IntegerAttr(op.attributes[name])
            copy.attributes[name] = ir.IntegerAttr.get(axis.type, self.place[axis.value])
        for name in _ARRAYS.intersection(op.attributes):
            given = list(ir.DenseI64ArrayAttr(op.attributes[name]))
            copy.attributes[name] = ir.DenseI64ArrayAttr.get([given[d] for d in self.order])
        if "padding" in op.attributes:
            padding = np.array(ir.DenseIntElementsAttr(op.attributes["padding"]))
            rows = padding.reshape(self.rank, 2)[self.order]
            copy.attributes["padding"] = ir.DenseElementsAttr.get(np.ascontiguousarray(rows))
        if op.name == "stablehlo.reverse":
            axes = sorted(self.place[d] for d in ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
            copy.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(axes)
        for before, now in zip(op.results, copy.results, strict=True):
            self._keep(before, now)

    def _convolution(self, op: ir.Operation) -> None:
        """A convolution says which dimension is which: it reads and writes every order."""
        numbers = conv_numbers(op)
        image, kernel = (v in self.images for v in op.operands[:2])
        result = op.results[0] in self.images
        operands = [*map(self._turned, op.operands[:2]), *list(op.operands)[2:]]
        copy = self._copied(op, operands, turned=result)

        def placed(dim: int, is_image: bool) -> int:
            return self.place[dim] if is_image else dim

        def spatial(dims: Sequence[int], is_image: bool) -> list[int]:
            return [placed(d, is_image) for d in dims]

        copy.attributes["dimension_numbers"] = stablehlo.ConvDimensionNumbers.get(
            placed(numbers.input.batch, image),
            placed(numbers.input.feature, image),
            spatial(numbers.input.spatial, image),
            placed(numbers.kernel_input_feature, kernel),
            placed(numbers.kernel_output_feature, kernel),
            spatial(numbers.kernel_spatial, kernel),
            placed(numbers.output.batch, result),
            placed(numbers.output.feature, result),
            spatial(numbers.output.spatial, result),
        )
        self._keep(op.results[0], copy.results[0])

    def _reduction(self, op: ir.Operation) -> None:
        """A reduction's results have no image's order; of several dimensions they may be turned."""
        count = len(op.results)
        inputs = [self._turned(v) for v in list(op.operands)[:count]]
        copy = self._copied(op, [*inputs, *list(op.operands)[count:]], turned=False)
        gone = list(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))
        places = sorted(self.place[d] for d in gone)
        copy.attributes["dimensions"] = ir.DenseI64ArrayAttr.get(places)
        kept = [d for d in self.order if d not in gone]
        back = [kept.index(d) for d in sorted(kept)]
        for before, now in zip(op.results, copy.results, strict=True):
            shape = self.facts.shape(before)
            rows = [sorted(kept).index(d) for d in kept]
            now.set_type(permuted(before.type, rows))
            self.facts.made[now] = tuple(shape[k] for k in rows)
            self.made[before] = now
            if back != sorted(back):
                self.made[before] = self.facts.transpose(now, back)
            self._replace(before, self.made[before])

    def _broadcast(self, op: ir.Operation) -> None:
        """Dimensions of the operand stay sorted: emitters read a broadcast as strides."""
        (result,) = op.results
        value = op.operands[0]
        places = [self.place[d] for d in broadcast_dims(op)]
        order = sorted(range(len(places)), key=places.__getitem__)
        if order != sorted(order):
            value = self.facts.transpose(value, order)
        shape = self.facts.shape(result)
        kind = permuted(result.type, self.order)
        sizes = tuple(shape[d] for d in self.order)
        self._keep(result, self.facts.broadcast(value, sorted(places), kind, sizes))

    def _splat(self, op: ir.Operation) -> None:
        (result,) = op.results
        kind = permuted(result.type, self.order)
        number = op.attributes["value"].get_splat_value()
        shape = tuple(self.facts.shape(result)[d] for d in self.order)
        attributes = {"value": ir.DenseElementsAttr.get_splat(kind, number)}
        self._keep(result, self.facts.build(op.name, [], kind, shape, attributes))

    def _copied(
        self, op: ir.Operation, operands: Sequence[ir.Value], *, turned: bool
    ) -> ir.Operation:
        """`op` on other operands; `turned`: its results are in the new order."""
        copy = op.clone().operation
        for k, value in enumerate(operands):
            copy.operands[k] = value
        if turned:
            for before, now in zip(op.results, copy.results, strict=True):
                now.set_type(permuted(before.type, self.order))
        return copy

    def _keep(self, before: ir.Value, now: ir.Value) -> None:
        shape = self.facts.shape(before)
        turned = before in self.images
        self.facts.made[now] = tuple(shape[d] for d in self.order) if turned else shape
        self.made[before] = now
        if not turned:
            self._replace(before, now)

    def _replace(self, before: ir.Value, now: ir.Value) -> None:
        """Have every reader of `before` read `now`, which is an image where `before` was one."""
        before.replace_all_uses_with(now)
        for other in self.others:
            if before in other.images:
                del other.images[before]
                other.images[now] = None


register(LayOutImages())
