"""The steps of a trace that are compared, or all of it as one step, and the work in
them."""

from __future__ import annotations

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from fusetui import Error
from fusetui.analysis.questions.busy import any_busy_ns, communicates
from fusetui.analysis.questions.computing import computing_ops
from fusetui.analysis.questions.launches import LAUNCHES, graph_calls
from fusetui.analysis.questions.server_steps import server_steps
from fusetui.analysis.serving.passes import interval_of, passes
from fusetui.text.figures import count, plural
from fusetui.trace.layout.steps import MOST, PROFILED, steps_of
from fusetui.trace.model.arrays import Flags, Int64s, Rows
from fusetui.trace.model.categories import GPU_ROLES, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover

NO_TIME = "since the others take no time at the median"
MAX_SHARE_IN_ENQUEUING_STEPS = 0.01
"""Steps only enqueue work of which no larger share of the time runs before they end."""

LAST_NS = np.iinfo(np.int64).max

COLD = 1.5  # a first step longer than this times the median of the others is a warm-up


class Windows(msgspec.Struct, frozen=True, eq=False):
    """Disjoint stretches [start, end) in order of time (ns), and how they were
    found."""

    start: Int64s
    end: Int64s
    whole: bool = False  # the trace has no steps: one window holds all of its work
    named: bool = False  # the file or the user says what a step is
    # stretches of a GPU's time: work belongs to that in which it ran
    of_gpu: bool = False
    # when the CPU launched their work, where that is other time than that of the steps
    launching: Cover | None = None
    notes: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()  # the number of each, `#k` where the trace prints none

    def __len__(self) -> int:
        return len(self.start)

    @property
    def dur(self) -> Int64s:
        return self.end - self.start

    def only(self, keep: NDArray[np.integer], note: str) -> Windows:
        """Those kept, and why the others were not."""
        launching = self.launching
        if launching is not None:
            launching = Cover(start=launching.start[keep], end=launching.end[keep])
        return replace(
            self,
            start=self.start[keep],
            end=self.end[keep],
            launching=launching,
            notes=(*self.notes, note) if note else self.notes,
            labels=tuple(self.labels[n] for n in keep.tolist()),
        )

    def index_of(self, times: Int64s) -> Rows:
        """The window that each time lies in, -1 for none."""
        return Cover(self.start, self.end).place_of(times)

    def step_of_calls(self, times: Int64s) -> Rows:
        """The step that what the CPU does at each time belongs to, -1 for none."""
        if self.launching is not None:
            return self.launching.place_of(times)
        return self.index_of(times)


class NoStepsError(Error):
    """No annotation of a trace matches what was asked for."""


def windows(trace: Trace, label: str, step_by: str | None = None) -> Windows:
    """The steps of the trace, of a server each pass of its model; without any,
    everything.

    `step_by`: the annotations that match it instead (see `steps_of`); NoStepsError if
    none does.
    """
    steps = steps_of(trace, step_by)
    if step_by is not None and not len(steps):
        raise NoStepsError(f"{label} has no annotation like {step_by}.")
    named = step_by is not None or steps.by == PROFILED
    if not named and (found := _served(trace, label)) is not None:
        return found
    if not len(steps):
        return _whole(trace, label)
    what = f"the time {steps.by}" if steps.are_iterations else f"each `{steps.by}`"
    notes = () if named else (f"{label}: no ProfilerStep; {what} is taken as a step",)
    labels = tuple(f"{n}" if steps.printed else f"#{n}" for n in steps.numbers)
    return Windows(steps.start, steps.end, named=named, notes=notes, labels=labels)


