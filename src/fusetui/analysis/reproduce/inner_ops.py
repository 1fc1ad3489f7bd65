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
    parsed_inputs,
    whole_number,
    whole_numbers,
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


def inner_calls(trace: Trace, row: int) -> list[InnerCall]:
    """The ops inside a call, in order."""
    table = call_table(trace)
    first, end = np.searchsorted(table.rows, (row + 1, int(trace.end_row[row])))
    calls = []
    for place in range(int(first), int(end)):
        inner_row = int(table.rows[place])
        name = trace.name_of(inner_row)
        calls.append(InnerCall(name, inner_row, _inputs_at(table, place, name)))
    return calls


def _inputs_at(table: CallTable, place: int, name: str) -> ParsedInputs | None:
    try:
        return parsed_inputs(name, table.inputs_at(place))
    except RefusedError:
        return None


class Completed(NamedTuple):
    """Arguments of a call with what the work inside it shows, and remarks about it."""

    arguments: tuple[Argument, ...]
    remarks: tuple[Remark, ...]


def completed(
    trace: Trace, row: int, op: str, parsed: ParsedInputs, inner: Sequence[InnerCall]
) -> Completed:
    """The arguments of the call in a row, completed by what is inside it."""
    arguments = [*parsed.arguments]
    remarks = [*parsed.remarks]
    _set_list_dtypes(trace, arguments, inner)
    _set_long_lists(trace, row, op, arguments, remarks, inner)
    if op in WITH_INDICES:
        _set_indices(arguments, remarks, inner)
    _set_memories(trace, row, op, arguments, remarks)
    if op in ("aten::as_strided", "aten::as_strided_"):
        _set_storage(arguments)
    return Completed(tuple(arguments), tuple(remarks))


@memo()
def dtype_of_shapes(trace: Trace) -> Mapping[Shape, str]:
    """The most frequent element type of the tensors of each shape in a trace, among
    those whose type was recorded."""
    table = call_table(trace)
    counts: dict[Shape, Counter[str]] = {}
    weights = np.bincount(table.inputs.number[table.inputs.number >= 0])
    for texts, weight in zip(table.inputs.distinct, weights.tolist(), strict=False):
        try:
            parsed = parsed_inputs("", texts)
        except RefusedError:
            continue
        for argument in parsed.arguments:
            if isinstance(argument, TensorArgument):
                dtypes = counts.setdefault(argument.shape, Counter())
                dtypes[argument.dtype] += weight
    return {shape: dtypes.most_common(1)[0][0] for shape, dtypes in counts.items()}


def _set_list_dtypes(
    trace: Trace, arguments: list[Argument], inner: Sequence[InnerCall]
) -> None:
    """Gives the tensors of lists an element type; changes the list in place."""
    for position, argument in enumerate(arguments):
        if isinstance(argument, TensorsArgument):
            tensors: list[TensorArgument | None] = []
            for tensor in argument.tensors:
                if tensor is not None:
                    dtype = _dtype_of(trace, tensor.shape, inner)
                    tensor = replace(tensor, dtype=dtype, dtype_is_assumed=True)
                tensors.append(tensor)
            arguments[position] = TensorsArgument(tuple(tensors))


def _dtype_of(trace: Trace, shape: Shape, inner: Sequence[InnerCall]) -> str:
    """The element type of a tensor of this shape: inside the call, else most often in
    the trace, else ASSUMED_DTYPE."""
    for call in inner:
        for argument in call.inputs.arguments if call.inputs else ():
            if isinstance(argument, TensorArgument) and argument.shape == shape:
                return argument.dtype
    if not shape:  # a number of steps, most often; counts say nothing about it
        return ASSUMED_DTYPE
    return dtype_of_shapes(trace).get(shape, ASSUMED_DTYPE)


def _set_long_lists(
    trace: Trace,
    row: int,
    op: str,
    arguments: list[Argument],
    remarks: list[Remark],
    inner: Sequence[InnerCall],
) -> None:
    """Fills in lists that were too long to be recorded, where the ops around or inside
    the call show their tensors; changes both lists in place."""
    for position, argument in enumerate(arguments):
        if not isinstance(argument, UnrecordedListArgument):
            continue
        tensors: tuple[TensorArgument, ...] = ()
        if op.startswith(FOREACH):
            parts_name = op.replace(FOREACH, ATEN, 1)
            tensors = _tensors_at(_directly_inside(trace, row, parts_name), position)
        elif op == STACK:
            tensors = _stacked(inner, whole_number(arguments[-1]))
        elif op == CAT:
            tensors = _stacked_around(trace, row, whole_number(arguments[-1]))
        if tensors:
            arguments[position] = TensorsArgument(tensors)
            remarks.append(Remark(RemarkKind.LONG_LIST, position))


