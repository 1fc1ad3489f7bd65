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

from fusetui.trace.model.arrays import NO_ROW, Flags, Int64s, Rows, distinct
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

MAX_GROUPS = 50
"""So many groups of annotations that recur are considered, those with the most time."""
MAX_STEM_CHARS = 1000
"""So much of a name counts when names without their numbers are compared."""
MAX_NUMBER_DIGITS = 18
"""More digits do not fit into 64 bits."""
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
        """The number of steps."""
        return len(self.start)

    @property
    def are_iterations(self) -> bool:
        """Whether the steps have no annotation around them. Then each ends where an
        optimizer's step does."""
        return self.by.startswith(UP_TO)

    @property
    def are_of_server(self) -> bool:
        """Whether the steps are those of an inference server. They differ from one to
        the next, as requests do."""
        return any(map(is_of_server, self.names))

    @property
    def known(self) -> str:
        """The numbers of the steps in words: `the steps 6 to 8`, `only step 6` or `no
        steps`."""
        if not self.numbers:
            return "no steps"
        if len(self.numbers) == 1:
            return f"only step {self.numbers[0]}"
        return f"the steps {min(self.numbers)} to {max(self.numbers)}"

    def place(self, number: int) -> int:
        """Return the index of the step with this number, -1 for none: if the steps are
        6, 7 and 8, that of 7 is 1."""
        return self.numbers.index(number) if number in self.numbers else -1

    def only(self, indices: Rows) -> Steps:
        """Return the steps with these indices, in the order of the indices."""
        return msgspec.structs.replace(
            self,
            rows=self.rows[indices],
            names=tuple(self.names[index] for index in indices),
            start=self.start[indices],
            end=self.end[indices],
            numbers=tuple(self.numbers[index] for index in indices),
        )

    def at(self, times: Int64s) -> Rows:
        """Return the index of the step in which each time (ns) lies, -1 for none.

        With steps from 0 to 10 and from 20 to 30, the times 5, 10 and 20 give 0, -1 and
        1: the end of a step does not belong to it.
        """
        return Cover(self.start, self.end).place_of(times)

    def slices_of(self, times: Int64s) -> tuple[slice, ...]:
        """Return for each step which of some ascending times (ns) lie in it.

        With steps from 0 to 10 and from 20 to 30, the times [5, 12, 20, 25] give
        slice(0, 1) and slice(2, 4).
        """
        first = np.searchsorted(times, self.start).tolist()
        end = np.searchsorted(times, self.end).tolist()
        return tuple(slice(a, b) for a, b in zip(first, end, strict=True))


@memo(max_results=4)
def steps_of(trace: Trace, by: str | None = None) -> Steps:
    """Find the steps of a trace.

    They are the first of these that there are any of: the annotations ProfilerStep#N of
    torch's profiler; those of an inference server, or others that recur, if they
    contain most of the work; iterations, each from the end of one optimizer step to the
    end of the next.

    Args:
        trace: The trace.
        by: If given, steps are the annotations whose names match this regular
            expression. What is no valid one is searched for as it is: "step[".
    """
    if by is not None:
        return _find_annotated_steps(
            trace,
            _keep_outermost(trace, _compile_name_test(by)),
            f"annotations like {by}",
        )
    steps_of_profiler = _keep_outermost(
        trace, lambda name: name.startswith(STEP_PREFIX)
    )
    if len(steps_of_profiler):
        return _find_annotated_steps(trace, steps_of_profiler, PROFILED)
    around_work = _choose_by_work(trace)
    if len(around_work):
        return _find_annotated_steps(
            trace, around_work, trace.name_of(int(around_work[0]))
        )
    return _find_iterations(trace)


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
        """The name of what has this length: `step (wall)`, `model pass`, `span`."""
        if self in (StepLength.WALL, StepLength.LAUNCHED):
            return f"step ({self})"
        return str(self)

    @property
    def a_step(self) -> str:
        """The name of what has this length, with an article: `a step (wall)`, `a model
        pass`, `the span`."""
        article = "the" if self is StepLength.SPAN else "a"
        return f"{article} {self.step}"


