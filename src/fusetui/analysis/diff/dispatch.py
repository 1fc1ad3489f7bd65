"""What the CPU does around the work of a step: ops that compute nothing, guards,
runtime calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import CPU, ONLY, Row, RowKind, RowShare, row_of
from fusetui.analysis.diff.names import dispatch_name
from fusetui.analysis.diff.noise import beyond_noise
from fusetui.analysis.diff.statistics import mean
from fusetui.analysis.diff.surplus import RowsOfSides
from fusetui.analysis.diff.work import Work
from fusetui.analysis.questions.chain import rows_between
from fusetui.analysis.questions.computing import computing_ops, within
from fusetui.analysis.questions.launches import LAUNCHES
from fusetui.analysis.questions.totals import grouped, self_ns
from fusetui.text.figures import count
from fusetui.trace.model.arrays import Flags, Int64s, Rows, summed
from fusetui.trace.model.categories import Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import union_length
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.model.quantiles import median

T = TypeVar("T")

LAUNCH_CALLS = "launch calls"
"""The label of all calls that launch work."""

MIN_STEPS = 3
"""Fewer steps do not show what occurs in one of them only."""

Calls = dict[str, Int64s]
"""By the label of an op, how often each step calls it: an array of shape [steps]."""


class Dispatch(msgspec.Struct, frozen=True, eq=False):
    """One kind of slice in each of the steps used; arrays of shape [steps], unless they
    say otherwise."""

    names: tuple[str, ...]
    count: Int64s
    ns: Int64s  # self time
    usual: Rows  # the steps that its time is averaged over
    rows: tuple[int, ...]  # in the representative step
    every: Rows  # in all steps; shape [slices]
    step: Rows  # of each of those
    adds_up: bool  # its time is not part of other dispatch or of work

    @property
    def per_step(self) -> int:
        """How often it occurs in the median step."""
        return median(self.count)

    @property
    def share(self) -> RowShare:
        """In a usual step."""
        is_usual = self.per_step > 0
        return RowShare(
            names=self.names if is_usual else (),
            ns=int(mean(self.ns[self.usual])),
            count=self.per_step,
            median_ns=median(self.ns),
            rows=self.rows if is_usual else (),
        )

    def share_in(self, step: int) -> RowShare:
        """In one step."""
        times = int(self.count[step])
        return RowShare(
            names=self.names if times else (),
            ns=int(self.ns[step]),
            count=times,
            rows=tuple(self.every[self.step == step].tolist()),
        )


class _OfBothSides(msgspec.Struct, frozen=True, eq=False):
    """The dispatch of one label; None on a side that has none."""

    label: str
    a: Dispatch | None
    b: Dispatch | None
    # how often each step calls the op of this label, whether it launches work or not
    calls_a: Int64s | None
    calls_b: Int64s | None

    @property
    def is_as_frequent(self) -> bool:
        """Whether a median step of both sides has as many."""
        times_a = self.a.per_step if self.a else 0
        times_b = self.b.per_step if self.b else 0
        return times_a == times_b


def rows(
    a: WorkItems, b: WorkItems, without: RowsOfSides, renamed: Mapping[str, str]
) -> list[Row]:
    """What occurs more or less often in a step, the largest change first, then what
    does so in one step only; in traces without a GPU also all else, in one row.

    `without`: rows of each trace that are told elsewhere, unless they are part of the
    sum; `renamed`: by labels of B, what A calls the same.
    """
    counts = not (a.work.gpu or b.work.gpu)
    as_frequent = []
    changed = []
    for both in _of_both_sides(a, b, without, renamed, counts):
        if both.is_as_frequent:
            as_frequent.append(both)
        elif not _is_called_as_often(both.calls_a, both.calls_b):
            changed.append(_more_or_less_often(both, counts))
        # else it launches by itself what an op inside it launches on the other side
    changed.sort(key=lambda row: (-abs(row.change_ns), row.op))
    for both in as_frequent:
        changed += _in_one_step(a, b, both)
    if counts:
        changed += _all_else(as_frequent)
    return changed


def dispatched(items: WorkItems) -> Int64s:
    """The time of all dispatch that is part of the sum (ns); shape [steps]."""
    total_ns = np.zeros(len(items.work.windows), dtype=np.int64)
    for dispatch in by_label(items).values():
        if dispatch.adds_up:
            total_ns += dispatch.ns
    return total_ns


def _of_both_sides(
    a: WorkItems,
    b: WorkItems,
    without: RowsOfSides,
    renamed: Mapping[str, str],
    counts: bool,
) -> list[_OfBothSides]:
    """Labels of A first. `counts`: dispatch is part of the sum, so that nothing is left
    out."""
    of_a = by_label(a, None if counts else without.a)
    of_b = _by_label_of_a(by_label(b, None if counts else without.b), renamed)
    calls_a: Calls = {}
    calls_b: Calls = {}
    if not counts:
        calls_a = _calls_of_ops(a, without.a)
        calls_b = _by_label_of_a(_calls_of_ops(b, without.b), renamed)
    return [
        _OfBothSides(
            label=label,
            a=of_a.get(label),
            b=of_b.get(label),
            calls_a=calls_a.get(label),
            calls_b=calls_b.get(label),
        )
        for label in dict.fromkeys([*of_a, *of_b])
    ]


def _by_label_of_a(of_b: Mapping[str, T], renamed: Mapping[str, str]) -> dict[str, T]:
    """What B has, by the labels that A has for the same."""
    return {renamed.get(label, label): value for label, value in of_b.items()}


def _calls_of_ops(items: WorkItems, without: Flags) -> Calls:
    """How often each step calls each op, whether the op launches work or not."""
    trace, windows = items.trace, items.work.windows
    if not len(windows):
        return {}
    rows = trace.rows_of(Role.OP)
    rows = rows[~without[rows]]
    step = windows.step_of_calls(trace.start[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    labels = _Labels(trace, dispatch_name)
    groups = grouped(labels.number_of_name[trace.name[rows]], rows)
    calls: Calls = {}
    for group, label_number in enumerate(groups.keys.tolist()):
        steps_of_calls = step[groups.places(group)]
        calls[labels.texts[label_number]] = np.bincount(
            steps_of_calls, minlength=len(windows)
        )
    return calls


class _Labels:
    """The labels of the names of a trace, each with a number."""

    def __init__(self, trace: Trace, label_of: Callable[[str], str]) -> None:
        numbers: dict[str, int] = {}
        number_of_name = []
        for name in trace.names:
            number_of_name.append(numbers.setdefault(label_of(name), len(numbers)))
        self.number_of_name = np.array(number_of_name, dtype=np.intp)
        self.texts = list(numbers)


def _is_called_as_often(calls_a: Int64s | None, calls_b: Int64s | None) -> bool:
    """Whether median steps of both sides call an op, and equally often; None: not an op
    of that side."""
    if calls_a is None or calls_b is None:
        return False
    times_a, times_b = median(calls_a), median(calls_b)
    return times_a == times_b > 0


def _more_or_less_often(both: _OfBothSides, counts: bool) -> Row:
    """What a median step of one side has more of; `counts`: dispatch is part of the
    sum."""
    before = both.a.share if both.a else RowShare()
    after = both.b.share if both.b else RowShare()
    why = ""
    if before.count and after.count:
        why = f"{count(before.count)} -> {count(after.count)} a step"
    adds_up = all(dispatch.adds_up for dispatch in (both.a, both.b) if dispatch)
    return _row(both.label, before, after, why, counts and adds_up)


def _in_one_step(a: WorkItems, b: WorkItems, both: _OfBothSides) -> list[Row]:
    """What occurs more or less often in one step only, and equally often in all
    others."""
    steps = len(b.work.windows)
    if steps < MIN_STEPS or len(a.work.windows) != steps:
        return []
    none = np.zeros(steps, dtype=np.int64)
    times_a = both.a.count if both.a else none
    times_b = both.b.count if both.b else none
    other_steps = np.flatnonzero(times_a != times_b)
    if len(other_steps) != 1:
        return []
    if np.ptp(np.delete(times_a, other_steps)) > 0:
        return []
    if np.ptp(np.delete(times_b, other_steps)) > 0:
        return []
    calls_a = both.calls_a[other_steps] if both.calls_a is not None else None
    calls_b = both.calls_b[other_steps] if both.calls_b is not None else None
    if _is_called_as_often(calls_a, calls_b):
        return []
    step = int(other_steps[0])
    before = both.a.share_in(step) if both.a else RowShare()
    after = both.b.share_in(step) if both.b else RowShare()
    why = f"{ONLY} {b.work.windows.labels[step]}"
    return [_row(both.label, before, after, why, counts=False)]


def _row(label: str, before: RowShare, after: RowShare, why: str, counts: bool) -> Row:
    is_less_often = after.count < before.count
    kind = RowKind.REMOVED if is_less_often else RowKind.ADDED
    return row_of(kind, CPU + label, before, after, why, counts=counts)


class _Total(msgspec.Struct, frozen=True, eq=False):
    """Dispatch of several labels together."""

    ns: Int64s  # shape [steps]
    share: RowShare


def _all_else(as_frequent: Sequence[_OfBothSides]) -> list[Row]:
    """What both sides do equally often, as one row, so that all of it is accounted
    for."""
    of_a = [both.a for both in as_frequent if both.a and both.a.adds_up]
    of_b = [both.b for both in as_frequent if both.b and both.b.adds_up]
    if not of_a or not of_b:
        return []
    before, after = _total(of_a), _total(of_b)
    is_changed = beyond_noise(before.ns[:, None], after.ns[:, None], 0)[0]
    if not is_changed:
        kind = RowKind.SAME
    elif after.share.ns < before.share.ns:
        kind = RowKind.FASTER
    else:
        kind = RowKind.SLOWER
    op = f"{CPU}other ops that compute nothing"
    return [row_of(kind, op, before.share, after.share, "as many on both sides")]


def _total(dispatches: Sequence[Dispatch]) -> _Total:
    ns = np.sum([dispatch.ns for dispatch in dispatches], axis=0)
    names: list[str] = []
    for dispatch in dispatches:
        names += dispatch.names
    share = RowShare(
        names=names,
        ns=int(mean(ns[dispatches[0].usual])),
        count=sum(dispatch.per_step for dispatch in dispatches),
        median_ns=median(ns),
    )
    return _Total(ns=ns, share=share)


def by_label(items: WorkItems, without: Flags | None = None) -> dict[str, Dispatch]:
    """All dispatch of a side, by its label; without some rows of the trace."""
    work, trace = items.work, items.trace
    steps = len(work.windows)
    dispatches: dict[str, Dispatch] = {}
    if not steps:
        return dispatches
    for slices in _populations(work):
        step_of_row = work.windows.step_of_calls(trace.start[slices.rows])
        is_kept = step_of_row >= 0
        if without is not None:
            is_kept &= ~without[slices.rows]
        rows, step_of_row = slices.rows[is_kept], step_of_row[is_kept]
        ns = slices.ns[is_kept]
        labels = _Labels(trace, slices.label_of)
        groups = grouped(labels.number_of_name[trace.name[rows]], rows)
        for group, label_number in enumerate(groups.keys.tolist()):
            members = groups.places(group)
            every, step = rows[members], step_of_row[members]
            names = [trace.names[name] for name in np.unique(trace.name[every])]
            dispatches[labels.texts[label_number]] = Dispatch(
                names=tuple(names),
                count=np.bincount(step, minlength=steps),
                ns=summed(step, ns[members], steps),
                usual=items.usual,
                rows=tuple(every[step == items.window].tolist()),
                every=every,
                step=step,
                adds_up=slices.adds_up,
            )
    return dispatches


class _Population(msgspec.Struct, frozen=True, eq=False):
    """Slices of the CPU that are not work."""

    rows: Rows
    label_of: Callable[[str], str]  # what their names are told as
    ns: Int64s  # their self times; shape [rows]
    adds_up: bool  # these are in the sum


def _populations(work: Work) -> Iterator[_Population]:
    trace = work.trace
    self_times = self_ns(trace)
    ops = ops_without_work(work)
    yield _Population(
        rows=ops, label_of=dispatch_name, ns=self_times[ops], adds_up=True
    )
    calls = trace.rows_of(Role.CALL)
    if work.gpu:
        is_launch = np.isin(calls, trace.launch)
    else:
        is_launch = trace.named(_is_launch)[trace.name[calls]]
    launches, other_calls = calls[is_launch], calls[~is_launch]
    yield _Population(
        rows=launches, label_of=_launch_calls, ns=self_times[launches], adds_up=True
    )
    yield _Population(
        rows=other_calls,
        label_of=_call_of_any_vendor,
        ns=self_times[other_calls],
        adds_up=True,
    )
    annotations = trace.rows_of(Role.ANNOTATION)
    annotations = annotations[trace.named(is_compiler)[trace.name[annotations]]]
    yield _Population(
        rows=annotations,
        label_of=dispatch_name,
        ns=_ns_without_ops(trace, annotations),
        adds_up=False,
    )


def _is_launch(name: str) -> bool:
    return LAUNCHES.search(name) is not None


def _launch_calls(name: str) -> str:
    return LAUNCH_CALLS


def _call_of_any_vendor(name: str) -> str:
    """`hipX` and `cudaX` are the same call from two vendors."""
    return re.sub(r"\Ahip", "cuda", name)


def ops_without_work(work: Work) -> Rows:
    """The rows of the ops that neither launch GPU work themselves nor, without a GPU,
    compute or are part of one that does."""
    trace = work.trace
    if work.gpu:
        launching = trace.op[trace.gpu_rows].astype(np.intp)
        works = np.zeros(len(trace), dtype=np.bool_)
    else:
        launching = computing_ops(trace)
        works = within(trace, launching)
    works[launching[launching >= 0]] = True
    ops = trace.rows_of(Role.OP)
    return ops[~works[ops]]


def _ns_without_ops(trace: Trace, annotations: Rows) -> Int64s:
    """The time of annotations during which none of the ops inside them ran (ns)."""
    tracks_of_ops = {}
    for track in trace.tracks:
        if track.layer is Layer.OPS and not track.subrow:
            tracks_of_ops[track.pid, track.tid] = track
    ns = trace.dur[annotations].copy()
    for place, row in enumerate(annotations.tolist()):
        own_track = trace.track_of(row)
        ops_track = tracks_of_ops.get((own_track.pid, own_track.tid))
        if ops_track is None:
            continue
        first, last = rows_between(trace, ops_track, [trace.start[row], trace.end[row]])
        inside = np.arange(first, last)
        inside = inside[trace.end[inside] <= trace.end[row]]
        ns[place] -= union_length(trace.start[inside], trace.end[inside])
    return ns
