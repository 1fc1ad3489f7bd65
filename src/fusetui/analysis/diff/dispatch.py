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
    """The slices of the CPU with one label in the steps used; arrays of shape [steps],
    unless they say otherwise."""

    names: tuple[str, ...]  # that the slices have in the trace
    count: Int64s
    ns: Int64s  # self time
    usual: Rows  # the numbers of the steps that its time is averaged over
    rows: tuple[int, ...]  # of its slices in the representative step
    rows_of_all_steps: Rows  # the rows of its slices; shape [slices]
    step: Rows  # the step of each of those; shape [slices]
    adds_up: bool  # its time is not part of other dispatch or of work

    @property
    def per_step(self) -> int:
        """How often it occurs in the median step."""
        return median(self.count)

    @property
    def share(self) -> RowShare:
        """What a usual step has of it: the median count, and the mean time of the usual
        steps."""
        is_usual = self.per_step > 0
        return RowShare(
            names=self.names if is_usual else (),
            ns=int(mean(self.ns[self.usual])),
            count=self.per_step,
            median_ns=median(self.ns),
            rows=self.rows if is_usual else (),
        )

    def share_in(self, step: int) -> RowShare:
        """What one step has of it, by its number."""
        times = int(self.count[step])
        return RowShare(
            names=self.names if times else (),
            ns=int(self.ns[step]),
            count=times,
            rows=tuple(self.rows_of_all_steps[self.step == step].tolist()),
        )


class _OfBothSides(msgspec.Struct, frozen=True, eq=False):
    """The dispatch of one label; None on a side that has none."""

    label: str  # of A, if the two sides call it differently
    a: Dispatch | None
    b: Dispatch | None
    # how often each step calls the op of this label, whether it launches work or not;
    # None where the label is no op of that side
    calls_a: Int64s | None
    calls_b: Int64s | None

    @property
    def is_as_frequent(self) -> bool:
        """Whether the median steps of both sides have equally many."""
        times_a = self.a.per_step if self.a else 0
        times_b = self.b.per_step if self.b else 0
        return times_a == times_b


def rows(
    a: WorkItems, b: WorkItems, without: RowsOfSides, renamed: Mapping[str, str]
) -> list[Row]:
    """The rows of dispatch: what occurs more or less often in a step, the largest change
    of time first, then what does so in one step only; in traces without a GPU also all
    else, in one row.

    `without`: rows of each trace that other rows of the diff are about. They are left
    out, unless dispatch is part of the sum, as it is without a GPU. `renamed`: {label in
    B: label in A} of what is the same.
    """
    is_in_sum = not (a.work.gpu or b.work.gpu)
    as_frequent = []
    changed = []
    for both in _of_both_sides(a, b, without, renamed, is_in_sum):
        if both.is_as_frequent:
            as_frequent.append(both)
        elif not _is_called_as_often(both.calls_a, both.calls_b):
            changed.append(_more_or_less_often(both, is_in_sum))
        # An op that both sides call as often has no row: where it counts less often as
        # dispatch, it launches by itself what an op inside it launches otherwise.
    changed.sort(key=lambda row: (-abs(row.change_ns), row.op))
    for both in as_frequent:
        changed += _in_one_step(a, b, both)
    if is_in_sum:
        changed += _all_else(as_frequent)
    return changed


def dispatch_ns_by_step(items: WorkItems) -> Int64s:
    """The self time of all dispatch of a side that is part of the sum, in each step
    (ns); shape [steps]."""
    total_ns = np.zeros(len(items.work.windows), dtype=np.int64)
    for dispatch in dispatch_by_label(items).values():
        if dispatch.adds_up:
            total_ns += dispatch.ns
    return total_ns


def _of_both_sides(
    a: WorkItems,
    b: WorkItems,
    without: RowsOfSides,
    renamed: Mapping[str, str],
    is_in_sum: bool,
) -> list[_OfBothSides]:
    """The dispatch of each label that either side has, A's first. `is_in_sum`: dispatch
    is part of the sum, so that no rows are left out, and other calls of an op do not
    matter. See `rows` for the other arguments."""
    of_a = dispatch_by_label(a, None if is_in_sum else without.a)
    of_b = _by_label_of_a(
        dispatch_by_label(b, None if is_in_sum else without.b), renamed
    )
    calls_a: Calls = {}
    calls_b: Calls = {}
    if not is_in_sum:
        calls_a = _calls_of_ops(a, without.a)
        calls_b = _by_label_of_a(_calls_of_ops(b, without.b), renamed)
    of_both_sides = []
    for label in dict.fromkeys([*of_a, *of_b]):
        of_label = _OfBothSides(
            label=label,
            a=of_a.get(label),
            b=of_b.get(label),
            calls_a=calls_a.get(label),
            calls_b=calls_b.get(label),
        )
        of_both_sides.append(of_label)
    return of_both_sides


