"""The ranks of a job as the app shows them: what was found, and the order of the rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from fusetui.analysis.ranks.naming import looks_like_a_rank

if TYPE_CHECKING:
    from fusetui.analysis.ranks.answer import Strip
    from fusetui.analysis.ranks.model import JobAnswer, RankRow

Key = Callable[["RankRow"], tuple[float, ...]]

SORTS: dict[str, Key] = {
    "others wait": lambda row: (-row.caused_ns, row.rank),
    "waits": lambda row: (-row.waited_ns, row.rank),
    "last": lambda row: (-row.last_count, row.rank),
    "step": lambda row: (-row.step_ns, row.rank),
    "compute": lambda row: (-(row.compute_ns or 0), row.rank),
    "comm": lambda row: (-(row.exposed_comm_ns or 0), row.rank),
    "idle": lambda row: (-(row.idle_ns or 0), row.rank),
    "rank": lambda row: (row.rank,),
}
"""The columns by which the rows can be sorted; the first one is in force at first."""


class RankedJob(msgspec.Struct, frozen=True, eq=False):
    """What is known about the files that may be ranks of one job."""

    paths: tuple[str, ...] = ()
    done: int = -1  # ranks that were read; -1: nobody asked for them yet
    answer: JobAnswer | None = None
    strip: Strip | None = None
    sort: str = "others wait"
    problem: str = ""  # why there is no answer
    comes_first: bool = False  # the page is shown once a trace is open
    window: tuple[int, int] | None = None  # what the first of `wanted` shows first
    wanted: tuple[RankRow, ...] = ()  # whose traces are being read; several share one time axis
    only_streams: bool = False  # of these show the GPU streams and nothing else

    def rows(self) -> list[RankRow]:
        return sorted(self.answer.ranks, key=SORTS[self.sort]) if self.answer else []


def job_of_paths(paths: tuple[str, ...]) -> RankedJob:
    """A job, if most of the files are named as those of ranks are."""
    ranks = sum(map(looks_like_a_rank, paths))
    return RankedJob(paths if len(paths) > 1 and 2 * ranks > len(paths) else ())
