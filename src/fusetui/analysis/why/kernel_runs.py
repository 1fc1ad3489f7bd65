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
from fusetui.gpu.roofline.inputs import inputs_of
from fusetui.gpu.roofline.many import INPUTS
from fusetui.gpu.roofline.pointwise import broadcast
from fusetui.trace.model.arrays import Flags, Floats, Int64s, Rows
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
    """Runs of at least two kernels, as indices into Kernels.in_order; arrays of shape
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
    """Which of so many indices lie in any of these ranges."""
    opened = np.bincount(begin, minlength=number + 1)
    closed = np.bincount(end, minlength=number + 1)
    return np.cumsum(opened - closed)[:-1] > 0


def is_pointwise(kernel: KernelName) -> bool:
    """PyTorch's own kernels that make one pass over their tensors, without those fused
    already."""
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
    order = kernels.in_order
    module = kernels.module[order]
    is_wanted = (kernels.flags(is_pointwise) & ~kernels.in_optimizer)[order]
    is_wanted &= module >= 0
    is_copy = kernels.under(_COPY)[order]
    reduces = kernels.flags(_is_reduction)[order]
    sizes = _sizes(kernels, is_copy)
    are_chains = bool((is_wanted & (sizes.result >= 0)).any())
    continues = _are_neighbors(kernels, is_wanted)
    if are_chains:
        continues &= _takes_result(sizes, reduces)
        continues &= ~_repeats(kernels, sizes, is_copy)

    begin = np.flatnonzero(np.append(is_wanted[:1], is_wanted[1:] & ~continues))
    end = np.flatnonzero(np.append(is_wanted[:-1] & ~continues, is_wanted[-1:])) + 1
    reading = _sums_before(kernels.flags(_reads)[order])
    has_several = reading[end] - reading[begin] >= 2
    begin = begin[has_several]
    end = end[has_several]

    total_ns = _sums_before(kernels.effective_ns[order])
    written = np.where(is_copy, sizes.first_bytes, sizes.largest_bytes)
    written = np.where(reduces, 0, written)
    return Runs(
        begin=begin,
        end=end,
        ns=total_ns[end] - total_ns[begin],
        module=module[begin],
        least_ns=_least_ns(kernels, sizes, written, begin, end),
        moved=_moved(sizes, written, begin, end),
        are_chains=are_chains,
    )


def _are_neighbors(kernels: Kernels, is_wanted: Flags) -> Flags:
    """Whether each kernel but the first, in order, belongs to the same module and
    stream as the one before it, and both are wanted; shape [kernels - 1]."""
    order = kernels.in_order
    module = kernels.module[order]
    stream = kernels.stream[order]
    both: Flags = is_wanted[1:] & is_wanted[:-1]
    both &= module[1:] == module[:-1]
    both &= stream[1:] == stream[:-1]
    return both


class OpSizes(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What the ops of kernels read and write by their inputs, in the order of
    Kernels.in_order: arrays of shape [kernels], UNKNOWN without shapes."""

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
    reduction, a proper divisor of them above 1."""
    broadcast_elements = sizes.result[:-1]
    given = sizes.given[:, 1:]
    divides = broadcast_elements % np.maximum(given, 1) == 0
    is_part = (given > 1) & (given < broadcast_elements) & divides
    is_same = (given >= 0) & (given == broadcast_elements)
    takes: Flags = np.where(reduces[:-1], is_part, is_same).any(axis=0)
    return takes


def _repeats(kernels: Kernels, sizes: OpSizes, is_copy: Flags) -> Flags:
    """Whether each kernel but the first does to one tensor what the one before it did,
    as to several tensors one after another."""
    order = kernels.in_order
    name = kernels.trace.name[kernels.trace.op[kernels.rows[order]]]
    inputs = kernels.inputs.number[order]
    has_one_input = (sizes.given[1] < 0) | is_copy
    repeats: Flags = has_one_input[1:] & (inputs[1:] == inputs[:-1])
    repeats &= name[1:] == name[:-1]
    return repeats


def _sums_before(amounts: NDArray[np.generic]) -> Int64s:
    """The sum before each index, and the total; shape [n + 1]."""
    return np.concatenate(([0], np.cumsum(amounts, dtype=np.int64)))


def _least_ns(
    kernels: Kernels, sizes: OpSizes, written: Int64s, begin: Rows, end: Rows
) -> Int64s:
    """How long one kernel for each run would take at least (ns), or UNKNOWN. It reads
    the inputs of the first kernel, or the largest tensor of a later one if that is
    more; and it writes the output of the last one, whose size is taken for that of its
    largest input."""
    bytes_per_s = kernels.peak.bytes_per_s if kernels.peak else None
    if not bytes_per_s or not len(begin):
        return np.full(len(begin), UNKNOWN, dtype=np.int64)
    edges = np.stack((begin, end), axis=1).reshape(-1)
    largest_bytes = np.append(sizes.largest_bytes, UNKNOWN)
    largest_of_run = np.maximum.reduceat(largest_bytes, edges)[::2]
    first_reads = sizes.all_bytes[begin]
    last_writes = written[end - 1]
    moved_bytes = np.maximum(first_reads, largest_of_run) + last_writes
    least_ns = np.maximum(moved_bytes / bytes_per_s * _NS_PER_S, MIN_FUSED_NS)
    is_known = (first_reads >= 0) & (last_writes >= 0)
    return np.where(is_known, np.rint(least_ns), UNKNOWN).astype(np.int64)


def _moved(sizes: OpSizes, written: Int64s, begin: Rows, end: Rows) -> Floats:
    """The share of the bytes of each run that stays if what a kernel hands to the next
    one is neither written nor read; NaN where bytes are not known."""
    read = sizes.all_bytes
    known = _sums_before((read >= 0) & (written >= 0))
    moved = _sums_before(np.maximum(read, 0) + np.maximum(written, 0))
    handed_on = _sums_before(written)
    moved_bytes = moved[end] - moved[begin]
    # what is handed on is written once, and read once
    staying_bytes = moved_bytes - 2 * (handed_on[end - 1] - handed_on[begin])
    is_known = known[end] - known[begin] == end - begin
    is_known &= (moved_bytes > 0) & (staying_bytes > 0)
    return np.where(is_known, staying_bytes / np.maximum(moved_bytes, 1), np.nan)


def _sizes(kernels: Kernels, is_copy: Flags) -> OpSizes:
    """Of each kernel in order. A copy reads its second input, and writes the first."""
    trace = kernels.trace
    inputs = kernels.inputs
    place = inputs.number[kernels.in_order]
    of_inputs = [_inputs_size(texts) for texts in inputs.distinct]
    of_inputs.append(InputsSize())  # of number -1
    op = trace.op[kernels.rows[kernels.in_order]]
    is_of_aten = np.array([name.startswith(_ATEN) for name in trace.names] or [False])
    is_unknown = (op < 0) | ~is_of_aten[trace.name[op]]

    def column(values: list[int]) -> Int64s:
        of_kernels: Int64s = np.array(values, dtype=np.int64)[place]
        of_kernels[is_unknown] = UNKNOWN
        return of_kernels

    all_bytes = column([size.all_bytes for size in of_inputs])
    largest_bytes = column([size.largest_bytes for size in of_inputs])
    second_bytes = column([size.second_bytes for size in of_inputs])
    result = column([size.result for size in of_inputs])
    given = np.stack(
        [column([size.given[n] for size in of_inputs]) for n in range(_MAX_INPUTS)]
    )
    all_bytes[is_copy] = second_bytes[is_copy]
    largest_bytes[is_copy] = second_bytes[is_copy]
    result[is_copy] = given[0, is_copy]
    given[0, is_copy] = UNKNOWN
    return OpSizes(
        all_bytes=all_bytes,
        largest_bytes=largest_bytes,
        first_bytes=column([size.first_bytes for size in of_inputs]),
        second_bytes=second_bytes,
        result=result,
        given=given,
    )


class InputsSize(msgspec.Struct, frozen=True, kw_only=True):
    """What one list of inputs tells; see OpSizes."""

    all_bytes: int = UNKNOWN
    largest_bytes: int = UNKNOWN
    first_bytes: int = UNKNOWN
    second_bytes: int = UNKNOWN
    result: int = UNKNOWN
    given: tuple[int, ...] = (UNKNOWN,) * _MAX_INPUTS


def _inputs_size(texts: tuple[bytes, ...]) -> InputsSize:
    """By the recorded inputs of an op, see INPUTS."""
    args = {name: parsed(text) for name, text in zip(INPUTS, texts, strict=True)}
    lists = _elements_of_list(args.get("Input Dims"))
    if lists is not None:
        return InputsSize(result=sum(lists), given=_padded(lists))
    inputs = inputs_of("", args)
    places = range(len(inputs.dims)) if inputs else ()
    tensors = [inputs.tensor(place) for place in places] if inputs else []
    present = [tensor for tensor in tensors if tensor is not None]
    bytes_of = [tensor.bytes for tensor in present if tensor.bytes is not None]
    if not bytes_of or len(bytes_of) < len(present):
        return InputsSize()
    shapes = [tensor.shape for tensor in present]
    common = broadcast(shapes)
    return InputsSize(
        all_bytes=sum(bytes_of),
        largest_bytes=max(bytes_of),
        first_bytes=bytes_of[0],
        second_bytes=bytes_of[1] if len(bytes_of) > 1 else 0,
        result=UNKNOWN if common is None else math.prod(common),
        given=_padded([math.prod(shape) for shape in shapes]),
    )


def _elements_of_list(dims: object) -> list[int] | None:
    """How many elements each tensor of a list has that is the first input, whose types
    are not recorded; None if it is no list of tensors."""
    first = dims[0] if isinstance(dims, list) and dims else None
    inputs = inputs_of("", {"Input Dims": first})
    if inputs is None or not inputs.dims or None in inputs.dims:
        return None
    return [math.prod(shape) for shape in inputs.dims if shape is not None]


def _padded(elements: list[int]) -> tuple[int, ...]:
    padded = [*elements[:_MAX_INPUTS], *(UNKNOWN,) * _MAX_INPUTS]
    return tuple(padded[:_MAX_INPUTS])