def _served(trace: Trace, label: str) -> Windows | None:
    """From the first kernel of each pass of the model to that of the next, so that a
    step is what a token costs; the last pass, whose next is not there, only if it is
    the only one: then up to the end of all that its step launched, the LM head after a
    graph included. None unless they hold most of the GPU's time."""
    if not server_steps(trace).asked:
        return None
    served = [one for one in passes(trace) if len(one.model)]
    ran = [interval_of(trace, one.model) for one in served]
    begin = np.array([one.begin_ns for one in ran], dtype=np.int64)
    end = np.array([one.end_ns for one in ran], dtype=np.int64)
    if not len(ran) or (begin[1:] < end[:-1]).any():
        return None
    start, until, what = (
        begin[:-1],
        begin[1:],
        "each pass of the model, up to the next,",
    )
    if len(ran) == 1:
        end = np.array([interval_of(trace, served[0].rows).end_ns], dtype=np.int64)
        start, until, what = (
            begin,
            end,
            "the pass of the model, with all that follows in its step,",
        )
    notes = (f"{label}: no ProfilerStep; {what} is taken as a step",)
    labels = tuple(f"#{n}" for n in range(1, len(start) + 1))
    found = Windows(start, until, of_gpu=True, notes=notes, labels=labels)
    rows = trace.gpu_rows[trace.start[trace.gpu_rows] < end[-1]]
    inside = found.index_of(trace.start[rows]) >= 0
    most = MOST * trace.dur[trace.gpu_rows].sum()
    return found if trace.dur[rows[inside]].sum() >= most else None


def in_time_of_gpu(trace: Trace, label: str, found: Windows) -> Windows:
    """The same steps in the time of the GPU where they only enqueue its work, so that
    their lengths are those of launching it.

    Each is then from the first start of what it launched to that of the next; the last
    one, whose next is not there, only if it is the only one: then up to the end of all
    that it launched. As they are where the GPU runs the steps in another order.
    """
    if found.whole or found.of_gpu:
        return found
    rows = trace.gpu_rows[trace.launch[trace.gpu_rows] >= 0]
    step = found.index_of(trace.start[trace.launch[rows]])
    rows, step = rows[step >= 0], step[step >= 0]
    steps = np.unique(step)  # those that launch something
    if not len(steps) or not _only_enqueue(trace, found, rows, step):
        return found
    begin = np.full(len(found), LAST_NS)
    end = np.full(len(found), -LAST_NS)
    np.minimum.at(begin, step, trace.start[rows])
    np.maximum.at(end, step, trace.end[rows])
    begin, end = begin[steps], end[steps]
    if (np.diff(begin) <= 0).any():
        return found
    if len(steps) > 1:
        steps, begin, end = steps[:-1], begin[:-1], begin[1:]
    what = "the GPU runs what its steps launch after they have ended"
    note = f"{label}: {what}; a step is from the first GPU event of one to that of the next"
    kept = found.only(steps, note)
    launching = Cover(start=kept.start, end=kept.end)
    return replace(kept, start=begin, end=end, launching=launching)


def _only_enqueue(trace: Trace, found: Windows, rows: Rows, step: Rows) -> bool:
    """Whether hardly any work runs before the end of the step that launched it. Of
    several steps the first one does not count, in which the GPU had nothing to do
    yet. `rows` are GPU events, of the steps `step`."""
    is_later = step > step.min()
    if is_later.any():
        rows, step = rows[is_later], step[is_later]
    last_inside_ns = np.minimum(trace.end[rows], found.end[step])
    inside_ns = np.maximum(last_inside_ns - trace.start[rows], 0).sum()
    share = inside_ns / max(1, int(trace.dur[rows].sum()))
    return bool(share <= MAX_SHARE_IN_ENQUEUING_STEPS)


