"""The bandwidth of collectives once all ranks have arrived (see collective_kinds.py)."""

from __future__ import annotations

import msgspec
import numpy as np

from fusetui.analysis.questions.collective_kinds import bus_factor
from fusetui.analysis.ranks.matching import Matched
from fusetui.analysis.ranks.waits import Waits


class KindOfCollective(msgspec.Struct, frozen=True):
    """All collectives of one name, group and size."""

    name: str
    group: str
    ranks: int  # of the group, 0 if that is not known
    given: int  # the ranks that are given, at most
    bytes: int | None
    count: int
    wait_ns: int  # of all ranks, the mean per collective and rank, times the count
    transfer_ns: int | None  # the median
    algorithm_bytes_per_s: float | None
    bus_bytes_per_s: float | None


def kinds_of(matched: Matched, waits: Waits) -> tuple[KindOfCollective, ...]:
    """The kinds with the longest waits first."""
    places: dict[tuple[object, ...], list[int]] = {}
    for n, (name, group) in enumerate(zip(matched.names, matched.groups, strict=True)):
        places.setdefault((name, group, int(matched.bytes[n])), []).append(n)
    found = [_kind(matched, waits, np.array(some)) for some in places.values()]
    return tuple(sorted(found, key=lambda kind: -kind.wait_ns))


def _kind(
    matched: Matched, waits: Waits, some: np.ndarray[tuple[int], np.dtype[np.intp]]
) -> KindOfCollective:
    name, group, size = matched.names[some[0]], matched.groups[some[0]], int(matched.bytes[some[0]])
    counts = matched.counts
    total = np.add.reduceat(waits.wait, matched.first[:-1])
    transfer = waits.transfer[some]
    known = transfer[transfer > 0]
    ns = int(np.median(known)) if len(known) else None
    rate = size / ns * 1e9 if ns and size > 0 else None
    factor = bus_factor(name, group.size) if group.size else None
    return KindOfCollective(
        name=name,
        group=group.description or group.name,
        ranks=group.size,
        given=int(counts[some].max()),
        bytes=size if size >= 0 else None,
        count=len(some),
        wait_ns=int((total[some] // counts[some]).sum()),
        transfer_ns=ns,
        algorithm_bytes_per_s=rate,
        bus_bytes_per_s=rate * factor if rate is not None and factor is not None else None,
    )
