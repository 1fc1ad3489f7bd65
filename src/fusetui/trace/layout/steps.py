"""The steps of a trace: annotations, or else iterations that end with an optimizer's
step; and the length of each.

There are three lengths of a step, each with a name, and no others. The steps are the
same; what ends one differs. All are in ns.

* `step_wall`: from the start to the end of the step as it was annotated, on its thread;
  of an iteration, from the end of the optimizer's step before to that of its own. What
  GPUs do does not count.
* `step_launched`: from the end of the step before to its own end, where a step has
  ended once its thread has ended it and all GPU work that it launched has ended. What
  lies between two steps counts in the later one; the first step begins where its thread
  does.
* `model_pass`: of a server's step, from the first start to the last end of the GPU
  events of its model.

Where the GPU work of steps ends within them, the first two differ only by the time
between two steps. Where steps only enqueue work, `step_wall` is the time to launch it,
and `step_launched` that to run it. `StepLength` has the words for users.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct
from fusetui.trace.model.categories import STEP_PREFIX, Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import Cover
from fusetui.trace.model.memo import memo
from fusetui.trace.model.op_names import is_compiler

MIN_SHARE_OF_WORK = 0.8
"""Annotations are steps if they contain at least this share of the work."""

SERVER = r"^(?:execute_(?:new_|context_|\d+_context_)|step\[|(?:prefill|decode)\[bs=)"
"""How the annotations of a server (vLLM, SGLang, ATOM) begin: even a single one is a
step."""

OPTIMIZER = "Optimizer.step#"
"""How the annotation of torch around an optimizer step begins, which ends a training
step."""

PROFILED = "ProfilerStep"  # what the steps of the profiler are called
UP_TO = "up to the end of "  # an optimizer step

PARTS = ("Optimizer.", "DataLoader", "enumerate(DataLoader)")
"""How annotations of torch begin that are parts of a step, however much work they
contain."""

CLIPPED = "clipped_annotations"
"""The top-level key of a part of a trace: begin and end (ns of the file, as texts) of
annotations that go on beyond it. What is left of them is no step."""

MAX_GROUPS = 50  # of annotations that recur: those with the most time are considered
MAX_STEM_CHARS = 1000
MAX_NUMBER_DIGITS = 18  # more do not fit into 64 bits
DIGITS = "0123456789"
ROUNDING_NS = 1000
"""By how much times are off at most that were rounded to whole microseconds."""


class Steps(msgspec.Struct, frozen=True, eq=False):
    """Steps in order of time, which do not overlap; arrays of shape [steps], in ns of
    the file."""

    rows: Rows  # of the annotations that they are, or that end them
    names: tuple[str, ...]  # of the annotations; `#k` for iterations, which have none
    start: Int64s
    end: Int64s
    numbers: tuple[int, ...]  # those that the trace prints, else the positions, from 1
    by: str  # what they are, for users; "" if there are none
    printed: bool  # whether the numbers are in the names

    def __len__(self) -> int:
        return len(self.start)

    @property
    def are_iterations(self) -> bool:
        """Whether no annotation is around them: they end where an optimizer's does."""
        return self.by.startswith(UP_TO)

    @property
    def are_of_server(self) -> bool:
        """Whether they are what a server was asked to do, which differs from step to
        step."""
        return any(map(is_of_server, self.names))

    @property
    def known(self) -> str:
        """The numbers that there are, in words: `the steps 6 to 8`; `only step 6`; "no
        steps"."""
        if not self.numbers:
            return "no steps"
        if len(self.numbers) == 1:
            return f"only step {self.numbers[0]}"
        return f"the steps {min(self.numbers)} to {max(self.numbers)}"

    def place(self, number: int) -> int:
        """The index of the step with this number, -1 for none."""
        return self.numbers.index(number) if number in self.numbers else -1

    def only(self, places: Rows) -> Steps:
        """The steps with these indices, in the order of the indices."""
        return msgspec.structs.replace(
            self,
            rows=self.rows[places],
            names=tuple(self.names[place] for place in places),
            start=self.start[places],
            end=self.end[places],
            numbers=tuple(self.numbers[place] for place in places),
        )

    def at(self, times: Int64s) -> Rows:
        """The index of the step during which each time lies, -1 for none."""
        return Cover(self.start, self.end).place_of(times)

    def slices_of(self, times: Int64s) -> tuple[slice, ...]:
        """For each step the slice of these sorted times (ns) that lie in it."""
        first = np.searchsorted(times, self.start).tolist()
        end = np.searchsorted(times, self.end).tolist()
        return tuple(slice(a, b) for a, b in zip(first, end, strict=True))


