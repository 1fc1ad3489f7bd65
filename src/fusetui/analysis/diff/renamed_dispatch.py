"""Ops that compute nothing and that have another name on the other side: told by where
they run, where no kernel tells them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from fusetui.analysis.diff.dispatch import ops_without_work
from fusetui.analysis.diff.evidence import RenamedOp
from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.names import dispatch_name
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.categories import Role
from fusetui.trace.model.op_names import is_compiler

MAX_COMPARED_LABELS = 256  # of each side, the first of a step
MIN_SHARE_AT_SAME_PLACES = 0.9  # of all places where either of two ops runs


class Place(msgspec.Struct, frozen=True):
    """Where an op runs in a step, without any name of an op: work is told by its
    numbers in the vocabulary of both sides, 0 for none."""

    # the last piece of work that the thread launched before the op began
    work_before: int
    work_after: int  # the first one that it launched since
    ops_since_work: int  # that began on the thread since the work before
    ops_inside: int


def renamed_labels(
    a: WorkItems, b: WorkItems, renamed_work: Sequence[RenamedOp]
) -> dict[str, str]:
    """By the label of an op that only B has, the label of the one in A that is the
    same.

    An op whose kernels tell that it was renamed (`renamed_work`) is so too where it
    launches nothing. Others are the same if they run at the same places of the step,
    with as many ops inside, equally often; an op for which two fit is left out.
    """
    if not (len(a.work.windows) and len(b.work.windows)):
        return {}
    labels_a = _labels_of_ops(a)
    labels_b = _labels_of_ops(b)
    only_a = labels_a - labels_b
    only_b = labels_b - labels_a
    by_kernels = {
        dispatch_name(op.after): dispatch_name(op.before)
        for op in renamed_work
        if dispatch_name(op.after) in only_b and dispatch_name(op.before) in only_a
    }
    places_a = _places_by_label(a, only_a.difference(by_kernels.values()))
    places_b = _places_by_label(b, only_b.difference(by_kernels))
    return by_kernels | _at_same_places(places_a, places_b)


def _at_same_places(
    places_a: Mapping[str, Counter[Place]], places_b: Mapping[str, Counter[Place]]
) -> dict[str, str]:
    """By labels of B, those of A, each once."""
    fits_of_b: defaultdict[str, list[str]] = defaultdict(list)
    fits_of_a: Counter[str] = Counter()
    for before, own in places_a.items():
        for after, other in places_b.items():
            if own.total() != other.total():
                continue
            if (own & other).total() >= MIN_SHARE_AT_SAME_PLACES * (
                own | other
            ).total():
                fits_of_b[after].append(before)
                fits_of_a[before] += 1
    return {
        after: fits[0]
        for after, fits in fits_of_b.items()
        if len(fits) == 1 and fits_of_a[fits[0]] == 1
    }


def _labels_of_ops(of: WorkItems) -> set[str]:
    """Of all ops of the trace, whatever they do."""
    trace = of.trace
    names = np.unique(trace.name[trace.rows_of(Role.OP)]).tolist()
    return {dispatch_name(trace.names[name]) for name in names}


def _places_by_label(of: WorkItems, labels: set[str]) -> dict[str, Counter[Place]]:
    """The places of the representative step in which each of these ops runs."""
    if not labels:
        return {}
    found: defaultdict[str, Counter[Place]] = defaultdict(Counter)
    ops = _ops_of_step(of)
    threads = of.trace.thread_of_track[of.trace.track[ops]]
    for thread in np.unique(threads).tolist():
        _add_places(of, ops[threads == thread], thread, labels, found)
    return dict(found)


def _ops_of_step(of: WorkItems) -> Rows:
    trace, windows = of.trace, of.work.windows
    ops = trace.rows_of(Role.OP)
    inside: Rows = ops[windows.index_of(trace.start[ops]) == of.window]
    return inside


def _add_places(
    of: WorkItems,
    ops: Rows,
    thread: int,
    labels: set[str],
    found: dict[str, Counter[Place]],
) -> None:
    """Adds the places of the ops of one thread, by their labels."""
    trace = of.trace
    launched_at, kernels = _work_launched_by(of, thread)
    begins = trace.start[ops]
    work_begun = np.searchsorted(launched_at, begins)  # pieces of work before each op
    in_time = np.lexsort((ops, begins))
    computes_nothing = np.isin(ops, ops_without_work(of.work))
    first_since_work: dict[int, int] = {}
    all_ops = trace.rows_of(Role.OP)
    inside = (
        np.searchsorted(all_ops, trace.end_row[ops]) - np.searchsorted(all_ops, ops) - 1
    )
    for order, n in enumerate(in_time.tolist()):
        before = int(work_begun[n])
        since = order - first_since_work.setdefault(before, order)
        name = trace.name_of(int(ops[n]))
        label = dispatch_name(name)
        if not computes_nothing[n] or label not in labels or is_compiler(name):
            continue
        if label not in found and len(found) == MAX_COMPARED_LABELS:
            continue
        place = Place(
            work_before=int(kernels[before - 1]) if before else 0,
            work_after=int(kernels[before]) if before < len(kernels) else 0,
            ops_since_work=since,
            ops_inside=int(inside[n]),
        )
        found[label][place] += 1


def _work_launched_by(of: WorkItems, thread: int) -> tuple[Rows, Rows]:
    """When a thread launched the work of the step (ns), ascending, and the number of
    each kernel. Without a GPU, the work is the thread's own ops."""
    trace = of.trace
    calls = trace.launch[of.row] if of.work.gpu else of.row
    numbers = np.array(
        [of.kernel_word(item) for item in range(len(of))], dtype=np.int64
    )
    here = (calls >= 0) & (trace.thread_of_track[trace.track[calls]] == thread)
    times = trace.start[calls[here]]
    order = np.argsort(times, kind="stable")
    return times[order], numbers[here][order]