def without_odd(found: Windows, items: Int64s, label: str) -> Windows:
    """Leaves out steps that the profiler cut off, and cold first steps; `items` counts
    the work.

    Cut off: less than half as many items as the median step. Cold: the first of at
    least three steps, when it took more than 1.5 times the median of the others.
    """
    full = np.flatnonzero(2 * items >= np.median(items)) if len(items) else np.arange(0)
    if 0 < len(full) < len(found):
        cut = plural(len(found) - len(full), "step")
        found = found.only(
            full, f"{label}: {cut} left out, with less than half of the usual work"
        )
    cold, dur = 0, found.dur
    while len(dur) - cold >= 3 and dur[cold] > COLD * np.median(dur[cold + 1 :]):
        cold += 1
    why = f"first {cold} steps left out as cold, each much longer than most of those after it"
    if cold == 1:
        usual = float(np.median(dur[1:]))
        times = (
            f"{dur[0] / usual:.1f} times as long as the median of the others"
            if usual
            else ""
        )
        why = f"first step left out as cold, {times or NO_TIME}"
    return found.only(np.arange(cold, len(dur)), f"{label}: {why}") if cold else found


def _whole(trace: Trace, label: str) -> Windows:
    """From the first to the last op, runtime call or GPU event."""
    rows = trace.rows_of(Role.OP, Role.CALL, *GPU_ROLES)
    if not len(rows):
        note = f"{label}: holds neither GPU events nor CPU ops"
        nothing = np.zeros(0, dtype=np.int64)
        return Windows(nothing, nothing, whole=True, notes=(note,))
    note = (
        "no steps found; the whole trace is taken as one step (--step-by PATTERN takes"
    )
    notes = (f"{label}: {note} annotations as steps)",)
    start, end = trace.start[rows].min(), trace.end[rows].max()
    span = np.array([start]), np.array([max(end, start + 1)])
    return Windows(*span, whole=True, notes=notes, labels=("#1",))


class Work(msgspec.Struct, frozen=True, eq=False):
    """Every piece of work in the windows used, sorted by (window, lane, start).

    Arrays have the shape [pieces]. A lane is a stream, or a CPU thread in traces
    without a GPU.
    """

    trace: Trace
    label: str
    gpu: bool
    windows: Windows
    row: Rows
    window: Rows
    lane: Rows
    op: Rows  # the row of the innermost CPU op, -1 for none
    ns: Int64s  # its duration
    places: tuple[int, ...]  # of each window among all that were found, from 0
    found: int  # how many these are

    def only(self, windows: list[int]) -> Work:
        """The work of some of its windows."""
        if len(windows) == len(self.windows):
            return self
        window = _renumbered(self.window, windows, len(self.windows))
        kept = window >= 0
        left_out = plural(len(self.windows) - len(windows), "step")
        note = f"{self.label}: {left_out} left out, as on the other side"
        used = self.windows.only(np.array(windows, dtype=np.intp), note)
        columns = {of: getattr(self, of)[kept] for of in ("row", "lane", "op", "ns")}
        places = tuple(self.places[n] for n in windows)
        return replace(
            self, windows=used, window=window[kept], places=places, **columns
        )

    def with_lanes(self, lane: Rows) -> Work:
        """The same with other lanes for its pieces, sorted by them."""
        order = np.lexsort(
            (self.trace.order[self.row], self.trace.start[self.row], lane, self.window)
        )
        columns = {of: getattr(self, of)[order] for of in ("row", "window", "op", "ns")}
        return replace(self, lane=lane[order], **columns)

    def of_window(self, number: int) -> slice:
        first, last = np.searchsorted(self.window, [number, number + 1])
        return slice(int(first), int(last))


def _renumbered(numbers: Rows, kept: Rows | list[int], count: int) -> Rows:
    """Numbers of windows as places among those kept of so many; -1 for others, and for
    -1."""
    places = np.full(count + 1, -1, dtype=np.intp)
    places[kept] = np.arange(len(kept))
    return places[numbers]


def in_common(a: Work, b: Work) -> tuple[Work, Work]:
    """Of two traces with equally many steps, those that both use: others have no
    counterpart."""
    common = {*a.places} & {*b.places}
    if a.found != b.found or not common:
        return a, b
    one, other = (
        w.only([n for n, p in enumerate(w.places) if p in common]) for w in (a, b)
    )
    return one, other