@memo(max_results=4)
def steps_of(trace: Trace, by: str | None = None) -> Steps:
    """The steps of a trace: those of the profiler, else of a server, else annotations
    that recur around most of the work, else iterations, each up to the end of an
    optimizer's step.

    `by` asks for the annotations whose names match: a regular expression, or plain
    text.
    """
    if by is not None:
        return _annotated(trace, _outermost(trace, _like(by)), f"annotations like {by}")
    steps_of_profiler = _outermost(trace, lambda name: name.startswith(STEP_PREFIX))
    if len(steps_of_profiler):
        return _annotated(trace, steps_of_profiler, PROFILED)
    around_work = _around_the_work(trace)
    if len(around_work):
        return _annotated(trace, around_work, trace.name_of(int(around_work[0])))
    return _iterations(trace)


class StepLength(StrEnum):
    """Which length of a step a figure is, in words."""

    WALL = "wall"
    LAUNCHED = "launched"
    MODEL_PASS = "model pass"
    SPAN = "span"
    """No length of a step: from the first start to the last end of what is taken for
    one, which a note names. A trace without steps is all of it."""

    @property
    def step(self) -> str:
        """What has this length: `step (wall)`, `model pass`, `span`."""
        if self in (StepLength.WALL, StepLength.LAUNCHED):
            return f"step ({self})"
        return str(self)

    @property
    def a_step(self) -> str:
        """The same in a sentence: `a step (wall)`, `a model pass`, `the span`."""
        article = "the" if self is StepLength.SPAN else "a"
        return f"{article} {self.step}"


def step_wall(start: Int64s, end: Int64s) -> Int64s:
    """The wall time of steps: `end - start`. Both as in `Steps`, shape [steps]."""
    return end - start


def step_wall_of_job(start: Int64s, end: Int64s) -> float:
    """The same of one step of a job: from when the first rank begins it to its end, the
    mean over the ranks. That a late rank begins late makes the step longer, not shorter.
    `start` and `end`: of each rank, on a common clock; shape [ranks]."""
    return float((end - start.min()).mean())


def launched_bounds(
    wall_bounds: Int64s, work_end: Int64s, step_of_work: Rows
) -> Int64s:
    """When the first step begins, then when each step has ended; shape [steps + 1].

    A step ends at the latest of three times: when its thread ends it, when the last GPU
    work that it launched ends, and when the step before it ends.

    `wall_bounds`: when the thread begins the first step, then when it ends each step;
    shape [steps + 1]. `work_end`: when each GPU event ends that a step launched, and
    `step_of_work`: the index of that step; shape [events].
    """
    bounds = wall_bounds.copy()
    np.maximum.at(bounds, step_of_work + 1, work_end)
    return np.maximum.accumulate(bounds)


def launched_bounds_of_job(bounds_of_ranks: Sequence[Int64s]) -> Int64s:
    """The same of a job, from those of each of its ranks on a common clock: the first
    step begins with the first rank that begins it, and a step ends with the last rank
    that ends it."""
    bounds = np.stack(bounds_of_ranks)
    return np.append(bounds[:, 0].min(), bounds[:, 1:].max(axis=0))


def step_launched(bounds: Int64s) -> Int64s:
    """From the end of each step's predecessor to its own: `bounds[1:] - bounds[:-1]`.
    `bounds`: see `launched_bounds`; shape [steps]."""
    return np.diff(bounds)


