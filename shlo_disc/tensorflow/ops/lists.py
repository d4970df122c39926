"""Lists of tensors: arrays whose first dimension counts the elements.

    %l = TensorListReserve([-1, 4], %n)             %l = broadcast 0 : [%n, %b, 4]
    %r = while(%l) {                          ==>   %r = while(%l) {
      TensorListSetItem %l, %i, %x : [?, 4] }         dynamic_update_slice %l, %x, [%i, 0, 0] }

A list that begins empty may leave a size of its elements open (-1). It is the size of the element
that the program writes first: the operations that compute this element are copied in front of the
list. Only their shapes are used, so no copy is left when shapes are resolved.
"""

from __future__ import annotations

from collections.abc import Iterator

from shlo_disc.base.errors import UnsupportedError
from shlo_disc.ingest.arrays import broadcast_to, constant, converted, taken, windowed
from shlo_disc.ingest.size_arithmetic import (
    Size,
    must_be_equal,
    reshaped,
    same_size,
    shape_vector,
    size_of,
    sizes_of,
    static,
    times,
    value_of,
)
from shlo_disc.ingest.size_values import Sizes, scalar_type, vector
from shlo_disc.ir.attributes import flag
from shlo_disc.ir.builders import convert, create, element_of
from shlo_disc.ir.locations import source_line
from shlo_disc.ir.mlir import captures, clone, ir, ops_of
from shlo_disc.tensorflow.ops.values import elements, result

Values = list[ir.Value]


