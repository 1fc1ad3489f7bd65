"""Find runs of kernels that each pass over the same data once.

One kernel could do the work of such a run at once. The file also estimates how many
bytes that kernel would move.
"""

from __future__ import annotations

import math
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.why.kernels import Kernels
from fusetui.gpu.kernel_names import KernelName
from fusetui.gpu.roofline.inputs import Tensor, inputs_of
from fusetui.gpu.roofline.many import INPUTS
from fusetui.gpu.roofline.pointwise import broadcast
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Floats,
    Int32s,
    Int64s,
    Ranges,
    Rows,
    reduce_ranges,
    sums_of_ranges,
)
from fusetui.trace.model.events import parsed
from fusetui.trace.model.memo import memo

_POINTWISE_OPS: Final = ("elementwise", "copy", "reduction", "fill", "index")
MIN_FUSED_NS: Final = 2_000
"""What one kernel takes at least."""
_NS_PER_S: Final = 1_000_000_000
_COPY: Final = frozenset({"aten::copy_"})
"""The op that writes its first input and reads its second one."""
_ATEN: Final = "aten::"
"""How names of ops begin whose inputs are those of each kernel that they launch."""
UNKNOWN: Final = -1
"""Stands for an unknown number in the columns of this file."""
_MAX_INPUTS: Final = 3
"""How many inputs of an op are compared; further ones are not."""