class ModelPass(NamedTuple):
    """When the model of a step runs on the GPU; ns of the file."""

    begin_ns: int
    end_ns: int

    @property
    def span_ns(self) -> int:
        return self.end_ns - self.begin_ns


def model_pass(trace: Trace, model_rows: Rows) -> ModelPass:
    """From the first start to the last end of the GPU events of the model in one step:
    `max(end) - min(start)`. Both are 0 without events. Which events are the model's,
    `serving.passes.Pass.model` says."""
    if not len(model_rows):
        return ModelPass(begin_ns=0, end_ns=0)
    return ModelPass(
        begin_ns=int(trace.start[model_rows].min()),
        end_ns=int(trace.end[model_rows].max()),
    )


@memo()
def launched_in_steps(trace: Trace) -> tuple[Rows, ...]:
    """The GPU rows that each step launched, in order of their launch calls."""
    rows, launched_ns = by_launch_time(trace)
    return tuple(rows[places] for places in steps_of(trace).slices_of(launched_ns))


def numbers_in(names: Sequence[str]) -> tuple[int, ...]:
    """The numbers at the ends of the names, if they number the steps: those of the
    profiler, or names that differ only in a number that grows. () if they do not, or
    if a name has no number."""
    stems = {name.rstrip(DIGITS) for name in names}
    if len(stems) != 1:
        return ()
    (stem,) = stems
    texts = [name[len(stem) :] for name in names]
    if not all(0 < len(text) <= MAX_NUMBER_DIGITS for text in texts):
        return ()
    numbers = tuple(int(text) for text in texts)
    if stem == STEP_PREFIX:
        return numbers
    grows = all(earlier < later for earlier, later in pairwise(numbers))
    if len(numbers) < 2 or not grows or is_of_server(stem):
        return ()
    return numbers


def labels_of(names: Sequence[str]) -> Sequence[str]:
    """The names of all steps of a trace, after `#k` where they do not number them."""
    if numbers_in(names):
        return names
    return [f"#{k} {name}" for k, name in enumerate(names, 1)]


def by_launch_time(trace: Trace) -> tuple[Rows, Int64s]:
    """The linked GPU rows in order of their launch calls, and the starts of those calls
    (ns); both of shape [linked GPU rows]."""
    rows = trace.gpu_rows
    rows = rows[trace.launch[rows] >= 0]
    launched_ns = trace.start[trace.launch[rows]]
    order = np.lexsort((trace.start[rows], launched_ns))
    return rows[order], launched_ns[order]


def main_thread(trace: Trace, rows: Rows) -> Rows:
    """Of one row or more those on the thread that has most of them. Sub-rows count as
    their thread; of several threads with as many, the one of the earliest row."""
    thread = trace.thread_of_track[trace.track[rows]]
    rows_on_thread = np.bincount(thread)[thread]  # of each row's thread
    busiest = thread[int(np.argmax(rows_on_thread))]
    on_busiest: Rows = rows[thread == busiest]
    return on_busiest


def is_of_server(name: str) -> bool:
    return re.match(SERVER, name) is not None


def annotations_with(trace: Trace, wanted: Callable[[str], bool]) -> Rows:
    """Annotations with such names on the thread that has most of them, in order of
    time, outer ones first."""
    rows = trace.rows_of(Role.ANNOTATION)
    is_wanted = np.zeros(len(trace.names), dtype=np.bool_)
    for number in distinct(trace.name[rows]).tolist():
        is_wanted[number] = wanted(trace.names[number])
    rows = rows[is_wanted[trace.name[rows]]]
    if not len(rows):
        return rows
    rows = main_thread(trace, rows)
    return rows[np.lexsort((-trace.dur[rows], trace.start[rows]))]


def _like(by: str) -> Callable[[str], bool]:
    """A test of names. An invalid regular expression is taken literally: `step[`."""
    try:
        search = re.compile(by).search
    except re.error:
        search = re.compile(re.escape(by)).search
    return lambda name: search(name) is not None


def clipped_before(trace: Trace) -> list[tuple[str, str]]:
    """Begin and end (ns of the file, as texts) of the annotations that the file lists
    under CLIPPED; none where that is malformed."""
    try:
        return msgspec.convert(trace.keys.get(CLIPPED, ()), list[tuple[str, str]])
    except msgspec.ValidationError:
        return []


