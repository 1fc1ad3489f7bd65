"""The steps of a trace: annotations where there are any, else iterations, which
optimizers end; and how long each takes.

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

MOST = 0.8  # annotations are steps if they contain at least this share of the work

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

MANY = 50  # kinds of annotations that are considered, those with the most time
LONGEST_STEM = 1000  # characters
DIGITS = "0123456789"
# by which times are off at most that were rounded to whole microseconds
ROUNDING_NS = 1000


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
        """The numbers that there are, in words: `the steps 6 to 8`; "no steps"."""
        if len(self) < 2:
            return f"only step {self.numbers[0]}" if len(self) else "no steps"
        return f"the steps {min(self.numbers)} to {max(self.numbers)}"

    def place(self, number: int) -> int:
        """The index of the step with this number, -1 for none."""
        return self.numbers.index(number) if number in self.numbers else -1

    def only(self, places: Rows) -> Steps:
        arrays = {
            name: getattr(self, name)[places] for name in ("rows", "start", "end")
        }
        names, numbers = (
            tuple(all_[n] for n in places) for all_ in (self.names, self.numbers)
        )
        return msgspec.structs.replace(self, names=names, numbers=numbers, **arrays)

    def at(self, times: Int64s) -> Rows:
        """The index of the step during which each time lies, -1 for none."""
        return Cover(self.start, self.end).place_of(times)

    def slices_of(self, times: Int64s) -> tuple[slice, ...]:
        """The places of the sorted times that lie in each step."""
        first, last = np.searchsorted(times, (self.start, self.end))
        return tuple(map(slice, first.tolist(), last.tolist()))


@memo(most=4)
def steps_of(trace: Trace, by: str | None = None) -> Steps:
    """The steps of a trace: those of the profiler, else of a server, else annotations
    that recur around most of the work, else iterations, each up to the end of an
    optimizer's step.

    `by` asks for the annotations whose names match: a regular expression, or plain
    text.
    """
    if by is not None:
        return _annotated(trace, _outermost(trace, _like(by)), f"annotations like {by}")
    profiled = _outermost(trace, lambda name: name.startswith(STEP_PREFIX))
    if len(profiled):
        return _annotated(trace, profiled, PROFILED)
    around = _around_the_work(trace)
    if len(around):
        return _annotated(trace, around, trace.name_of(int(around[0])))
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
    rows, called = by_launch_time(trace)
    return tuple(rows[own] for own in steps_of(trace).slices_of(called))


def numbers_in(names: Sequence[str]) -> tuple[int, ...]:
    """The numbers at the ends of the names; () unless all have one: those of the
    profiler, or names that differ only in a number that grows."""
    stems = {name.rstrip(DIGITS) for name in names}
    if len(stems) != 1:
        return ()
    (stem,) = stems
    texts = [name[len(stem) :] for name in names]
    if not all(0 < len(text) < 19 for text in texts):
        return ()
    numbers = tuple(map(int, texts))
    grows = len(names) > 1 and all(a < b for a, b in pairwise(numbers))
    return numbers if stem == STEP_PREFIX or (grows and not is_of_server(stem)) else ()


def labels_of(names: Sequence[str]) -> Sequence[str]:
    """The names of all steps of a trace, after `#k` where they do not number them."""
    return (
        names
        if numbers_in(names)
        else [f"#{k} {name}" for k, name in enumerate(names, 1)]
    )


def by_launch_time(trace: Trace) -> tuple[Rows, Int64s]:
    """The linked GPU rows in order of their launch calls, and the starts of those calls
    (ns)."""
    rows = trace.gpu_rows
    rows = rows[trace.launch[rows] >= 0]
    called = trace.start[trace.launch[rows]]
    order = np.lexsort((trace.start[rows], called))
    return rows[order], called[order]


def main_thread(trace: Trace, rows: Rows) -> Rows:
    """Of one row or more those on the thread with most of them; sub-rows count as their
    thread."""
    thread = trace.thread_of_track[trace.track[rows]]
    same: Rows = rows[thread == thread[int(np.argmax(np.bincount(thread)[thread]))]]
    return same


def is_of_server(name: str) -> bool:
    return re.match(SERVER, name) is not None


def annotations_with(trace: Trace, wanted: Callable[[str], bool]) -> Rows:
    """Annotations with such names on the thread that has most of them, in order of
    time, outer ones first."""
    rows = trace.rows_of(Role.ANNOTATION)
    matches = np.zeros(len(trace.names), dtype=np.bool_)
    for number in distinct(trace.name[rows]).tolist():
        matches[number] = wanted(trace.names[number])
    rows = rows[matches[trace.name[rows]]]
    if not len(rows):
        return rows
    rows = main_thread(trace, rows)
    return rows[np.lexsort((-trace.dur[rows], trace.start[rows]))]


def _like(by: str) -> Callable[[str], bool]:
    """An invalid regular expression is taken literally: `step[`."""
    try:
        search = re.compile(by).search
    except re.error:
        search = re.compile(re.escape(by)).search
    return lambda name: search(name) is not None


def clipped_before(trace: Trace) -> list[tuple[str, str]]:
    """What the file says under CLIPPED."""
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
    both = zip(trace.start[rows].tolist(), trace.end[rows].tolist(), strict=True)
    return np.array([(str(a), str(b)) in clipped for a, b in both], dtype=np.bool_)


def _complete(trace: Trace, rows: Rows) -> Rows:
    """Those annotations of which all is in the trace."""
    return rows[~is_clipped(trace, rows)]


def _outermost(trace: Trace, wanted: Callable[[str], bool]) -> Rows:
    """Such annotations, except those that begin inside another one. One that follows
    another seems to begin inside it where start and duration were rounded."""
    rows = _complete(trace, annotations_with(trace, wanted))
    if not len(rows):
        return rows
    latest = np.maximum.accumulate(trace.end[rows])
    overlap_ns = latest[:-1] - trace.start[rows[1:]]
    goes_on = trace.end[rows[1:]] > latest[:-1] + ROUNDING_NS
    follows = (overlap_ns <= 0) | ((overlap_ns <= ROUNDING_NS) & goes_on)
    return rows[np.concatenate(([True], follows))]


def _starts_after_ends(start: Int64s, end: Int64s) -> Int64s:
    """The starts of slices in order of time; of one that begins before the end of the
    one before by no more than rounding explains, that end."""
    starts = start.copy()
    overlap_ns = end[:-1] - start[1:]
    is_rounding = (overlap_ns > 0) & (overlap_ns <= ROUNDING_NS)
    starts[1:][is_rounding] = end[:-1][is_rounding]
    return starts


def _around_the_work(trace: Trace) -> Rows:
    """Annotations that contain at least MOST of the work: those of a server, else of
    the groups that recur the one with most; in order of time."""
    work = _work(trace)
    server = _outermost(trace, is_of_server)
    if _share_inside(trace, server, *work) >= MOST:
        return server
    groups = _recurring(trace)[:MANY]
    shares = [_share_inside(trace, group, *work) for group in groups]
    if not shares or max(shares) < MOST:
        return server[:0]
    return groups[shares.index(max(shares))]


def _recurring(trace: Trace) -> list[Rows]:
    """Outermost annotations with equal names except for numbers, those with the most
    time first."""
    rows = _complete(trace, trace.rows_of(Role.ANNOTATION))
    rows = rows[trace.parent[rows] < 0]
    numbers: dict[str, int] = {}
    of_name = np.full(len(trace.names), -1)
    for number in distinct(trace.name[rows]).tolist():
        name = trace.names[number]
        if not is_compiler(name) and not name.startswith(PARTS):
            stem = re.sub(r"\d+", "#", name[:LONGEST_STEM])
            of_name[number] = numbers.setdefault(stem, len(numbers))
    rows = rows[of_name[trace.name[rows]] >= 0]
    key = of_name[trace.name[rows]]
    order = np.lexsort((trace.start[rows], key))
    groups = np.split(rows[order], np.flatnonzero(np.diff(key[order])) + 1)
    several = [group for group in groups if len(group) > 1]
    return sorted(several, key=lambda group: -int(trace.dur[group].sum()))


def _work(trace: Trace) -> tuple[Int64s, Int64s]:
    """When each piece of work was requested, and how much time it took (ns)."""
    gpu = trace.gpu_rows
    if len(gpu):
        gpu = gpu[trace.launch[gpu] >= 0]
        return trace.start[trace.launch[gpu]], trace.dur[gpu]
    ops = trace.rows_of(Role.OP)
    ops = ops[trace.parent[ops] < 0]
    return trace.start[ops], trace.dur[ops]


def _share_inside(trace: Trace, group: Rows, times: Int64s, amount: Int64s) -> float:
    """The share of the amounts whose times lie in these slices; 0 if the slices
    overlap."""
    end = trace.end[group]
    start = _starts_after_ends(trace.start[group], end)
    total = int(amount.sum())
    if not total or (start[1:] < end[:-1]).any():
        return 0.0
    return float(amount[Cover(start, end).place_of(times) >= 0].sum()) / total


def _iterations(trace: Trace) -> Steps:
    """From the end of one step of an optimizer to the end of the next; the first one
    from where the recording of that thread begins, unless that is in the middle of one.
    Of several optimizers the one that steps most often, and last, ends an iteration."""
    rows = _outermost(trace, lambda name: name.startswith(OPTIMIZER))
    counts = np.bincount(trace.name[rows], minlength=1)
    rows = rows[
        trace.name[rows]
        == trace.name[rows[counts[trace.name[rows]] == counts.max()][-1:]]
    ]
    if len(rows) < 2:
        return _annotated(trace, rows[:0], "")
    thread = trace.thread_of_track
    own = np.flatnonzero(thread == thread[trace.track[rows[0]]]).tolist()
    begin = min(int(trace.start[trace.tracks[n].first_row]) for n in own)
    numbers = tuple(range(1, len(rows) + 1))
    found = msgspec.structs.replace(
        _annotated(trace, rows, f"{UP_TO}{trace.name_of(int(rows[0]))}"),
        names=tuple(f"#{k}" for k in numbers),
        start=np.append(begin, trace.end[rows[:-1]]),
        numbers=numbers,
        printed=False,
    )
    return found.only(np.arange(1, len(rows))) if CLIPPED in trace.keys else found


def _annotated(trace: Trace, rows: Rows, by: str) -> Steps:
    names = tuple(map(trace.name_of, rows.tolist()))
    numbers = numbers_in(names)
    return Steps(
        rows=rows,
        names=names,
        start=_starts_after_ends(trace.start[rows], trace.end[rows]),
        end=trace.end[rows],
        numbers=numbers or tuple(range(1, len(rows) + 1)),
        by=by if len(rows) else "",
        printed=bool(numbers),
    )
