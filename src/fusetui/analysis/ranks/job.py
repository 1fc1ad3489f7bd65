"""Which of the files are ranks of one job, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from fusetui.analysis.ranks.model import NoSummary, RankSummary
from fusetui.analysis.ranks.naming import ORDERED, RECORDED
from fusetui.analysis.ranks.records import LeftOut
from fusetui.text.figures import duration

APART_NS = 60 * 10**9
"""Windows that lie further apart than this, and than the length of both, are not of one recording:
clocks of machines differ by much less."""


class RankJob(msgspec.Struct, frozen=True, eq=False):
    """The ranks of a job that are given, in their order."""

    ranks: tuple[RankSummary, ...]
    left: tuple[LeftOut, ...]
    world_size: int  # 0 if it is not known
    missing: tuple[int, ...]  # ranks that are not given; () if the size is not known
    notes: tuple[str, ...]

    @property
    def is_whole(self) -> bool:
        return bool(self.world_size) and not self.missing


def job_of(found: Iterable[RankSummary | NoSummary]) -> RankJob:
    """Sorts out files that could not be read, ranks of other jobs, and numbers given twice."""
    known: list[RankSummary] = []
    left: list[LeftOut] = []
    for one in found:
        if isinstance(one, RankSummary):
            known.append(one)
        else:
            left.append(LeftOut(one.path, None, one.reason))
    given = _numbered(known)
    sizes = Counter(one.world_size for one in given if one.world_size)
    size = max(sizes, key=lambda size: (sizes[size], size), default=0)
    windows = sorted((one.begin_ns, one.end_ns) for one in given)
    ranks: dict[int, RankSummary] = {}
    for one in given:
        reason = _foreign(one, size, windows[len(windows) // 2])
        if not reason and one.rank in ranks:
            reason = f"{one.path} is rank {one.rank}, as {ranks[one.rank].path} is: it is left out."
        if reason:
            left.append(LeftOut(one.path, one.rank, reason))
        else:
            ranks[one.rank] = one
    sources = sorted({one.rank_by for one in given if one.rank_by != RECORDED})
    notes = [f"Some ranks are numbered by {source}." for source in sources]
    notes += dict.fromkeys(one.note for one in ranks.values() if one.note)
    missing = tuple(sorted(set(range(size)) - ranks.keys()))
    return RankJob(tuple(ranks[n] for n in sorted(ranks)), tuple(left), size, missing, tuple(notes))


def _numbered(given: Sequence[RankSummary]) -> list[RankSummary]:
    """Those that nothing numbers are numbered in order."""
    taken = {one.rank for one in given}
    free = (number for number in range(len(given) + len(taken)) if number not in taken)
    return [replace(one, rank=next(free)) if one.rank < 0 else one for one in given]


def _foreign(one: RankSummary, size: int, middle: tuple[int, int]) -> str:
    """Why it is no rank of this job, else "". `size`: the most frequent size that was recorded, the
    larger one of two, 0 if none was; `middle`: the window of the rank in the middle of all."""
    if one.world_size and one.world_size != size:
        return (
            f"{one.path} is of another job: it has {one.world_size} ranks, the others have {size}."
        )
    if size and one.rank >= size and one.rank_by != ORDERED:
        return f"{one.path} is rank {one.rank} of a job of {size}: it is left out."
    apart = max(one.begin_ns - middle[1], middle[0] - one.end_ns)
    lengths = max(one.end_ns - one.begin_ns, middle[1] - middle[0])
    if apart > max(APART_NS, lengths):
        return f"{one.path} was recorded at another time, {duration(apart)} apart: it is left out."
    return ""
