"""Finds ops that compute nothing and have a different name on the other side.

No kernel shows that such ops are the same. They are recognized by where they run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.dispatch import find_ops_without_work
from fusetui.analysis.diff.evidence import RenamedOp
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.names import make_dispatch_label
from fusetui.trace.model.arrays import NO_ROW, Int64s, Rows, distinct, ordinals
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler
from fusetui.trace.model.sorted_arrays import count_below, count_between

MAX_COMPARED_LABELS = 256
"""Only this many labels of each side, the first of a step, are compared."""

MIN_SHARE_AT_SAME_PLACES = 0.9
"""Two ops are the same if this share of all places where either runs is the same."""

NO_KERNEL = 0
"""The id that stands for the work before the first, or after the last, kernel."""


class Place(msgspec.Struct, frozen=True):
    """Where an op runs in a step, described without any name of an op."""

    # Ids of kernels: the last one that the thread launched before the op began, and the
    # first one that it launched since; NO_KERNEL for none.
    work_before: int
    work_after: int
    ops_since_work: int  # how many ops began on the thread since the work before
    ops_inside: int


PlacesByLabel = dict[str, Counter[Place]]
"""{label of ops: {place: how often they run there in a step}}."""


def pair_renamed_labels(
    a: WorkItems, b: WorkItems, renamed_work: Sequence[RenamedOp]
) -> dict[str, str]:
    """Pair the names of ops that only A or only B has and that are the same op.

    Labels are names without the numbers of torch.compile. Two labels are a pair if
    their kernels show it, or if their ops run at the same places of the step, equally
    often. A label that fits two others is in no pair.

    Args:
        a: The items (kernels and copies) of the representative step of A.
        b: The items of the representative step of B.
        renamed_work: Ops that were renamed by the evidence of their kernels.

    Returns:
        {label in B: label in A}; {} if A or B has no steps.
    """
    if not len(a.steps) or not len(b.steps):
        return {}  # there is no step whose places could be compared

    labels_a = _collect_labels_of_ops(a)
    labels_b = _collect_labels_of_ops(b)
    only_in_a = labels_a - labels_b
    only_in_b = labels_b - labels_a
    by_kernels: dict[str, str] = {}
    for op in renamed_work:
        before = make_dispatch_label(op.before)
        after = make_dispatch_label(op.after)
        if before in only_in_a and after in only_in_b:
            by_kernels[after] = before

    places_a = _find_places_by_label(a, only_in_a.difference(by_kernels.values()))
    places_b = _find_places_by_label(b, only_in_b.difference(by_kernels))
    return by_kernels | _pair_labels_at_same_places(places_a, places_b)


class _LabelPair(msgspec.Struct, frozen=True):
    """A label of A and a label of B whose ops run at the same places."""

    a: str
    b: str


def _pair_labels_at_same_places(
    places_a: PlacesByLabel, places_b: PlacesByLabel
) -> dict[str, str]:
    """Pair the labels of ops that run at the same places of a step.

    The result is {label in B: label in A}. A label that fits several others is in no
    pair.

    Args:
        places_a: {label: {place: how often its ops run there}} of A.
        places_b: The same of B.
    """
    fits: list[_LabelPair] = []
    for label_a, own_places in places_a.items():
        for label_b, other_places in places_b.items():
            if _are_same_places(own_places, other_places):
                fits.append(_LabelPair(a=label_a, b=label_b))

    fits_of_a = Counter(fit.a for fit in fits)
    fits_of_b = Counter(fit.b for fit in fits)
    return {
        fit.b: fit.a for fit in fits if fits_of_a[fit.a] == 1 and fits_of_b[fit.b] == 1
    }


def _are_same_places(places_a: Counter[Place], places_b: Counter[Place]) -> bool:
    """Return whether two ops run equally often, mostly at the same places.

    The counters say how often each op runs at each place.
    """
    if places_a.total() != places_b.total():
        return False
    # Of counters, & takes the smaller counts, and | the larger ones.
    common = (places_a & places_b).total()
    either = (places_a | places_b).total()
    return common >= MIN_SHARE_AT_SAME_PLACES * either


def _collect_labels_of_ops(items: WorkItems) -> set[str]:
    """Return the labels of all ops of the trace, in its steps or not."""
    trace = items.trace
    name_indices = distinct(trace.name[trace.rows_of(Role.OP)]).tolist()
    return {make_dispatch_label(trace.names[index]) for index in name_indices}


def _find_places_by_label(items: WorkItems, labels: set[str]) -> PlacesByLabel:
    """Return at which places of the representative step ops with these labels run.

    A place is described by the kernels around it, without names of ops. Ops that
    compute something are left out, as is what torch.compile puts around ops.

    Returns:
        {label: {place: how often}}.
    """
    places: PlacesByLabel = {}
    if not labels:
        return places
    ops = _find_ops_of_step(items)
    threads = items.trace.thread_of_track[items.trace.track[ops]]
    for thread in distinct(threads).tolist():
        _add_places_of_thread(items, ops[threads == thread], thread, labels, places)
    return places


def _find_ops_of_step(items: WorkItems) -> Rows:
    """Return the rows of the ops that begin in the representative step."""
    trace = items.trace
    ops = trace.rows_of(Role.OP)
    step_of_op = items.steps.step_of_calls(trace.start[ops])
    ops_of_step: Rows = ops[step_of_op == items.representative_step]
    return ops_of_step


def _add_places_of_thread(
    items: WorkItems, ops: Rows, thread: int, labels: set[str], places: PlacesByLabel
) -> None:
    """Add the places at which the ops of one thread run to `places`.

    A place is described by the kernels around it, without names of ops.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        ops: The rows of all ops that the thread began in the step.
        thread: The number of the thread.
        labels: Only ops with these labels are added.
        places: {label: {place: how often}}. It is changed, but gets no more labels than
            MAX_COMPARED_LABELS.
    """
    trace = items.trace
    places_of_ops = _locate_ops(items, ops, thread)
    computes_nothing = np.isin(ops, find_ops_without_work(items.work))
    # Sort by start, then by row: an op comes before those inside it.
    by_start = np.lexsort((ops, trace.start[ops]))
    for position in by_start.tolist():
        name = trace.name_of(int(ops[position]))
        label = make_dispatch_label(name)
        is_wanted = label in labels and not is_compiler(name)
        if not is_wanted or not computes_nothing[position]:
            continue
        if label not in places:
            if len(places) == MAX_COMPARED_LABELS:
                continue
            places[label] = Counter()
        place = places_of_ops.describe_place_of_op(position)
        places[label][place] += 1


class _PlacesOfOps(msgspec.Struct, frozen=True, eq=False):
    """Where the ops of one thread run, one entry per op unless it says otherwise."""

    kernels: Int64s  # ids of the kernels that the thread launched, in order of time
    kernels_before: Rows  # how many of these it had launched when each op began
    ops_since_work: Rows
    ops_inside: Int64s

    def describe_place_of_op(self, position: int) -> Place:
        """Return where an op runs: between which kernels, and after how many ops.

        `position` is the index of the op.
        """
        work_before = NO_KERNEL
        work_after = NO_KERNEL
        kernels_before = int(self.kernels_before[position])
        if kernels_before > 0:
            work_before = int(self.kernels[kernels_before - 1])
        if kernels_before < len(self.kernels):
            work_after = int(self.kernels[kernels_before])
        return Place(
            work_before=work_before,
            work_after=work_after,
            ops_since_work=int(self.ops_since_work[position]),
            ops_inside=int(self.ops_inside[position]),
        )


def _locate_ops(items: WorkItems, ops: Rows, thread: int) -> _PlacesOfOps:
    """Determine between which kernels the ops of a thread run.

    It also counts the ops inside each of them.

    Args:
        items: The items (kernels and copies) of the representative step of a trace.
        ops: The rows of all ops that the thread began in the step.
        thread: The number of the thread.
    """
    trace = items.trace
    launched = _find_work_launched_by(items, thread)
    begins = trace.start[ops]
    kernels_before = count_below(launched.times_ns, begins)

    # In order of time the numbers of kernels before ascend, so that equal ones are
    # neighbors, and `ordinals` counts the ops since the last kernel.
    by_start = np.lexsort((ops, begins))
    ops_since_work = np.empty(len(ops), dtype=np.intp)
    ops_since_work[by_start] = ordinals(kernels_before[by_start])
    return _PlacesOfOps(
        kernels=launched.kernels,
        kernels_before=kernels_before,
        ops_since_work=ops_since_work,
        ops_inside=_count_ops_inside(trace, ops),
    )


def _count_ops_inside(trace: Trace, ops: Rows) -> Int64s:
    """Count the ops inside each of these ops, at any depth, without the op itself."""
    # A slice and what is inside it are the rows from its own up to its `end_row`.
    with_itself = count_between(trace.rows_of(Role.OP), ops, trace.end_row[ops])
    return with_itself - 1


class _LaunchedWork(msgspec.Struct, frozen=True, eq=False):
    """The work of the step that a thread launched, in order of time."""

    times_ns: Int64s  # when each kernel was launched
    kernels: Int64s  # the ids of the kernels


def _find_work_launched_by(items: WorkItems, thread: int) -> _LaunchedWork:
    """Return what a thread launched of the representative step.

    Without a GPU, that is the ops of this thread that compute.
    """
    trace = items.trace
    calls = trace.launch[items.row] if items.work.gpu else items.row
    has_call = calls != NO_ROW
    is_on_thread = trace.thread_of_track[trace.track[calls]] == thread
    launched = np.flatnonzero(has_call & is_on_thread)
    launched_ns = trace.start[calls[launched]]
    by_time = np.argsort(launched_ns, kind="stable")
    return _LaunchedWork(
        times_ns=launched_ns[by_time], kernels=items.kernel_ids[launched[by_time]]
    )
