"""Group the transfers of one rank by kind, and bound their bandwidth.

For each kind the file tells what the transfers moved, how fast, and how long they
waited. A kernel that communicates spins while it waits for the other ranks. So one rank
alone only bounds the bandwidth: from below over all of the kernels' time, and from
above as if each had taken as long as the fastest of equal transfers. Transfers are
*equal* if their collective, group, type, bytes, kernel and device are.
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
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import median

PAIR: Final = 2
"""In a job of this many ranks, the only group of several ranks is both of them."""
FEWEST: Final = 3
"""From this many equal transfers on, the fastest tells how long the others waited."""
FAR_LONGER: Final = 5
"""A transfer waits if it takes this many times what its bytes explain, or the median.
"""
_UNNAMED: Final = frozenset({"", "undefined"})
_MAX_NAME_CHARACTERS: Final = 40
_MAX_GROUP_CHARACTERS: Final = 24


class TransferKind(NamedTuple):
    """What transfers have in common that are counted together."""

    name: str
    group: str = ""
    """What the process group is called, "" if that is not known."""
    ranks: int = 0
    """How many ranks the group has, 0 if that is not known."""
    dtype: str = ""
    """The element type, "" if it is not known."""
    is_guessed: bool = False
    """Whether it is guessed that the group is of all ranks, which are more than two."""


class Transfers(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """The transfers of one kind."""

    kind: TransferKind
    rows: Rows
    """Their kernels, as rows of the trace."""
    total_ns: int
    """How long all kernels take."""
    fastest_ns: int
    """How long they would take if each took as long as the fastest equal one."""
    waits_ns: Int64s
    """For each of `rows`, what it took longer than equal ones or than its bytes
    explain."""
    is_by_bytes: Flags
    """For each of `rows`, whether its bytes tell how long it waited."""
    bytes: int | None
    """The size as nccl-tests counts it; None unless the size of each transfer is known.
    """
    median_ns: int

    @property
    def name(self) -> str:
        """Return the name of the collective or transfer."""
        return self.kind.name

    @property
    def group(self) -> str:
        """Return what the process group is called; see TransferKind."""
        return self.kind.group

    @property
    def ranks(self) -> int:
        """Return how many ranks the group has; see TransferKind."""
        return self.kind.ranks

    @property
    def dtype(self) -> str:
        """Return the element type; see TransferKind."""
        return self.kind.dtype

    @property
    def is_guessed(self) -> bool:
        """Whether the ranks of the group are guessed; see TransferKind."""
        return self.kind.is_guessed

    @property
    def bus_bytes_per_s(self) -> tuple[float, float] | None:
        """Return the lower and the upper bound of the bus bandwidth.

        It is what nccl-tests defines: over the time of the kernels, and over
        `fastest_ns`. None where nccl-tests defines none, or where the size or the
        number of ranks is not known.
        """
        if not self.ranks or not self.bytes or not self.fastest_ns:
            return None

        factor = bus_factor(self.name, self.ranks)
        if not factor:
            return None

        bus_bytes = self.bytes * factor
        lowest = bus_bytes * 1e9 / self.total_ns
        highest = bus_bytes * 1e9 / self.fastest_ns

        return lowest, highest

    @property
    def is_range(self) -> bool:
        """Whether the bounds of the bandwidth are known and differ."""
        return self.bus_bytes_per_s is not None and self.fastest_ns < self.total_ns


class _KernelSizes(NamedTuple):
    """What is known of each kernel that communicates; arrays of shape [kernels]."""

    kinds: tuple[TransferKind, ...]
    """All different kinds, in the order of their first kernels."""
    kind: Rows
    """The index in `kinds` of each kernel's kind."""
    bytes: Int64s
    """-1 for an unknown size."""


class _Waiting(NamedTuple):
    """How long transfers waited for other ranks; arrays of shape [kernels], in ns."""

    ns: Int64s
    """0 where nothing tells how long."""
    is_by_bytes: Flags
    """Whether `ns` is what a transfer took longer than its bytes explain."""
    fastest_ns: Int64s
    """The duration of the fastest equal transfer."""


@memo()
def transfers_of(facts: Facts) -> tuple[Transfers, ...]:
    """Return the transfers of all kinds, in the order of their first ones.

    () without a kernel that communicates.
    """
    rows = facts.kernels.rows[facts.kernels.communicates]
    if not len(rows):
        return ()

    kernels = _kernel_sizes(facts.trace, rows)
    waiting = _waiting(facts.trace, rows, kernels)

    transfers = []
    for kind_index, kind in enumerate(kernels.kinds):
        of_kind = np.flatnonzero(kernels.kind == kind_index)
        dur_ns = facts.trace.dur[rows[of_kind]]
        transfers.append(
            Transfers(
                kind=kind,
                rows=rows[of_kind],
                total_ns=int(dur_ns.sum()),
                fastest_ns=int(waiting.fastest_ns[of_kind].sum()),
                waits_ns=waiting.ns[of_kind],
                is_by_bytes=waiting.is_by_bytes[of_kind],
                bytes=_total_bytes(kernels.bytes[of_kind]),
                median_ns=median(dur_ns),
            )
        )

    return tuple(transfers)