def step_wall(start: Int64s, end: Int64s) -> Int64s:
    """Return the wall time of each step: `end - start`, both from `Steps`."""
    return end - start


def step_wall_of_job(start: Int64s, end: Int64s) -> float:
    """Return the wall time of one step of a job with several ranks, in ns.

    It is from when the first rank begins the step to its end, the mean over the ranks:
    if ranks begin at 0 and 20 and both end at 100, it is 100. So a rank that begins
    late makes the step longer, not shorter.

    Args:
        start: When each rank begins the step, on a clock common to the ranks.
        end: When each rank ends it.
    """
    return float((end - start.min()).mean())


def launched_bounds(
    wall_bounds: Int64s, work_end: Int64s, step_of_work: Rows
) -> Int64s:
    """Return when steps begin and end if a step lasts until its GPU work is done.

    A step ends at the latest of three times: when its thread ends it, when the last GPU
    work that it launched ends, and when the step before it ends.

    For wall_bounds [0, 10, 20], and work of step 0 that ends at 14, the result is
    [0, 14, 20]; if that work ends at 25, it is [0, 25, 25].

    Args:
        wall_bounds: When the thread begins the first step, then when it ends each step;
            ascending, in ns.
        work_end: When each GPU event ends that some step launched, in any order.
        step_of_work: The index of the step that launched each GPU event.

    Returns:
        When the first step begins, then when each step has ended.
    """
    bounds = wall_bounds.copy()
    np.maximum.at(bounds, step_of_work + 1, work_end)
    return np.maximum.accumulate(bounds)


def launched_bounds_of_job(bounds_of_ranks: Sequence[Int64s]) -> Int64s:
    """Combine what `launched_bounds` returns for each rank of a job.

    The first step begins with the first rank that begins it, and a step ends with the
    last rank that ends it: [0, 14, 20] and [2, 11, 26] give [0, 14, 26].

    Args:
        bounds_of_ranks: The bounds of each rank, on a clock common to the ranks; at
            least one rank, all with the same number of steps.
    """
    bounds = np.stack(bounds_of_ranks)
    first_begin = bounds[:, 0].min()
    last_ends = bounds[:, 1:].max(axis=0)
    return np.append(first_begin, last_ends)


def step_launched(bounds: Int64s) -> Int64s:
    """Return how long each step is, from the end of the one before to its own end.

    The bounds [0, 14, 20] of `launched_bounds` give [14, 6].
    """
    return np.diff(bounds)


class ModelPass(NamedTuple):
    """When the model of a step runs on the GPU; ns of the file."""

    begin_ns: int
    end_ns: int

    @property
    def span_ns(self) -> int:
        """How long the pass takes from its begin to its end, in ns."""
        return self.end_ns - self.begin_ns


def model_pass(trace: Trace, model_rows: Rows) -> ModelPass:
    """Return from when to when the GPU works on the model in one step of a server.

    Args:
        trace: The trace.
        model_rows: The GPU events of the model in that step, in any order (see
            `serving.passes.Pass.model_rows`).

    Returns:
        Their first start and their last end; both 0 if there are none.
    """
    if not len(model_rows):
        return ModelPass(begin_ns=0, end_ns=0)
    return ModelPass(
        begin_ns=int(trace.start[model_rows].min()),
        end_ns=int(trace.end[model_rows].max()),
    )


@memo()
def launched_in_steps(trace: Trace) -> tuple[Rows, ...]:
    """Return for each step the GPU events that it launched, by the time of the launch.

    A kernel belongs to the step during which its launch call started, whenever the GPU
    ran it.
    """
    rows, launched_ns = by_launch_time(trace)
    return tuple(rows[entries] for entries in steps_of(trace).slices_of(launched_ns))


