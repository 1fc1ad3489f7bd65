"""Details of a call's arguments from the ops and copies inside it: the element types of
lists of tensors, the indices of `index`, and the memory of each tensor."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from fusetui.analysis.reproduce.arguments import (
    ASSUMED_DTYPE,
    MAX_TENSORS_OF_LIST,
    ParsedInputs,
    RefusedError,
    integer_of_argument,
    integers_of_argument,
    parse_recorded_inputs,
)
from fusetui.analysis.reproduce.call_table import CallTable, call_table
from fusetui.analysis.reproduce.model import (
    Argument,
    DeviceArgument,
    Filling,
    NothingArgument,
    Remark,
    RemarkKind,
    Shape,
    TensorArgument,
    TensorsArgument,
    UnrecordedListArgument,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.trace.model.sorted_arrays import slice_between

WITH_INDICES: Final = (
    "aten::index",
    "aten::_unsafe_index",
    "aten::index_put",
    "aten::index_put_",
    "aten::_index_put_impl_",
    "aten::_unsafe_index_put",
)
"""Ops whose second argument is a list of indices, which older profilers leave out."""

DEVICE_POSITIONS: Final = {
    ("aten::to", 8): 3,
    ("aten::to", 6): 1,
    ("aten::_to_copy", 7): 3,
}
"""Where the device stands among so many arguments of an op."""

ATEN: Final = "aten::"
FOREACH: Final = "aten::_foreach_"
"""Ops on lists of tensors. Their slow path calls the op of the same name for each
tensor (ForeachOpsKernels.cpp)."""

STACK: Final = "aten::stack"
CAT: Final = "aten::cat"

INDEX_DTYPES: Final = ("int64", "int32")

TO_DEVICE: Final = "Memcpy HtoD"
FROM_DEVICE: Final = "Memcpy DtoH"
PINNED: Final = "Pinned"


class InnerCall(NamedTuple):
    """An op inside a call. `inputs` is None where they cannot be used."""

    name: str
    row: int
    inputs: ParsedInputs | None

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Its arguments; () where its inputs cannot be used."""
        return () if self.inputs is None else self.inputs.arguments


def list_inner_calls(trace: Trace, row: int) -> list[InnerCall]:
    """Return the ops inside the call in a row, at any depth, in their order.

    Each has its parsed inputs, or None where these cannot be used.
    """
    table = call_table(trace)
    # The slices inside a row follow it, up to its `end_row`.
    rows_inside = table.rows[slice_between(table.rows, row + 1, trace.end_row[row])]

    calls = []
    for inner_row in rows_inside.tolist():
        name = trace.name_of(inner_row)
        inputs = _parse_inputs_or_none(table, inner_row, name)
        calls.append(InnerCall(name=name, row=inner_row, inputs=inputs))
    return calls


def _parse_inputs_or_none(table: CallTable, row: int, name: str) -> ParsedInputs | None:
    """Parse the recorded inputs of the op in a row; None if they cannot be used."""
    try:
        return parse_recorded_inputs(name, table.inputs_of(row))
    except RefusedError:
        return None


class Completed(NamedTuple):
    """Arguments of a call with what the work inside it shows, and remarks about it."""

    arguments: tuple[Argument, ...]
    remarks: tuple[Remark, ...]

    def with_argument(
        self, position: int, argument: Argument, remark: RemarkKind | None = None
    ) -> Completed:
        """Return these with another argument at a position, and a remark about it."""
        before = self.arguments[:position]
        behind = self.arguments[position + 1 :]
        added = () if remark is None else (Remark(remark, position),)
        return Completed(
            arguments=(*before, argument, *behind), remarks=(*self.remarks, *added)
        )

    def without_remarks_about(self, position: int) -> Completed:
        """Return these without the remarks about the argument at a position."""
        others = [remark for remark in self.remarks if remark.position != position]
        return Completed(arguments=self.arguments, remarks=tuple(others))

    def tensor_at(self, position: int) -> TensorArgument | None:
        """Return the argument at a position if it is a tensor, else None."""
        if position >= len(self.arguments):
            return None
        argument = self.arguments[position]
        return argument if isinstance(argument, TensorArgument) else None


