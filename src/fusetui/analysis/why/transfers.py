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
    find_gpu_collectives,
)
from fusetui.analysis.why.facts import Facts
from fusetui.gpu.kernel_names import decode
from fusetui.text.figures import count, duration, quantity, size
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import (
    Flags,
    Floats,
    Int64s,
    Rows,
    distinct_rows,
    group_size_of_each,
    reduce_groups,
)
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.memo import memo
from fusetui.trace.model.quantiles import median
from fusetui.trace.model.sorted_arrays import positions_of

RANKS_OF_PAIR: Final = 2
"""In a job of this many ranks, the only group of several ranks is both of them."""
MIN_EQUAL_TRANSFERS: Final = 3
"""From this many equal transfers on, the fastest tells how long the others waited."""
UNKNOWN_SIZE: Final = -1
MIN_RATIO_TO_EXPLAINED: Final = 5
"""A transfer waits if it takes this many times what its bytes explain, or the median.
"""
NS_PER_S: Final = 1e9
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


class Bandwidth(NamedTuple):
    """Two bounds of a bandwidth, in bytes per second."""

    lowest: float
    highest: float


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
    def bus_bytes_per_s(self) -> Bandwidth | None:
        """Return the lower and the upper bound of the bus bandwidth, in bytes per
        second.

        The bus bandwidth is what nccl-tests defines. The lower bound is over the total
        time of the kernels, the upper one over `fastest_ns`. None where nccl-tests
        defines none, or where the size or the number of ranks is not known.
        """
        if not self.ranks or not self.bytes or not self.fastest_ns:
            return None

        factor = bus_factor(self.name, self.ranks)
        if not factor:
            return None

        bus_bytes = self.bytes * factor
        return Bandwidth(
            lowest=bus_bytes * NS_PER_S / self.total_ns,
            highest=bus_bytes * NS_PER_S / self.fastest_ns,
        )

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
    """UNKNOWN_SIZE where the size is not known."""


class _Waiting(NamedTuple):
    """How long transfers waited for other ranks; arrays of shape [kernels], in ns."""

    ns: Int64s
    """0 where nothing tells how long."""
    is_by_bytes: Flags
    """Whether `ns` is what a transfer took longer than its bytes explain."""
    fastest_ns: Int64s
    """The duration of the fastest equal transfer."""


@memo()
def find_transfers(facts: Facts) -> tuple[Transfers, ...]:
    """Group the kernels that communicate by their kind, with sizes and waiting times.

    A kind is a collective or transfer in one process group with one element type. The
    kinds are in the order of their first kernels. Returns () without a kernel that
    communicates.
    """
    trace = facts.trace
    rows = facts.kernels.rows[facts.kernels.is_communication]
    if not len(rows):
        return ()

    kernels = _find_kinds_and_sizes(trace, rows)
    waiting = _estimate_waiting(trace, rows, kernels)

    transfers = []
    for kind_index, kind in enumerate(kernels.kinds):
        is_of_kind = kernels.kind == kind_index
        dur_ns = trace.dur[rows[is_of_kind]]
        transfers.append(
            Transfers(
                kind=kind,
                rows=rows[is_of_kind],
                total_ns=int(dur_ns.sum()),
                fastest_ns=int(waiting.fastest_ns[is_of_kind].sum()),
                waits_ns=waiting.ns[is_of_kind],
                is_by_bytes=waiting.is_by_bytes[is_of_kind],
                bytes=_add_up_bytes(kernels.bytes[is_of_kind]),
                median_ns=median(dur_ns),
            )
        )

    return tuple(transfers)


def _find_kinds_and_sizes(trace: Trace, rows: Rows) -> _KernelSizes:
    """Find the kind and the size of each of some communication kernels.

    Both come from the record of the collective in the trace. Without a record, the name
    of the kernel tells the kind, and the size is UNKNOWN_SIZE.

    Args:
        rows: The kernels, as rows of the trace.
    """
    recorded = find_gpu_collectives(trace)
    record_of_row = dict(zip(recorded.rows.tolist(), recorded.collectives, strict=True))

    index_of_kind: dict[TransferKind, int] = {}  # in the order in which they occur
    kind_indices = []
    size_bytes = []
    for row in rows.tolist():
        record = record_of_row.get(row)
        if record is None:
            kind = TransferKind(_name_collective(trace.name_of(row)))
            size_bytes.append(UNKNOWN_SIZE)
        else:
            kind = _make_kind(record)
            size_bytes.append(record.bytes)

        next_index = len(index_of_kind)
        kind_indices.append(index_of_kind.setdefault(kind, next_index))

    return _KernelSizes(
        kinds=tuple(index_of_kind),
        kind=np.array(kind_indices, dtype=np.intp),
        bytes=np.array(size_bytes, dtype=np.int64),
    )


