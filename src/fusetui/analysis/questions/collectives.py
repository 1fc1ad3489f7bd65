"""Finds the collectives of one rank, with their groups, sizes and times of issue.

Recent versions of torch record the args of a collective on its kernel. Versions of 2023
and before record them on the annotation or the op around the launch, or not at all. On
the CPU (gloo) a collective is an annotation that lasts until its work is done.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.process_groups import (
    UNKNOWN_GROUP,
    ProcessGroup,
    make_process_group,
    read_process_groups,
    read_world_size,
)
from fusetui.gpu.dtypes import SCALAR_TYPE_OF_NCCL, scalar_bytes
from fusetui.gpu.kernel_names import decode
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import is_clipped
from fusetui.trace.model.arrays import (
    NO_ROW,
    Int64s,
    Rows,
    at,
    distinct,
    last_at_or_before,
    prefix_sums,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import ArgsQuestion, arguments, parsed
from fusetui.trace.model.memo import memo

KEPT_AS = "transfers"
"""The name under which the args of collectives are kept beside the cache of a trace."""

_COMMS_OP = lazy_pattern(r"record_param_comms\Z")
_ANNOTATION = lazy_pattern(r"(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl|cncl):\w{1,64}\Z")
ON_CPU = lazy_pattern(r"(?:gloo|mpi|ucc):\w{1,64}\Z")
_ISSUING_OP = lazy_pattern(r"c10d::\w{1,64}\Z")
_NAME_ARG: Final = "Collective name"
_ARGS: Final = (
    _NAME_ARG,
    "dtype",
    "In msg nelems",
    "Out msg nelems",
    "Group size",
    "Process Group Name",
    "Process Group Description",
    "Process Group Ranks",
    "Seq",
    "Src Rank",
    "Dst Rank",
    "Input Dims",
    "Input type",
    "func",
    "count",
    "datatype",
    "process_group",
    "process_group_ranks",
    "seq",
    "root",
)
_ARGS_ON_CPU: Final = (*_ARGS, "finished")
"""`finished` is false where libkineto ended an annotation because the recording
ended."""

_MAX_RANKS: Final = 1 << 24  # in any job
_MAX_NUMBER: Final = 1 << 62  # that a column can hold
_MAX_NAME_CHARACTERS: Final = 200
_SIZED_BY_OUTPUT: Final = frozenset({"all_gather", "gather"})
"""Collectives whose size, as nccl-tests counts it, is that of the output."""

FROM_ANNOTATIONS = "names of collectives (from the annotations around their launches)"
FROM_NAMES = "names of collectives (from the names of their kernels)"
ONE_GROUP = "one process group of all ranks for all collectives"
SIZES = "sizes of collectives (from the shapes of the inputs)"


UNKNOWN: Final = -1
"""Stands for a number of a collective that is not known."""

_NO_THREAD: Final = -1
"""Stands for the thread of a launch that was not recorded."""


class KnownCollective(msgspec.Struct, frozen=True):
    """What is known about one collective. Unknown numbers are -1."""

    name: str  # `all_reduce` and so on, as torch.distributed names it
    group: ProcessGroup
    dtype: str = ""  # of its elements; "" if it is unknown
    bytes: int = UNKNOWN  # its size as nccl-tests counts it: `_compute_moved_bytes`
    sequence: int = UNKNOWN  # its number in its process group
    peer: int = UNKNOWN  # the other rank of a send or receive
    # what of this was not recorded but inferred, each as a phrase
    inferred: tuple[str, ...] = ()
    # whether the recording began or ended while it ran, so that a part is not recorded
    is_cut: bool = False


class IssuedCollectives(msgspec.Struct, frozen=True, eq=False):
    """Collectives in the order in which they were issued; one entry per collective."""

    collectives: tuple[KnownCollective, ...]
    rows: Rows  # the kernel or the annotation
    issued: Int64s  # when it was issued, in ns of the file
    issuer: Rows  # the launch, or the op that issued it; -1 if it is not known


def find_collectives(trace: Trace) -> IssuedCollectives:
    """Find all collectives of a trace, on the GPU and on the CPU. They are in the order
    in which they were issued; of equal times, the one that ran first comes first."""
    gpu = find_gpu_collectives(trace)
    cpu = find_cpu_collectives(trace)
    collectives = (*gpu.collectives, *cpu.collectives)
    rows = np.concatenate((gpu.rows, cpu.rows))
    issued = np.concatenate((gpu.issued, cpu.issued))
    issuer = np.concatenate((gpu.issuer, cpu.issuer))

    order = np.lexsort((trace.start[rows], issued))
    return IssuedCollectives(
        collectives=tuple(collectives[index] for index in order),
        rows=rows[order],
        issued=issued[order],
        issuer=issuer[order],
    )


class _IssuedKernels(NamedTuple):
    """The kernels that communicate, in the order of the trace; one entry per kernel."""

    rows: Rows
    launch: Rows  # -1 for none
    issued: Int64s  # ns of the file
    thread: Rows  # of the launch, -1 for none
    ops: Rows  # the op around each launch that communicates, -1 for none
    annotations: Rows  # the annotation around each launch, -1 for none
    all_ops: Rows  # all ops of the trace that communicate


@memo()
def _find_communicating_kernels(trace: Trace) -> _IssuedKernels:
    """Find the kernels that communicate with other ranks, and what launched each of
    them.

    A kernel whose launch was not recorded counts as issued when it starts. Copies
    between devices are left out, as they are no kernels.
    """
    communicating = trace.gpu_rows[communicates(trace, trace.gpu_rows)]
    rows = communicating[trace.role[communicating] == Role.KERNEL]
    launch = trace.launch[rows].astype(np.intp)
    is_launched = launch != NO_ROW
    issued = np.where(is_launched, trace.start[launch], trace.start[rows])
    thread_of_launch = trace.thread_of_track[trace.track[launch]]
    thread = np.where(is_launched, thread_of_launch, _NO_THREAD)

    all_ops = _find_slices_named(trace, Role.OP, _COMMS_OP)
    all_annotations = _find_slices_named(trace, Role.ANNOTATION, _ANNOTATION)
    return _IssuedKernels(
        rows=rows,
        launch=launch,
        issued=issued,
        thread=thread,
        ops=_find_containing_slices(trace, all_ops, thread, issued),
        annotations=_find_containing_slices(trace, all_annotations, thread, issued),
        all_ops=all_ops,
    )


def args_to_read(trace: Trace) -> ArgsQuestion:
    """Return which args of which events `find_gpu_collectives` reads."""
    kernels = _find_communicating_kernels(trace)
    rows = np.concatenate((kernels.rows, kernels.ops, kernels.annotations))
    return trace.order[rows[rows != NO_ROW]], _ARGS


def find_gpu_collectives(trace: Trace) -> IssuedCollectives:
    """Return the collectives that run as kernels, in the order of the trace.

    Each has its name, process group and size, as far as they were recorded or can be
    inferred. For a batch of sends and receives, the other rank is read from the ops of
    the batch.
    """
    kernels = _find_communicating_kernels(trace)
    collectives = _read_collectives(trace, kernels)

    # A kernel for a batch of sends and receives does not name its peer.
    batches = []
    for index, collective in enumerate(collectives):
        if collective.name == "send_recv" and collective.peer == UNKNOWN:
            batches.append(index)
    collective_of_batch = _read_batch_collectives(trace, kernels, batches)
    for index, collective in collective_of_batch.items():
        collectives[index] = collective

    return IssuedCollectives(
        collectives=tuple(collectives),
        rows=kernels.rows,
        issued=kernels.issued,
        issuer=kernels.launch,
    )


def _read_collectives(trace: Trace, kernels: _IssuedKernels) -> list[KnownCollective]:
    """Read the collective that each kernel runs, in the order of the kernels.

    It follows from the args of the kernel, of the op and of the annotation around its
    launch. Thousands of kernels may have equal args, which `_read_args` returns as one
    object. So each distinct collective is made only once.
    """
    args_of_rows, args_of_ops, args_of_annotations = _read_args(
        trace, (kernels.rows, kernels.ops, kernels.annotations), KEPT_AS
    )
    collective_by_key: dict[tuple[int, ...], KnownCollective] = {}
    collectives = []
    for kernel, annotation, kernel_args, op_args, annotation_args in zip(
        kernels.rows.tolist(),
        kernels.annotations.tolist(),
        args_of_rows,
        args_of_ops,
        args_of_annotations,
        strict=True,
    ):
        sources = _Sources(
            kernel=kernel,
            annotation=annotation,
            kernel_args=kernel_args,
            op_args=op_args,
            annotation_args=annotation_args,
        )
        key = _make_source_key(trace, sources)
        if key not in collective_by_key:
            collective_by_key[key] = _read_collective(trace, sources)
        collectives.append(collective_by_key[key])
    return collectives


def _make_source_key(trace: Trace, sources: _Sources) -> tuple[int, ...]:
    """Return a key that is equal for events from which the same collective would be
    read.

    Args:
        trace: The trace.
        sources: The kernel, the op and the annotation of a collective, with their
            args. Args are compared by identity, because `_read_args` returns equal
            args as one object.
    """
    annotation = sources.annotation
    name_of_annotation = NO_ROW
    if annotation != NO_ROW:
        name_of_annotation = int(trace.name[annotation])
    return (
        int(trace.name[sources.kernel]),
        name_of_annotation,
        id(sources.kernel_args),
        id(sources.op_args),
        id(sources.annotation_args),
    )


def _read_batch_collectives(
    trace: Trace, kernels: _IssuedKernels, batches: Sequence[int]
) -> dict[int, KnownCollective]:
    """Read from ops with which rank batches of sends and receives exchange data.

    torch.distributed runs a batch of them (`batch_isend_irecv`) as one kernel. The ops
    of a batch were recorded on its thread, before its launch and after the launch
    before.

    Args:
        trace: The trace.
        kernels: The kernels that communicate.
        batches: The indices in `kernels` of those that run a batch.

    Returns:
        The collective of a batch, by the index of its kernel. A batch with several
        ranks is not among them, because a collective has one peer.
    """
    if not batches:
        return {}
    (args_of_ops,) = _read_args(trace, (kernels.all_ops,))

    collectives = {}
    for kernel in batches:
        ops = _find_ops_of_batch(trace, kernels, kernel)
        args = [args_of_ops[op] for op in ops.tolist()]
        transfers = _read_sends_and_receives(trace, args)
        peers = {(transfer.peer, transfer.group) for transfer in transfers}
        if len(peers) == 1:
            collectives[kernel] = replace(
                transfers[0], name="send_recv", sequence=UNKNOWN
            )
    return collectives


def _find_ops_of_batch(trace: Trace, kernels: _IssuedKernels, batch: int) -> Rows:
    """Return the indices in `kernels.all_ops` of the ops that one kernel runs.

    These were recorded on its thread, from the launch before on to its own.

    Args:
        trace: The trace.
        kernels: The kernels that communicate.
        batch: The index of the kernel.
    """
    thread = kernels.thread[batch]
    issued = kernels.issued[batch]
    is_earlier = (kernels.thread == thread) & (kernels.issued < issued)
    since_ns = kernels.issued[is_earlier].max(initial=trace.begin_ns)

    ops = kernels.all_ops
    is_of_thread = trace.thread_of_track[trace.track[ops]] == thread
    start = trace.start[ops]
    return np.flatnonzero(is_of_thread & (start >= since_ns) & (start < issued))


def _read_sends_and_receives(
    trace: Trace, args_of_ops: Sequence[dict[str, Any]]
) -> list[KnownCollective]:
    """Read the sends and receives among some ops.

    Args:
        trace: The trace.
        args_of_ops: The args of each op; {} for none.
    """
    transfers = []
    for args in args_of_ops:
        if not args.get(_NAME_ARG):
            continue
        collective = _read_named_collective(trace, args)
        if collective.name in ("send", "recv"):
            transfers.append(collective)
    return transfers


def find_cpu_collectives(trace: Trace) -> IssuedCollectives:
    """Return the collectives of gloo, MPI and UCC, which run on the CPU, sorted by
    start.

    Each is an annotation that lasts until its work is done. It is marked as cut if the
    recording ended before that.
    """
    rows = _find_slices_named(trace, Role.ANNOTATION, ON_CPU)
    (args_of_rows,) = _read_args(trace, (rows,), names=_ARGS_ON_CPU)
    collectives = []
    for row, args, was_clipped in zip(
        rows.tolist(), args_of_rows, is_clipped(trace, rows).tolist(), strict=True
    ):
        sources = _Sources(
            kernel=NO_ROW,
            annotation=row,
            kernel_args={},
            op_args={},
            annotation_args=args,
        )
        collective = _read_collective(trace, sources)
        is_unfinished = args.get("finished") is False
        if was_clipped or is_unfinished:
            collective = replace(collective, is_cut=True)
        collectives.append(collective)

    names = [collective.name for collective in collectives]
    issuer = _find_issuing_ops(trace, rows, names)
    issued = np.where(issuer != NO_ROW, trace.start[issuer], trace.start[rows])
    return IssuedCollectives(
        collectives=tuple(collectives), rows=rows, issued=issued, issuer=issuer
    )


def _find_issuing_ops(trace: Trace, rows: Rows, names: Sequence[str]) -> Rows:
    """Find the op that issued each collective on the CPU.

    The n-th `c10d::` op of a name issued the n-th annotation of that name, if there are
    equally many.

    Args:
        trace: The trace.
        rows: The annotations, by start.
        names: The name of the collective of each.

    Returns:
        An op for each of `rows`, NO_ROW if it is unknown.
    """
    ops_by_name = defaultdict(list)
    for op in _find_slices_named(trace, Role.OP, _ISSUING_OP).tolist():
        name = normalize_collective_name(trace.name_of(op))
        ops_by_name[name].append(op)
    indices_by_name = defaultdict(list)
    for index, name in enumerate(names):
        indices_by_name[name].append(index)

    issuer = np.full(len(rows), NO_ROW, dtype=np.intp)
    for name, indices in indices_by_name.items():
        ops = ops_by_name[name]
        if len(ops) == len(indices):
            issuer[indices] = ops
    return issuer


def _find_slices_named(trace: Trace, role: Role, pattern: re.Pattern[str]) -> Rows:
    """Return the slices whose names match a pattern from their beginning on, by start.

    Args:
        trace: The trace.
        role: What the slices are, such as ops or annotations.
        pattern: The pattern.
    """
    rows = trace.rows_named(pattern.match, role)
    return rows[np.argsort(trace.start[rows], kind="stable")]


def _find_containing_slices(
    trace: Trace, rows: Rows, thread: NDArray[Any], times: Int64s
) -> Rows:
    """Find the slice that runs at each of some times, on the thread of that time.

    Args:
        trace: The trace.
        rows: The slices to choose from, by start. Those of a thread do not
            overlap.
        thread: The thread of each time, _NO_THREAD for none.
        times: The times, in ns of the file.

    Returns:
        One of `rows` for each time, NO_ROW for none.
    """
    containing = np.full(len(times), NO_ROW, dtype=np.intp)
    thread_of_slice = trace.thread_of_track[trace.track[rows]]
    for thread_number in distinct(thread[thread != _NO_THREAD]).tolist():
        slices = rows[thread_of_slice == thread_number]
        of_thread = np.flatnonzero(thread == thread_number)
        times_of_thread = times[of_thread]

        # Only the last slice that has started by then can still run.
        last_started = last_at_or_before(trace.start[slices], times_of_thread)
        candidate = at(slices, last_started, missing=NO_ROW)
        still_runs = times_of_thread < trace.end[candidate]
        is_containing = (candidate != NO_ROW) & still_runs
        containing[of_thread] = np.where(is_containing, candidate, NO_ROW)
    return containing


def _read_args(
    trace: Trace,
    several_rows: Sequence[Rows],
    keep_as: str = "",
    names: tuple[str, ...] = _ARGS,
) -> list[list[dict[str, Any]]]:
    """Read the args of several arrays of rows in one pass over the file.

    E.g. for the arrays [4, -1] and [7]: [[args of row 4, {}], [args of row 7]].

    Args:
        trace: The trace.
        several_rows: The arrays; NO_ROW (-1) stands for no row.
        keep_as: The name under which the args are kept beside the cache, if any.
        names: The names of the args to read.

    Returns:
        For each array a list with the args of each row. Rows without args share one
        empty dict, and rows with equal args share one dict.
    """
    all_rows = np.concatenate(several_rows)
    is_row = all_rows != NO_ROW
    events = trace.order[all_rows[is_row]]
    recorded_args = arguments(trace.elements, events, names, keep_as)
    distinct_args = []
    for texts in recorded_args.distinct:
        distinct_args.append(_parse_args(names, texts))

    # The index of the args of each row among the distinct ones. Rows without args have
    # the index -1, which finds the last entry.
    distinct_args.append({})
    index = np.full(len(all_rows), -1, dtype=np.int32)
    index[is_row] = recorded_args.number
    args_of_rows = [distinct_args[n] for n in index.tolist()]
    bounds = prefix_sums(np.array([len(rows) for rows in several_rows]))
    return [args_of_rows[begin:end] for begin, end in pairwise(bounds.tolist())]


def _parse_args(names: Sequence[str], texts: Sequence[bytes]) -> dict[str, Any]:
    """Parse the texts of args; an arg without a text was not recorded and is left out.

    Args:
        names: The name of each arg.
        texts: What the file has for each of them.
    """
    args = {}
    for name, text in zip(names, texts, strict=True):
        if text:
            args[name] = parsed(text)
    return args


class _Sources(NamedTuple):
    """Where a collective is recorded: a kernel, an op and an annotation."""

    kernel: int  # its row, -1 for none
    annotation: int  # the row of the annotation around its launch, -1 for none
    kernel_args: dict[str, Any]  # {} for none, also in the next two
    op_args: dict[str, Any]  # of record_param_comms
    annotation_args: dict[str, Any]


class _InferredName(NamedTuple):
    """The name of a collective, and how it was inferred; "" if it is recorded."""

    name: str
    inferred: str = ""


def _read_collective(trace: Trace, sources: _Sources) -> KnownCollective:
    """Read what was recorded of one collective, such as its name, group and size.

    The args of its kernel come first, then those of record_param_comms. Otherwise the
    args of the annotation are taken, with what can be inferred from names.
    """
    for args in (sources.kernel_args, sources.op_args):
        if _NAME_ARG in args:
            return _read_named_collective(trace, args)
    if isinstance(sources.kernel_args.get("func"), str):
        return _read_nccl_collective(trace, sources.kernel_args)
    return _infer_collective(trace, sources)


def _infer_collective(trace: Trace, sources: _Sources) -> KnownCollective:
    """Infer the name, group and size of a collective whose args do not say them.

    The name comes from the annotation or the kernel, the size from the shapes of the
    inputs of the annotation. The result says which of these were inferred.
    """
    name = _infer_name(trace, sources)
    group = _find_only_group(trace)
    inputs = _measure_inputs(sources.annotation_args)
    size_bytes = inputs.bytes
    knows_inputs = size_bytes != UNKNOWN
    inferred = []
    if group != UNKNOWN_GROUP and not group.name:
        inferred.append(ONE_GROUP)
    if name.inferred:
        inferred.append(name.inferred)
    if knows_inputs:
        inferred.append(SIZES)

    # The size of an all-gather is that of the output: the inputs of all ranks.
    if name.name in _SIZED_BY_OUTPUT and knows_inputs:
        size_bytes = _parse_number(size_bytes * group.size) if group.size else UNKNOWN
    return KnownCollective(
        name=name.name,
        group=group,
        dtype=inputs.dtype,
        bytes=size_bytes,
        inferred=tuple(inferred),
    )


def _find_only_group(trace: Trace) -> ProcessGroup:
    """Return the process group of collectives that name none, if there is only one.

    That is the only group of several ranks that the file lists. If it lists none, it is
    a group of all ranks. If it lists several, it is UNKNOWN_GROUP.
    """
    groups = []
    for group in read_process_groups(trace.keys).values():
        if group.size > 1:
            groups.append(group)
    if len(groups) > 1:
        return UNKNOWN_GROUP
    if groups:
        return groups[0]
    return ProcessGroup(name="", ranks=(), size=read_world_size(trace.keys))


def _infer_name(trace: Trace, sources: _Sources) -> _InferredName:
    """Infer the name of a collective from its annotation, or else from its kernel.

    E.g. `all_reduce` from `nccl:all_reduce`, or from `ncclDevKernel_AllReduce_Sum_f32`.

    Returns:
        The name, and what it was inferred from. For a collective on the CPU the
        latter is "", because its annotation is the record itself.
    """
    has_kernel = sources.kernel != NO_ROW
    kernel = decode(trace.name_of(sources.kernel)) if has_kernel else None
    annotation = ""
    if sources.annotation != NO_ROW:
        annotation = trace.name_of(sources.annotation)

    # An annotation of several collectives names none of them.
    is_of_several = annotation.rpartition(":")[2] == "coalesced"
    is_known_by_kernel = kernel is not None and bool(kernel.collective)
    if annotation and not (is_of_several and is_known_by_kernel):
        return _InferredName(
            name=normalize_collective_name(annotation),
            inferred=FROM_ANNOTATIONS if has_kernel else "",
        )

    kernel_name = trace.name_of(sources.kernel)
    if kernel is not None:
        kernel_name = kernel.collective or kernel.short or kernel_name
    return _InferredName(
        name=normalize_collective_name(kernel_name), inferred=FROM_NAMES
    )


def _read_named_collective(trace: Trace, args: dict[str, Any]) -> KnownCollective:
    """Read a collective from the args of an event that name it.

    Args:
        trace: The trace, which may list the ranks of the process group.
        args: The recorded args, with "Collective name". Others may be missing or
            damaged; these count as unknown.
    """
    name = normalize_collective_name(str(args[_NAME_ARG]))
    recorded_group = make_process_group(
        name=args.get("Process Group Name"),
        description=args.get("Process Group Description"),
        ranks=args.get("Process Group Ranks"),
        size=args.get("Group size"),
    )
    dtype = args.get("dtype")
    peer = args.get("Dst Rank" if name == "send" else "Src Rank")
    return KnownCollective(
        name=name,
        group=_add_ranks(trace, recorded_group),
        dtype=dtype if isinstance(dtype, str) else "",
        bytes=_compute_moved_bytes(name, args, dtype),
        sequence=_parse_number(args.get("Seq")),
        peer=_parse_number(peer, end=_MAX_RANKS),
    )


def _read_nccl_collective(trace: Trace, args: dict[str, Any]) -> KnownCollective:
    """Read a collective from the args that NCCL passes to the CUPTI monitor of torch
    2.14.

    `func`, `count` and `datatype` are those of NCCL's API. There a gather or a scatter
    counts the elements of one rank.

    Args:
        trace: The trace, which may list the ranks of the process group.
        args: The recorded args, with `func`.
    """
    name = normalize_collective_name(str(args["func"]))
    recorded_group = make_process_group(
        name=args.get("process_group"),
        description=None,
        ranks=args.get("process_group_ranks"),
        size=None,
    )
    group = _add_ranks(trace, recorded_group)
    dtype = SCALAR_TYPE_OF_NCCL.get(str(args.get("datatype")), "")

    elements = _parse_number(args.get("count"))
    counts_one_rank = name in ("all_gather", "reduce_scatter")
    if counts_one_rank and elements != UNKNOWN:
        elements = elements * group.size if group.size else UNKNOWN
    size_bytes = UNKNOWN
    if elements != UNKNOWN and dtype:
        size_bytes = _parse_number(elements * scalar_bytes(dtype))
    return KnownCollective(
        name=name,
        group=group,
        dtype=dtype,
        bytes=size_bytes,
        sequence=_parse_number(args.get("seq")),
    )


def _add_ranks(trace: Trace, group: ProcessGroup) -> ProcessGroup:
    """Return a process group with its ranks. A group without recorded ranks is replaced
    by the one that the file lists under its name, if any."""
    if group.ranks:
        return group
    return read_process_groups(trace.keys).get(group.name, group)


def _compute_moved_bytes(name: str, args: dict[str, Any], dtype: object) -> int:
    """Return the size of a collective in bytes; UNKNOWN (-1) if it is not known.

    As in nccl-tests, it is the size of the input, but of a gather that of the output:
    an all-gather of 1,000 floats on each of 4 ranks has 16,000 bytes.

    Args:
        name: The name of the collective.
        args: Its recorded args, with the numbers of elements of input and output.
        dtype: The type of its elements; anything but a known name is an unknown size.
    """
    count_arg = "Out msg nelems" if name in _SIZED_BY_OUTPUT else "In msg nelems"
    elements = _parse_number(args.get(count_arg))
    element_bytes = scalar_bytes(dtype) if isinstance(dtype, str) else 0
    if elements == UNKNOWN or not element_bytes:
        return UNKNOWN
    return _parse_number(elements * element_bytes)


class _InputSize(NamedTuple):
    """The element type and the size of the inputs of an annotation."""

    dtype: str  # of the first input with a known size; "" if there is none
    bytes: int  # of all inputs with a known size; UNKNOWN (-1) if there is none


_UNKNOWN_INPUTS: Final = _InputSize(dtype="", bytes=UNKNOWN)


def _measure_inputs(args: dict[str, Any]) -> _InputSize:
    """Return the element type and the bytes of the inputs of an annotation.

    Inputs whose shape or type is damaged do not count.

    Args:
        args: The recorded args of the annotation; {} for none.
    """
    shapes = args.get("Input Dims")
    types = args.get("Input type")
    if not isinstance(shapes, list) or not isinstance(types, list):
        return _UNKNOWN_INPUTS
    if len(shapes) != len(types):
        return _UNKNOWN_INPUTS

    known_types = []
    total_bytes = 0
    for shape, dtype in zip(shapes, types, strict=True):
        element_bytes = scalar_bytes(dtype) if isinstance(dtype, str) else 0
        if element_bytes and _is_shape(shape):
            known_types.append(dtype)
            total_bytes += element_bytes * math.prod(shape)
    if not known_types:
        return _UNKNOWN_INPUTS
    return _InputSize(dtype=known_types[0], bytes=_parse_number(total_bytes))


def _is_shape(value: object) -> bool:
    """Return whether a recorded value is a shape: [8, 64], or [] for a number."""
    if not isinstance(value, list):
        return False
    return all(type(size) is int and size >= 0 for size in value)


def _parse_number(value: object, end: int = _MAX_NUMBER) -> int:
    """Return a recorded value if it is an integer from 0 to below `end`; UNKNOWN (-1)
    for anything else."""
    # A bool, which is an int to isinstance, is no number here.
    if type(value) is int and 0 <= value < end:
        return value
    return UNKNOWN


_COLLECTIVES: Final = (
    "all_to_all",
    "reduce_scatter",
    "all_reduce",
    "all_gather",
    "barrier",
    "broadcast",
    "send_recv",
    "send",
    "recv",
    "reduce",
    "gather",
    "scatter",
)
"""As torch.distributed names them; the first whose letters a name contains counts."""

SYNCHRONOUS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "barrier"})
"""These cannot end on any rank before they have started on all."""

POINT_TO_POINT = frozenset({"send", "recv", "send_recv"})
"""Between two ranks: in a pipeline, waiting in them is its bubble."""


def normalize_collective_name(name: str) -> str:
    """Return the name of a collective as torch.distributed writes it.

    `_allgather_base`, `nccl:all_gather` and `AllGather` become `all_gather`. Names of
    no known collective stay as they are.
    """
    without_library = name.rpartition(":")[2][:_MAX_NAME_CHARACTERS]
    letters = re.sub(r"[^a-z0-9]", "", without_library.lower())
    letters = letters.replace("all2all", "alltoall")
    for collective in _COLLECTIVES:
        if collective.replace("_", "") in letters:
            return collective
    return name[:_MAX_NAME_CHARACTERS]


def bus_factor(name: str, ranks: int) -> float | None:
    """Return how many bytes cross a link per byte of a collective's size, as nccl-tests
    counts.

    E.g. 1.75 for an all-reduce of 8 ranks. Returns None for a collective for which
    nccl-tests defines no factor.

    Args:
        name: The name of the collective, such as `all_reduce`.
        ranks: How many ranks take part, at least 1.
    """
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    if name in ("broadcast", "reduce") or name.startswith("send_recv"):
        return 1.0
    return None