def completed(
    trace: Trace, row: int, op: str, parsed: ParsedInputs, inner: Sequence[InnerCall]
) -> Completed:
    """Fill in what was not recorded of the arguments of a call from the work inside it.

    These are the element types and tensors of lists, indices, whether a copied tensor
    is in the memory of the host, and the storage that as_strided needs.

    Args:
        trace: The trace.
        row: The op of the call.
        op: Its name.
        parsed: Its arguments as they were recorded.
        inner: The ops inside it.
    """
    inputs = Completed(arguments=parsed.arguments, remarks=parsed.remarks)
    inputs = _set_list_dtypes(trace, inputs, inner)
    inputs = _fill_long_lists(trace, row, op, inputs, inner)
    if op in WITH_INDICES:
        inputs = _fill_indices(inputs, inner)
    inputs = _mark_host_memory(trace, row, op, inputs)
    if op in ("aten::as_strided", "aten::as_strided_"):
        inputs = _enlarge_storage(inputs)
    return inputs


@memo()
def most_frequent_dtypes(trace: Trace) -> Mapping[Shape, str]:
    """Return the most frequent element type of the tensors of each shape in a trace.

    Only tensors whose type was recorded count, once for each call that has them. The
    result is kept for later calls.
    """
    inputs = call_table(trace).inputs
    has_inputs = inputs.number >= 0
    calls_of_inputs = np.bincount(
        inputs.number[has_inputs], minlength=len(inputs.distinct)
    )

    # Equal inputs are parsed once, and count for all calls that have them.
    dtypes_of_shape: dict[Shape, Counter[str]] = {}
    for texts, calls in zip(inputs.distinct, calls_of_inputs.tolist(), strict=True):
        try:
            parsed = parse_recorded_inputs("", texts)
        except RefusedError:
            continue
        for argument in parsed.arguments:
            if isinstance(argument, TensorArgument):
                dtypes = dtypes_of_shape.setdefault(argument.shape, Counter())
                dtypes[argument.dtype] += calls

    most_frequent = {}
    for shape, dtypes in dtypes_of_shape.items():
        ((dtype, _),) = dtypes.most_common(1)
        most_frequent[shape] = dtype
    return most_frequent


def _set_list_dtypes(
    trace: Trace, inputs: Completed, inner: Sequence[InnerCall]
) -> Completed:
    """Give each tensor in a list the element type that is most likely. The types of
    lists are not recorded, so they are marked as assumed."""
    changed = inputs
    for position, argument in enumerate(inputs.arguments):
        if not isinstance(argument, TensorsArgument):
            continue

        typed_tensors: list[TensorArgument | None] = []
        for tensor in argument.tensors:
            if tensor is None:
                typed_tensors.append(None)
                continue
            dtype = _guess_dtype(trace, tensor.shape, inner)
            typed_tensors.append(replace(tensor, dtype=dtype, dtype_is_assumed=True))
        typed_list = TensorsArgument(tuple(typed_tensors))
        changed = changed.with_argument(position, typed_list)
    return changed


def _guess_dtype(trace: Trace, shape: Shape, inner: Sequence[InnerCall]) -> str:
    """Guess the element type of a tensor of a shape.

    The first tensor of this shape inside the call decides, else the most frequent type
    of the shape in the trace. Without either, the result is ASSUMED_DTYPE (float32).
    """
    for call in inner:
        for argument in call.arguments:
            if isinstance(argument, TensorArgument) and argument.shape == shape:
                return argument.dtype

    # Tensors without dimensions have all types; in a list they are numbers of steps.
    has_dimensions = len(shape) > 0
    if not has_dimensions:
        return ASSUMED_DTYPE
    return most_frequent_dtypes(trace).get(shape, ASSUMED_DTYPE)


