"""What a search found, grouped by name: the count is there while a person still
types."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from fusetui.analysis.questions.chain import is_gpu
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.arrays import Int64s, Rows, summed
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import median

MOST = 50  # names that are listed
NOTHING = np.empty(0, dtype=np.intp)


class NameHits(msgspec.Struct, frozen=True):
    """All hits of one name."""

    role: int
    name: str
    count: int
    ns: int  # their durations added up
    in_args: bool = False


class SearchHits(msgspec.Struct, frozen=True, eq=False):
    """The hits in order of time; `share` of those that may be hits was looked at.
    `extra`: further slices of which the args say it, but no name."""

    text: str
    rows: Rows = NOTHING
    names: tuple[NameHits, ...] = ()  # the longest first, at most MOST
    names_count: int = 0
    ns: int = 0
    share: float = 1.0
    wrong: str = ""  # a sentence: the text is no query
    missing: str = ""  # a sentence: why nothing is found, if that can be said
    extra: Rows = NOTHING
    by_names: bool = True  # args were not asked for: `rows` are all that names say
    merged: Rows = NOTHING  # where there are `extra`: all hits in order of time
    by_args: Rows = NOTHING  # `extra` in order of their rows

    @property
    def is_done(self) -> bool:
        return self.share == 1.0

    @property
    def together(self) -> Rows:
        """All hits in order of time."""
        return self.merged if len(self.extra) else self.rows

    @property
    def leads(self) -> bool:
        """Whether it is known to which hits a person goes: those by name, if there are
        any."""
        return self.is_done or (self.by_names and len(self.rows) > 0)


def found_of(
    trace: Trace,
    text: str,
    rows: Rows,
    share: float = 1,
    extra: Rows = NOTHING,
    named: bool = True,
) -> SearchHits:
    """The hits by name, then those by args alone."""
    (names, count), (more, _) = (
        _by_name(trace, rows),
        _by_name(trace, extra, in_args=True),
    )
    merged = np.concatenate((rows, extra)) if len(extra) else NOTHING
    merged, ns = (
        merged[np.argsort(trace.start[merged], kind="stable")],
        int(trace.dur[rows].sum()),
    )
    found = SearchHits(
        text, rows, (*names, *more)[:MOST], count, ns, share, extra=extra
    )
    return replace(found, by_names=named, merged=merged, by_args=np.sort(extra))


def _by_name(
    trace: Trace, rows: Rows, in_args: bool = False
) -> tuple[Sequence[NameHits], int]:
    """The longest first, and how many there are."""
    numbers, first, inverse = np.unique(
        trace.name[rows], return_index=True, return_inverse=True
    )
    sums = summed(inverse, trace.dur[rows], len(numbers))
    counts = np.bincount(inverse, minlength=len(numbers))
    found = [
        NameHits(
            int(trace.role[row]),
            trace.name_of(row),
            int(counts[n]),
            int(sums[n]),
            in_args,
        )
        for n in np.argsort(-sums, kind="stable")[:MOST].tolist()
        for row in (int(rows[first[n]]),)
    ]
    return found, len(numbers)


FEW = 2  # of fewer slices nothing is said


class Trend(msgspec.Struct, frozen=True):
    """The median duration (ns) of each stretch, -1 for a stretch without any."""

    medians: tuple[int, ...]
    steps: int  # that the stretches are made of; 0: equal numbers of slices instead
    least_ns: int
    median_ns: int
    most_ns: int


def trend(
    trace: Trace, rows: Rows, dur: Int64s, steps: Steps, cells: int
) -> Trend | None:
    """At most `cells` stretches of rows in order of time; GPU work counts where it was
    launched."""
    if len(rows) < FEW or cells < FEW:
        return None
    number, total = np.arange(len(rows)), 0
    # that in which the slice, or its launch, began, else the one before
    if len(steps) > 1:
        launched = is_gpu(trace, int(rows[0])) and int(trace.launch[rows[0]]) >= 0
        hosts = (
            np.where(trace.launch[rows] >= 0, trace.launch[rows], rows)
            if launched
            else rows
        )
        number = np.searchsorted(steps.start, trace.start[hosts], side="right") - 1
        number, total = np.maximum(number, 0), len(steps)
    count = total or len(rows)
    stretch = number * min(cells, count) // count
    parts = (dur[stretch == cell] for cell in range(min(cells, count)))
    medians = tuple(median(own) if len(own) else -1 for own in parts)
    return Trend(medians, total, int(dur.min()), median(dur), int(dur.max()))
