"""Runs of kernels that each make one pass over the same data: what one kernel could do
at once, and how many bytes it would move."""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.kernels import Kernels
from fusetui.gpu.kernel_names import KernelName
from fusetui.gpu.roofline.inputs import Tensor, inputs_of
from fusetui.gpu.roofline.many import INPUTS
from fusetui.gpu.roofline.pointwise import broadcast
from fusetui.trace.model.arrays import Flags, Floats, Int32s, Int64s, Rows
from fusetui.trace.model.events import parsed
from fusetui.trace.model.memo import memo

_POINTWISE_OPS: Final = ("elementwise", "copy", "reduction", "fill", "index")
MIN_FUSED_NS: Final = 2_000
"""What one kernel takes at least."""
_NS_PER_S: Final = 1_000_000_000
_COPY: Final = frozenset({"aten::copy_"})
"""The op that writes its first input."""
_ATEN: Final = "aten::"
"""Inputs of other ops are not those of each kernel that they launch."""
UNKNOWN: Final = -1
_MAX_INPUTS: Final = 3
"""Of an op; the elements of further inputs are not compared."""


class Runs(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Runs of at least two kernels, as indices into Kernels.stream_order; arrays of shape
    [runs]."""

    begin: Rows
    end: Rows
    ns: Int64s
    """Effective."""
    module: Rows
    least_ns: Int64s
    """That one kernel for each would take, or UNKNOWN."""
    moved: Floats
    """The share of their bytes that one kernel for each would move, or NaN."""
    are_chains: bool
    """Whether by their shapes each kernel can work on the result of the one before."""

    @property
    def saved_ns(self) -> Int64s:
        """What one kernel for each would take less; 0 where that is not known."""
        spared_ns = np.maximum(self.ns - self.least_ns, 0)
        return np.where(self.least_ns >= 0, spared_ns, 0)

    @property
    def is_known(self) -> bool:
        """Whether that is known of any run."""
        return bool((self.least_ns >= 0).any())


def inside_of(begin: Rows, end: Rows, number: int) -> Flags:
    """Which of the indices 0 to `number` - 1 lie in any of the ranges [begin, end)."""
    opened = np.bincount(begin, minlength=number + 1)
    closed = np.bincount(end, minlength=number + 1)
    open_ranges = np.cumsum(opened - closed)[:-1]
    return open_ranges > 0


def is_pointwise(kernel: KernelName) -> bool:
    """Whether it is one of PyTorch's own kernels that make one pass over their tensors,
    without those fused already."""
    return kernel.op in _POINTWISE_OPS and kernel.family.startswith("aten")


def _is_reduction(kernel: KernelName) -> bool:
    return kernel.op == "reduction"


def _reads(kernel: KernelName) -> bool:
    return kernel.op != "fill"


@memo()
def runs_of(kernels: Kernels) -> Runs:
    """Neighbors on a stream under one module or annotation, at least two of which read
    something. Where shapes are known, the size of an input of each is that of the
    result of the one before, and none repeats what the one before does to a single
    tensor. Those of an optimizer work on many tensors that have nothing to do with each
    other."""
    order = kernels.stream_order
    module = kernels.module[order]
    is_wanted = (kernels.flags(is_pointwise) & ~kernels.in_optimizer)[order]
    is_wanted &= module >= 0
    is_copy = kernels.launched_by_ops(_COPY)[order]
    reduces = kernels.flags(_is_reduction)[order]
    sizes = _sizes(kernels, is_copy)
    are_chains = bool((is_wanted & (sizes.result >= 0)).any())
    continues = _are_neighbors(kernels, is_wanted)
    if are_chains:
        continues &= _takes_result(sizes, reduces)
        continues &= ~_repeats(kernels, sizes, is_copy)
    begin, end = _ranges_of_runs(is_wanted, continues)
    reading_kernels = _sums_between(kernels.flags(_reads)[order], begin, end)
    has_several = reading_kernels >= 2
    begin = begin[has_several]
    end = end[has_several]
    written_bytes = _written_bytes(sizes, is_copy, reduces)
    return Runs(
        begin=begin,
        end=end,
        ns=_sums_between(kernels.effective_ns[order], begin, end),
        module=module[begin],
        least_ns=_least_ns(kernels, sizes, written_bytes, begin, end),
        moved=_moved(sizes, written_bytes, begin, end),
        are_chains=are_chains,
    )


def _ranges_of_runs(is_wanted: Flags, continues: Flags) -> tuple[Rows, Rows]:
    """The begins and ends of all runs of wanted kernels, [begin, end), among the kernels
    in order. `continues`: whether each kernel but the first is in the run of the one
    before it."""
    is_first = is_wanted.copy()
    is_first[1:] &= ~continues
    is_last = is_wanted.copy()
    is_last[:-1] &= ~continues
    return np.flatnonzero(is_first), np.flatnonzero(is_last) + 1


def _written_bytes(sizes: OpSizes, is_copy: Flags, reduces: Flags) -> Int64s:
    """What each kernel in order writes (bytes), UNKNOWN without shapes: as much as its
    largest input has; a copy its first input, a reduction nothing."""
    written_bytes = np.where(is_copy, sizes.first_bytes, sizes.largest_bytes)
    return np.where(reduces, 0, written_bytes)


def _are_neighbors(kernels: Kernels, is_wanted: Flags) -> Flags:
    """Whether each kernel but the first, in order, belongs to the same module and
    stream as the one before it, and both are wanted; shape [kernels - 1]."""
    order = kernels.stream_order
    module = kernels.module[order]
    stream = kernels.stream[order]
    are_neighbors: Flags = is_wanted[1:] & is_wanted[:-1]
    are_neighbors &= module[1:] == module[:-1]
    are_neighbors &= stream[1:] == stream[:-1]
    return are_neighbors


class OpSizes(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What the ops of kernels read and write by their inputs, in the order of
    Kernels.stream_order: arrays of shape [kernels], UNKNOWN without shapes."""

    all_bytes: Int64s
    """Of all tensors."""
    largest_bytes: Int64s
    first_bytes: Int64s
    second_bytes: Int64s
    """0 for none."""
    result: Int64s
    """Elements of the broadcast shape."""
    given: Int64s
    """Elements of the first inputs; shape [_MAX_INPUTS, kernels]."""


def _takes_result(sizes: OpSizes, reduces: Flags) -> Flags:
    """Whether each kernel but the first can take what the one before it wrote, by the
    number of elements: an input has as many as the inputs before broadcast to, or, after a
    reduction, a proper divisor of them above 1. Shape [kernels - 1]."""
    result_before = sizes.result[:-1]
    given = sizes.given[:, 1:]
    is_divisor = result_before % np.maximum(given, 1) == 0
    is_reduced = (given > 1) & (given < result_before) & is_divisor
    is_equal = (given >= 0) & (given == result_before)
    input_takes = np.where(reduces[:-1], is_reduced, is_equal)
    takes: Flags = input_takes.any(axis=0)
    return takes


def _repeats(kernels: Kernels, sizes: OpSizes, is_copy: Flags) -> Flags:
    """Whether each kernel but the first does to one tensor what the one before it did,
    as to several tensors one after another."""
    order = kernels.stream_order
    name = kernels.trace.name[kernels.trace.op[kernels.rows[order]]]
    inputs = kernels.inputs.number[order]
    has_one_input = (sizes.given[1] < 0) | is_copy
    repeats: Flags = has_one_input[1:] & (inputs[1:] == inputs[:-1])
    repeats &= name[1:] == name[:-1]
    return repeats


def _sums_before(amounts: NDArray[np.generic]) -> Int64s:
    """The sum before each index, and the total; shape [n + 1]."""
    return np.concatenate(([0], np.cumsum(amounts, dtype=np.int64)))


def _sums_between(amounts: NDArray[np.generic], begin: Rows, end: Rows) -> Int64s:
    """The sum over each range [begin, end) of indices; shape of `begin`."""
    before = _sums_before(amounts)
    sums: Int64s = before[end] - before[begin]
    return sums


def _least_ns(
    kernels: Kernels, sizes: OpSizes, written_bytes: Int64s, begin: Rows, end: Rows
) -> Int64s:
    """How long one kernel for each run would take at least (ns), or UNKNOWN. It reads
    the inputs of the first kernel, or the largest tensor of a later one if that is
    more; and it writes the output of the last one, whose size is taken for that of its
    largest input."""
    bytes_per_s = kernels.peak.bytes_per_s if kernels.peak else None
    if not bytes_per_s or not len(begin):
        return np.full(len(begin), UNKNOWN, dtype=np.int64)
    first_reads = sizes.all_bytes[begin]
    last_writes = written_bytes[end - 1]
    reads = np.maximum(first_reads, _largest_of_runs(sizes.largest_bytes, begin, end))
    moving_ns = (reads + last_writes) / bytes_per_s * _NS_PER_S
    least_ns = np.rint(np.maximum(moving_ns, MIN_FUSED_NS))
    is_known = (first_reads >= 0) & (last_writes >= 0)
    return np.where(is_known, least_ns, UNKNOWN).astype(np.int64)


def _largest_of_runs(amounts: Int64s, begin: Rows, end: Rows) -> Int64s:
    """The largest amount of each range [begin, end), of which there is at least one;
    they are disjoint and in order."""
    # reduceat takes [begin, end), then what lies between that range and the next one
    edges = np.stack((begin, end), axis=1).reshape(-1)
    with_end = np.append(amounts, UNKNOWN)  # an edge may be the end of all
    return np.maximum.reduceat(with_end, edges)[::2]


def _moved(sizes: OpSizes, written_bytes: Int64s, begin: Rows, end: Rows) -> Floats:
    """The share of the bytes of each run that stays if what a kernel hands to the next
    one is neither written nor read; NaN where bytes are not known."""
    read_bytes = sizes.all_bytes
    has_bytes = (read_bytes >= 0) & (written_bytes >= 0)
    all_known = _sums_between(has_bytes, begin, end) == end - begin
    kernel_bytes = np.maximum(read_bytes, 0) + np.maximum(written_bytes, 0)
    moved_bytes = _sums_between(kernel_bytes, begin, end)
    # all but the last kernel hand on what they write: it is written once, and read once
    handed_on_bytes = _sums_between(written_bytes, begin, end - 1)
    staying_bytes = moved_bytes - 2 * handed_on_bytes
    is_known = all_known & (moved_bytes > 0) & (staying_bytes > 0)
    return np.where(is_known, staying_bytes / np.maximum(moved_bytes, 1), np.nan)


def _sizes(kernels: Kernels, is_copy: Flags) -> OpSizes:
    """The sizes of the ops of all kernels, in order. A copy reads its second input, and
    writes the first."""
    columns = _InputsColumns.of(kernels)
    inputs = columns.sizes
    all_bytes = columns.of_kernels([size.all_bytes for size in inputs])
    largest_bytes = columns.of_kernels([size.largest_bytes for size in inputs])
    second_bytes = columns.of_kernels([size.second_bytes for size in inputs])
    result = columns.of_kernels([size.result for size in inputs])
    given_by_place = []
    for place in range(_MAX_INPUTS):
        elements = [size.given[place] for size in inputs]
        given_by_place.append(columns.of_kernels(elements))
    given = np.stack(given_by_place)
    all_bytes[is_copy] = second_bytes[is_copy]
    largest_bytes[is_copy] = second_bytes[is_copy]
    result[is_copy] = given[0, is_copy]
    given[0, is_copy] = UNKNOWN
    return OpSizes(
        all_bytes=all_bytes,
        largest_bytes=largest_bytes,
        first_bytes=columns.of_kernels([size.first_bytes for size in inputs]),
        second_bytes=second_bytes,
        result=result,
        given=given,
    )


class _InputsColumns(msgspec.Struct, frozen=True, eq=False):
    """What the inputs of the ops tell, as columns of the kernels in order."""

    sizes: list[InputsSize]
    """Of each different list of inputs; at the end that of no list."""
    place: Int32s
    """The place in `sizes` of each kernel's op, -1 for none; shape [kernels]."""
    is_unknown: Flags
    """Whether the inputs of the op are not those of the kernel; shape [kernels]."""

    @classmethod
    def of(cls, kernels: Kernels) -> _InputsColumns:
        """The inputs of the ops of these kernels."""
        trace = kernels.trace
        sizes = [_inputs_size(texts) for texts in kernels.inputs.distinct]
        op = trace.op[kernels.rows[kernels.stream_order]]
        is_aten = [name.startswith(_ATEN) for name in trace.names]
        is_aten_name = np.array(is_aten or [False])
        return cls(
            sizes=[*sizes, InputsSize()],
            place=kernels.inputs.number[kernels.stream_order],
            is_unknown=(op < 0) | ~is_aten_name[trace.name[op]],
        )

    def of_kernels(self, values: list[int]) -> Int64s:
        """A figure of each kernel, UNKNOWN where it is not known; `values`: of each of
        `sizes`."""
        column: Int64s = np.array(values, dtype=np.int64)[self.place]
        column[self.is_unknown] = UNKNOWN
        return column


class InputsSize(msgspec.Struct, frozen=True, kw_only=True):
    """What one list of inputs tells; see OpSizes."""

    all_bytes: int = UNKNOWN
    largest_bytes: int = UNKNOWN
    first_bytes: int = UNKNOWN
    second_bytes: int = UNKNOWN
    result: int = UNKNOWN
    given: tuple[int, ...] = (UNKNOWN,) * _MAX_INPUTS


def _inputs_size(texts: tuple[bytes, ...]) -> InputsSize:
    """What the recorded inputs of an op tell (`texts`: as JSON, see INPUTS); nothing
    unless the types and shapes of all tensors are known."""
    args = {}
    for name, text in zip(INPUTS, texts, strict=True):
        args[name] = parsed(text)
    list_elements = _elements_of_list(args.get("Input Dims"))
    if list_elements is not None:
        return InputsSize(result=sum(list_elements), given=_padded(list_elements))
    tensors = _tensors(args)
    sizes = [tensor.bytes for tensor in tensors if tensor.bytes is not None]
    if not sizes or len(sizes) < len(tensors):
        return InputsSize()
    shapes = [tensor.shape for tensor in tensors]
    common_shape = broadcast(shapes)
    return InputsSize(
        all_bytes=sum(sizes),
        largest_bytes=max(sizes),
        first_bytes=sizes[0],
        second_bytes=sizes[1] if len(sizes) > 1 else 0,
        result=UNKNOWN if common_shape is None else math.prod(common_shape),
        given=_padded([math.prod(shape) for shape in shapes]),
    )


def _tensors(args: dict[str, object]) -> list[Tensor]:
    """The tensors among the inputs of an op, in order."""
    inputs = inputs_of("", args)
    if inputs is None:
        return []
    tensors = []
    for place in range(len(inputs.dims)):
        tensor = inputs.tensor(place)
        if tensor is not None:
            tensors.append(tensor)
    return tensors


def _elements_of_list(dims: object) -> list[int] | None:
    """How many elements each tensor of a list has that is the first input, whose types
    are not recorded; None if the first input is no list of tensors. `dims`: of all
    inputs."""
    first_input = dims[0] if isinstance(dims, list) and dims else None
    inputs = inputs_of("", {"Input Dims": first_input})
    if inputs is None or not inputs.dims:
        return None
    elements = []
    for shape in inputs.dims:
        if shape is None:
            return None
        elements.append(math.prod(shape))
    return elements


def _padded(elements: list[int]) -> tuple[int, ...]:
    """The first _MAX_INPUTS of these, filled up with UNKNOWN."""
    padding = [UNKNOWN] * _MAX_INPUTS
    return tuple([*elements, *padding][:_MAX_INPUTS])