def _fill_long_lists(
    trace: Trace, row: int, op: str, inputs: Completed, inner: Sequence[InnerCall]
) -> Completed:
    """Fill in lists of tensors that were too long to be recorded, where other ops show
    them. Other lists stay unrecorded.

    Args:
        trace: The trace.
        row: The op of the call.
        op: Its name.
        inputs: Its arguments, with remarks.
        inner: The ops inside the call.
    """
    changed = inputs
    for position, argument in enumerate(inputs.arguments):
        if not isinstance(argument, UnrecordedListArgument):
            continue
        tensors = _infer_list(trace, row, op, inputs.arguments, position, inner)
        if tensors:
            filled_list = TensorsArgument(tensors)
            changed = changed.with_argument(position, filled_list, RemarkKind.LONG_LIST)
    return changed


def _infer_list(
    trace: Trace,
    row: int,
    op: str,
    arguments: Sequence[Argument],
    position: int,
    inner: Sequence[InnerCall],
) -> tuple[TensorArgument, ...]:
    """Infer the tensors of a list that was not recorded from other ops.

    The slow path of a `_foreach_` op calls an op for each tensor. A stack shows the
    size of the list in its result.

    Args:
        trace: The trace.
        row: The op of the call.
        op: Its name.
        arguments: Its arguments.
        position: The position of the list among them.
        inner: The ops inside the call.

    Returns:
        The tensors; () if nothing shows them.
    """
    if op.startswith(FOREACH):
        single_op_name = ATEN + op.removeprefix(FOREACH)
        single_calls = _find_direct_calls(trace, row, single_op_name)
        return _collect_tensors_at(single_calls, position)

    dimension = integer_of_argument(arguments[-1])  # of stack and cat
    if op == STACK:
        return _infer_stacked_tensors(inner, dimension)
    if op == CAT:
        return _tensors_of_outer_stack(trace, row, dimension)
    return ()


def _find_direct_calls(trace: Trace, row: int, name: str) -> list[InnerCall]:
    """Return the calls of an op that another op makes directly, not through further
    ops. Returns [] if they are more than MAX_TENSORS_OF_LIST."""
    calls = []
    for call in list_inner_calls(trace, row):
        is_direct = int(trace.parent[call.row]) == row
        if is_direct and call.name == name:
            calls.append(call)
    return calls if len(calls) <= MAX_TENSORS_OF_LIST else []


def _tensors_of_outer_stack(
    trace: Trace, row: int, dimension: int | None
) -> tuple[TensorArgument, ...]:
    """Return the tensors of a `cat` that a `stack` calls, which are those of the stack.

    Returns () if the op around the row of the `cat` is no stack, or if its tensors are
    not known.
    """
    parent = int(trace.parent[row])
    has_parent = parent >= 0
    if has_parent and trace.name_of(parent) == STACK:
        return _infer_stacked_tensors(list_inner_calls(trace, parent), dimension)
    return ()


def _infer_stacked_tensors(
    inner: Sequence[InnerCall], dimension: int | None
) -> tuple[TensorArgument, ...]:
    """Infer the tensors of a `stack` from the `view` that it makes of its result.

    A stack concatenates its tensors and then views the result with the final sizes
    (TensorShape.cpp). All tensors have the same sizes: those of the result without the
    stacked dimension. E.g. a result of 4 x 3 x 2 along dimension 0 is of four 3 x 2
    tensors. Their strides are not known.

    Args:
        inner: The ops inside the stack.
        dimension: The stacked dimension; None if it is not known.

    Returns:
        One tensor per stacked tensor; () if the ops inside do not show them.
    """
    if dimension is None:
        return ()

    for call in inner:
        if call.name != "aten::view" or len(call.arguments) != 2:
            continue
        concatenated, sizes_argument = call.arguments
        sizes = integers_of_argument(sizes_argument)
        if not isinstance(concatenated, TensorArgument) or sizes is None:
            continue

        has_dimension = -len(sizes) <= dimension < len(sizes)
        has_equal_elements = math.prod(sizes) == math.prod(concatenated.shape)
        if not has_dimension or not has_equal_elements or min(sizes) < 0:
            continue

        # A negative dimension counts from the end.
        stacked_dimension = dimension % len(sizes)
        tensor_count = sizes[stacked_dimension]
        if not 0 < tensor_count <= MAX_TENSORS_OF_LIST:
            continue

        shape = sizes[:stacked_dimension] + sizes[stacked_dimension + 1 :]
        tensor = TensorArgument(shape=shape, dtype=concatenated.dtype)
        return (tensor,) * tensor_count
    return ()


