"""Search results, grouped by name; the count is available while the user types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.analysis.questions.chain import is_gpu
from fusetui.trace.layout.steps import Steps
from fusetui.trace.model.arrays import Int64s, Rows, summed
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
    extra: Rows = NO_ROWS,
    named: bool = True,
) -> SearchHits:
    """What a search for `text` found: `rows` in order of time, grouped by name, then
    those by args alone. `named`: no args were asked for."""
    by_name = _by_name(trace, rows)
    by_args = _by_name(trace, extra, in_args=True)
    listed = (*by_name.longest, *by_args.longest)[:MAX_NAMES]
    merged = NO_ROWS
    if len(extra):
        both = np.concatenate((rows, extra))
        merged = both[np.argsort(trace.start[both], kind="stable")]
    return SearchHits(
        text=text,
        rows=rows,
        names=listed,
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


def _by_name(trace: Trace, rows: Rows, in_args: bool = False) -> _Names:
    """The hits in `rows` grouped by name; `in_args`: only their args say it."""
    numbers, first, name_of_row = np.unique(
        trace.name[rows], return_index=True, return_inverse=True
    )
    ns = summed(name_of_row, trace.dur[rows], len(numbers))
    counts = np.bincount(name_of_row, minlength=len(numbers))
    longest = []
    for n in np.argsort(-ns, kind="stable")[:MAX_NAMES].tolist():
        row = int(rows[first[n]])
        longest.append(
            NameHits(
                role=int(trace.role[row]),
                name=trace.name_of(row),
                count=int(counts[n]),
                ns=int(ns[n]),
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


def trend(
    trace: Trace, rows: Rows, dur: Int64s, steps: Steps, cells: int
) -> Trend | None:
    """How durations (ns) changed over at most `cells` stretches of rows, which are in
    order of time: of the steps, if there are several, else of equal numbers of rows.
    None for fewer than MIN_SLICES rows or cells."""
    if len(rows) < MIN_SLICES or cells < MIN_SLICES:
        return None
    if len(steps) > 1:
        unit_of_row = _steps_of_rows(trace, rows, steps)
        units = len(steps)
    else:
        unit_of_row = np.arange(len(rows))
        units = len(rows)
    stretches = min(cells, units)
    stretch_of_row = unit_of_row * stretches // units
    medians = []
    for stretch in range(stretches):
        durations = dur[stretch_of_row == stretch]
        medians.append(median(durations) if len(durations) else -1)
    return Trend(
        medians=tuple(medians),
        steps=len(steps) if len(steps) > 1 else 0,
        least_ns=int(dur.min()),
        median_ns=median(dur),
        most_ns=int(dur.max()),
    )


def _steps_of_rows(trace: Trace, rows: Rows, steps: Steps) -> Int64s:
    """The index of the step during which each row began, else of the one before; 0
    before the first step. GPU work counts where it was launched, if the launch of the
    first of the rows is known."""
    began = rows
    first = int(rows[0])
    if is_gpu(trace, first) and int(trace.launch[first]) >= 0:
        launches = trace.launch[rows]
        began = np.where(launches >= 0, launches, rows)
    step = np.searchsorted(steps.start, trace.start[began], side="right") - 1
    return np.maximum(step, 0)