def work_of(
    trace: Trace, label: str, step_by: str | None = None, *, by_ops: bool = False
) -> Work:
    """The work of a trace in its steps; `label` is its name in notes. Raises
    NoStepsError.

    `by_ops`: the CPU ops that compute something, even if there are GPU events.
    """
    gpu = len(trace.gpu_rows) > 0 and not by_ops
    found = windows(trace, label, step_by)
    if gpu:
        found = in_time_of_gpu(trace, label, found)
    work = _in_windows(trace, label, found, gpu)
    if len(work.row) or found.named or found.whole or not gpu:
        return work
    # all lies outside of its steps
    return _in_windows(trace, label, _whole(trace, label), gpu)


def lacks_gpu_events(trace: Trace) -> bool:
    """Whether calls launch GPU work, of which no event is in the file."""
    return not len(trace.gpu_rows) and bool(
        len(trace.rows_named(LAUNCHES.search, Role.CALL))
    )


def _in_windows(trace: Trace, label: str, found: Windows, gpu: bool) -> Work:
    rows = called = trace.gpu_rows if gpu else computing_ops(trace)
    # the launch of an event places it in a window
    if gpu and not (found.whole or found.of_gpu):
        rows = rows[trace.launch[rows] >= 0]
        called = trace.launch[rows].astype(np.intp)
    inside = np.zeros(len(rows), dtype=np.intp)
    if not found.whole:
        inside = found.step_of_calls(trace.start[called])
        if gpu and (note := _left_out(trace, inside, found.of_gpu)):
            found = replace(found, notes=(*found.notes, f"{label}: {note}"))
    items = np.bincount(inside[inside >= 0], minlength=len(found))
    used = without_odd(found, items, label)
    kept = np.searchsorted(found.start, used.start)
    window = _renumbered(inside, kept, len(found))
    rows, window = rows[window >= 0], window[window >= 0]
    lane = trace.thread_of_track[trace.track[rows]].astype(np.intp)
    order = np.lexsort((trace.order[rows], trace.start[rows], lane, window))
    rows = rows[order]
    op = trace.op[rows].astype(np.intp) if gpu else rows
    columns = rows, window[order], lane[order], op, trace.dur[rows]
    return Work(trace, label, gpu, used, *columns, tuple(kept.tolist()), len(found))


def _left_out(trace: Trace, inside: Rows, of_gpu: bool) -> str:
    """How many GPU events belong to no step, and why."""
    if of_gpu:
        left, why = int((inside < 0).sum()), "lie outside the passes of the model"
    else:
        left = int((trace.launch[trace.gpu_rows] < 0).sum())
        why = "belong to no step, because their launch was not recorded"
    return (
        f"{count(left)} of {count(len(trace.gpu_rows))} GPU events {why}"
        if left
        else ""
    )


def by_graph(work: Work, rows: Rows) -> Flags:
    """For each of these rows: whether the launch of a graph launched it."""
    if not work.gpu:
        return np.zeros(len(rows), dtype=np.bool_)
    launch = work.trace.launch[rows]
    return np.asarray((launch >= 0) & graph_calls(work.trace)[launch])


def behind_compute(trace: Trace, rows: Rows) -> Int64s:
    """How long kernels compute during each GPU event (ns), shaped as `rows`; 0 for
    such."""
    kernels = trace.rows_of(Role.KERNEL)
    kernels = kernels[~communicates(trace, kernels)]
    computes = np.zeros(len(trace), dtype=np.bool_)
    computes[kernels] = True
    if computes[rows].all():
        return np.zeros(rows.shape, dtype=np.int64)
    flat = rows.ravel()
    behind = any_busy_ns(trace, kernels, trace.start[flat], trace.end[flat])
    return np.where(computes[flat], 0, behind).reshape(rows.shape)
