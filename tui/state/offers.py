"""The traces, running programs and ranks of a job that the user can open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fusetui.analysis.questions.process_groups import looks_like_a_rank
from fusetui.text.printable import without_credentials

if TYPE_CHECKING:
    from fusetui.analysis.ranks.answer import Strip
    from fusetui.analysis.ranks.model import JobAnswer, RankRow

JOB = "all ranks"


class Offer(msgspec.Struct, frozen=True):
    """One line of the list."""

    label: str
    paths: tuple[str, ...]
    about: str = ""  # "": a summary of the trace, which is read for it
    is_tour: bool = False
    is_job: bool = False  # all traces, as the ranks of one job
    pid: int = 0  # a program that runs, to be recorded
    are_dumps: bool = False  # of the flight recorder


def offers_of(paths: Sequence[str], are_job: bool = False) -> tuple[Offer, ...]:
    """Traces by the names of their files, or by their paths where several have one
    name; of a job first all of them at once."""
    offers = []
    if are_job:
        about = f"{len(paths)} traces: who waits for whom"
        offers.append(Offer(JOB, tuple(paths[:1]), about, is_job=True))
    shown_paths = {path: without_credentials(path) for path in paths}
    files_of_name = Counter(Path(shown).name for shown in shown_paths.values())
    for path in paths:
        name = Path(shown_paths[path]).name
        label = name if files_of_name[name] == 1 else shown_paths[path]
        offers.append(Offer(label, (path,)))
    return tuple(offers)


RANK_SORTS = {
    "others wait": "caused_ns",
    "waits": "waited_ns",
    "last": "last_count",
    "wall": "step_ns",
    "compute": "compute_ns",
    "comm": "exposed_comm_ns",
    "idle": "idle_ns",
    "rank": "",
}
"""Columns to sort by, the largest first, and their fields of a RankRow; at first the
first one."""


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
    # whose traces are being read; several share one time axis
    wanted: tuple[RankRow, ...] = ()
    only_streams: bool = False  # of these show the GPU streams and nothing else

    def rows(self) -> list[RankRow]:
        """The ranks in the order of `sort`; ranks without that figure, and those with
        equal ones, by number. Empty until there is an answer."""
        if self.answer is None:
            return []
        field = RANK_SORTS[self.sort]
        if not field:
            return sorted(self.answer.ranks, key=lambda row: row.rank)
        return sorted(
            self.answer.ranks,
            key=lambda row: (-(getattr(row, field) or 0), row.rank),
        )


def job_of_paths(paths: tuple[str, ...]) -> RankedJob:
    """A job, if most of the files are named as those of ranks are; else a job without
    files."""
    ranks = sum(looks_like_a_rank(path) for path in paths)
    are_most_ranks = 2 * ranks > len(paths)
    is_job = len(paths) > 1 and are_most_ranks
    return RankedJob(paths if is_job else ())