def _by_label_of_a(of_b: Mapping[str, T], renamed: Mapping[str, str]) -> dict[str, T]:
    """What B has, by the labels that A has for the same; `renamed`: {label in B: label
    in A}."""
    return {renamed.get(label, label): value for label, value in of_b.items()}


def _calls_of_ops(items: WorkItems, without: Flags) -> Calls:
    """How often each step calls each op, whether the op launches work or not; `without`
    flags rows of the trace that do not count."""
    trace = items.trace
    steps = len(items.work.windows)
    if not steps:
        return {}
    ops = trace.rows_of(Role.OP)
    ops = ops[~without[ops]]
    in_steps = _in_steps(items, ops)
    labels = _Labels(trace, dispatch_name)
    groups = grouped(labels.number_of_name[trace.name[in_steps.rows]], in_steps.rows)
    calls: Calls = {}
    for group, label_number in enumerate(groups.keys.tolist()):
        step_of_call = in_steps.step[groups.places(group)]
        label = labels.texts[label_number]
        calls[label] = np.bincount(step_of_call, minlength=steps)
    return calls


class _InSteps(msgspec.Struct, frozen=True, eq=False):
    """Slices that begin in a step; arrays of shape [slices]."""

    rows: Rows
    step: Rows  # the number of the step
    places: Rows  # which of the slices that were given they are


def _in_steps(items: WorkItems, rows: Rows) -> _InSteps:
    """Those of these slices that begin in a step of the side."""
    step = items.work.windows.step_of_calls(items.trace.start[rows])
    places = np.flatnonzero(step >= 0)
    return _InSteps(rows=rows[places], step=step[places], places=places)


class _Labels:
    """The labels of the names of a trace, numbered: `texts[number_of_name[name]]` is the
    label of the name with the number `name` in the trace."""

    def __init__(self, trace: Trace, label_of: Callable[[str], str]) -> None:
        """`label_of`: the label for a name."""
        numbers: dict[str, int] = {}
        number_of_name = []
        for name in trace.names:
            number_of_name.append(numbers.setdefault(label_of(name), len(numbers)))
        self.number_of_name = np.array(number_of_name, dtype=np.intp)
        self.texts = list(numbers)


def _is_called_as_often(calls_a: Int64s | None, calls_b: Int64s | None) -> bool:
    """Whether the median steps of both sides call an op, and equally often. Arguments:
    the calls in each step; None, and so False, where it is no op of that side."""
    if calls_a is None or calls_b is None:
        return False
    times_a = median(calls_a)
    times_b = median(calls_b)
    return times_a > 0 and times_a == times_b


def _more_or_less_often(both: _OfBothSides, is_in_sum: bool) -> Row:
    """The row of a label that the median steps of the two sides do not have equally
    often; `is_in_sum`: dispatch is part of the sum."""
    before = both.a.share if both.a else RowShare()
    after = both.b.share if both.b else RowShare()
    why = ""
    if before.count and after.count:
        why = f"{count(before.count)} -> {count(after.count)} a step"
    adds_up = all(dispatch.adds_up for dispatch in (both.a, both.b) if dispatch)
    return _row(both.label, before, after, why, counts=is_in_sum and adds_up)


def _in_one_step(a: WorkItems, b: WorkItems, both: _OfBothSides) -> list[Row]:
    """The row of a label that both sides have equally often in all steps but one, in
    which they differ; an empty list if it is not so, or if the sides have not
    equally many steps."""
    steps = len(b.work.windows)
    if steps < MIN_STEPS or len(a.work.windows) != steps:
        return []
    step = _only_other_step(both, steps)
    if step is None:
        return []
    calls_a = both.calls_a[[step]] if both.calls_a is not None else None
    calls_b = both.calls_b[[step]] if both.calls_b is not None else None
    if _is_called_as_often(calls_a, calls_b):
        return []
    before = both.a.share_in(step) if both.a else RowShare()
    after = both.b.share_in(step) if both.b else RowShare()
    why = f"{ONLY} {b.work.windows.labels[step]}"
    return [_row(both.label, before, after, why, counts=False)]


def _only_other_step(both: _OfBothSides, steps: int) -> int | None:
    """The step in which the two sides do not have a label equally often, if it is only
    one, and each side has it always as often in the others; else None. Both sides have
    so many steps."""
    never = np.zeros(steps, dtype=np.int64)
    times_a = both.a.count if both.a else never
    times_b = both.b.count if both.b else never
    other_steps = np.flatnonzero(times_a != times_b)
    if len(other_steps) != 1:
        return None
    varies_in_a = np.ptp(np.delete(times_a, other_steps)) > 0
    varies_in_b = np.ptp(np.delete(times_b, other_steps)) > 0
    return None if varies_in_a or varies_in_b else int(other_steps[0])


def _row(
    label: str, before: RowShare, after: RowShare, why: str, *, counts: bool
) -> Row:
    """The row of dispatch that was removed, if B has fewer of it, else added.
    `counts`: as in `Row`."""
    is_less_often = after.count < before.count
    kind = RowKind.REMOVED if is_less_often else RowKind.ADDED
    return row_of(kind, CPU + label, before, after, why, counts=counts)


