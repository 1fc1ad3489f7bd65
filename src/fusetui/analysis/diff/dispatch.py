"""Compares the dispatch of a step: the ops that compute nothing, launch calls, guards
and syncs.

*Dispatch* is everything on the CPU that is not work itself: ops that compute nothing,
guards of torch.compile, runtime calls. In a trace with a GPU it overlaps the work, so
its rows are shown but not part of the sum. Without a GPU they are part of it.

Slices of dispatch are compared by their *label*: the name of an op without numbers that
change from run to run, or one label for all calls that launch work.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import CPU, ONLY, Row, RowKind, RowShare, make_row
from fusetui.analysis.diff.names import make_dispatch_label
from fusetui.analysis.diff.noise import is_beyond_noise
from fusetui.analysis.diff.statistics import mean
from fusetui.analysis.diff.surplus import RowsOfSides
from fusetui.analysis.diff.work import NO_STEP, Work
from fusetui.analysis.questions.chain import find_rows_starting_between
from fusetui.analysis.questions.computing import find_computing_ops, mark_inside
from fusetui.analysis.questions.launches import LAUNCHES
from fusetui.analysis.questions.totals import measure_self_ns
from fusetui.text.figures import count
from fusetui.trace.model.arrays import NO_ROW, Flags, Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Layer, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import union_length
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.model.quantiles import median

T = TypeVar("T")

LAUNCH_CALLS = "launch calls"
"""The label of all calls that launch work."""

MIN_STEPS = 3
"""Fewer steps do not show what occurs in one of them only."""

CallsByLabel = dict[str, Int64s]
"""{label of an op: how often each step calls it}, one count per step."""


class Dispatch(msgspec.Struct, frozen=True, eq=False):
    """The slices of one label in the steps of a side."""

    names: tuple[str, ...]  # the names of the slices in the trace
    count: Int64s  # how many slices each step has
    ns: Int64s  # their self time in each step
    usual: Rows  # indices of the steps over which its time is averaged
    rows: tuple[int, ...]  # rows of its slices in the representative step
    rows_of_all_steps: Rows  # rows of all of its slices
    step: Rows  # the step of each of `rows_of_all_steps`
    adds_up: bool  # its time is not part of other dispatch or of work

    @property
    def per_step(self) -> int:
        """How many slices of this label the median step has."""
        return median(self.count)

    def compute_usual_share(self) -> RowShare:
        """Return the median count of slices per step, and the mean time in ns.

        The mean is over the usual steps, which do the most common work. The names and
        rows are empty if the median step has no slices.
        """
        is_in_median_step = self.per_step > 0
        return RowShare(
            names=self.names if is_in_median_step else (),
            ns=int(mean(self.ns[self.usual])),
            count=self.per_step,
            median_ns=median(self.ns),
            rows=self.rows if is_in_median_step else (),
        )

    def compute_share_of_step(self, step: int) -> RowShare:
        """Return the names, time (ns), count and rows of the slices in one step."""
        slices = int(self.count[step])
        rows_in_step = self.rows_of_all_steps[self.step == step]
        return RowShare(
            names=self.names if slices else (),
            ns=int(self.ns[step]),
            count=slices,
            rows=tuple(rows_in_step.tolist()),
        )


class _ComparedLabel(msgspec.Struct, frozen=True, eq=False):
    """The dispatch of one label on both sides; None on a side that has none."""

    label: str  # of A, if the two sides call it differently
    a: Dispatch | None
    b: Dispatch | None
    # How often each step calls the op of this label, whether it launches work or not.
    # None where the label is not an op of that side.
    calls_a: Int64s | None
    calls_b: Int64s | None

    @property
    def is_equally_frequent(self) -> bool:
        """Whether the median steps of both sides have equally many slices."""
        slices_a = self.a.per_step if self.a else 0
        slices_b = self.b.per_step if self.b else 0
        return slices_a == slices_b

    @property
    def is_called_equally_often(self) -> bool:
        """Whether the median steps of both call the op equally often, and at all."""
        if self.calls_a is None or self.calls_b is None:
            return False
        calls_per_step_a = median(self.calls_a)
        calls_per_step_b = median(self.calls_b)
        return calls_per_step_a > 0 and calls_per_step_a == calls_per_step_b

    def is_called_equally_often_in(self, step: int) -> bool:
        """Return whether this step of both calls the op equally often, and at all."""
        if self.calls_a is None or self.calls_b is None:
            return False
        return bool(self.calls_a[step] > 0 and self.calls_a[step] == self.calls_b[step])


def make_rows(
    a: WorkItems, b: WorkItems, without: RowsOfSides, renamed: Mapping[str, str]
) -> list[Row]:
    """Make the rows of dispatch, which is overhead on the CPU around the work itself.

    The rows of labels that occur more or less often in a step come first, the largest
    change of time before others. Then come rows of labels whose count differs in one
    step only. In traces without a GPU, one more row has all other dispatch.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        without: Rows of each trace that other rows of the diff are about. They are left
            out, unless dispatch is part of the sum, as it is without a GPU.
        renamed: {label in B: label in A} of ops that were renamed.
    """
    is_in_sum = not (a.work.gpu or b.work.gpu)
    equally_frequent = []
    diff_rows = []
    for compared in _compare_labels(a, b, without, renamed, is_in_sum=is_in_sum):
        if compared.is_equally_frequent:
            equally_frequent.append(compared)
            continue
        # An op that both call equally often has no row, even if it counts less often as
        # dispatch in one: there it launches by itself what an op inside it launches in
        # the other.
        if not compared.is_called_equally_often:
            row = _make_row_of_changed_count(compared, is_in_sum=is_in_sum)
            diff_rows.append(row)

    diff_rows.sort(key=lambda row: (-abs(row.change_ns), row.op))
    for compared in equally_frequent:
        row_of_step = _make_row_of_single_step(a, b, compared)
        if row_of_step is not None:
            diff_rows.append(row_of_step)

    if is_in_sum:
        row_of_rest = _make_row_of_unchanged_dispatch(equally_frequent)
        if row_of_rest is not None:
            diff_rows.append(row_of_rest)
    return diff_rows


def measure_dispatch_by_step(items: WorkItems) -> Int64s:
    """Return the time of all dispatch of a trace in each step (ns).

    Dispatch is overhead on the CPU around the work itself. Its self time counts,
    without what other dispatch or work contains already (`Dispatch.adds_up`).
    """
    ns_by_step = np.zeros(len(items.steps), dtype=np.int64)
    for dispatch in collect_dispatch(items).values():
        if dispatch.adds_up:
            ns_by_step += dispatch.ns
    return ns_by_step


def _compare_labels(
    a: WorkItems,
    b: WorkItems,
    without: RowsOfSides,
    renamed: Mapping[str, str],
    *,
    is_in_sum: bool,
) -> list[_ComparedLabel]:
    """Compare the dispatch of each label that A or B has, those of A first.

    Dispatch is overhead on the CPU around the work itself, such as ops that launch
    nothing.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        without: One flag per row of each trace, True for rows that are left out.
        renamed: {label in B: label in A} of ops that were renamed.
        is_in_sum: Whether dispatch is part of the sum. Then no rows are left out, and
            other calls of an op do not matter.
    """
    calls_a: CallsByLabel = {}
    calls_b: CallsByLabel = {}
    if is_in_sum:
        dispatch_a = collect_dispatch(a)
        dispatch_b = collect_dispatch(b)
    else:
        dispatch_a = collect_dispatch(a, without.a)
        dispatch_b = collect_dispatch(b, without.b)
        calls_a = _count_calls_of_ops(a, without.a)
        calls_b = _count_calls_of_ops(b, without.b)
    dispatch_b = _relabel_as_in_a(dispatch_b, renamed)
    calls_b = _relabel_as_in_a(calls_b, renamed)

    compared_labels = []
    labels = dict.fromkeys([*dispatch_a, *dispatch_b])  # each once, in order
    for label in labels:
        compared = _ComparedLabel(
            label=label,
            a=dispatch_a.get(label),
            b=dispatch_b.get(label),
            calls_a=calls_a.get(label),
            calls_b=calls_b.get(label),
        )
        compared_labels.append(compared)
    return compared_labels


def _relabel_as_in_a(
    value_by_label: Mapping[str, T], renamed: Mapping[str, str]
) -> dict[str, T]:
    """Replace the labels of B by those that A has for the same op or call.

    `renamed` is {label in B: label in A}; other labels stay.
    """
    return {renamed.get(label, label): value for label, value in value_by_label.items()}


def _count_calls_of_ops(items: WorkItems, without: Flags) -> CallsByLabel:
    """Count how often each step calls each op, whether the op launches work or not.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        without: One flag per row of the trace: True for rows that do not count.

    Returns:
        {label of an op: its calls in each step}; {} without steps.
    """
    trace = items.trace
    steps = len(items.steps)
    if not steps:
        return {}

    ops = trace.rows_of(Role.OP)
    in_steps = _select_slices_in_steps(items, ops[~without[ops]])
    labels = _Labels(trace, make_dispatch_label)
    label_of_slice = labels.index_of_name[trace.name[in_steps.rows]]
    groups = grouped(label_of_slice, in_steps.rows)

    calls_by_label: CallsByLabel = {}
    label_of_group = [labels.texts[index] for index in groups.keys.tolist()]
    for label, calls in zip(label_of_group, groups.members_of_each(), strict=True):
        calls_by_label[label] = np.bincount(in_steps.step[calls], minlength=steps)
    return calls_by_label


class _SlicesInSteps(msgspec.Struct, frozen=True, eq=False):
    """Slices that begin in a step, one entry per slice."""

    rows: Rows  # rows of the trace
    step: Rows  # the index of the step
    positions: Rows  # indices into the slices that were passed in


def _select_slices_in_steps(items: WorkItems, rows: Rows) -> _SlicesInSteps:
    """Select the slices that begin in a step of the trace, and tell the step of each.

    Args:
        items: The items (kernels and copies) of the representative step of the trace.
        rows: Rows of the slices to select from.
    """
    step_of_slice = items.steps.step_of_calls(items.trace.start[rows])
    positions = np.flatnonzero(step_of_slice != NO_STEP)
    return _SlicesInSteps(
        rows=rows[positions], step=step_of_slice[positions], positions=positions
    )


class _Labels:
    """The labels of all names of a trace.

    `texts` has each label once. `index_of_name` has the index of its label for each
    name of the trace.
    """

    def __init__(self, trace: Trace, label_of: Callable[[str], str]) -> None:
        """Make the labels of the names of a trace.

        Args:
            trace: A trace.
            label_of: Returns the label for a name.
        """
        index_of_label: dict[str, int] = {}
        index_of_name = []
        for name in trace.names:
            index = index_of_label.setdefault(label_of(name), len(index_of_label))
            index_of_name.append(index)
        self.index_of_name = np.array(index_of_name, dtype=np.intp)
        self.texts = list(index_of_label)


def _make_row_of_changed_count(compared: _ComparedLabel, *, is_in_sum: bool) -> Row:
    """Make the row of a label that occurs more or less often in the median step.

    Args:
        compared: The dispatch of the label.
        is_in_sum: Whether dispatch is part of the sum.
    """
    before = compared.a.compute_usual_share() if compared.a else RowShare()
    after = compared.b.compute_usual_share() if compared.b else RowShare()
    why = ""
    if before.count and after.count:
        why = f"{count(before.count)} -> {count(after.count)} a step"

    adds_up_in_a = compared.a is None or compared.a.adds_up
    adds_up_in_b = compared.b is None or compared.b.adds_up
    counts = is_in_sum and adds_up_in_a and adds_up_in_b
    return _make_row(compared.label, before, after, why, counts=counts)


def _make_row_of_single_step(
    a: WorkItems, b: WorkItems, compared: _ComparedLabel
) -> Row | None:
    """Make the row of slices whose number differs between A and B in one step only.

    Returns:
        None if they differ in no step or in several. Also if A and B do not have
        equally many steps, if these are fewer than MIN_STEPS, or if both call the op
        equally often in that step.
    """
    steps = len(b.steps)
    if steps < MIN_STEPS or len(a.steps) != steps:
        return None
    step = _find_only_differing_step(compared, steps)
    if step is None or compared.is_called_equally_often_in(step):
        return None

    before = compared.a.compute_share_of_step(step) if compared.a else RowShare()
    after = compared.b.compute_share_of_step(step) if compared.b else RowShare()
    why = f"{ONLY} {b.steps.labels[step]}"
    return _make_row(compared.label, before, after, why, counts=False)


def _find_only_differing_step(compared: _ComparedLabel, steps: int) -> int | None:
    """Return the only step in which A and B have different numbers of some slices.

    With 4, 4, 5 slices in the steps of A and 4, 4, 4 in those of B, it is step 2. The
    result is None if the numbers differ in no step or in several, or if that of A or of
    B varies among the other steps.

    Args:
        compared: The slices of one label in A and in B.
        steps: How many steps each of A and B has.
    """
    no_slices = np.zeros(steps, dtype=np.int64)
    count_a = compared.a.count if compared.a else no_slices
    count_b = compared.b.count if compared.b else no_slices
    differing_steps = np.flatnonzero(count_a != count_b)
    if len(differing_steps) != 1:
        return None

    (step,) = differing_steps.tolist()
    others_of_a = np.delete(count_a, step)
    others_of_b = np.delete(count_b, step)
    is_steady_in_a = (others_of_a == others_of_a[0]).all()
    is_steady_in_b = (others_of_b == others_of_b[0]).all()
    return step if is_steady_in_a and is_steady_in_b else None


def _make_row(
    label: str, before: RowShare, after: RowShare, why: str, *, counts: bool
) -> Row:
    """Make the row of dispatch that B has less often (REMOVED), or more often (ADDED).

    `counts` says whether the row is part of the sum that explains the change.
    """
    kind = RowKind.REMOVED if after.count < before.count else RowKind.ADDED
    return make_row(
        kind=kind, op=f"{CPU}{label}", a=before, b=after, why=why, counts=counts
    )


class _Total(msgspec.Struct, frozen=True, eq=False):
    """The dispatch of several labels together."""

    ns: Int64s  # one per step
    share: RowShare


def _make_row_of_unchanged_dispatch(
    equally_frequent: Sequence[_ComparedLabel],
) -> Row | None:
    """Make one row of all dispatch that A and B have equally often.

    The row is SAME if the change of its total time is within noise, else FASTER or
    SLOWER. Dispatch whose time is contained in other dispatch is left out.

    Returns:
        None if A or B has no such dispatch.
    """
    dispatch_a: list[Dispatch] = []
    dispatch_b: list[Dispatch] = []
    for compared in equally_frequent:
        if compared.a and compared.a.adds_up:
            dispatch_a.append(compared.a)
        if compared.b and compared.b.adds_up:
            dispatch_b.append(compared.b)
    if not dispatch_a or not dispatch_b:
        return None

    before = _add_up_dispatches(dispatch_a)
    after = _add_up_dispatches(dispatch_b)
    # One column of samples each.
    samples_a = before.ns[:, None]
    samples_b = after.ns[:, None]
    (is_changed,) = is_beyond_noise(samples_a, samples_b, resolution_ns=0)
    if not is_changed:
        kind = RowKind.SAME
    elif after.share.ns < before.share.ns:
        kind = RowKind.FASTER
    else:
        kind = RowKind.SLOWER
    return make_row(
        kind=kind,
        op=f"{CPU}other ops that compute nothing",
        a=before.share,
        b=after.share,
        why="equally many on both sides",
    )


def _add_up_dispatches(dispatches: Sequence[Dispatch]) -> _Total:
    """Add up several dispatches (slices of one label each) of one trace."""
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


def collect_dispatch(
    items: WorkItems, without: Flags | None = None
) -> dict[str, Dispatch]:
    """Collect all dispatch in the steps of a trace by its label.

    Dispatch is overhead on the CPU: ops that launch no work, calls that launch work,
    other calls, and annotations of torch.compile.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        without: True for rows of the trace that are left out; None for none.

    Returns:
        {label: dispatch}; {} if the trace has no steps.
    """
    dispatches: dict[str, Dispatch] = {}
    if not len(items.steps):
        return dispatches
    for slices in _find_overhead(items.work):
        if without is not None:
            slices = slices.take(np.flatnonzero(~without[slices.rows]))
        dispatches.update(_divide_by_label(items, slices))
    return dispatches


def _divide_by_label(items: WorkItems, slices: _OverheadSlices) -> dict[str, Dispatch]:
    """Divide those of some slices that begin in a step by their label.

    Args:
        items: The items (kernels and copies) of the representative step; the trace has
            at least one step.
        slices: Slices of one kind of overhead, such as ops without work.

    Returns:
        {label: the slices with this label}.
    """
    trace = items.trace
    in_steps = _select_slices_in_steps(items, slices.rows)
    self_times = slices.ns[in_steps.positions]

    labels = _Labels(trace, slices.label_of)
    label_of_slice = labels.index_of_name[trace.name[in_steps.rows]]
    groups = grouped(label_of_slice, in_steps.rows)
    label_of_group = [labels.texts[index] for index in groups.keys.tolist()]
    steps = len(items.steps)
    dispatches = {}
    for label, members in zip(label_of_group, groups.members_of_each(), strict=True):
        rows = in_steps.rows[members]
        step = in_steps.step[members]
        name_indices = distinct(trace.name[rows]).tolist()
        dispatches[label] = Dispatch(
            names=tuple(trace.names[index] for index in name_indices),
            count=np.bincount(step, minlength=steps),
            ns=summed(step, self_times[members], steps),
            usual=items.usual_steps,
            rows=tuple(rows[step == items.representative_step].tolist()),
            rows_of_all_steps=rows,
            step=step,
            adds_up=slices.adds_up,
        )
    return dispatches


class _OverheadSlices(msgspec.Struct, frozen=True, eq=False):
    """Slices of the CPU that are not work, and how they are labeled."""

    rows: Rows  # rows of the trace, one per slice
    label_of: Callable[[str], str]  # returns the label for the name of a slice
    ns: Int64s  # the self time of each slice
    adds_up: bool  # these times are not part of other dispatch or of work

    def take(self, positions: Rows) -> _OverheadSlices:
        """Return the slices at these positions."""
        return msgspec.structs.replace(
            self, rows=self.rows[positions], ns=self.ns[positions]
        )


def _find_overhead(work: Work) -> list[_OverheadSlices]:
    """Return the slices of the CPU that are overhead around the work, by kind.

    The kinds are ops without work, calls that launch work (all with one label), other
    calls, and annotations of torch.compile. The slices may lie in steps or not.
    """
    trace = work.trace
    ops = find_ops_without_work(work)
    calls = trace.rows_of(Role.CALL)
    if work.gpu:
        is_launch = np.isin(calls, trace.launch)
    else:
        is_launch = trace.named(_is_launch)[trace.name[calls]]
    launch_calls = calls[is_launch]
    other_calls = calls[~is_launch]
    annotations = trace.rows_of(Role.ANNOTATION)
    is_of_compiler = trace.named(is_compiler)[trace.name[annotations]]
    compiler_annotations = annotations[is_of_compiler]

    self_times = measure_self_ns(trace)
    return [
        _OverheadSlices(
            rows=ops, label_of=make_dispatch_label, ns=self_times[ops], adds_up=True
        ),
        _OverheadSlices(
            rows=launch_calls,
            label_of=_label_launch,
            ns=self_times[launch_calls],
            adds_up=True,
        ),
        _OverheadSlices(
            rows=other_calls,
            label_of=_replace_hip_prefix,
            ns=self_times[other_calls],
            adds_up=True,
        ),
        _OverheadSlices(
            rows=compiler_annotations,
            label_of=make_dispatch_label,
            ns=_measure_time_without_ops(trace, compiler_annotations),
            adds_up=False,  # annotations contain calls, which count already
        ),
    ]


def _is_launch(name: str) -> bool:
    """Return whether calls of this name launch GPU work."""
    return LAUNCHES.search(name) is not None


def _label_launch(_: str) -> str:
    """Return the label that all calls share which launch work, whatever their name."""
    return LAUNCH_CALLS


def _replace_hip_prefix(name: str) -> str:
    """Return the name that a runtime call has at NVIDIA, without the prefix `hip`."""
    return re.sub(r"\Ahip", "cuda", name)


def find_ops_without_work(work: Work) -> Rows:
    """Return the rows of the ops that do no work themselves.

    With a GPU, these are the ops that launch no GPU work by themselves. Without a GPU,
    they are the ops that neither compute nor are part of an op that does.
    """
    trace = work.trace
    if work.gpu:
        op_of_gpu_event = trace.op[trace.gpu_rows]
        does_work = np.zeros(len(trace), dtype=np.bool_)
        does_work[op_of_gpu_event[op_of_gpu_event != NO_ROW]] = True
    else:
        computing_ops = find_computing_ops(trace)
        does_work = mark_inside(trace, computing_ops)
        does_work[computing_ops] = True
    ops = trace.rows_of(Role.OP)
    return ops[~does_work[ops]]


def _measure_time_without_ops(trace: Trace, annotations: Rows) -> Int64s:
    """Return the time of each annotation in which no op inside it ran (ns).

    Only ops count that run on the thread of the annotation and end before it does.

    Args:
        trace: A trace.
        annotations: Rows of annotations.
    """
    ops_track_of_thread = {}
    for track in trace.tracks:
        if track.layer is Layer.OPS and not track.subrow:
            ops_track_of_thread[track.pid, track.tid] = track

    ns = trace.dur[annotations].copy()
    for position, row in enumerate(annotations.tolist()):
        own_track = trace.track_of(row)
        ops_track = ops_track_of_thread.get((own_track.pid, own_track.tid))
        if ops_track is None:
            continue
        end = int(trace.end[row])
        started_inside = find_rows_starting_between(
            trace, ops_track, begin_ns=int(trace.start[row]), end_ns=end
        )
        begun_inside = np.arange(started_inside.start, started_inside.stop)
        inside = begun_inside[trace.end[begun_inside] <= end]
        ns[position] -= union_length(trace.start[inside], trace.end[inside])
    return ns