def _collect_tensors_at(
    calls: Sequence[InnerCall], position: int
) -> tuple[TensorArgument, ...]:
    """Return the tensor that each call takes as the argument at a position. Returns ()
    if any of them takes something else there."""
    tensors = []
    for call in calls:
        if position >= len(call.arguments):
            return ()
        argument = call.arguments[position]
        if not isinstance(argument, TensorArgument):
            return ()
        tensors.append(argument)
    return tuple(tensors)


def _fill_indices(inputs: Completed, inner: Sequence[InnerCall]) -> Completed:
    """Fill in the list of indices of an op such as `index`, if it was not recorded.

    The second argument is that list. It is inferred from the ops inside.
    """
    if len(inputs.arguments) < 2:
        return inputs
    indexed = inputs.tensor_at(0)
    is_recorded = not isinstance(inputs.arguments[1], NothingArgument)
    if is_recorded or indexed is None:
        return inputs

    indices = _infer_indices(indexed, inner)
    if indices is None:
        return inputs

    # The remark that nothing was recorded does not hold any more.
    without_remark = inputs.without_remarks_about(1)
    index_list = TensorsArgument(indices)
    return without_remark.with_argument(1, index_list, RemarkKind.INDICES)


class _ReshapedIndex(NamedTuple):
    """An index tensor inside an advanced indexing, and the shape that it gets."""

    tensor: TensorArgument
    new_shape: Shape


def _infer_indices(
    indexed: TensorArgument, inner: Sequence[InnerCall]
) -> tuple[TensorArgument | None, ...] | None:
    """Infer the index tensors of an advanced indexing, such as `x[:, i]`, from the ops
    inside.

    torch reshapes each index for a TensorIterator (TensorAdvancedIndexing.cpp,
    reshape_indexer). The new shape has its sizes, with a 1 for each dimension that is
    not indexed, before and after. So the ones before it tell which dimensions are left
    out. E.g. if x is 4 x 6, and i of the shape (5,) becomes (1, 5): the indices are
    None, and i with values below 6.

    Args:
        indexed: The tensor that is indexed.
        inner: The ops inside the indexing.

    Returns:
        The indices, with None for a dimension that is left out (`:`). A mask of
        bools stands for the indices that are made from it. None if the ops inside
        do not show the indices.
    """
    # After a permutation, the indexed dimensions lie elsewhere.
    reshaped = _find_reshaped_indices(inner)
    is_permuted = any(
        tensor.shape == indexed.shape
        for tensor in _first_arguments_of(inner, "aten::permute")
    )
    if not reshaped or is_permuted:
        return None

    first = reshaped[0]
    not_indexed = len(indexed.shape) - len(reshaped)
    dimensions_before = _count_leading_ones(
        first.tensor.shape, first.new_shape, not_indexed
    )
    if dimensions_before is None:
        return None
    left_out = (None,) * dimensions_before

    # The indices may have been made from a mask.
    for mask in _first_arguments_of(inner, "aten::nonzero"):
        if mask.dtype == "bool":
            return (*left_out, mask)

    # Indices are bounded by the sizes of the dimensions that they index.
    indices = []
    for number, index in enumerate(reshaped):
        size = indexed.shape[dimensions_before + number]
        indices.append(replace(index.tensor, filling=Filling.INTEGERS, below=size))
    return (*left_out, *indices)


def _find_reshaped_indices(inner: Sequence[InnerCall]) -> list[_ReshapedIndex]:
    """Return the tensors of integers that the ops inside a call reshape, each with its
    new shape."""
    reshaped = []
    for call in inner:
        if call.name != "aten::reshape" or len(call.arguments) != 2:
            continue
        tensor, sizes = call.arguments
        new_shape = integers_of_argument(sizes)
        if not isinstance(tensor, TensorArgument) or new_shape is None:
            continue
        if tensor.dtype in INDEX_DTYPES:
            reshaped.append(_ReshapedIndex(tensor=tensor, new_shape=new_shape))
    return reshaped


