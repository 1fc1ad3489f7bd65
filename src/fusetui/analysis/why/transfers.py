"""Transfers of one rank by kind: what they moved, how fast, and how long they waited.

A kernel that communicates spins while it waits for the other ranks, so one rank alone
bounds the bandwidth: over all of the kernels' time from below, and as if each had taken
as long as the fastest of equal transfers (collective, group, type, bytes, kernel,
device) from above.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.collectives import (
    ONE_GROUP,
    KnownCollective,
    bus_factor,
    collectives_on_gpu,
)
from fusetui.analysis.why.facts import Facts
from fusetui.gpu.kernel_roles import role_of_kernel
from fusetui.text.figures import count, duration, quantity, size
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, distinct_rows
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import median

PAIR: Final = 2
"""Ranks, whose only group of several is both."""
FEWEST: Final = 3
"""Equal transfers, the fastest of which tells the waiting of the others."""
FAR_LONGER: Final = 5
"""Times what its bytes explain, or the median of others: a transfer that waits."""
_UNNAMED: Final = frozenset({"", "undefined"})
_MAX_NAME_CHARACTERS: Final = 40
_MAX_GROUP_CHARACTERS: Final = 24


class TransferKind(NamedTuple):
    """What transfers have in common that count together."""

    name: str
    group: str = ""
    """What the process group is called, "" if that is not known."""
    ranks: int = 0
    """Of the group, 0 if that is not known."""
    dtype: str = ""
    """"" if it is not known."""
    is_guessed: bool = False
    """That the group is of all ranks, of which there are more than two."""


class Transfers(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The transfers of one kind."""

    kind: TransferKind
    rows: Rows
    total_ns: int
    """Of the kernels."""
    fastest_ns: int
    """If each took as long as the fastest equal one."""
    waits_ns: Int64s
    """By row, what it took longer than equal ones, or than its bytes explain."""
    is_by_bytes: Flags
    """Whether waits_ns is what it took longer than its bytes explain; shape of
    `rows`."""
    bytes: int | None
    """As nccl-tests counts the size; None unless that of each is known."""
    median_ns: int

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def group(self) -> str:
        return self.kind.group

    @property
    def ranks(self) -> int:
        return self.kind.ranks

    @property
    def dtype(self) -> str:
        return self.kind.dtype

    @property
    def is_guessed(self) -> bool:
        return self.kind.is_guessed

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
    """The transfers of all kinds, in the order of their first ones."""
    trace = facts.trace
    rows = facts.kernels.rows[facts.kernels.communicates]
    if not len(rows):
        return ()
    collectives = collectives_on_gpu(trace)
    place_of_row = np.full(len(trace), -1, dtype=np.intp)
    place_of_row[collectives.rows] = np.arange(len(collectives.rows))
    place = place_of_row[rows]
    sizes_known = [collective.bytes for collective in collectives.told]
    size_bytes = np.array([*sizes_known, -1], dtype=np.int64)[place]
    numbers: dict[TransferKind, int] = {}
    number = np.empty(len(rows), dtype=np.intp)
    for n, (row, known) in enumerate(zip(rows.tolist(), place.tolist(), strict=True)):
        if known >= 0:
            kind = _kind_of(collectives.told[known])
        else:
            kind = TransferKind(_kernel(trace.name_of(row)))
        number[n] = numbers.setdefault(kind, len(numbers))

    dur_ns = trace.dur[rows]
    device = trace.process_of_track[trace.track[rows]]
    equal = distinct_rows((number, size_bytes, trace.name[rows], device))[1]
    fastest_ns = np.full(int(equal.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(fastest_ns, equal, dur_ns)
    fastest_ns = fastest_ns[equal]
    has_equals = np.bincount(equal)[equal] >= FEWEST
    waits_ns = np.where(has_equals & (size_bytes >= 0), dur_ns - fastest_ns, 0)
    longer_ns = _longer_than_explained(number, device, dur_ns, size_bytes)
    waits_by_bytes = ~has_equals & (longer_ns > 0)
    waits_by_bytes &= dur_ns >= FAR_LONGER * (dur_ns - longer_ns)
    waits_ns = np.where(waits_by_bytes, longer_ns, waits_ns)

    transfers = []
    for kind, kind_number in numbers.items():
        own = np.flatnonzero(number == kind_number)
        are_known = bool((size_bytes[own] >= 0).all())
        transfers.append(
            Transfers(
                kind=kind,
                rows=rows[own],
                total_ns=int(dur_ns[own].sum()),
                fastest_ns=int(fastest_ns[own].sum()),
                waits_ns=waits_ns[own],
                is_by_bytes=waits_by_bytes[own],
                bytes=int(size_bytes[own].sum()) if are_known else None,
                median_ns=median(dur_ns[own]),
            )
        )
    return tuple(transfers)


def _longer_than_explained(
    number: Rows, device: NDArray[np.integer], dur_ns: Int64s, size_bytes: Int64s
) -> Int64s:
    """By how much each transfer takes longer than its bytes explain by the others of
    its kind (`number`) and device (ns)."""
    longer_ns = np.zeros(len(dur_ns), dtype=np.int64)
    group = distinct_rows((number, device))[1]
    for one_group in distinct(group).tolist():
        own = np.flatnonzero(group == one_group)
        longer_ns[own] = dur_ns[own] - explained_ns(dur_ns[own], size_bytes[own])
    return longer_ns


def explained_ns(dur: Int64s, sizes: Int64s) -> Int64s:
    """Of transfers of one kind on one device, the most that its bytes explain of the
    duration of each, by the others: as long as one of no fewer bytes took, or as long
    as one of fewer bytes took, by the ratio of their sizes, as large transfers are no
    slower for each byte. Its own duration where fewer than FEWEST others tell. `sizes`
    in bytes, -1 unknown; ns, shape [n]."""
    known = np.flatnonzero(sizes > 0)
    explained = dur.copy()
    if len(known) <= FEWEST:
        return explained
    by_size = known[np.lexsort((dur[known], sizes[known]))]
    ns = dur[by_size].astype(np.float64)
    fastest_so_far = np.minimum.accumulate(ns[::-1])[::-1]
    of_larger_ns = np.append(fastest_so_far[1:], np.inf)
    least_per_byte = np.minimum.accumulate(ns / sizes[by_size])
    of_smaller_ns = np.append(np.inf, least_per_byte[:-1]) * sizes[by_size]
    by_others_ns = np.ceil(np.minimum(of_larger_ns, of_smaller_ns)).astype(np.int64)
    explained[by_size] = np.minimum(dur[by_size], by_others_ns)
    return explained


def _kind_of(collective: KnownCollective) -> TransferKind:
    group = collective.group
    names = [name for name in (group.description, group.name) if name not in _UNNAMED]
    group_name = names[0] if names else ""
    dtype = collective.dtype.lower().removeprefix("c10::")
    return TransferKind(
        name=printable(collective.name[:_MAX_NAME_CHARACTERS]),
        group=printable(group_name[:_MAX_GROUP_CHARACTERS]),
        ranks=group.size,
        dtype=printable(dtype[:_MAX_NAME_CHARACTERS]),
        is_guessed=ONE_GROUP in collective.inferred and group.size > PAIR,
    )


def _kernel(name: str) -> str:
    """What a kernel without a record of its collective does, by its name."""
    kernel = role_of_kernel(name).decoded
    does = kernel and (kernel.collective or kernel.short)
    return printable((does or name)[:_MAX_NAME_CHARACTERS])


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
