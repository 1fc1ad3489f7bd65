"""Search results, grouped by name; the count is available while the user types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.chain import is_gpu_event
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.arrays import NO_ROW, Int64s, Rows, summed
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.quantiles import median

MAX_NAMES = 50  # that are listed
NO_ROWS: Rows = np.empty(0, dtype=np.intp)


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
    rows: Rows = NO_ROWS
    names: tuple[NameHits, ...] = ()  # the longest first, at most MOST
    names_count: int = 0
    ns: int = 0
    share: float = 1.0
    wrong: str = ""  # a sentence: the text is no query
    missing: str = ""  # a sentence: why nothing is found, if that can be said
    extra: Rows = NO_ROWS
    by_names: bool = True  # args were not asked for: `rows` are all that names say
    merged: Rows = NO_ROWS  # where there are `extra`: all hits in order of time
    by_args: Rows = NO_ROWS  # `extra` in order of their rows

    @property
    def is_done(self) -> bool:
        """Whether all slices have been searched."""
        return self.share == 1.0

    @property
    def together(self) -> Rows:
        """All hits in order of time."""
        return self.merged if len(self.extra) else self.rows

    @property
    def leads(self) -> bool:
        """Whether the cursor can already go to a hit. It can once the search is done,
        or once there are hits by name, which come before all others."""
        return self.is_done or (self.by_names and len(self.rows) > 0)


def group_hits(
    trace: Trace,
    text: str,
    rows: Rows,
    share: float = 1,
    extra: Rows = NO_ROWS,
    named: bool = True,
) -> SearchHits:
    """Return the results of a search, with the hits grouped by name.

    Names come with the longest total time first, and names of hits by args after all
    others. At most MAX_NAMES names are listed.

    Args:
        trace: The trace that was searched.
        text: The query.
        rows: The slices found by name, in order of time.
        share: How much of the trace has been searched so far, from 0 to 1.
        extra: More slices, which only have the text in their args.
        named: Whether the query asks for names only.
    """
    by_name = _group_by_name(trace, rows)
    by_args = _group_by_name(trace, extra, in_args=True)
    listed_names = (*by_name.longest, *by_args.longest)[:MAX_NAMES]
    merged = NO_ROWS
    if len(extra):
        all_hits = np.concatenate((rows, extra))
        merged = all_hits[np.argsort(trace.start[all_hits], kind="stable")]
    return SearchHits(
        text=text,
        rows=rows,
        names=listed_names,
        names_count=by_name.total,
        ns=int(trace.dur[rows].sum()),
        share=share,
        extra=extra,
        by_names=named,
        merged=merged,
        by_args=np.sort(extra),
    )


class _Names(NamedTuple):
    """The names of some hits."""

    longest: Sequence[NameHits]  # at most MAX_NAMES, the longest first
    total: int  # how many names there are


def _group_by_name(trace: Trace, rows: Rows, in_args: bool = False) -> _Names:
    """Return the hits grouped by name, the names with the longest total time first.

    At most MAX_NAMES names are listed, but all are counted. `in_args` marks hits whose
    name does not match, only their args.
    """
    numbers, first_of_name, name_of_row = np.unique(
        trace.name[rows], return_index=True, return_inverse=True
    )
    ns = summed(name_of_row, trace.dur[rows], len(numbers))
    counts = np.bincount(name_of_row, minlength=len(numbers))
    longest = []
    for name_index in np.argsort(-ns, kind="stable")[:MAX_NAMES].tolist():
        row = int(rows[first_of_name[name_index]])
        longest.append(
            NameHits(
                role=int(trace.role[row]),
                name=trace.name_of(row),
                count=int(counts[name_index]),
                ns=int(ns[name_index]),
                in_args=in_args,
            )
        )
    return _Names(longest, len(numbers))


MIN_SLICES = 2  # of fewer slices there is no trend


class Trend(msgspec.Struct, frozen=True):
    """The median duration (ns) of each stretch, -1 for a stretch without any."""

    medians: tuple[int, ...]
    steps: int  # that the stretches are made of; 0: equal numbers of slices instead
    least_ns: int
    median_ns: int
    most_ns: int


def compute_trend(
    trace: Trace, rows: Rows, dur: Int64s, steps: Steps, cells: int
) -> Trend | None:
    """Return how the durations of slices changed over time, as medians of up to `cells`
    consecutive groups.

    If the trace has several steps, each group covers equally many steps. Otherwise it
    covers equally many slices. A group without slices has the median -1. None means
    that there are fewer than MIN_SLICES slices or cells.

    Args:
        trace: The trace of the slices.
        rows: The slices, in order of time.
        dur: The duration of each in ns.
        steps: The training or serving steps of the trace; may be empty.
        cells: The maximum number of groups, one for each cell of a chart.
    """
    if len(rows) < MIN_SLICES or cells < MIN_SLICES:
        return None
    has_steps = len(steps) > 1
    if has_steps:
        position_of_row = _find_steps(trace, rows, steps)
        position_count = len(steps)
    else:
        position_of_row = np.arange(len(rows))
        position_count = len(rows)
    group_count = min(cells, position_count)
    # distributes the steps or slices evenly over the groups
    group_of_row = position_of_row * group_count // position_count
    medians = []
    for group in range(group_count):
        durations = dur[group_of_row == group]
        medians.append(median(durations) if len(durations) else -1)
    return Trend(
        medians=tuple(medians),
        steps=len(steps) if has_steps else 0,
        least_ns=int(dur.min()),
        median_ns=median(dur),
        most_ns=int(dur.max()),
    )


def _find_steps(trace: Trace, rows: Rows, steps: Steps) -> Int64s:
    """Return the index of the step in which each slice began; shape [rows].

    A slice between two steps counts for the one before it, and one before the first
    step for the first. GPU work counts for the step that launched it, if that is known,
    because it may run when that step is already over. `rows` must not be empty.
    """
    starting_rows = rows
    first_row = int(rows[0])
    if is_gpu_event(trace, first_row) and int(trace.launch[first_row]) != NO_ROW:
        launches = trace.launch[rows]
        starting_rows = np.where(launches != NO_ROW, launches, rows)
    # the last step that had begun by then; -1 before the first one
    step = np.searchsorted(steps.start, trace.start[starting_rows], side="right") - 1
    return np.maximum(step, 0)