def numbers_in(names: Sequence[str]) -> tuple[int, ...]:
    """Read the numbers of steps from their names.

    ("train 5", "train 8") gives (5, 8). The result is () if the names do not number the
    steps: if they differ in more than a number at the end, a name has none, the numbers
    do not grow, there is only one name, or it is of a server, whose numbers are sizes.
    Names of the profiler (ProfilerStep#3) always number the steps.
    """
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
    """Return names of steps that tell them apart.

    ["ProfilerStep#3", "ProfilerStep#4"] do so already; ["decode", "decode"] become
    ["#1 decode", "#2 decode"].
    """
    if numbers_in(names):
        return names
    return [f"#{number} {name}" for number, name in enumerate(names, 1)]


def by_launch_time(trace: Trace) -> tuple[Rows, Int64s]:
    """Sort the GPU events with a known launch call by the start of that call.

    Returns:
        Their rows, those of one launch call by their own start; and for each of them
        the start of its launch call in ns, which ascends.
    """
    rows = trace.gpu_rows
    rows = rows[trace.launch[rows] != NO_ROW]
    launched_ns = trace.start[trace.launch[rows]]
    order = np.lexsort((trace.start[rows], launched_ns))
    return rows[order], launched_ns[order]


def main_thread(trace: Trace, rows: Rows) -> Rows:
    """Keep only the rows on the thread that has most of them.

    Of several threads with equally many, it is that of the earliest row.

    Args:
        trace: The trace.
        rows: At least one row, on any threads.
    """
    thread = trace.thread_of_track[trace.track[rows]]
    rows_on_same_thread = np.bincount(thread)[thread]
    busiest = thread[int(np.argmax(rows_on_same_thread))]
    on_busiest: Rows = rows[thread == busiest]
    return on_busiest


def is_of_server(name: str) -> bool:
    """Tell whether an annotation is a step of an inference server: "step[DECODE bs=8]"
    of SGLang is one."""
    return re.match(SERVER, name) is not None


def annotations_with(trace: Trace, wanted: Callable[[str], bool]) -> Rows:
    """Return the annotations whose name passes a test, on one thread only.

    It is the thread that has most of them. They are in order of their starts, and those
    that start together in order of descending duration.
    """
    rows = trace.rows_of(Role.ANNOTATION)
    is_wanted = np.zeros(len(trace.names), dtype=np.bool_)
    for number in distinct(trace.name[rows]).tolist():
        is_wanted[number] = wanted(trace.names[number])
    rows = rows[is_wanted[trace.name[rows]]]
    if not len(rows):
        return rows
    rows = main_thread(trace, rows)
    return rows[np.lexsort((-trace.dur[rows], trace.start[rows]))]


def _compile_name_test(by: str) -> Callable[[str], bool]:
    """Return a test of whether a regular expression matches somewhere in a name.

    What is no valid expression, such as "step[", is searched for as it is.
    """
    try:
        search = re.compile(by).search
    except re.error:
        search = re.compile(re.escape(by)).search
    return lambda name: search(name) is not None


def clipped_before(trace: Trace) -> list[tuple[str, str]]:
    """Return begin and end of the annotations that were cut when this file was made.

    `fusetui cut` lists them under CLIPPED, as texts in ns: [("1000", "5000")]. The
    result is empty if the file has no such list, or a malformed one.
    """
    try:
        return msgspec.convert(trace.keys.get(CLIPPED, ()), list[tuple[str, str]])
    except msgspec.ValidationError:
        return []


def is_clipped(trace: Trace, rows: Rows) -> Flags:
    """Tell of each annotation whether the file holds only a part of it.

    It does if the list that `clipped_before` returns has its begin and end.
    """
    clipped = set(clipped_before(trace))
    if not clipped:
        return np.zeros(len(rows), dtype=np.bool_)
    starts = map(str, trace.start[rows].tolist())
    ends = map(str, trace.end[rows].tolist())
    are_clipped = [times in clipped for times in zip(starts, ends, strict=True)]
    return np.array(are_clipped, dtype=np.bool_)


def _drop_clipped(trace: Trace, rows: Rows) -> Rows:
    """The annotations of which the file holds all, without those that an earlier cut of
    the file has clipped."""
    return rows[~is_clipped(trace, rows)]