class _Total(msgspec.Struct, frozen=True, eq=False):
    """Dispatch of several labels together."""

    ns: Int64s  # shape [steps]
    share: RowShare


def _all_else(as_frequent: Sequence[_OfBothSides]) -> list[Row]:
    """One row for all dispatch that both sides have equally often and that adds up; an
    empty list if a side has no such dispatch."""
    of_a = [both.a for both in as_frequent if both.a and both.a.adds_up]
    of_b = [both.b for both in as_frequent if both.b and both.b.adds_up]
    if not of_a or not of_b:
        return []
    before = _total(of_a)
    after = _total(of_b)
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
    """Some dispatch of one side together; at least one."""
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


def dispatch_by_label(
    items: WorkItems, without: Flags | None = None
) -> dict[str, Dispatch]:
    """All dispatch of a side, {label: dispatch}, as far as it is in the steps used.
    `without` flags rows of the trace that are left out. Empty without steps."""
    dispatches: dict[str, Dispatch] = {}
    if not len(items.work.windows):
        return dispatches
    for slices in _populations(items.work):
        dispatches |= _by_label_of(slices, items, without)
    return dispatches


def _by_label_of(
    slices: _Population, items: WorkItems, without: Flags | None
) -> dict[str, Dispatch]:
    """See `dispatch_by_label`, of some slices of the side; there is at least one step."""
    trace = items.trace
    counted = slices
    if without is not None:
        counted = slices.take(np.flatnonzero(~without[slices.rows]))
    in_steps = _in_steps(items, counted.rows)
    ns = counted.ns[in_steps.places]
    labels = _Labels(trace, slices.label_of)
    groups = grouped(labels.number_of_name[trace.name[in_steps.rows]], in_steps.rows)
    steps = len(items.work.windows)
    dispatches = {}
    for group, label_number in enumerate(groups.keys.tolist()):
        members = groups.places(group)
        rows = in_steps.rows[members]
        step = in_steps.step[members]
        names = [trace.names[name] for name in np.unique(trace.name[rows]).tolist()]
        dispatches[labels.texts[label_number]] = Dispatch(
            names=tuple(names),
            count=np.bincount(step, minlength=steps),
            ns=summed(step, ns[members], steps),
            usual=items.usual_steps,
            rows=tuple(rows[step == items.representative_step].tolist()),
            rows_of_all_steps=rows,
            step=step,
            adds_up=slices.adds_up,
        )
    return dispatches


class _Population(msgspec.Struct, frozen=True, eq=False):
    """Slices of the CPU that are not work; arrays of shape [slices]."""

    rows: Rows
    label_of: Callable[[str], str]  # the label for the name of a slice
    ns: Int64s  # their self times
    adds_up: bool  # these times are not part of other dispatch or of work

    def take(self, places: Rows) -> _Population:
        """The slices at these places."""
        return msgspec.structs.replace(self, rows=self.rows[places], ns=self.ns[places])


def _populations(work: Work) -> Iterator[_Population]:
    """All slices that are dispatch, in the steps or not: ops without work, calls that
    launch work (all with one label), other calls, and annotations of torch.compile,
    whose time does not add up."""
    trace = work.trace
    self_times = self_ns(trace)

    def of_rows(rows: Rows, label_of: Callable[[str], str]) -> _Population:
        return _Population(
            rows=rows, label_of=label_of, ns=self_times[rows], adds_up=True
        )

    calls = trace.rows_of(Role.CALL)
    if work.gpu:
        is_launch = np.isin(calls, trace.launch)
    else:
        is_launch = trace.named(_is_launch)[trace.name[calls]]
    annotations = trace.rows_of(Role.ANNOTATION)
    is_of_compiler = trace.named(is_compiler)[trace.name[annotations]]
    of_compiler = annotations[is_of_compiler]
    yield of_rows(ops_without_work(work), dispatch_name)
    yield of_rows(calls[is_launch], _launch_calls)
    yield of_rows(calls[~is_launch], _call_of_any_vendor)
    yield _Population(
        rows=of_compiler,
        label_of=dispatch_name,
        ns=_ns_without_ops(trace, of_compiler),
        adds_up=False,
    )


def _is_launch(name: str) -> bool:
    """Whether calls of this name launch GPU work."""
    return LAUNCHES.search(name) is not None


def _launch_calls(_: str) -> str:
    """The one label of all calls that launch work."""
    return LAUNCH_CALLS


def _call_of_any_vendor(name: str) -> str:
    """The name of a call at NVIDIA: `cudaMalloc` for `hipMalloc`."""
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
    """The time of each annotation during which none of the ops that lie in it, on its
    thread, ran (ns); shape [annotations]."""
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
        start = trace.start[row]
        end = trace.end[row]
        first, last = rows_between(trace, ops_track, [start, end])
        inside = np.arange(first, last)
        inside = inside[trace.end[inside] <= end]
        ns[place] -= union_length(trace.start[inside], trace.end[inside])
    return ns