def is_clipped(trace: Trace, rows: Rows) -> Flags:
    """Of which of these annotations the file holds only a part, as it says under
    CLIPPED; of shape [rows]."""
    clipped = set(clipped_before(trace))
    if not clipped:
        return np.zeros(len(rows), dtype=np.bool_)
    starts = map(str, trace.start[rows].tolist())
    ends = map(str, trace.end[rows].tolist())
    are_clipped = [times in clipped for times in zip(starts, ends, strict=True)]
    return np.array(are_clipped, dtype=np.bool_)


def _complete(trace: Trace, rows: Rows) -> Rows:
    """Those annotations of which all is in the trace."""
    return rows[~is_clipped(trace, rows)]


def _outermost(trace: Trace, wanted: Callable[[str], bool]) -> Rows:
    """Such annotations, except those that begin inside another one. One that follows
    another seems to begin inside it where start and duration were rounded."""
    rows = _complete(trace, annotations_with(trace, wanted))
    if not len(rows):
        return rows
    later = rows[1:]
    end_before = np.maximum.accumulate(trace.end[rows])[:-1]  # of all rows before
    overlap_ns = end_before - trace.start[later]
    goes_on = trace.end[later] > end_before + ROUNDING_NS
    seems_inside = (overlap_ns <= ROUNDING_NS) & goes_on
    follows = (overlap_ns <= 0) | seems_inside
    return rows[np.concatenate(([True], follows))]


def _starts_after_ends(start: Int64s, end: Int64s) -> Int64s:
    """The starts of slices in order of time; of one that begins before the end of the
    one before by no more than rounding explains, that end."""
    end_before = end[:-1]
    overlap_ns = end_before - start[1:]
    is_rounding = (overlap_ns > 0) & (overlap_ns <= ROUNDING_NS)
    starts = start.copy()
    starts[1:] = np.where(is_rounding, end_before, start[1:])
    return starts


def _around_the_work(trace: Trace) -> Rows:
    """Annotations that contain at least MIN_SHARE_OF_WORK: those of a server, else of
    the groups that recur the one with most; in order of time. Empty if there are
    none."""
    work = _work(trace)
    of_server = _outermost(trace, is_of_server)
    if _share_inside(trace, of_server, work) >= MIN_SHARE_OF_WORK:
        return of_server
    best_share = 0.0
    best_group = of_server[:0]
    for group in _recurring(trace)[:MAX_GROUPS]:
        share = _share_inside(trace, group, work)
        if share >= MIN_SHARE_OF_WORK and share > best_share:
            best_share = share
            best_group = group
    return best_group


def _recurring(trace: Trace) -> list[Rows]:
    """Outermost annotations in groups with equal names except for numbers, those with
    the most time first. The rows of a group are in order of time."""
    annotations = _complete(trace, trace.rows_of(Role.ANNOTATION))
    outermost = annotations[trace.parent[annotations] < 0]
    group_of_outermost = _groups_of_names(trace, outermost)[trace.name[outermost]]
    is_in_group = group_of_outermost >= 0
    rows = outermost[is_in_group]
    group = group_of_outermost[is_in_group]
    in_order = np.lexsort((trace.start[rows], group))
    is_next_group = np.diff(group[in_order]) != 0
    groups = np.split(rows[in_order], np.flatnonzero(is_next_group) + 1)
    recurring = [group for group in groups if len(group) > 1]
    return sorted(recurring, key=lambda rows: -int(trace.dur[rows].sum()))


def _groups_of_names(trace: Trace, rows: Rows) -> Int64s:
    """The group of each name of these rows: names that differ only in numbers are in
    one. -1 for names of the compiler, of parts of a step, and of other rows. Shape
    [names]."""
    group_of_stem: dict[str, int] = {}
    group_of_name = np.full(len(trace.names), -1)
    for number in distinct(trace.name[rows]).tolist():
        name = trace.names[number]
        if is_compiler(name) or name.startswith(PARTS):
            continue
        stem = re.sub(r"\d+", "#", name[:MAX_STEM_CHARS])
        group_of_name[number] = group_of_stem.setdefault(stem, len(group_of_stem))
    return group_of_name