def _keep_outermost(trace: Trace, wanted: Callable[[str], bool]) -> Rows:
    """Return the annotations with wanted names that are not inside each other.

    Of [0, 10], [2, 8] and [10, 20] us these are the first and the third. Some files
    round times to whole microseconds, after which a step can seem to begin up to
    ROUNDING_NS before the one before it ends. Such a step is kept too.

    Args:
        trace: The trace.
        wanted: The test of names.

    Returns:
        The rows in order of time, all on one thread. Annotations that were cut (see
        `is_clipped`) are left out.
    """
    rows = _drop_clipped(trace, annotations_with(trace, wanted))
    if not len(rows):
        return rows
    later = rows[1:]
    end_before = np.maximum.accumulate(trace.end[rows])[:-1]  # of all rows before
    overlap_ns = end_before - trace.start[later]
    goes_on = trace.end[later] > end_before + ROUNDING_NS
    overlaps_by_rounding = (overlap_ns <= ROUNDING_NS) & goes_on
    follows = (overlap_ns <= 0) | overlaps_by_rounding
    return rows[np.concatenate(([True], follows))]


def _starts_after_ends(start: Int64s, end: Int64s) -> Int64s:
    """Move starts of steps so that rounding makes no two steps overlap.

    With ends at [10_000, 20_000], the starts [0, 9_500] become [0, 10_000]: the overlap
    of 500 ns is within ROUNDING_NS. A start at 5_000 would stay.

    Args:
        start: The start of each step in ns, ascending.
        end: The end of each step.
    """
    end_before = end[:-1]
    overlap_ns = end_before - start[1:]
    is_rounding = (overlap_ns > 0) & (overlap_ns <= ROUNDING_NS)
    starts = start.copy()
    starts[1:] = np.where(is_rounding, end_before, start[1:])
    return starts


def _choose_by_work(trace: Trace) -> Rows:
    """Return the annotations that contain most of the work, in order of time.

    These are the steps of a server if they contain at least MIN_SHARE_OF_WORK. Else it
    is, of the groups that `_keep_recurring` finds, the one with the largest share, which has
    to be at least as large. Empty if there is none.
    """
    work = _work_of_names(trace)
    server_steps = _keep_outermost(trace, is_of_server)
    if _share_inside(trace, server_steps, work) >= MIN_SHARE_OF_WORK:
        return server_steps
    best_share = 0.0
    best_group = server_steps[:0]
    for group in _keep_recurring(trace)[:MAX_GROUPS]:
        share = _share_inside(trace, group, work)
        if share >= MIN_SHARE_OF_WORK and share > best_share:
            best_share = share
            best_group = group
    return best_group


def _keep_recurring(trace: Trace) -> list[Rows]:
    """Group the annotations that are in no other one by their names without numbers.

    Two annotations "batch 1" and "batch 2" make a group; a single "setup" makes none.

    Returns:
        The rows of each group with at least two, in order of time; the groups by their
        total time, the largest first.
    """
    annotations = _drop_clipped(trace, trace.rows_of(Role.ANNOTATION))
    outermost = annotations[trace.parent[annotations] == NO_ROW]
    group_of_outermost = _groups_of_names(trace, outermost)[trace.name[outermost]]
    is_in_group = group_of_outermost >= 0
    rows = outermost[is_in_group]
    group = group_of_outermost[is_in_group]

    by_group_and_time = np.lexsort((trace.start[rows], group))
    is_next_group = np.diff(group[by_group_and_time]) != 0
    first_of_next = np.flatnonzero(is_next_group) + 1
    groups = np.split(rows[by_group_and_time], first_of_next)
    recurring = [group for group in groups if len(group) > 1]
    return sorted(recurring, key=lambda rows: -int(trace.dur[rows].sum()))


def _groups_of_names(trace: Trace, rows: Rows) -> Int64s:
    """Number the names of some annotations so that "batch 1" and "batch 2" share one.

    Args:
        trace: The trace.
        rows: The annotations.

    Returns:
        For each name of the trace the number of its group; -1 if no row has the name,
        and for names that cannot be of a step: those of the compiler and those in
        PARTS.
    """
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
    """Columns with a row for each GPU event, or for each op if there are none."""

    requested_ns: Int64s  # ns of the file: start of the launch call, or of the op
    dur: Int64s  # ns


