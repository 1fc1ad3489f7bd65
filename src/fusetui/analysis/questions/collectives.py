"""The collectives of one rank: what ran, in which group, how large, when it was issued.

Newer versions of torch record the args of a collective on its kernel; those of 2023 and
before record them on the annotation or the op around the launch, or not at all. On the
CPU (gloo) a collective is an annotation that lasts until its work is done.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui.analysis.questions.busy import communicates
from fusetui.analysis.questions.process_groups import (
    UNKNOWN_GROUP,
    ProcessGroup,
    group_of,
    groups_of_file,
    world_size,
)
from fusetui.gpu.dtypes import SCALAR_TYPE_OF_NCCL, scalar_bytes
from fusetui.gpu.kernel_names import decode
from fusetui.text.patterns import late
from fusetui.trace.layout.steps import is_clipped
from fusetui.trace.model.arrays import Int64s, Rows, distinct
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.events import ArgsQuestion, arguments, parsed
from fusetui.trace.model.memo import once

KEPT_AS = "transfers"
COMMS = late(r"record_param_comms\Z")
ANNOTATION = late(r"(?:nccl|rccl|gloo|mpi|ucc|xccl|hccl|cncl):\w{1,64}\Z")
ON_CPU = late(r"(?:gloo|mpi|ucc):\w{1,64}\Z")
ARGS = (
    *("Collective name", "dtype", "In msg nelems", "Out msg nelems", "Group size"),
    *("Process Group Name", "Process Group Description", "Process Group Ranks", "Seq"),
    *("Src Rank", "Dst Rank", "Input Dims", "Input type"),
    *(
        "func",
        "count",
        "datatype",
        "process_group",
        "process_group_ranks",
        "seq",
        "root",
    ),
)
ARGS_ON_CPU = (*ARGS, "finished")
"""`finished` is false where libkineto ended an annotation because the recording
ended."""
MOST_RANKS = 1 << 24  # in any job
OUTPUT = frozenset({"all_gather", "gather"})
"""IssuedCollectives whose size, as nccl-tests counts it, is that of the output."""

FROM_ANNOTATIONS = "names of collectives, from the annotations around their launches"
FROM_NAMES = "names of collectives, from the names of their kernels"
ONE_GROUP = "that all collectives are of one process group of all ranks"
SIZES = "sizes of collectives, from the shapes of the inputs"


class KnownCollective(msgspec.Struct, frozen=True):
    """What is known of one collective."""

    name: str
    group: ProcessGroup
    dtype: str = ""
    bytes: int = -1
    sequence: int = -1
    peer: int = -1
    inferred: tuple[str, ...] = ()
    # by the beginning or the end of the recording: the rest is not recorded
    is_cut: bool = False


class IssuedCollectives(msgspec.Struct, frozen=True, eq=False):
    """IssuedCollectives in the order in which they were issued; arrays of shape [n]."""

    told: tuple[KnownCollective, ...]
    rows: Rows  # the kernel or the annotation
    issued: Int64s  # ns of the file
    host: Rows  # the launch, or the op that issued it; -1 if it is not known


def collectives_of(trace: Trace) -> IssuedCollectives:
    """All collectives, on the GPU and on the CPU."""
    gpu, cpu = collectives_on_gpu(trace), collectives_on_cpu(trace)
    both = ((gpu.rows, cpu.rows), (gpu.issued, cpu.issued), (gpu.host, cpu.host))
    rows, issued, host = map(np.concatenate, both)
    told, order = (*gpu.told, *cpu.told), np.lexsort((trace.start[rows], issued))
    return IssuedCollectives(
        tuple(told[n] for n in order), rows[order], issued[order], host[order]
    )


class _Issued(NamedTuple):
    """The kernels that communicate, in the order of the trace; arrays of shape [n]."""

    rows: Rows
    launch: Rows
    issued: Int64s
    thread: Rows
    comms: Rows  # the op around each launch, -1 for none
    marks: Rows  # the annotation around it
    every: Rows  # all ops that communicate


def _issued(trace: Trace) -> _Issued:
    gpu = trace.gpu_rows[communicates(trace, trace.gpu_rows)]
    rows = gpu[trace.role[gpu] == Role.KERNEL]
    launch = trace.launch[rows].astype(np.intp)
    issued = np.where(launch >= 0, trace.start[launch], trace.start[rows])
    thread = np.where(launch >= 0, trace.thread_of_track[trace.track[launch]], -1)
    every = _named(trace, Role.OP, COMMS)
    comms = _around(trace, every, thread, issued)
    marks = _around(trace, _named(trace, Role.ANNOTATION, ANNOTATION), thread, issued)
    return _Issued(rows, launch, issued, thread, comms, marks, every)


def args_asked(trace: Trace) -> ArgsQuestion:
    """What `collectives_on_gpu` reads: indices in traceEvents, and names of args."""
    found = once(trace, _issued)
    rows = np.concatenate((found.rows, found.comms, found.marks))
    return trace.order[rows[rows >= 0]], ARGS


def collectives_on_gpu(trace: Trace) -> IssuedCollectives:
    """The kernels that communicate, in the order of the trace."""
    rows, launch, issued, thread, comms, marks, every = once(trace, _issued)
    args = _args(trace, (rows, comms, marks), KEPT_AS)
    known: dict[tuple[int, ...], KnownCollective] = {}
    told = []
    for row, mark, *own in zip(rows.tolist(), marks.tolist(), *args, strict=True):
        marked = int(trace.name[mark]) if mark >= 0 else -1
        key = (int(trace.name[row]), marked, *map(id, own))
        if key not in known:
            known[key] = _told(trace, row, mark, own)
        told.append(known[key])
    batched = np.flatnonzero([one.name == "send_recv" and one.peer < 0 for one in told])
    for place, one in zip(
        batched, _of_batches(trace, every, thread, issued, batched), strict=True
    ):
        told[place] = one or told[place]
    return IssuedCollectives(tuple(told), rows, issued, launch)


def _of_batches(
    trace: Trace, comms: Rows, thread: NDArray[Any], issued: Int64s, batched: Rows
) -> Iterator[KnownCollective | None]:
    """What the sends and receives of a batch say, which were recorded on its thread
    before its launch and after the launch before; None unless all of them are with one
    rank."""
    if not len(batched):
        return
    threads = trace.thread_of_track[trace.track[comms]]
    (args,) = _args(trace, (comms,))
    for place in batched.tolist():
        same = issued[(thread == thread[place]) & (issued < issued[place])]
        since = int(same.max()) if len(same) else trace.begin_ns
        own = (threads == thread[place]) & (trace.start[comms] < issued[place])
        own &= trace.start[comms] >= since
        told = [
            _recorded(trace, args[n])
            for n in np.flatnonzero(own)
            if args[n].get("Collective name")
        ]
        sends = [one for one in told if one.name in ("send", "recv")]
        alike = len({(one.peer, one.group) for one in sends}) == 1
        yield replace(sends[0], name="send_recv", sequence=-1) if alike else None


def collectives_on_cpu(trace: Trace) -> IssuedCollectives:
    """The annotations of gloo, MPI and UCC, each until its work is done, by start."""
    rows = _named(trace, Role.ANNOTATION, ON_CPU)
    (args,) = _args(trace, (rows,), names=ARGS_ON_CPU)
    told = [
        _told(trace, -1, int(row), [{}, {}, own])
        for row, own in zip(rows, args, strict=True)
    ]
    unfinished = np.array(
        [own.get("finished") is False for own in args], dtype=np.bool_
    )
    for place in np.flatnonzero(unfinished | is_clipped(trace, rows)).tolist():
        told[place] = replace(told[place], is_cut=True)
    # The n-th `c10d::` op of a name issued its n-th annotation, if there are equally
    # many.
    names = [one.name for one in told]
    ops = _named(trace, Role.OP, re.compile(r"c10d::\w{1,64}\Z"))
    kinds = np.array([collective_name(trace.name_of(int(row))) for row in ops] or [""])[
        : len(ops)
    ]
    of_row = np.array([*names, ""])[:-1]
    host = np.full(len(rows), -1, dtype=np.intp)
    for name in set(names):
        here, there = np.flatnonzero(of_row == name), ops[kinds == name]
        if len(here) == len(there):
            host[here[np.argsort(trace.start[rows[here]], kind="stable")]] = there
    issued = np.where(host >= 0, trace.start[host], trace.start[rows])
    return IssuedCollectives(tuple(told), rows, issued, host)


def _named(trace: Trace, role: Role, pattern: re.Pattern[str]) -> Rows:
    """Slices of a role whose whole name matches, by start."""
    rows = trace.rows_named(pattern.match, role)
    return rows[np.argsort(trace.start[rows], kind="stable")]


def _around(trace: Trace, rows: Rows, thread: NDArray[Any], times: Int64s) -> Rows:
    """The last started of `rows` on each thread that contains each time, -1 for
    none."""
    found = np.full(len(times), -1, dtype=np.intp)
    threads = trace.thread_of_track[trace.track[rows]]
    for one in distinct(thread[thread >= 0]).tolist():
        own, here = rows[threads == one], np.flatnonzero(thread == one)
        if len(own):
            at = np.searchsorted(trace.start[own], times[here], side="right") - 1
            inside = (at >= 0) & (times[here] < trace.end[own[at]])
            found[here[inside]] = own[at[inside]]
    return found


def _args(
    trace: Trace,
    several: Sequence[Rows],
    keep_as: str = "",
    names: tuple[str, ...] = ARGS,
) -> list[list[dict[str, Any]]]:
    """The args of the rows of each array, the same {} for -1 or none; one pass over the
    file."""
    rows = np.concatenate(several)
    known = np.flatnonzero(rows >= 0)
    read = arguments(trace.elements, trace.order[rows[known]], names, keep_as)
    number = np.full(len(rows), -1, dtype=np.int32)
    number[known] = read.number
    distinct = [
        {name: parsed(text) for name, text in zip(names, texts, strict=True) if text}
        for texts in (*read.distinct, (b"",) * len(names))  # the last is that of -1
    ]
    ends = np.cumsum([len(some) for some in several])[:-1]
    return [[distinct[n] for n in part.tolist()] for part in np.split(number, ends)]


def _told(
    trace: Trace, row: int, mark: int, args: Sequence[dict[str, Any]]
) -> KnownCollective:
    """From the args of the kernel, of record_param_comms and of the annotation, in this
    order."""
    on_kernel, on_op, on_mark = args
    first = next((own for own in (on_kernel, on_op) if "Collective name" in own), None)
    if first is not None:
        return _recorded(trace, first)
    if isinstance(on_kernel.get("func"), str):
        return _of_nccl(trace, on_kernel)
    # The only group of several ranks that the file lists; without any, one of all
    # ranks.
    listed = [one for one in groups_of_file(trace.keys).values() if one.size > 1]
    group = listed[0] if listed else ProcessGroup("", (), world_size(trace.keys))
    group = UNKNOWN_GROUP if len(listed) > 1 else group
    inferred = [ONE_GROUP] if group != UNKNOWN_GROUP and not group.name else []
    kernel = decode(trace.name_of(row)) if row >= 0 else None
    name = trace.name_of(mark) if mark >= 0 else ""
    # of several collectives: names none of them
    batch = name.rpartition(":")[2] == "coalesced"
    if name and not (kernel and kernel.collective and batch):
        inferred += [FROM_ANNOTATIONS] if row >= 0 else []
    else:
        name = (kernel and (kernel.collective or kernel.short)) or trace.name_of(row)
        inferred.append(FROM_NAMES)
    name = collective_name(name)
    dtype, moved = _of_inputs(on_mark)
    inferred += [SIZES] if moved >= 0 else []
    if name in OUTPUT and moved >= 0:
        moved = _number(moved * group.size) if group.size else -1
    return KnownCollective(name, group, dtype, moved, inferred=tuple(inferred))


def _recorded(trace: Trace, args: dict[str, Any]) -> KnownCollective:
    name = collective_name(str(args["Collective name"]))
    words = (
        "Process Group Name",
        "Process Group Description",
        "Process Group Ranks",
        "Group size",
    )
    dtype = args.get("dtype")
    return KnownCollective(
        name=name,
        group=_with_ranks(trace, group_of(*map(args.get, words))),
        dtype=dtype if isinstance(dtype, str) else "",
        bytes=_moved(name, args, dtype),
        sequence=_number(args.get("Seq")),
        peer=_number(
            args.get("Dst Rank" if name == "send" else "Src Rank"), MOST_RANKS
        ),
    )


def _of_nccl(trace: Trace, args: dict[str, Any]) -> KnownCollective:
    """From what NCCL tells the CUPTI monitor of torch 2.14: `func`, `count` and
    `datatype` are those of its API, where a gather or a scatter counts the elements of
    one rank."""
    name = collective_name(str(args["func"]))
    ranks = args.get("process_group_ranks")
    group = _with_ranks(trace, group_of(args.get("process_group"), None, ranks, None))
    dtype = SCALAR_TYPE_OF_NCCL.get(str(args.get("datatype")), "")
    count = _number(args.get("count"))
    if name in ("all_gather", "reduce_scatter"):
        count = count * group.size if count >= 0 and group.size else -1
    moved = _number(count * scalar_bytes(dtype)) if count >= 0 and dtype else -1
    return KnownCollective(name, group, dtype, moved, _number(args.get("seq")))


def _with_ranks(trace: Trace, group: ProcessGroup) -> ProcessGroup:
    return group if group.ranks else groups_of_file(trace.keys).get(group.name, group)


def _moved(name: str, args: dict[str, Any], dtype: object) -> int:
    """The size that nccl-tests calls S: the input, but for a gather the output; -1 if
    unknown."""
    elements = _number(
        args.get("Out msg nelems" if name in OUTPUT else "In msg nelems")
    )
    size = scalar_bytes(dtype) if isinstance(dtype, str) else 0
    return _number(elements * size) if elements >= 0 and size else -1


def _of_inputs(args: dict[str, Any]) -> tuple[str, int]:
    """The type and the bytes of the inputs of an annotation; -1 if they are not
    known."""
    dims, types = args.get("Input Dims"), args.get("Input type")
    if (
        not isinstance(dims, list)
        or not isinstance(types, list)
        or len(dims) != len(types)
    ):
        return "", -1
    total, dtype = -1, ""
    for shape, kind in zip(dims, types, strict=True):
        size = scalar_bytes(kind) if isinstance(kind, str) else 0
        if (
            size
            and isinstance(shape, list)
            and all(type(n) is int and n >= 0 for n in shape)
        ):
            total = max(total, 0) + size * math.prod(shape)
            dtype = dtype or kind
    return dtype, _number(total)


def _number(value: object, most: int = 1 << 62) -> int:
    """A number that a column can hold, else -1."""
    return value if type(value) is int and 0 <= value < most else -1


KINDS = (
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


def collective_name(name: str) -> str:
    """`_allgather_base`, `nccl:all_gather`, `AllGather` -> `all_gather`; others stay as
    they are."""
    plain = re.sub(r"[^a-z0-9]", "", name.rpartition(":")[2][:200].lower())
    plain = plain.replace("all2all", "alltoall")
    return next((kind for kind in KINDS if kind.replace("_", "") in plain), name[:200])


def bus_factor(name: str, ranks: int) -> float | None:
    """How much data crosses a link per byte of size; None if nccl-tests does not define
    it."""
    if name == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    if name in ("broadcast", "reduce") or name.startswith("send_recv"):
        return 1.0
    return None