def _kernel_sizes(trace: Trace, rows: Rows) -> _KernelSizes:
    """Find the kind and the size of each of some kernels.

    The record of the collective tells, else the name of the kernel, which tells no
    size.
    """
    collectives = collectives_on_gpu(trace)
    index_of_row = np.full(len(trace), -1, dtype=np.intp)
    index_of_row[collectives.rows] = np.arange(len(collectives.rows))
    collective_index = index_of_row[rows]  # -1 without a record

    # Number the kinds in the order in which they occur.
    index_of_kind: dict[TransferKind, int] = {}
    kinds = np.empty(len(rows), dtype=np.intp)
    for kernel, index in enumerate(collective_index.tolist()):
        if index >= 0:
            kind = _kind_of(collectives.collectives[index])
        else:
            name = trace.name_of(int(rows[kernel]))
            kind = TransferKind(_collective_by_kernel(name))

        kinds[kernel] = index_of_kind.setdefault(kind, len(index_of_kind))

    bytes_of_collective = [collective.bytes for collective in collectives.collectives]
    bytes_of_collective.append(-1)  # for index -1
    return _KernelSizes(
        kinds=tuple(index_of_kind),
        kind=kinds,
        bytes=np.array(bytes_of_collective, dtype=np.int64)[collective_index],
    )


def _waiting(trace: Trace, rows: Rows, kernels: _KernelSizes) -> _Waiting:
    """Estimate how long each of some kernels waited for other ranks.

    If there are FEWEST or more equal transfers of a known size, each waited for what it
    took longer than the fastest of them. Any other transfer counts as waiting only if
    it took FAR_LONGER times what its bytes explain.
    """
    dur_ns = trace.dur[rows]
    device = trace.process_of_track[trace.track[rows]]
    columns = (kernels.kind, kernels.bytes, trace.name[rows], device)
    _, equal_group = distinct_rows(columns)
    fastest_ns = _least_of_group(dur_ns, equal_group)
    has_equals = np.bincount(equal_group)[equal_group] >= FEWEST
    has_size = kernels.bytes >= 0
    behind_fastest_ns = np.where(has_equals & has_size, dur_ns - fastest_ns, 0)

    unexplained_ns = _longer_than_explained(kernels.kind, device, dur_ns, kernels.bytes)
    explained_by_bytes_ns = dur_ns - unexplained_ns
    is_by_bytes = ~has_equals & (unexplained_ns > 0)
    is_by_bytes &= dur_ns >= FAR_LONGER * explained_by_bytes_ns

    return _Waiting(
        ns=np.where(is_by_bytes, unexplained_ns, behind_fastest_ns),
        is_by_bytes=is_by_bytes,
        fastest_ns=fastest_ns,
    )


def _least_of_group(ns: Int64s, group: Rows) -> Int64s:
    """Return for each element the least `ns` of its group."""
    least_ns = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least_ns, group, ns)
    return least_ns[group]


def _total_bytes(size_bytes: Int64s) -> int | None:
    """Add up some sizes; None if one of them is unknown (-1)."""
    if (size_bytes < 0).any():
        return None
    return int(size_bytes.sum())


def _longer_than_explained(
    kind: Rows, device: NDArray[np.integer], dur_ns: Int64s, size_bytes: Int64s
) -> Int64s:
    """Measure by how much each transfer takes longer than its bytes explain, in ns.

    The other transfers of its kind and device tell; see explained_ns.

    Args:
        kind: The index of the kind of each transfer.
        device: The index of the device of each transfer.
        dur_ns: How long each takes.
        size_bytes: The size of each, -1 if it is not known.
    """
    longer_ns = np.zeros(len(dur_ns), dtype=np.int64)
    _, groups = distinct_rows((kind, device))
    for group in distinct(groups).tolist():
        members = np.flatnonzero(groups == group)
        group_ns = dur_ns[members]
        longer_ns[members] = group_ns - explained_ns(group_ns, size_bytes[members])

    return longer_ns