def _work_of_names(trace: Trace) -> _Work:
    """Return the work of which steps should contain most.

    That is all GPU events with a known launch call. In a trace without GPU events it is
    the CPU ops that are in no other slice.
    """
    gpu_rows = trace.gpu_rows
    if len(gpu_rows):
        linked = gpu_rows[trace.launch[gpu_rows] != NO_ROW]
        launches = trace.launch[linked]
        return _Work(requested_ns=trace.start[launches], dur=trace.dur[linked])
    ops = trace.rows_of(Role.OP)
    outermost = ops[trace.parent[ops] == NO_ROW]
    return _Work(requested_ns=trace.start[outermost], dur=trace.dur[outermost])


def _share_inside(trace: Trace, group: Rows, work: _Work) -> float:
    """Return how much of the work was requested during some annotations, from 0 to 1.

    If they last from 0 to 10 and a kernel of 30 ns was launched at 5, one of 10 ns at
    12, it is 0.75. It is 0 if two annotations overlap, since steps do not.

    Args:
        trace: The trace.
        group: The annotations, in order of time.
        work: The work.
    """
    end = trace.end[group]
    start = _starts_after_ends(trace.start[group], end)
    overlap = bool((start[1:] < end[:-1]).any())
    total_ns = int(work.dur.sum())
    if not total_ns or overlap:
        return 0.0
    is_inside = Cover(start, end).place_of(work.requested_ns) >= 0
    inside_ns = work.dur[is_inside].sum()
    return float(inside_ns) / total_ns


def _find_iterations(trace: Trace) -> Steps:
    """Return steps that each end where a step of the optimizer ends.

    The first one begins where the recording of the thread begins. In a file that is a
    part of another one (it has the key CLIPPED) that is in the middle of an iteration,
    which is then left out. A single optimizer step makes no iterations.
    """
    rows = _steps_of_main_optimizer(trace)
    if len(rows) < 2:
        return _find_annotated_steps(trace, rows[:0], "")
    first_start = _first_start_on_thread(trace, int(rows[0]))
    numbers = tuple(range(1, len(rows) + 1))
    steps = msgspec.structs.replace(
        _find_annotated_steps(trace, rows, f"{UP_TO}{trace.name_of(int(rows[0]))}"),
        names=tuple(f"#{number}" for number in numbers),
        start=np.append(first_start, trace.end[rows[:-1]]),
        numbers=numbers,
        printed=False,
    )
    if CLIPPED in trace.keys:
        return steps.only(np.arange(1, len(rows)))
    return steps


def _steps_of_main_optimizer(trace: Trace) -> Rows:
    """Return the annotations Optimizer.step#... that end iterations, in order of time.

    Of several optimizers (a GAN has two) it is the one that steps most often; of those
    that step equally often, the one that steps last. Empty if there is none.
    """
    rows = _keep_outermost(trace, lambda name: name.startswith(OPTIMIZER))
    if not len(rows):
        return rows
    names = trace.name[rows]
    occurrences = np.bincount(names)
    most_frequent = names[occurrences[names] == occurrences.max()]
    last_to_step = most_frequent[-1]
    steps: Rows = rows[names == last_to_step]
    return steps


def _first_start_on_thread(trace: Trace, row: int) -> int:
    """Return when the first slice starts on the thread of a row, in ns."""
    thread_of_track = trace.thread_of_track
    thread = thread_of_track[trace.track[row]]
    tracks = np.flatnonzero(thread_of_track == thread).tolist()
    first_rows = [trace.tracks[track].first_row for track in tracks]
    return int(trace.start[first_rows].min())


def _find_annotated_steps(trace: Trace, rows: Rows, by: str) -> Steps:
    """Return steps that are annotations.

    Args:
        trace: The trace.
        rows: The annotations in order of time. May be empty.
        by: What the steps are, for users; "ProfilerStep".
    """
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