def _directly_inside(trace: Trace, row: int, name: str) -> list[InnerCall]:
    """The calls of an op that a call makes itself; [] if they are more than a list
    holds."""
    calls = []
    for call in inner_calls(trace, row):
        if call.name == name and int(trace.parent[call.row]) == row:
            calls.append(call)
    return calls if len(calls) <= MAX_TENSORS_OF_LIST else []


def _stacked_around(
    trace: Trace, row: int, dimension: int | None
) -> tuple[TensorArgument, ...]:
    """The tensors of a cat that a stack makes; () for any other."""
    parent = int(trace.parent[row])
    if parent < 0 or trace.name_of(parent) != STACK:
        return ()
    return _stacked(inner_calls(trace, parent), dimension)


def _stacked(
    inner: Sequence[InnerCall], dimension: int | None
) -> tuple[TensorArgument, ...]:
    """The tensors of a stack along a dimension, which concatenates them and then views
    the result with its sizes (TensorShape.cpp): all have the same sizes. Their strides
    are not recorded. () if the ops inside do not show them."""
    for call in inner:
        arguments = call.inputs.arguments if call.inputs else ()
        if call.name != "aten::view" or len(arguments) != 2 or dimension is None:
            continue
        whole, sizes = arguments[0], whole_numbers(arguments[1])
        if not isinstance(whole, TensorArgument) or sizes is None:
            continue
        is_dimension = -len(sizes) <= dimension < len(sizes)
        if not is_dimension or math.prod(sizes) != math.prod(whole.shape):
            continue
        count = sizes[dimension]
        if not 0 < count <= MAX_TENSORS_OF_LIST or min(sizes) < 0:
            continue
        place = dimension % len(sizes)
        shape = sizes[:place] + sizes[place + 1 :]
        tensor = TensorArgument(shape=shape, dtype=whole.dtype)
        return (tensor,) * count
    return ()


def _tensors_at(
    parts: Sequence[InnerCall], position: int
) -> tuple[TensorArgument, ...]:
    """The tensor that each of some calls takes at a position; () unless all take
    one."""
    tensors = []
    for call in parts:
        arguments = call.inputs.arguments if call.inputs else ()
        argument = arguments[position] if position < len(arguments) else None
        if not isinstance(argument, TensorArgument):
            return ()
        tensors.append(argument)
    return tuple(tensors)


def _set_indices(
    arguments: list[Argument], remarks: list[Remark], inner: Sequence[InnerCall]
) -> None:
    """Fills in a list of indices that was not recorded; changes both lists in place."""
    if len(arguments) < 2 or not isinstance(arguments[1], NothingArgument):
        return
    indexed = arguments[0]
    if not isinstance(indexed, TensorArgument):
        return
    indices = _indices_of(indexed, inner)
    if indices is not None:
        arguments[1] = TensorsArgument(indices)
        remarks[:] = [remark for remark in remarks if remark.position != 1]
        remarks.append(Remark(RemarkKind.INDICES, 1))


class _ReshapedIndex(NamedTuple):
    """An index tensor inside an advanced indexing, and the shape that it gets."""

    tensor: TensorArgument
    target: Shape


def _indices_of(
    indexed: TensorArgument, inner: Sequence[InnerCall]
) -> tuple[TensorArgument | None, ...] | None:
    """The indices of an advanced indexing, None for one that is left out (`:`); None if
    the ops inside do not show them.

    torch reshapes each index for a TensorIterator (TensorAdvancedIndexing.cpp,
    reshape_indexer): its sizes, with a 1 for each dimension that is not indexed, before
    and after.
    """
    reshaped = _reshaped_indices(inner)
    if not reshaped or _tensors_given(inner, "aten::permute", indexed.shape):
        return None  # after a permutation, the indexed dimensions lie elsewhere
    index = reshaped[0]
    not_indexed = len(indexed.shape) - len(reshaped)
    before = _ones_before(index.tensor.shape, index.target, not_indexed)
    if before is None:
        return None
    left_out: list[TensorArgument | None] = [None] * before
    for mask in _tensors_given(inner, "aten::nonzero"):
        if mask.dtype == "bool":
            return (*left_out, mask)
    tensors = []
    for number, index in enumerate(reshaped):
        below = indexed.shape[before + number]
        tensors.append(replace(index.tensor, filling=Filling.INTEGERS, below=below))
    return (*left_out, *tensors)