def _estimate_waiting(trace: Trace, rows: Rows, kernels: _KernelSizes) -> _Waiting:
    """Estimate how long each of some kernels waited for other ranks.

    If there are MIN_EQUAL_TRANSFERS or more equal transfers of a known size, each
    waited for what it took longer than the fastest of them. Any other transfer counts
    as waiting only if it took MIN_RATIO_TO_EXPLAINED times what its bytes explain.
    """
    dur_ns = trace.dur[rows]
    device = trace.process_of(rows)
    columns = (kernels.kind, kernels.bytes, trace.name[rows], device)
    _, group_of_equals = distinct_rows(columns)
    fastest_ns = _find_least_of_group(dur_ns, group_of_equals)
    has_equals = group_size_of_each(group_of_equals) >= MIN_EQUAL_TRANSFERS
    has_size = kernels.bytes != UNKNOWN_SIZE
    behind_fastest_ns = np.where(has_equals & has_size, dur_ns - fastest_ns, 0)

    unexplained_ns = _measure_unexplained_ns(
        kernels.kind, device, dur_ns, kernels.bytes
    )
    explained_by_bytes_ns = dur_ns - unexplained_ns
    is_far_longer = dur_ns >= MIN_RATIO_TO_EXPLAINED * explained_by_bytes_ns
    is_by_bytes = ~has_equals & (unexplained_ns > 0) & is_far_longer

    return _Waiting(
        ns=np.where(is_by_bytes, unexplained_ns, behind_fastest_ns),
        is_by_bytes=is_by_bytes,
        fastest_ns=fastest_ns,
    )


def _find_least_of_group(ns: Int64s, group: Rows) -> Int64s:
    """Return for each element the least `ns` of its group.

    >>> _find_least_of_group(np.array([30, 10, 20]), group=np.array([0, 1, 0])).tolist()
    [20, 10, 20]
    """
    by_group = grouped(group)
    least_ns = reduce_groups(np.minimum, ns[by_group.order], by_group.begins[:-1])
    return least_ns[positions_of(by_group.keys, group)]


def _add_up_bytes(size_bytes: Int64s) -> int | None:
    """Add up some sizes; None if one of them is unknown."""
    if (size_bytes == UNKNOWN_SIZE).any():
        return None
    return int(size_bytes.sum())


def _measure_unexplained_ns(
    kind: Rows, device: NDArray[np.integer], dur_ns: Int64s, size_bytes: Int64s
) -> Int64s:
    """Measure by how much each transfer takes longer than its bytes explain, in ns.

    The other transfers of its kind and device tell; see explained_ns.

    Args:
        kind: The index of the kind of each transfer.
        device: The index of the device of each transfer.
        dur_ns: How long each takes.
        size_bytes: The size of each, UNKNOWN_SIZE if it is not known.
    """
    longer_ns = np.zeros(len(dur_ns), dtype=np.int64)
    _, kind_on_device = distinct_rows((kind, device))
    for members in grouped(kind_on_device).members_of_each():
        group_ns = dur_ns[members]
        longer_ns[members] = group_ns - estimate_explained_ns(
            group_ns, size_bytes[members]
        )

    return longer_ns