class _Work(NamedTuple):
    """Pieces of work; arrays of shape [pieces], in ns."""

    # ns of the file: the launch of a GPU event, the start of an op
    requested_ns: Int64s
    dur: Int64s


def _work(trace: Trace) -> _Work:
    """The linked GPU events; without GPU events, the outermost ops."""
    gpu_rows = trace.gpu_rows
    if len(gpu_rows):
        linked = gpu_rows[trace.launch[gpu_rows] >= 0]
        launches = trace.launch[linked]
        return _Work(requested_ns=trace.start[launches], dur=trace.dur[linked])
    ops = trace.rows_of(Role.OP)
    outermost = ops[trace.parent[ops] < 0]
    return _Work(requested_ns=trace.start[outermost], dur=trace.dur[outermost])


def _share_inside(trace: Trace, group: Rows, work: _Work) -> float:
    """The share of the time of the work that was requested within these slices; 0 if
    the slices overlap."""
    end = trace.end[group]
    start = _starts_after_ends(trace.start[group], end)
    overlap = bool((start[1:] < end[:-1]).any())
    total_ns = int(work.dur.sum())
    if not total_ns or overlap:
        return 0.0
    slice_of_work = Cover(start, end).place_of(work.requested_ns)
    inside_ns = work.dur[slice_of_work >= 0].sum()
    return float(inside_ns) / total_ns


def _iterations(trace: Trace) -> Steps:
    """From the end of one step of an optimizer to the end of the next. The first one
    begins where the recording of that thread begins; it is left out if that is in the
    middle of it, which the key CLIPPED tells. Of several optimizers, the one that steps
    most often, and last, ends an iteration."""
    rows = _steps_of_last_optimizer(trace)
    if len(rows) < 2:
        return _annotated(trace, rows[:0], "")
    first_start = _recording_begins(trace, int(rows[0]))
    numbers = tuple(range(1, len(rows) + 1))
    steps = msgspec.structs.replace(
        _annotated(trace, rows, f"{UP_TO}{trace.name_of(int(rows[0]))}"),
        names=tuple(f"#{number}" for number in numbers),
        start=np.append(first_start, trace.end[rows[:-1]]),
        numbers=numbers,
        printed=False,
    )
    if CLIPPED in trace.keys:
        return steps.only(np.arange(1, len(rows)))
    return steps


def _steps_of_last_optimizer(trace: Trace) -> Rows:
    """The annotations of the optimizer that steps most often, and last of those; in
    order of time."""
    rows = _outermost(trace, lambda name: name.startswith(OPTIMIZER))
    if not len(rows):
        return rows
    names = trace.name[rows]
    occurrences = np.bincount(names)
    most_frequent = names[occurrences[names] == occurrences.max()]
    last_to_step = most_frequent[-1]
    steps: Rows = rows[names == last_to_step]
    return steps


def _recording_begins(trace: Trace, row: int) -> int:
    """When the first slice of the thread of a row starts (ns)."""
    thread_of_track = trace.thread_of_track
    thread = thread_of_track[trace.track[row]]
    tracks = np.flatnonzero(thread_of_track == thread).tolist()
    first_rows = [trace.tracks[track].first_row for track in tracks]
    return int(trace.start[first_rows].min())


def _annotated(trace: Trace, rows: Rows, by: str) -> Steps:
    """Steps that are the annotations of these rows, which are in order of time."""
    names = tuple(map(trace.name_of, rows.tolist()))
    printed_numbers = numbers_in(names)
    return Steps(
        rows=rows,
        names=names,
        start=_starts_after_ends(trace.start[rows], trace.end[rows]),
        end=trace.end[rows],
        numbers=printed_numbers or tuple(range(1, len(rows) + 1)),
        by=by if len(rows) else "",
        printed=bool(printed_numbers),
    )