def _reshaped_indices(inner: Sequence[InnerCall]) -> list[_ReshapedIndex]:
    """The index tensors that are given another shape inside a call."""
    reshaped = []
    for call in inner:
        arguments = call.inputs.arguments if call.inputs else ()
        if call.name != "aten::reshape" or len(arguments) != 2:
            continue
        tensor, sizes = arguments
        target = whole_numbers(sizes)
        if not isinstance(tensor, TensorArgument) or target is None:
            continue
        if tensor.dtype in INDEX_DTYPES:
            reshaped.append(_ReshapedIndex(tensor, target))
    return reshaped


def _tensors_given(
    inner: Sequence[InnerCall], op: str, shape: Shape | None = None
) -> list[TensorArgument]:
    """The first arguments of the inner calls of an op, of this shape only if one is
    given."""
    tensors = []
    for call in inner:
        if call.name != op or call.inputs is None:
            continue
        for tensor in call.inputs.arguments[:1]:
            if isinstance(tensor, TensorArgument) and shape in (None, tensor.shape):
                tensors.append(tensor)
    return tensors


def _ones_before(shape: Shape, target: Shape, not_indexed: int) -> int | None:
    """How many of the ones that `target` has more than `shape` stand before it; None if
    they are not `not_indexed` ones around it."""
    for before in range(not_indexed + 1):
        after = not_indexed - before
        if target == (1,) * before + shape + (1,) * after:
            return before
    return None


def _set_memories(
    trace: Trace, row: int, op: str, arguments: list[Argument], remarks: list[Remark]
) -> None:
    """Marks tensors that a copy shows to be in the memory of the machine, and the
    device of the result; changes both lists in place."""
    copied = _copy_inside(trace, row)
    if not copied:
        return
    memory = "pinned" if PINNED in copied else "cpu"
    is_to_device = copied.startswith(TO_DEVICE)
    if op == "aten::copy_":
        _set_memory(arguments, remarks, 1 if is_to_device else 0, memory)
        return
    position = DEVICE_POSITIONS.get((op, len(arguments)))
    if position is None or not isinstance(arguments[position], NothingArgument):
        return
    remarks[:] = [remark for remark in remarks if remark.position != position]
    arguments[position] = DeviceArgument("" if is_to_device else "cpu")
    remarks.append(Remark(RemarkKind.MACHINE, position))
    if is_to_device:
        _set_memory(arguments, remarks, 0, memory)


def _set_memory(
    arguments: list[Argument], remarks: list[Remark], position: int, memory: str
) -> None:
    tensor = arguments[position] if position < len(arguments) else None
    if isinstance(tensor, TensorArgument):
        arguments[position] = replace(tensor, device=memory)
        remarks.append(Remark(RemarkKind.MACHINE, position))


def _copy_inside(trace: Trace, row: int) -> str:
    """The name of the only copy between a device and the machine that a call launched;
    "" without one, or with several."""
    entries = trace.launch_index.within(row, int(trace.end_row[row]))
    copies = []
    for gpu_row in trace.launch_index.rows[entries].tolist():
        name = trace.name_of(gpu_row)
        is_copy = trace.role[gpu_row] == Role.MEMCPY
        if is_copy and name.startswith((TO_DEVICE, FROM_DEVICE)):
            copies.append(name)
    return copies[0] if len(copies) == 1 else ""


def _set_storage(arguments: list[Argument]) -> None:
    """Makes the storage of what as_strided is called with large enough for its result;
    changes the list in place."""
    tensor = arguments[0] if arguments else None
    if not isinstance(tensor, TensorArgument) or len(arguments) < 4:
        return
    sizes = whole_numbers(arguments[1])
    strides = whole_numbers(arguments[2])
    if sizes is None or strides is None or len(sizes) != len(strides):
        return
    elements = 1 + (whole_number(arguments[3]) or 0)  # after the offset
    for size, stride in zip(sizes, strides, strict=True):
        elements += (size - 1) * stride
    arguments[0] = replace(tensor, storage=max(elements, 0))
