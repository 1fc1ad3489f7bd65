"""Transfers of one rank by kind: what they moved, how fast, and how long they waited.

A kernel that communicates spins while it waits for the other ranks, so one rank alone
bounds the bandwidth: over all of the kernels' time from below, and as if each had taken
as long as the fastest of equal transfers (collective, group, type, bytes, kernel,
device) from above.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.questions.collectives import (
    ONE_GROUP,
    KnownCollective,
    bus_factor,
    collectives_on_gpu,
)
from fusetui.analysis.why.facts import Facts
from fusetui.gpu.kernel_names import decode
from fusetui.text.figures import count, duration, quantity, size
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, distinct_rows
from fusetui.trace.model.memo import memo

Key = tuple[str, str, int, str, bool]  # the first fields of Transfers

PAIR = 2  # ranks, whose only group of several is both
FEWEST = 3  # equal transfers, the fastest of which tells the waiting of the others
# times what its bytes explain, or the median of others: a transfer that waits
FAR_LONGER = 5
UNNAMED = frozenset({"", "undefined"})
LONGEST_NAME = 40  # characters
LONGEST_GROUP = 24


class Transfers(msgspec.Struct, frozen=True, eq=False):
    name: str
    group: str  # what the process group is called, "" if that is not known
    ranks: int  # of the group, 0 if that is not known
    dtype: str  # "" if it is not known
    is_guessed: bool  # that the group is of all ranks, of which there are more than two
    rows: Rows
    total_ns: int  # of the kernels
    fastest_ns: int  # if each took as long as the fastest equal one
    # by row, what it took longer than equal ones, or than its bytes explain
    waits_ns: Int64s
    # of waits_ns: what it took longer than its bytes explain; shape of `rows`
    is_by_bytes: Flags
    # as nccl-tests counts the size; None unless that of each is known
    bytes: int | None
    median_ns: int

    @property
    def bus_bytes_per_s(self) -> tuple[float, float] | None:
        """The lower and the upper figure; None where nccl-tests defines none."""
        factor = bus_factor(self.name, self.ranks) if self.ranks else None
        if not self.bytes or not factor or not self.fastest_ns:
            return None
        moved = self.bytes * factor * 1e9
        return moved / self.total_ns, moved / self.fastest_ns

    @property
    def is_range(self) -> bool:
        return self.bus_bytes_per_s is not None and self.fastest_ns < self.total_ns


@memo()
def transfers_of(facts: Facts) -> tuple[Transfers, ...]:
    trace, rows = facts.trace, facts.kernels.rows[facts.kernels.communicates]
    if not len(rows):
        return ()
    found = collectives_on_gpu(trace)
    place = np.full(len(trace), -1, dtype=np.intp)
    place[found.rows] = np.arange(len(found.rows))
    kinds: dict[Key, int] = {}
    sizes = np.array([one.bytes for one in found.told] + [-1], dtype=np.int64)[
        place[rows]
    ]
    number = np.empty(len(rows), dtype=np.intp)
    for at, (row, own) in enumerate(
        zip(rows.tolist(), place[rows].tolist(), strict=True)
    ):
        key = (
            _key(found.told[own])
            if own >= 0
            else (_kernel(trace.name_of(row)), "", 0, "", False)
        )
        number[at] = kinds.setdefault(key, len(kinds))
    dur, device = trace.dur[rows], trace.process_of_track[trace.track[rows]]
    equal = distinct_rows((number, sizes, trace.name[rows], device))[1]
    fastest = np.full(int(equal.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(fastest, equal, dur)
    many = np.bincount(equal)[equal] >= FEWEST
    waits = np.where(many & (sizes >= 0), dur - fastest[equal], 0)
    by_bytes = np.zeros(len(rows), dtype=np.bool_)
    each = [(key, np.flatnonzero(number == n)) for key, n in kinds.items()]
    for _, own in each:
        for own_device in distinct(device[own]).tolist():
            alike = own[device[own] == own_device]
            longer = dur[alike] - explained_ns(dur[alike], sizes[alike])
            far = (
                (longer > 0)
                & (dur[alike] >= FAR_LONGER * (dur[alike] - longer))
                & ~many[alike]
            )
            waits[alike[far]] = longer[far]
            by_bytes[alike[far]] = True
    return tuple(
        Transfers(
            *key,
            rows=rows[own],
            total_ns=int(dur[own].sum()),
            fastest_ns=int(fastest[equal[own]].sum()),
            waits_ns=waits[own],
            is_by_bytes=by_bytes[own],
            bytes=int(sizes[own].sum()) if (sizes[own] >= 0).all() else None,
            median_ns=int(np.median(dur[own])),
        )
        for key, own in each
    )


def explained_ns(dur: Int64s, sizes: Int64s) -> Int64s:
    """Of transfers of one kind on one device, the most that its bytes explain of the
    duration of each, by the others: as long as one of no fewer bytes took, or as long
    as one of fewer bytes took, by the ratio of their sizes, as large transfers are no
    slower for each byte. Its own duration where fewer than FEWEST others tell. `sizes`
    in bytes, -1 unknown; ns, shape [n]."""
    known = np.flatnonzero(sizes > 0)
    found = dur.copy()
    if len(known) <= FEWEST:
        return found
    order = known[np.lexsort((dur[known], sizes[known]))]
    ns = dur[order].astype(np.float64)
    of_larger = np.append(np.minimum.accumulate(ns[::-1])[::-1][1:], np.inf)
    per_byte = np.append(np.inf, np.minimum.accumulate(ns / sizes[order])[:-1])
    explained = np.minimum(of_larger, per_byte * sizes[order])
    found[order] = np.minimum(dur[order], np.ceil(explained).astype(np.int64))
    return found


def _key(told: KnownCollective) -> Key:
    group = next(
        (n for n in (told.group.description, told.group.name) if n not in UNNAMED), ""
    )
    dtype = told.dtype.lower().removeprefix("c10::")
    name = printable(told.name[:LONGEST_NAME])
    ranks = told.group.size
    guessed = ONE_GROUP in told.inferred and ranks > PAIR
    return (
        name,
        printable(group[:LONGEST_GROUP]),
        ranks,
        printable(dtype[:LONGEST_NAME]),
        guessed,
    )


def _kernel(name: str) -> str:
    kernel = decode(name)
    known = kernel and (kernel.collective or kernel.short)
    return printable((known or name)[:LONGEST_NAME])


def told_apart(kinds: Sequence[Transfers]) -> bool:
    """Whether their process groups have to be named: there are several, or two kinds
    differ in nothing else."""
    several = len({kind.group for kind in kinds} - {""}) > 1
    return several or len({(kind.name, kind.dtype) for kind in kinds}) < len(kinds)


def kind_text(kind: Transfers, with_group: bool) -> str:
    """`15 all_reduce`, or `15 all_reduce (dp)`."""
    group = f" ({kind.group})" if with_group and kind.group else ""
    return f"{count(len(kind.rows))} {kind.name}{group}"


def moved(kind: Transfers) -> str:
    """` (306.7 MB of float in 46.76 ms, 6.56 GB/s to 9.16 GB/s of bus bandwidth)`; ""
    where the size is not known."""
    if kind.bytes is None:
        return ""
    dtype = f" of {kind.dtype}" if kind.dtype else ""
    rates = kind.bus_bytes_per_s
    text = f"{size(kind.bytes)}{dtype} in {duration(kind.total_ns)}"
    if rates is None:
        return f" ({text})"
    low, high = (quantity(rate, "B/s", 3) for rate in rates)
    rate = f"{low} to {high}" if kind.is_range and low != high else f"at least {low}"
    return f" ({text}, {rate} of bus bandwidth)"