def estimate_explained_ns(dur_ns: Int64s, size_bytes: Int64s) -> Int64s:
    """Estimate how much of each transfer's duration its bytes explain at most.

    Two kinds of other transfers limit it. One of as many bytes or more shows that so
    much can be moved in its time. One of fewer bytes shows a rate, and a large transfer
    is no slower for each byte than a small one. The lowest limit counts.

    In this example, the second transfer takes 90 ns. The third moved more in 25 ns, and
    the first as much in 10 ns, so the bytes explain 10 ns:

    >>> dur_ns, size_bytes = np.array([10, 90, 25, 30]), np.array([100, 100, 200, 400])
    >>> estimate_explained_ns(dur_ns, size_bytes).tolist()
    [10, 10, 20, 30]

    Args:
        dur_ns: How long transfers of one kind on one device take.
        size_bytes: Their sizes. One of 0 or less is not known.

    Returns:
        ns for each transfer: its whole duration if its size is not known, or if at most
        MIN_EQUAL_TRANSFERS transfers have a size.
    """
    with_size = np.flatnonzero(size_bytes > 0)
    if len(with_size) <= MIN_EQUAL_TRANSFERS:
        return dur_ns

    # From here on the transfers with a size, the smallest first; of equal ones the
    # fastest first.
    smallest_first = with_size[np.lexsort((dur_ns[with_size], size_bytes[with_size]))]
    sizes = size_bytes[smallest_first]
    took_ns = dur_ns[smallest_first].astype(np.float64)

    fastest_of_larger_ns = _find_least_after(took_ns)
    best_ns_per_byte_of_smaller = _find_least_before(took_ns / sizes)
    at_that_rate_ns = best_ns_per_byte_of_smaller * sizes
    limit_ns = np.ceil(np.minimum(fastest_of_larger_ns, at_that_rate_ns))

    explained = dur_ns.copy()
    explained[smallest_first] = np.minimum(took_ns, limit_ns).astype(np.int64)
    return explained


def _find_least_before(values: Floats) -> Floats:
    """Return for each value the least one before it, infinite for the first one.

    >>> _find_least_before(np.array([5.0, 3.0, 4.0])).tolist()
    [inf, 5.0, 3.0]
    """
    return np.append(np.inf, np.minimum.accumulate(values)[:-1])


def _find_least_after(values: Floats) -> Floats:
    """Return for each value the least one after it, infinite for the last one.

    >>> _find_least_after(np.array([5.0, 3.0, 4.0])).tolist()
    [3.0, 4.0, inf]
    """
    return _find_least_before(values[::-1])[::-1]


def _make_kind(collective: KnownCollective) -> TransferKind:
    """Return the kind of a recorded collective: its name, group, ranks and element
    type.

    The group is named by its description, else by its name. It is "" if torch chose
    both, which then say nothing to the user.
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
        is_guessed=ONE_GROUP in collective.inferred and group.size > RANKS_OF_PAIR,
    )


def _name_collective(name: str) -> str:
    """Tell what a kernel without a record of its collective does, by its name.

    It is `all_reduce` or the like, else the short name of the kernel, else the name
    itself.

    >>> _name_collective("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)")
    'all_reduce'
    """
    kernel = decode(name)
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


def format_kind(kind: Transfers, with_group: bool) -> str:
    """Format a kind with its number of transfers: `15 x all_reduce (dp)`."""
    transfers = count(len(kind.rows))
    if with_group and kind.group:
        return f"{transfers} x {kind.name} ({kind.group})"
    return f"{transfers} x {kind.name}"


def format_moved_bytes(kind: Transfers) -> str:
    """Format what transfers moved, and how fast; "" where the size is not known.

    An example is ` (306.7 MB of float in 46.76 ms, 6.56 GB/s to 9.16 GB/s of bus
    bandwidth)`.
    """
    if kind.bytes is None:
        return ""

    dtype = f" of {kind.dtype}" if kind.dtype else ""
    amount = f"{size(kind.bytes)}{dtype} in {duration(kind.total_ns)}"
    bandwidth = _format_bandwidth(kind)
    if not bandwidth:
        return f" ({amount})"

    return f" ({amount}, {bandwidth})"


def _format_bandwidth(kind: Transfers) -> str:
    """Format the bounds of the bandwidth; "" where they are not known.

    Examples are `6.56 GB/s to 9.16 GB/s of bus bandwidth` and `at least ...`.
    """
    bandwidth = kind.bus_bytes_per_s
    if bandwidth is None:
        return ""

    lowest = quantity(bandwidth.lowest, "B/s", 3)
    highest = quantity(bandwidth.highest, "B/s", 3)
    if kind.is_range and lowest != highest:
        return f"{lowest} to {highest} of bus bandwidth"

    return f"at least {lowest} of bus bandwidth"