def explained_ns(dur: Int64s, sizes: Int64s) -> Int64s:
    """Estimate how much of each transfer's duration its bytes explain at most.

    The other transfers tell: a transfer explains as much time as one of no fewer bytes
    took, or as one of fewer bytes took, times the ratio of their sizes, because large
    transfers are no slower for each byte. Where fewer than FEWEST others have a size,
    the whole duration counts as explained.

    Args:
        dur: The durations of transfers of one kind on one device, in ns.
        sizes: Their sizes in bytes, -1 if not known.

    Returns:
        ns for each transfer.
    """
    with_size = np.flatnonzero(sizes > 0)
    explained = dur.copy()
    if len(with_size) <= FEWEST:
        return explained

    # Sort by size, then by duration; lexsort takes the last key first.
    by_size = with_size[np.lexsort((dur[with_size], sizes[with_size]))]
    sizes_in_order = sizes[by_size]
    ns_in_order = dur[by_size].astype(np.float64)

    # The fastest of the larger transfers, and the best rate of the smaller ones.
    least_from_here_on_ns = np.minimum.accumulate(ns_in_order[::-1])[::-1]
    by_larger_ns = np.append(least_from_here_on_ns[1:], np.inf)
    least_ns_per_byte = np.minimum.accumulate(ns_in_order / sizes_in_order)
    by_smaller_ns = np.append(np.inf, least_ns_per_byte[:-1]) * sizes_in_order

    by_others_ns = np.ceil(np.minimum(by_larger_ns, by_smaller_ns)).astype(np.int64)
    explained[by_size] = np.minimum(dur[by_size], by_others_ns)
    return explained


def _kind_of(collective: KnownCollective) -> TransferKind:
    """Return the kind of a recorded collective.

    Its group is called by its description, else by its name. It is "" for the names
    that torch gives to groups without one.
    """
    group = collective.group
    if group.description not in _UNNAMED:
        group_name = group.description
    elif group.name not in _UNNAMED:
        group_name = group.name
    else:
        group_name = ""

    dtype = collective.dtype.lower().removeprefix("c10::")
    return TransferKind(
        name=printable(collective.name[:_MAX_NAME_CHARACTERS]),
        group=printable(group_name[:_MAX_GROUP_CHARACTERS]),
        ranks=group.size,
        dtype=printable(dtype[:_MAX_NAME_CHARACTERS]),
        is_guessed=ONE_GROUP in collective.inferred and group.size > PAIR,
    )


def _collective_by_kernel(name: str) -> str:
    """Tell what a kernel without a record of its collective does, by its name.

    It is `all_reduce` or the like, else the short name of the kernel, else the name
    itself.
    """
    kernel = role_of_kernel(name).decoded
    text = name
    if kernel is not None:
        text = kernel.collective or kernel.short or name

    return printable(text[:_MAX_NAME_CHARACTERS])


def needs_group_names(kinds: Sequence[Transfers]) -> bool:
    """Whether a text about these kinds has to name the process groups.

    It has to if there are several, or if two kinds differ in nothing else.
    """
    named_groups = {kind.group for kind in kinds if kind.group}
    if len(named_groups) > 1:
        return True

    without_groups = {(kind.name, kind.dtype) for kind in kinds}
    return len(without_groups) < len(kinds)


def kind_text(kind: Transfers, with_group: bool) -> str:
    """Format a kind with its number of transfers: `15 all_reduce (dp)`."""
    transfers = count(len(kind.rows))
    if with_group and kind.group:
        return f"{transfers} {kind.name} ({kind.group})"
    return f"{transfers} {kind.name}"


def moved_bytes_text(kind: Transfers) -> str:
    """Format what transfers moved, and how fast; "" where the size is not known.

    An example is ` (306.7 MB of float in 46.76 ms, 6.56 GB/s to 9.16 GB/s of bus
    bandwidth)`.
    """
    if kind.bytes is None:
        return ""

    dtype = f" of {kind.dtype}" if kind.dtype else ""
    amount = f"{size(kind.bytes)}{dtype} in {duration(kind.total_ns)}"
    bandwidth = _bandwidth_text(kind)
    if not bandwidth:
        return f" ({amount})"

    return f" ({amount}, {bandwidth})"


def _bandwidth_text(kind: Transfers) -> str:
    """Format the bounds of the bandwidth; "" where they are not known.

    Examples are `6.56 GB/s to 9.16 GB/s of bus bandwidth` and `at least ...`.
    """
    bounds = kind.bus_bytes_per_s
    if bounds is None:
        return ""

    lower_bound, upper_bound = bounds
    lowest = quantity(lower_bound, "B/s", 3)
    highest = quantity(upper_bound, "B/s", 3)
    if kind.is_range and lowest != highest:
        return f"{lowest} to {highest} of bus bandwidth"

    return f"at least {lowest} of bus bandwidth"
