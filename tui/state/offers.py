"""The traces, running programs and ranks of a job that the user can open."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from fusetui.analysis.questions.process_groups import is_named_as_rank
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


def make_offers(paths: Sequence[str], are_job: bool = False) -> tuple[Offer, ...]:
    """Return a choice for each trace, labeled by its file name, or by its path where
    several files have this name. For a job, the first choice is all ranks at once."""
    offers = []
    if are_job:
        summary = f"{len(paths)} traces: who waits for whom"
        offers.append(Offer(JOB, tuple(paths[:1]), summary, is_job=True))
    shown_paths = {path: without_credentials(path) for path in paths}
    files_of_name = Counter(
        Path(shown_path).name for shown_path in shown_paths.values()
    )
    for path in paths:
        file_name = Path(shown_paths[path]).name
        label = file_name if files_of_name[file_name] == 1 else shown_paths[path]
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
        """Return the ranks in the order of `sort`, the largest figure first. Ranks with
        an equal or no figure are in order of their numbers. It is empty until there is
        an answer."""
        if self.answer is None:
            return []
        field_name = RANK_SORTS[self.sort]
        if not field_name:
            return sorted(self.answer.ranks, key=lambda row: row.rank)
        return sorted(
            self.answer.ranks,
            key=lambda row: (-(getattr(row, field_name) or 0), row.rank),
        )


def find_job(paths: tuple[str, ...]) -> RankedJob:
    """Return the job of which these files are the ranks. If at most half of them are
    named like ranks, or there is only one, the job has no files."""
    ranks = sum(is_named_as_rank(path) for path in paths)
    are_most_ranks = 2 * ranks > len(paths)
    is_job = len(paths) > 1 and are_most_ranks
    return RankedJob(paths if is_job else ())
