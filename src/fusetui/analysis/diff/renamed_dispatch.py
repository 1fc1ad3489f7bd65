"""Ops that compute nothing and that have another name on the other side. They are
recognized by where they run, where no kernel shows that they are the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.dispatch import ops_without_work
from fusetui.analysis.diff.evidence import RenamedOp
from fusetui.analysis.diff.items import KERNEL_MASK, WorkItems
from fusetui.analysis.diff.names import dispatch_name
from fusetui.trace.model.arrays import Int64s, Rows, ordinals
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.op_names import is_compiler

MAX_COMPARED_LABELS = 256  # of each side, the first of a step
MIN_SHARE_AT_SAME_PLACES = 0.9  # of all places where either of two ops runs


class Place(msgspec.Struct, frozen=True):
    """Where an op runs in a step, without any name of an op. Pieces of work are the
    numbers of their kernels in the vocabulary of both sides, 0 for none."""

    # the last piece of work that the thread launched before the op began
    work_before: int
    work_after: int  # the first one that it launched since
    ops_since_work: int  # that began on the thread since the work before
    ops_inside: int


PlacesByLabel = dict[str, Counter[Place]]
"""For each label of ops, how often these run at each place of a step."""


def renamed_labels(
    a: WorkItems, b: WorkItems, renamed_work: Sequence[RenamedOp]
) -> dict[str, str]:
    """The ops that have one label in A and another one in B: {label in B: label in A},
    of labels that occur on one side only (see `names.dispatch_name`).

    `renamed_work` are ops that were renamed by the evidence of their kernels: their
    labels are pairs. Of the others, two labels are a pair if their ops run at the same
    places of the step, equally often (see `Place`); a label that fits two others is in
    no pair.
    """
    if not len(a.work.windows) or not len(b.work.windows):
        return {}  # there is no step whose places could be compared
    labels_a = _labels_of_ops(a)
    labels_b = _labels_of_ops(b)
    only_a = labels_a - labels_b
    only_b = labels_b - labels_a
    by_kernels: dict[str, str] = {}
    for op in renamed_work:
        before = dispatch_name(op.before)
        after = dispatch_name(op.after)
        if before in only_a and after in only_b:
            by_kernels[after] = before
    places_a = _places_by_label(a, only_a.difference(by_kernels.values()))
    places_b = _places_by_label(b, only_b.difference(by_kernels))
    return by_kernels | _at_same_places(places_a, places_b)


def _at_same_places(places_a: PlacesByLabel, places_b: PlacesByLabel) -> dict[str, str]:
    """The pairs of labels that fit each other and no third one: {label in B: label in
    A}."""
    labels_that_fit: defaultdict[str, list[str]] = defaultdict(list)  # by labels of B
    fits_of_a: Counter[str] = Counter()  # how many labels of B fit each one of A
    for label_a, own_places in places_a.items():
        for label_b, other_places in places_b.items():
            if _are_same_places(own_places, other_places):
                labels_that_fit[label_b].append(label_a)
                fits_of_a[label_a] += 1
    renamed = {}
    for label_b, labels_a in labels_that_fit.items():
        if len(labels_a) == 1 and fits_of_a[labels_a[0]] == 1:
            renamed[label_b] = labels_a[0]
    return renamed


def _are_same_places(places_a: Counter[Place], places_b: Counter[Place]) -> bool:
    """Whether two ops run at equally many places, nearly all of them the same."""
    if places_a.total() != places_b.total():
        return False
    common = (places_a & places_b).total()
    either = (places_a | places_b).total()
    return common >= MIN_SHARE_AT_SAME_PLACES * either


def _labels_of_ops(side: WorkItems) -> set[str]:
    """The labels of all ops of the trace, in its steps or not."""
    trace = side.trace
    names = np.unique(trace.name[trace.rows_of(Role.OP)]).tolist()
    return {dispatch_name(trace.names[name]) for name in names}


def _places_by_label(side: WorkItems, labels: set[str]) -> PlacesByLabel:
    """The places of the representative step at which the ops with these labels run. An
    op that computes something has none, nor has what torch.compile puts around ops."""
    places: PlacesByLabel = {}
    if not labels:
        return places
    ops = _ops_of_step(side)
    threads = side.trace.thread_of_track[side.trace.track[ops]]
    for thread in np.unique(threads).tolist():
        _add_places(side, ops[threads == thread], thread, labels, places)
    return places


def _ops_of_step(side: WorkItems) -> Rows:
    """The rows of the ops that begin in the representative step."""
    trace = side.trace
    ops = trace.rows_of(Role.OP)
    step_of_op = side.work.windows.step_of_calls(trace.start[ops])
    in_step: Rows = ops[step_of_op == side.representative_step]
    return in_step


def _add_places(
    side: WorkItems, ops: Rows, thread: int, labels: set[str], places: PlacesByLabel
) -> None:
    """Adds the places of ops with these labels to `places`, but no more labels than
    MAX_COMPARED_LABELS. `ops` are all ops that one thread began in the step."""
    trace = side.trace
    places_of_ops = _places_of_ops(side, ops, thread)
    computes_nothing = np.isin(ops, ops_without_work(side.work))
    by_time = np.lexsort((ops, trace.start[ops]))  # an op before those inside it
    for n in by_time.tolist():
        name = trace.name_of(int(ops[n]))
        label = dispatch_name(name)
        if not computes_nothing[n] or label not in labels or is_compiler(name):
            continue
        if label not in places and len(places) == MAX_COMPARED_LABELS:
            continue
        places.setdefault(label, Counter())[places_of_ops.at(n)] += 1


class _PlacesOfOps(msgspec.Struct, frozen=True, eq=False):
    """Where the ops of one thread run; arrays of shape [ops]."""

    kernels: Int64s  # of the work that the thread launched; shape [pieces]
    pieces_before: Rows  # how many of these it had launched when each op began
    ops_since_work: Rows
    ops_inside: Int64s

    def at(self, n: int) -> Place:
        """Where op number n runs."""
        before = int(self.pieces_before[n])
        has_work_after = before < len(self.kernels)
        return Place(
            work_before=int(self.kernels[before - 1]) if before else 0,
            work_after=int(self.kernels[before]) if has_work_after else 0,
            ops_since_work=int(self.ops_since_work[n]),
            ops_inside=int(self.ops_inside[n]),
        )


def _places_of_ops(side: WorkItems, ops: Rows, thread: int) -> _PlacesOfOps:
    """Where `ops` run, which are all ops that a thread began in the step."""
    trace = side.trace
    launched = _work_launched_by(side, thread)
    begins = trace.start[ops]
    pieces_before = np.searchsorted(launched.times_ns, begins)
    by_time = np.lexsort((ops, begins))
    ops_since_work = np.empty(len(ops), dtype=np.intp)
    # the pieces before ascend in this order, so that equal ones are neighbors
    ops_since_work[by_time] = ordinals(pieces_before[by_time])
    return _PlacesOfOps(
        kernels=launched.kernels,
        pieces_before=pieces_before,
        ops_since_work=ops_since_work,
        ops_inside=_ops_inside(trace, ops),
    )


def _ops_inside(trace: Trace, ops: Rows) -> Int64s:
    """How many ops each of these rows has inside, at any depth; shape [ops]."""
    all_ops = trace.rows_of(Role.OP)
    # a slice and what is inside it are the rows from its own up to `end_row`
    ops_before = np.searchsorted(all_ops, ops)
    ops_before_end = np.searchsorted(all_ops, trace.end_row[ops])
    return ops_before_end - ops_before - 1  # without itself


class _LaunchedWork(msgspec.Struct, frozen=True, eq=False):
    """The work of the step that a thread launched, in order of time; arrays of shape
    [pieces]."""

    times_ns: Int64s  # when it was launched
    kernels: Int64s  # the numbers of the kernels


def _work_launched_by(side: WorkItems, thread: int) -> _LaunchedWork:
    """What one thread launched of the representative step; without a GPU, the ops of
    this thread that compute."""
    trace = side.trace
    calls = trace.launch[side.row] if side.work.gpu else side.row
    kernels = side.exact_keys & KERNEL_MASK
    is_on_thread = trace.thread_of_track[trace.track[calls]] == thread
    is_launched_here = (calls >= 0) & is_on_thread
    times_ns = trace.start[calls[is_launched_here]]
    by_time = np.argsort(times_ns, kind="stable")
    return _LaunchedWork(
        times_ns=times_ns[by_time], kernels=kernels[is_launched_here][by_time]
    )