class Runs(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Runs of at least two kernels each; arrays of shape [runs]."""

    begin: Rows
    """Index of the first kernel of each run in Kernels.stream_order."""
    end: Rows
    """One more than the index of its last kernel."""
    ns: Int64s
    """The effective time of its kernels."""
    module: Rows
    """Its module or annotation, as a row of the trace."""
    least_ns: Int64s
    """What one kernel for the run would take at least, or UNKNOWN."""
    share_moved: Floats
    """The share of the bytes of the run that one kernel would move, or NaN."""
    are_chains: bool
    """Whether shapes show that each kernel can work on the result of the one before."""

    @property
    def has_least(self) -> Flags:
        """Tell for which runs `least_ns` is known."""
        is_known: Flags = self.least_ns != UNKNOWN
        return is_known

    @property
    def saved_ns(self) -> Int64s:
        """Return what one kernel for each run would save; 0 where it is not known."""
        spared_ns = np.maximum(self.ns - self.least_ns, 0)
        return np.where(self.has_least, spared_ns, 0)

    @property
    def is_known(self) -> bool:
        """Whether the saving is known of any run."""
        return bool(self.has_least.any())


def is_pointwise(kernel: KernelName) -> bool:
    """Whether a kernel is one of PyTorch's own that make one pass over their tensors.

    Kernels that are fused already are not among them.
    """
    return kernel.op in _POINTWISE_OPS and kernel.family.startswith("aten")


def _is_reduction(kernel: KernelName) -> bool:
    """Whether a kernel reduces its input, by its name."""
    return kernel.op == "reduction"


def _reads_tensor(kernel: KernelName) -> bool:
    """Whether a kernel reads a tensor, by its name."""
    return kernel.op != "fill"


@memo()
def find_fusable_runs(kernels: Kernels) -> Runs:
    """Find runs of kernels, neighbors on a stream, whose work one fused kernel could
    do.

    The kernels of a run belong to one module or annotation, and at least two of them
    read something. Where shapes are known, each takes the result of the one before, by
    its size. None of them repeats on another tensor what the one before does. Kernels
    of an optimizer are left out: they work on many tensors that have nothing to do with
    each other.
    """
    order = kernels.stream_order  # all flags and sizes below are in this order
    is_candidate = _find_candidates(kernels)
    is_copy = kernels.mark_launched_by_ops(_COPY)[order]
    reduces = kernels.match_names(_is_reduction)[order]
    sizes = _collect_sizes(kernels, is_copy)

    # Decide for each kernel whether it continues the run of the kernel before it.
    has_size = is_candidate & (sizes.result != UNKNOWN)
    are_sizes_known = bool(has_size.any())
    continues = _find_neighbors(kernels, is_candidate)
    if are_sizes_known:
        continues &= _match_result_sizes(sizes, reduces)
        continues &= ~_find_repetitions(kernels, sizes, is_copy)

    begin, end = _drop_runs_with_one_reader(
        kernels, _find_ranges_of_runs(is_candidate, continues)
    )
    written_bytes = _estimate_written_bytes(sizes, is_copy, reduces)
    return Runs(
        begin=begin,
        end=end,
        ns=sums_of_ranges(kernels.effective_ns[order], begin, end),
        module=kernels.module_row[order[begin]],
        least_ns=_estimate_least_ns(kernels, sizes, written_bytes, begin, end),
        share_moved=_estimate_share_left(sizes, written_bytes, begin, end),
        are_chains=are_sizes_known,
    )


def _drop_runs_with_one_reader(kernels: Kernels, runs: Ranges) -> Ranges:
    """Return the runs in which at least two kernels read a tensor.

    Otherwise there is nothing to save: a kernel that fills a tensor reads nothing.
    """
    reads = kernels.match_names(_reads_tensor)[kernels.stream_order]
    readers_of_run = sums_of_ranges(reads, runs.begin, runs.end)
    has_several = readers_of_run >= 2
    return Ranges(begin=runs.begin[has_several], end=runs.end[has_several])


def _find_candidates(kernels: Kernels) -> Flags:
    """Tell which kernels may be part of a run, in stream order.

    They are pointwise, in a module or annotation, and not of an optimizer.
    """
    has_module = kernels.module_row != NO_ROW
    is_candidate = (
        kernels.match_names(is_pointwise) & has_module & ~kernels.is_of_optimizer
    )
    in_stream_order: Flags = is_candidate[kernels.stream_order]
    return in_stream_order


def _find_ranges_of_runs(is_candidate: Flags, continues: Flags) -> Ranges:
    """Return the begins and the ends of all runs of candidates.

    >>> is_candidate = np.array([True, True, False, True])
    >>> _find_ranges_of_runs(is_candidate, continues=np.array([True, False, False]))
    Ranges(begin=array([0, 3]), end=array([2, 4]))

    Args:
        is_candidate: Which kernels in stream order may be part of a run.
        continues: For each kernel but the first, whether it belongs to the run of the
            kernel before it.

    Returns:
        Indices in stream order, of ranges [begin, end).
    """
    is_first = is_candidate.copy()
    is_first[1:] &= ~continues
    is_last = is_candidate.copy()
    is_last[:-1] &= ~continues

    return Ranges(begin=np.flatnonzero(is_first), end=np.flatnonzero(is_last) + 1)


def _estimate_written_bytes(sizes: OpSizes, is_copy: Flags, reduces: Flags) -> Int64s:
    """Estimate how many bytes each kernel in stream order writes.

    A pointwise kernel writes as much as its largest input has, and a copy writes its
    first input. A reduction counts as 0, because its result is small. UNKNOWN where
    shapes were not recorded.
    """
    written_bytes = np.where(is_copy, sizes.first_bytes, sizes.largest_bytes)
    return np.where(reduces, 0, written_bytes)


def _find_neighbors(kernels: Kernels, is_candidate: Flags) -> Flags:
    """Tell which kernels can be in one run with the kernel before them.

    Both must be candidates of the same module and stream. Shape [kernels - 1], in
    stream order.
    """
    order = kernels.stream_order
    module = kernels.module_row[order]
    stream = kernels.stream[order]
    are_neighbors: Flags = is_candidate[1:] & is_candidate[:-1]
    are_neighbors &= module[1:] == module[:-1]
    are_neighbors &= stream[1:] == stream[:-1]

    return are_neighbors


class OpSizes(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What the ops of kernels read and write, by their inputs; shape [kernels].

    The arrays are in stream order and UNKNOWN without shapes.
    """

    all_bytes: Int64s
    """The bytes of all tensors together."""
    largest_bytes: Int64s
    first_bytes: Int64s
    second_bytes: Int64s
    """0 if there is no second tensor."""
    result: Int64s
    """The elements of the shape to which the inputs broadcast."""
    elements_of_input: Int64s
    """The elements of each of the first inputs; shape [_MAX_INPUTS, kernels]."""


def _match_result_sizes(sizes: OpSizes, reduces: Flags) -> Flags:
    """Tell which kernels can take what the kernel before them wrote, by its size.

    After an add of 8 x 1 and 8 x 64 elements, that is a kernel with an input of 512
    elements. After a reduction of 512 elements, it is one with an input of 256, 128,
    ... or 2 elements: any proper divisor above 1.

    Returns:
        A flag for each kernel in stream order but the first; shape [kernels - 1].
    """
    result_before = sizes.result[:-1]
    elements = sizes.elements_of_input[:, 1:]  # [_MAX_INPUTS, kernels - 1]

    divides_result = result_before % np.maximum(elements, 1) == 0
    is_proper_divisor = divides_result & (elements > 1) & (elements < result_before)
    is_equal = (elements != UNKNOWN) & (elements == result_before)
    input_fits = np.where(reduces[:-1], is_proper_divisor, is_equal)
    fits: Flags = input_fits.any(axis=0)

    return fits


def _find_repetitions(kernels: Kernels, sizes: OpSizes, is_copy: Flags) -> Flags:
    """Tell which kernels do to one tensor what the kernel before did to another one.

    That happens where an op is called for several tensors one after another, such as
    relu(a) and then relu(b) of the same shape. A kernel is such a repetition if its op
    has one input, and the name and the recorded inputs of its op are those of the
    kernel before.

    Returns:
        A flag for each kernel in stream order but the first; shape [kernels - 1].
    """
    order = kernels.stream_order
    name = kernels.trace.name[kernels.trace.op[kernels.rows[order]]]
    inputs = kernels.inputs.number[order]
    has_one_input = (sizes.elements_of_input[1] == UNKNOWN) | is_copy
    repeats: Flags = has_one_input[1:] & (inputs[1:] == inputs[:-1])
    repeats &= name[1:] == name[:-1]

    return repeats


def _estimate_least_ns(
    kernels: Kernels, sizes: OpSizes, written_bytes: Int64s, begin: Rows, end: Rows
) -> Int64s:
    """Estimate how long one kernel for each run would take at least.

    It reads the inputs of the first kernel, or the largest tensor of a later one if
    that is more. It writes the output of the last kernel, whose size is taken for that
    of its largest input.

    Args:
        written_bytes: What each kernel writes; see _estimate_written_bytes.
        begin: The begins of the runs in stream order.
        end: Their ends.

    Returns:
        ns for each run, or UNKNOWN.
    """
    bytes_per_s = kernels.peak.bytes_per_s if kernels.peak else None
    if not bytes_per_s or not len(begin):
        return np.full(len(begin), UNKNOWN, dtype=np.int64)

    first_reads_bytes = sizes.all_bytes[begin]
    largest_bytes = reduce_ranges(np.maximum, sizes.largest_bytes, begin, end)
    read_bytes = np.maximum(first_reads_bytes, largest_bytes)
    last_writes_bytes = written_bytes[end - 1]
    moving_ns = (read_bytes + last_writes_bytes) / bytes_per_s * _NS_PER_S
    least_ns = np.rint(np.maximum(moving_ns, MIN_FUSED_NS))

    is_known = (first_reads_bytes != UNKNOWN) & (last_writes_bytes != UNKNOWN)
    return np.where(is_known, least_ns, UNKNOWN).astype(np.int64)


def _estimate_share_left(
    sizes: OpSizes, written_bytes: Int64s, begin: Rows, end: Rows
) -> Floats:
    """Estimate which share of the bytes of each run one kernel would still move.

    What a kernel hands to the next one would be neither written nor read. NaN where
    bytes are not known.
    """
    read_bytes = sizes.all_bytes
    has_bytes = (read_bytes != UNKNOWN) & (written_bytes != UNKNOWN)
    all_known = sums_of_ranges(has_bytes, begin, end) == end - begin
    kernel_bytes = np.where(has_bytes, read_bytes + written_bytes, 0)
    moved_bytes = sums_of_ranges(kernel_bytes, begin, end)

    # All but the last kernel hand on what they write: it is written once and read once.
    handed_on_bytes = sums_of_ranges(written_bytes, begin, end - 1)
    remaining_bytes = moved_bytes - 2 * handed_on_bytes
    is_known = all_known & (moved_bytes > 0) & (remaining_bytes > 0)

    return np.where(is_known, remaining_bytes / np.maximum(moved_bytes, 1), np.nan)


def _collect_sizes(kernels: Kernels, is_copy: Flags) -> OpSizes:
    """Collect the sizes of the tensors of the ops of all kernels, in stream order."""
    columns = _InputsColumns.collect(kernels)
    inputs = columns.sizes
    elements_by_input = []
    for index in range(_MAX_INPUTS):
        elements = [size.elements_of_input[index] for size in inputs]
        elements_by_input.append(columns.spread_to_kernels(elements))

    sizes = OpSizes(
        all_bytes=columns.spread_to_kernels([size.all_bytes for size in inputs]),
        largest_bytes=columns.spread_to_kernels(
            [size.largest_bytes for size in inputs]
        ),
        first_bytes=columns.spread_to_kernels([size.first_bytes for size in inputs]),
        second_bytes=columns.spread_to_kernels([size.second_bytes for size in inputs]),
        result=columns.spread_to_kernels([size.result for size in inputs]),
        elements_of_input=np.stack(elements_by_input),
    )
    _correct_copies(sizes, is_copy)
    return sizes


def _correct_copies(sizes: OpSizes, is_copy: Flags) -> None:
    """Correct the sizes of copies in place.

    A copy (`aten::copy_`) reads only its second input. It writes the first one, which
    is therefore its result.
    """
    sizes.all_bytes[is_copy] = sizes.second_bytes[is_copy]
    sizes.largest_bytes[is_copy] = sizes.second_bytes[is_copy]
    sizes.result[is_copy] = sizes.elements_of_input[0, is_copy]
    sizes.elements_of_input[0, is_copy] = UNKNOWN


class _InputsColumns(msgspec.Struct, frozen=True, eq=False):
    """The inputs of the ops of kernels, as columns in stream order."""

    sizes: list[InputsSize]
    """What each different list of inputs tells; at the end the record for no list."""
    size_index: Int32s
    """The index in `sizes` for each kernel's op, -1 for none; shape [kernels]."""
    is_unknown: Flags
    """Whether the inputs of the op are not those of the kernel; shape [kernels]."""

    @classmethod
    def collect(cls, kernels: Kernels) -> _InputsColumns:
        """Collect the recorded inputs of the ops of these kernels, in stream order.

        Inputs that several ops share are evaluated once. They are unknown for a kernel
        without an op, and for an op that is not one of ATen.
        """
        trace = kernels.trace
        order = kernels.stream_order
        sizes = [_measure_inputs(texts) for texts in kernels.inputs.distinct]
        sizes.append(InputsSize())  # index -1 finds it, which stands for no inputs

        op = trace.op[kernels.rows[order]]
        has_op = op != NO_ROW
        is_aten_name = np.array([name.startswith(_ATEN) for name in trace.names], bool)
        has_aten_op = has_op & is_aten_name[trace.name[op]]

        return cls(
            sizes=sizes,
            size_index=kernels.inputs.number[order],
            is_unknown=~has_aten_op,
        )

    def spread_to_kernels(self, values: list[int]) -> Int64s:
        """Return one figure for each kernel in stream order, UNKNOWN where it is not
        known.

        Args:
            values: The figure of each of `sizes`, the distinct inputs of ops.
        """
        column: Int64s = np.array(values, dtype=np.int64)[self.size_index]
        column[self.is_unknown] = UNKNOWN
        return column


class InputsSize(msgspec.Struct, frozen=True, kw_only=True):
    """What one list of inputs tells; see OpSizes for the fields."""

    all_bytes: int = UNKNOWN
    largest_bytes: int = UNKNOWN
    first_bytes: int = UNKNOWN
    second_bytes: int = UNKNOWN
    result: int = UNKNOWN
    elements_of_input: tuple[int, ...] = (UNKNOWN,) * _MAX_INPUTS


def _measure_inputs(texts: tuple[bytes, ...]) -> InputsSize:
    """Work out the sizes of the tensors among the recorded inputs of an op.

    Nothing is known unless the types and shapes of all tensors are.

    Args:
        texts: The inputs as JSON, in the order of INPUTS.
    """
    args = {}
    for name, text in zip(INPUTS, texts, strict=True):
        args[name] = parsed(text)

    list_elements = _count_list_elements(args.get("Input Dims"))
    if list_elements is not None:
        return InputsSize(
            result=sum(list_elements), elements_of_input=_pad_elements(list_elements)
        )

    return _measure_tensors(_list_tensors(args))


def _measure_tensors(tensors: list[Tensor]) -> InputsSize:
    """Work out the sizes of the tensors that an op gets.

    Nothing is known without tensors, or if the size of any of them is not known.
    """
    bytes_of_tensors = []
    for tensor in tensors:
        if tensor.bytes is None:
            return InputsSize()
        bytes_of_tensors.append(tensor.bytes)

    if not bytes_of_tensors:
        return InputsSize()

    shapes = [tensor.shape for tensor in tensors]
    result_shape = broadcast(shapes)
    return InputsSize(
        all_bytes=sum(bytes_of_tensors),
        largest_bytes=max(bytes_of_tensors),
        first_bytes=bytes_of_tensors[0],
        second_bytes=bytes_of_tensors[1] if len(bytes_of_tensors) > 1 else 0,
        result=UNKNOWN if result_shape is None else math.prod(result_shape),
        elements_of_input=_pad_elements([math.prod(shape) for shape in shapes]),
    )


def _list_tensors(args: dict[str, object]) -> list[Tensor]:
    """Return the tensors among the inputs of an op, in order."""
    inputs = inputs_of("", args)
    if inputs is None:
        return []

    tensors = []
    for index in range(len(inputs.dims)):
        tensor = inputs.tensor(index)
        if tensor is not None:
            tensors.append(tensor)

    return tensors


def _count_list_elements(dims: object) -> list[int] | None:
    """Count the elements of each tensor of a list that is the first input of an op.

    The types in such a list are not recorded. Returns None if the first input is no
    list of tensors.

    Args:
        dims: The recorded shapes of all inputs.
    """
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


def _pad_elements(elements: list[int]) -> tuple[int, ...]:
    """Return the first _MAX_INPUTS numbers, filled up with UNKNOWN."""
    padding = [UNKNOWN] * _MAX_INPUTS
    return tuple([*elements, *padding][:_MAX_INPUTS])