def _first_arguments_of(inner: Sequence[InnerCall], op: str) -> list[TensorArgument]:
    """Return the tensors that inner calls of an op take as their first argument."""
    tensors = []
    for call in inner:
        if call.name == op and call.arguments:
            first = call.arguments[0]
            if isinstance(first, TensorArgument):
                tensors.append(first)
    return tensors


def _count_leading_ones(shape: Shape, new_shape: Shape, ones: int) -> int | None:
    """Count the ones that a reshape put before the sizes of a tensor.

    E.g. (5,) became (1, 5, 1) by 2 ones, of which 1 is before. Returns None if
    `new_shape` is not `shape` with so many ones around it.
    """
    for before in range(ones + 1):
        after = ones - before
        if new_shape == (1,) * before + shape + (1,) * after:
            return before
    return None


def _mark_host_memory(trace: Trace, row: int, op: str, inputs: Completed) -> Completed:
    """Mark the tensors of a call that a copy shows to be in the memory of the host.

    E.g. `copy_` with a copy to a device reads its second argument from the host. For
    `to`, the device of the result is set too. Nothing changes unless the call launched
    exactly one copy.
    """
    copy_name = _find_only_copy(trace, row)
    if not copy_name:
        return inputs
    memory = "pinned" if PINNED in copy_name else "cpu"
    is_to_device = copy_name.startswith(TO_DEVICE)

    if op == "aten::copy_":  # copy_(destination, source)
        host_position = 1 if is_to_device else 0
        return _set_tensor_memory(inputs, host_position, memory)

    device_position = DEVICE_POSITIONS.get((op, len(inputs.arguments)))
    if device_position is None:
        return inputs
    is_recorded = not isinstance(inputs.arguments[device_position], NothingArgument)
    if is_recorded:
        return inputs

    # The remark that nothing was recorded does not hold any more.
    device = DeviceArgument("" if is_to_device else "cpu")
    without_remark = inputs.without_remarks_about(device_position)
    changed = without_remark.with_argument(device_position, device, RemarkKind.MACHINE)
    return _set_tensor_memory(changed, 0, memory) if is_to_device else changed


def _set_tensor_memory(inputs: Completed, position: int, memory: str) -> Completed:
    """Note in which memory of the host a tensor of a call is: `cpu` or `pinned`.

    Nothing changes if the argument at this position is no tensor.
    """
    tensor = inputs.tensor_at(position)
    if tensor is None:
        return inputs
    in_memory = replace(tensor, device=memory)
    return inputs.with_argument(position, in_memory, RemarkKind.MACHINE)


def _find_only_copy(trace: Trace, row: int) -> str:
    """Return the name of the only copy between a device and the host that a call
    launched. Returns "" if it launched none, or several."""
    entries = trace.launch_index.within(row, int(trace.end_row[row]))
    copies = []
    for gpu_row in trace.launch_index.rows[entries].tolist():
        name = trace.name_of(gpu_row)
        is_copy = trace.role[gpu_row] == Role.MEMCPY
        if is_copy and name.startswith((TO_DEVICE, FROM_DEVICE)):
            copies.append(name)
    return copies[0] if len(copies) == 1 else ""


def _enlarge_storage(inputs: Completed) -> Completed:
    """Make the storage of the first argument of as_strided large enough for the result.

    as_strided may address more elements than the tensor itself shows. The sizes,
    strides and the offset of the result tell how many: 2 x 3 with the strides 8 and 1,
    from element 4 on, need 4 + 8 + 2 + 1 = 15. Nothing changes if these were not
    recorded.
    """
    if len(inputs.arguments) < 4:
        return inputs
    tensor = inputs.tensor_at(0)
    sizes = integers_of_argument(inputs.arguments[1])
    strides = integers_of_argument(inputs.arguments[2])
    offset = integer_of_argument(inputs.arguments[3]) or 0
    if tensor is None or sizes is None or strides is None:
        return inputs
    if len(sizes) != len(strides):
        return inputs

    # The last element of the result is the farthest one, as no stride is negative.
    last_element = offset
    for size, stride in zip(sizes, strides, strict=True):
        last_element += (size - 1) * stride
    enlarged = replace(tensor, storage=max(last_element + 1, 0))
    return inputs.with_argument(0, enlarged)