def list_reserve(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListReserve(element_shape, num_elements)`: zeros, as TensorFlow reads unset ones.

    Behind these operands is an element, where :func:`find_element_sizes` put one.
    """
    shape, count, *first = op.operands
    kind = result(op)
    wanted = elements(sizes, shape)
    full = elements(sizes, count)
    for axis in range(1, kind.rank):
        size: Size = -1 if len(wanted) != kind.rank - 1 else wanted[axis - 1]
        if not kind.is_dynamic_dim(axis):
            size = int(kind.get_dim_size(axis))
        elif size == -1 and first:
            size = size_of(first[0], axis - 1)
        elif size == -1:
            raise UnsupportedError("the size of its elements is not known; give an element_shape")
        full.append(size)
    element = element_of(op.results[0])
    return [broadcast_to(constant(0, element), [], full)]


def list_from_tensor(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListFromTensor(tensor, element_shape)`."""
    return [op.operands[0]]


def list_stack(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListStack(input_handle, element_shape)`."""
    return [op.operands[0]]


def list_concatenation(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListConcatV2(input_handle, element_shape, leading_dims)`: the rows of all elements.

    The second result has the number of rows of each.
    """
    array = op.operands[0]
    count, rows, *rest = sizes_of(array)
    lengths = broadcast_to(value_of(rows), [], [count])
    return [reshaped(array, [times(count, rows), *rest]), lengths]


def list_length(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListLength(input_handle)`."""
    return [convert(value_of(size_of(op.operands[0], 0)), scalar_type(32))]


def list_element(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListGetItem(input_handle, index, element_shape)`."""
    array, index = list(op.operands)[:2]
    own = sizes_of(array)
    window: list[Size] = [1, *own[1:]]
    starts = _starts(array, index)
    if all(isinstance(size, int) for size in own):
        part = create(
            "stablehlo.dynamic_slice",
            [array, *starts],
            ir.RankedTensorType.get(static(window), element_of(array)),
            slice_sizes=static(window),
        )
    else:
        part = windowed(array, vector(starts), window)
    return [reshaped(part, own[1:])]


def list_element_shape(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListElementShape(input_handle)`."""
    (array,) = op.operands
    return [converted(shape_vector(sizes_of(array)[1:]), result(op).element_type)]


def list_set(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListSetItem(input_handle, index, item)`; every call checks the sizes of the item."""
    array, index, item = op.operands
    if flag(op, "resize_if_index_out_of_bounds"):
        raise UnsupportedError("the list grows; give the TensorArray its size, and no dynamic_size")
    own, given = sizes_of(array)[1:], sizes_of(item)
    for axis, (size, new) in enumerate(zip(own, given, strict=True)):
        if not same_size(sizes, size, new):
            text = "the elements of the list have {0} entries in dimension {1}, this one has {2}"
            must_be_equal(size, new, f"{source_line(op)}: " + text.format("{0}", axis, "{1}"))
    entry = reshaped(item, [1, *given])
    starts = _starts(array, index)
    return [create("stablehlo.dynamic_update_slice", [array, entry, *starts], array.type)]


def _starts(array: ir.Value, index: ir.Value) -> list[ir.Value]:
    """Where entry `index` begins, in the type of `index`: loops are known by their counters."""
    zero = constant(0, element_of(index))
    return [index, *[zero] * (ir.RankedTensorType(array.type).rank - 1)]


def list_gather(sizes: Sizes, op: ir.Operation) -> Values:
    """`TensorListGather(input_handle, indices, element_shape)`."""
    return [taken(op.operands[0], op.operands[1], 0)]


# -- sizes of elements -----------------------------------------------------------------------------


def find_element_sizes(module: ir.Module, prefix: str) -> None:
    """Give each list of open sizes an element to read them from, as a third operand.

    `prefix`: what stands before the names of TensorFlow's operations.
    """
    for op in ops_of(module, f"{prefix}TensorListReserve"):
        if all(not result(op).is_dynamic_dim(axis) for axis in range(1, result(op).rank)):
            continue
        writes = list(_writes(op.results[0], f"{prefix}TensorListSetItem"))
        if writes:
            _give_element(op, writes[0])


def _writes(array: ir.Value, name: str) -> Iterator[ir.Value]:
    """The elements that are written into `array`, also in the loops that carry it."""
    for use in array.uses:
        user, index = use.owner.operation, use.operand_number
        if user.name == name and index == 0:
            yield user.operands[2]
        elif user.name == "stablehlo.while":
            yield from _writes(user.regions[1].blocks[0].arguments[index], name)


def _give_element(op: ir.Operation, item: ir.Value) -> None:
    """Move `op` in front of its first user, behind copies of what computes the shape of `item`."""
    block = op.block
    users = {_within(use.owner.operation, block) for use in op.results[0].uses}
    first = next(view.operation for view in block.operations if view.operation in users)
    with ir.InsertionPoint(first), op.location:
        element = Copies(op, first).of(item)
        new = ir.Operation.create(
            op.name,
            results=[op.results[0].type],
            operands=[*op.operands, element],
            attributes={name: op.attributes[name] for name in op.attributes},
        )
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()


def _within(op: ir.Operation, block: ir.Block) -> ir.Operation:
    """The operation of `block` that `op` is, or is in."""
    while op.block != block:
        op = op.parent.operation
    return op


class Copies:
    """At the insertion point, values with the shapes of those that are computed behind it."""

    def __init__(self, op: ir.Operation, place: ir.Operation) -> None:
        self._op = op
        ops = [view.operation for view in op.block.operations]
        self._behind = set(ops[ops.index(place) :])
        self._known: dict[ir.Value, ir.Value] = {}

    def of(self, value: ir.Value) -> ir.Value:
        """A value of the shape of `value`; itself where it is computed before."""
        if value not in self._known:
            self._known[value] = self._made(value)
        return self._known[value]

    def _made(self, value: ir.Value) -> ir.Value:
        if value == self._op.results[0]:
            raise UnsupportedError(
                f"{source_line(self._op)}: TensorListReserve: the size of the elements is that of "
                "its own elements; give an element_shape"
            )
        owner = value.owner
        if isinstance(owner, ir.Block):
            holder = owner.owner.operation
            if not self._is_behind(holder):
                return value
            if holder.name != "stablehlo.while":
                raise UnsupportedError(
                    f"{source_line(self._op)}: TensorListReserve: the size of the elements depends "
                    f"on {holder.name}; give an element_shape"
                )
            return self.of(holder.operands[value.arg_number])
        op = owner.operation
        if not self._is_behind(op):
            return value
        number = ir.OpResult(value).result_number
        if op.name.endswith("TensorListGetItem"):  # a copy would want an entry to be there
            own = sizes_of(self.of(op.operands[0]))
            return broadcast_to(constant(0, element_of(value)), [], own[1:])
        if op.name == "stablehlo.while":  # carried values keep their shapes
            return self.of(op.operands[number])
        for read in (*op.operands, *captures(op)):
            self.of(read)
        return clone(op, self._known).results[number]

    def _is_behind(self, op: ir.Operation) -> bool:
        while op is not None and op not in self._behind:
            op = op.parent and op.parent.operation
        return op is not None
