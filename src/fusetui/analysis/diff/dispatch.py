"""What the CPU does around the work of a step: ops that compute nothing, guards,
runtime calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec
import numpy as np

from fusetui.analysis.diff.items import WorkItems
from fusetui.analysis.diff.model import CPU, ONLY, Row, RowKind, RowShare, row_of
from fusetui.analysis.diff.names import dispatch_name
from fusetui.analysis.diff.noise import beyond_noise
from fusetui.analysis.diff.statistics import mean, median
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

LAUNCH_CALLS = "launch calls"


class Dispatch(msgspec.Struct, frozen=True, eq=False):
    """One kind of slice in each of the steps used; arrays of shape [steps]."""

    names: tuple[str, ...]
    count: Int64s
    ns: Int64s  # self time
    usual: Rows  # the steps that its time is averaged over
    rows: tuple[int, ...]  # in the representative step
    every: Rows  # in all steps, and the step of each
    step: Rows
    adds_up: bool  # its time is not part of other dispatch or of work

    @property
    def per_step(self) -> int:
        return int(median(self.count))

    @property
    def share(self) -> RowShare:
        """In a usual step."""
        count, ns = self.per_step, int(mean(self.ns[self.usual]))
        names, rows = (self.names, self.rows) if count else ((), ())
        return RowShare(names, ns, count, int(median(self.ns)), rows)

    def share_in(self, step: int) -> RowShare:
        count, rows = int(self.count[step]), self.every[self.step == step].tolist()
        return RowShare(
            self.names if count else (), int(self.ns[step]), count, rows=rows
        )


Pair = tuple[Dispatch | None, Dispatch | None]
Calls = dict[str, Int64s]
"""By the label of an op, how often each step calls it: an array of shape [steps]."""


def rows(
    a: WorkItems, b: WorkItems, without: tuple[Flags, Flags], renamed: Mapping[str, str]
) -> list[Row]:
    """What occurs more or less often in a step, the largest change first, then all else
    in one row. `without`: rows of each trace that are told elsewhere, unless they are
    part of the sum; `renamed`: by labels of B, what A calls the same."""
    counts = not (a.work.gpu or b.work.gpu)
    of_a = _by_label(a, None if counts else without[0])
    labeled_b = _by_label(b, None if counts else without[1])
    of_b = {renamed.get(label, label): found for label, found in labeled_b.items()}
    calls_a: Calls = {}
    calls_b: Calls = {}
    if not counts:
        calls_a = _calls_of_ops(a, without[0])
        labeled_calls_b = _calls_of_ops(b, without[1])
        calls_b = {
            renamed.get(label, label): calls for label, calls in labeled_calls_b.items()
        }
    equal: dict[str, Pair] = {}
    changed: list[Row] = []
    for label in dict.fromkeys([*of_a, *of_b]):
        pair = of_a.get(label), of_b.get(label)
        if len({found.per_step if found else 0 for found in pair}) == 1:
            equal[label] = pair
        elif _is_called_as_often(calls_a.get(label), calls_b.get(label)):
            # on one side it launches by itself what an op inside it launches on the
            # other
            continue
        else:
            before, after = (found.share if found else RowShare() for found in pair)
            both = before.count and after.count
            why = (
                f"{count(before.count)} -> {count(after.count)} a step" if both else ""
            )
            adds_up = all(found.adds_up for found in pair if found)
            changed.append(_row(label, before, after, why, counts and adds_up))
    changed.sort(key=lambda row: (-abs(row.change_ns), row.op))
    for label, pair in equal.items():
        changed += _once(a, b, label, pair, (calls_a.get(label), calls_b.get(label)))
    return changed + (_rest([*equal.values()]) if counts else [])


def _calls_of_ops(of: WorkItems, without: Flags) -> Calls:
    """How often each step calls each op, whether the op launches work or not."""
    trace, windows = of.trace, of.work.windows
    if not len(windows):
        return {}
    rows = trace.rows_of(Role.OP)
    rows = rows[~without[rows]]
    step = windows.step_of_calls(trace.start[rows])
    rows, step = rows[step >= 0], step[step >= 0]
    label_of_name = [dispatch_name(name) for name in trace.names]
    number_of = {label: n for n, label in enumerate(dict.fromkeys(label_of_name))}
    number_of_name = np.array(
        [number_of[label] for label in label_of_name], dtype=np.intp
    )
    groups = grouped(number_of_name[trace.name[rows]], rows)
    labels = list(number_of)
    found: Calls = {}
    for n, key in enumerate(groups.keys.tolist()):
        found[labels[key]] = np.bincount(step[groups.places(n)], minlength=len(windows))
    return found


def _is_called_as_often(calls_a: Int64s | None, calls_b: Int64s | None) -> bool:
    """Do median steps of both sides call an op, and equally often? None: not an op of
    that side."""
    if calls_a is None or calls_b is None:
        return False
    return int(median(calls_a)) == int(median(calls_b)) > 0


def _once(
    a: WorkItems,
    b: WorkItems,
    label: str,
    pair: Pair,
    calls: tuple[Int64s | None, Int64s | None],
) -> list[Row]:
    """What occurs more or less often in one step only, and equally often in all others.
    `calls`: of the op with this label, in each step, whether it launches work or
    not."""
    steps = len(b.work.windows)
    if steps < 3 or len(a.work.windows) != steps:
        return []
    counts = [
        found.count if found else np.zeros(steps, dtype=np.int64) for found in pair
    ]
    odd = np.flatnonzero(counts[0] != counts[1]).tolist()
    if len(odd) != 1 or any(np.ptp(np.delete(count, odd)) for count in counts):
        return []
    (step,) = odd
    in_step_a, in_step_b = (
        side[[step]] if side is not None else None for side in calls
    )
    if _is_called_as_often(in_step_a, in_step_b):
        return []
    before, after = (found.share_in(step) if found else RowShare() for found in pair)
    return [
        _row(
            label, before, after, f"{ONLY} {b.work.windows.labels[step]}", counts=False
        )
    ]


def _row(label: str, before: RowShare, after: RowShare, why: str, counts: bool) -> Row:
    kind = RowKind.REMOVED if after.count < before.count else RowKind.ADDED
    return row_of(kind, CPU + label, before, after, why, counts=counts)


def dispatched(items: WorkItems) -> Int64s:
    """Per step: the time of all dispatch that is part of the sum."""
    nothing = np.zeros(len(items.work.windows), dtype=np.int64)
    return sum((one.ns for one in _by_label(items).values() if one.adds_up), nothing)


def _rest(equal: list[Pair]) -> list[Row]:
    """What both sides do equally often, as one row, so that all of it is accounted
    for."""
    sides = [
        [found for found in side if found and found.adds_up]
        for side in zip(*equal, strict=True)
    ]
    if not (sides and all(sides)):
        return []
    times = [np.sum([found.ns for found in side], axis=0) for side in sides]
    before, after = (
        RowShare(
            [name for found in side for name in found.names],
            int(mean(ns[side[0].usual])),
            sum(found.per_step for found in side),
            int(median(ns)),
        )
        for side, ns in zip(sides, times, strict=True)
    )
    far = bool(beyond_noise(times[0][:, None], times[1][:, None], 0)[0])
    kind = (
        RowKind.SAME
        if not far
        else RowKind.FASTER
        if after.ns < before.ns
        else RowKind.SLOWER
    )
    op = f"{CPU}other ops that compute nothing"
    return [row_of(kind, op, before, after, "as many on both sides")]


def _by_label(items: WorkItems, without: Flags | None = None) -> dict[str, Dispatch]:
    work, trace = items.work, items.trace
    found: dict[str, Dispatch] = {}
    if not len(work.windows):
        return found
    for rows_, label_of, ns, adds_up in _populations(work):
        window = work.windows.step_of_calls(trace.start[rows_])
        kept = window >= 0 if without is None else (window >= 0) & ~without[rows_]
        rows_, window, ns = rows_[kept], window[kept], ns[kept]
        number: dict[str, int] = {}
        labels = [
            number.setdefault(label_of(name), len(number)) for name in trace.names
        ]
        groups = grouped(np.array(labels, dtype=np.intp)[trace.name[rows_]], rows_)
        distinct = list(number)
        for n, key in enumerate(groups.keys.tolist()):
            part, label = groups.places(n), distinct[key]
            every, step = rows_[part], window[part]
            counts = np.bincount(step, minlength=len(work.windows))
            sums = summed(step, ns[part], len(work.windows))
            names = tuple(trace.names[n] for n in np.unique(trace.name[every]).tolist())
            here = tuple(every[step == items.window].tolist())
            found[label] = Dispatch(
                names, counts, sums, items.usual, here, every, step, adds_up
            )
    return found


def _populations(
    work: Work,
) -> Iterator[tuple[Rows, Callable[[str], str], Int64s, bool]]:
    """Rows that are not work, how to label them, their self times, whether these are in
    the sum."""
    trace = work.trace
    own = self_ns(trace)
    ops = ops_without_work(work)
    yield ops, dispatch_name, own[ops], True
    calls = trace.rows_of(Role.CALL)
    named = trace.named(lambda name: LAUNCHES.search(name) is not None)[
        trace.name[calls]
    ]
    launches = np.isin(calls, trace.launch) if work.gpu else named
    yield calls[launches], lambda name: LAUNCH_CALLS, own[calls[launches]], True
    # `hipX` and `cudaX` are the same call from two vendors
    yield (
        calls[~launches],
        lambda name: re.sub(r"\Ahip", "cuda", name),
        own[calls[~launches]],
        True,
    )
    notes = trace.rows_of(Role.ANNOTATION)
    notes = notes[trace.named(is_compiler)[trace.name[notes]]]
    yield notes, dispatch_name, _own_of_notes(trace, notes), False


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


def _own_of_notes(trace: Trace, notes: Rows) -> Int64s:
    """The time of annotations during which none of the ops inside them ran."""
    threads = {
        (t.pid, t.tid): t for t in trace.tracks if t.layer is Layer.OPS and not t.subrow
    }
    own = trace.dur[notes].copy()
    for n, row in enumerate(notes.tolist()):
        note = trace.track_of(row)
        if track := threads.get((note.pid, note.tid)):
            inner = np.arange(
                *rows_between(trace, track, [trace.start[row], trace.end[row]])
            )
            inner = inner[trace.end[inner] <= trace.end[row]]
            own[n] -= union_length(trace.start[inner], trace.end[inner])
    return own
