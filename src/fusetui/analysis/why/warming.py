"""Find one-time work of a program, such as loading kernels and compiling.

A measurement of the steady state should not contain it. The rule warm-up reports how
long the GPU waits for it, and other rules leave that time out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.launches import find_capture_calls, mark_graph_calls
from fusetui.analysis.why.thread_activity import ThreadActivity
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import (
    PROFILED,
    StepLength,
    Steps,
    by_launch_time,
    launched_bounds,
)
from fusetui.trace.model.arrays import (
    NO_ROW,
    Flags,
    Int64s,
    Rows,
    distinct,
    distinct_rows,
    numbers_of_sized_groups,
    reduce_groups,
    summed,
)
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.intervals import (
    FOREVER,
    NOTHING,
    Cover,
    joined,
    order_by_start,
    union,
    without,
)
from fusetui.trace.model.memo import memo
from fusetui.trace.model.sorted_arrays import count_below, count_between, slice_between

SETS_UP: Final = lazy_pattern(
    r"(?:Stream|Event|Ctx|Context|Graph)Create|GraphInstantiate|PrimaryCtx|ModuleLoad|LibraryLoad"
    r"|LibraryGet|ModuleGet|KernelGet|FuncGet|FuncSet|GetDeviceProp|DeviceGet|StreamGetPriority"
    r"|Occupancy|SetDevice|DeviceEnablePeerAccess|\Acu(?:da)?Init\b|\AhipInit\b"
    r"|GetSymbol(?:Address|Size)|FuncBySymbol|GetDeviceCount|DriverEntryPoint|GetProcAddress"
    r"|ExportTable"
)
"""Matches calls that create what is then kept, or that are slow as the first of a
library."""

LONG_NS: Final = 100_000
"""A runtime call that takes longer than this is no ordinary one."""
LONG_OP_NS: Final = 1_000_000
"""A first call of an op that takes longer than this may have done more than its work.
"""
MIN_RATIO_TO_LATER_CALLS: Final = 10
"""A first call that takes this many times as long as all later ones did more than its
work."""
MIN_RATIO_OF_FIRST_STEP: Final = 2
"""A first step that takes this many times the median of the others is warm-up."""
MIN_STEPS_TO_COMPARE: Final = 3
"""From fewer steps than these, the first one is not compared with the others."""
MIN_CALLS_PER_GPU_EVENT: Final = 0.1
"""How often a call goes on, in calls per GPU event.

In a trace without steps, a name that is called less often in the second half of the GPU
events does not go on there.
"""
MIN_SHARE_OF_TIME_LATE: Final = 0.25
"""How much of a call goes on, as a share of the time of all calls of its name.

In a trace without steps, a name with less of its time in the second half of the GPU
events does not go on there.
"""


class OneTimeSlices(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Slices of CPU threads of one kind that happen once; shape [n], ns of the file."""

    what: str  # the kind, in words for the user
    rows: Rows
    """Rows of the trace. Empty for the first step, which is a time and no slice."""
    start: Int64s
    end: Int64s
    with_waits: bool = False
    """Whether waiting for the device belongs to it."""
    of_ops: bool = False
    """Whether the rows are ops: then an op inside of them may be the cause."""


class WarmUpPiece(msgspec.Struct, frozen=True, eq=False):
    """One kind of what happens once, and its time."""

    slices: OneTimeSlices
    cover: Cover
    """When it happens on the threads that launch, in ns of the file.

    The pieces are disjoint: a piece does not have what an earlier one covers.
    """


class StepIntervals(msgspec.Struct, frozen=True, eq=False):
    """When each step runs; in ns of the file, shape [steps]."""

    start: Int64s
    end: Int64s
    length: StepLength
    """Which length of a step `end - start` is: the wall or the launched length."""


def find_step_intervals(trace: Trace, steps: Steps) -> StepIntervals | None:
    """Find when each step of the program runs.

    If the annotated steps hold at least half of the GPU's work by time, they run when
    they are annotated. Otherwise the steps only enqueue work, and how far the CPU is
    ahead says nothing about how long a step takes. A step then lasts until its GPU work
    is done, and the next one begins. The first one begins with its first GPU work.

    Returns:
        None if the launched work of a step is not known.
    """
    if not len(steps) or _do_steps_hold_work(trace, steps):
        return StepIntervals(start=steps.start, end=steps.end, length=StepLength.WALL)

    events, launched_ns = by_launch_time(trace)
    events_of_steps = [events[positions] for positions in steps.slices_of(launched_ns)]
    event_counts = np.array([len(of_step) for of_step in events_of_steps])
    if not event_counts.all():  # a step launches nothing
        return None

    first_work_ns = int(trace.start[events_of_steps[0]].min())
    first_begin_ns = max(int(steps.start[0]), first_work_ns)
    bounds = launched_bounds(
        wall_bounds=np.append(first_begin_ns, steps.end),
        work_end=trace.end[np.concatenate(events_of_steps)],
        step_of_work=numbers_of_sized_groups(event_counts),
    )

    return StepIntervals(start=bounds[:-1], end=bounds[1:], length=StepLength.LAUNCHED)


def _do_steps_hold_work(trace: Trace, steps: Steps) -> bool:
    """Return whether the steps hold at least half of the time in which devices are
    busy.

    The busy times of all devices are added up. Without GPU work, the answer is True.
    """
    events = trace.gpu_rows
    device = trace.process_of(events)

    busy_ns = 0
    in_steps_ns = 0
    for device_index in distinct(device).tolist():
        of_device = events[device == device_index]
        busy = union(trace.start[of_device], trace.end[of_device])
        busy_ns += busy.ns
        in_steps_ns += int(busy.within(steps.start, steps.end).sum())

    return 2 * in_steps_ns >= busy_ns


class FirstStep(NamedTuple):
    """How long the first step takes, and the median of the others, in ns."""

    first_ns: int
    others_ns: float


def compare_first_step(
    steps: Steps, intervals: StepIntervals | None
) -> FirstStep | None:
    """Compare the first step with the others.

    Args:
        intervals: When the steps run; None if that is not known.

    Returns:
        None if there are fewer than MIN_STEPS_TO_COMPARE steps, or if their work
        differs by design, as in a server.
    """
    if intervals is None or len(steps) < MIN_STEPS_TO_COMPARE or steps.are_of_server:
        return None

    length_ns = intervals.end - intervals.start
    return FirstStep(
        first_ns=int(length_ns[0]), others_ns=float(np.median(length_ns[1:]))
    )


def is_first_step_slow(steps: Steps, intervals: StepIntervals | None) -> bool:
    """Whether the first step is much longer than the median of the others.

    That is by more than a factor of MIN_RATIO_OF_FIRST_STEP.
    """
    step = compare_first_step(steps, intervals)
    if step is None or step.others_ns <= 0:
        return False
    return step.first_ns > MIN_RATIO_OF_FIRST_STEP * step.others_ns


def are_earlier_steps_missing(steps: Steps) -> bool:
    """Whether the program had run steps before the recording.

    The number of the first recorded step tells: the profiler counts from 0, programs
    count from 0 or 1.
    """
    if not steps.printed:
        return False

    first_number = 0 if steps.by == PROFILED else 1
    return steps.numbers[0] > first_number


def mark_recurring_calls(trace: Trace, steps: Steps, calls: Rows) -> Flags:
    """Mark the calls that belong to the steady state of the program.

    These are all calls after the first step, and those in it whose name recurs: the
    mean later step has at least half as many calls of this name as the first one. With
    4 calls of cudaMalloc in the first of three steps, and 3 and 1 in the others, those
    in the first step are marked too.

    Args:
        calls: Rows of the trace.

    Returns:
        One flag per call. With fewer than two steps, a call is marked if its name
        recurs by `_find_recurring_names`.
    """
    name = trace.name[calls]
    if len(steps) < 2:
        return _find_recurring_names(trace, calls)[name]

    # Count the calls of each name in the first step and in all later ones.
    is_after_first = trace.start[calls] >= steps.start[1]
    name_count = len(trace.names)
    calls_in_first = np.bincount(name[~is_after_first], minlength=name_count)
    calls_in_later = np.bincount(name[is_after_first], minlength=name_count)

    later_steps = len(steps) - 1
    name_recurs = 2 * calls_in_later >= calls_in_first * later_steps
    is_steady: Flags = is_after_first | name_recurs[name]

    return is_steady


def mark_one_time_calls(trace: Trace, steps: Steps, calls: Rows) -> Flags:
    """Mark the calls that belong to the start of the program, not to its steady state.

    With two steps or more, these are the calls that `mark_recurring_calls` does not mark.
    Without steps, those of them count that start in the first half of the recording. A
    later call counts only if no call of its name is in the first half: what is called
    both early and late belongs to no start.

    Args:
        calls: Rows of the trace.

    Returns:
        One flag per call.
    """
    is_once = ~mark_recurring_calls(trace, steps, calls)
    if len(steps) >= 2:
        return is_once

    name = trace.name[calls]
    is_late = trace.start[calls] >= _find_second_half_ns(trace)
    has_early_name = np.isin(name, name[~is_late])
    repeats_early_call = is_late & has_early_name

    return is_once & ~repeats_early_call


def _find_second_half_ns(trace: Trace) -> int:
    """Return when the second half of the GPU events begins to be launched.

    The time is in ns of the file. It is FOREVER, later than any time, if no launch is
    known.
    """
    launched_ns = _list_launch_times(trace)
    if not len(launched_ns):
        return FOREVER

    middle = len(launched_ns) // 2
    return int(launched_ns[middle])


def _list_launch_times(trace: Trace) -> Int64s:
    """Return when each GPU event with a known launch was launched, ascending."""
    launch = trace.launch[trace.gpu_rows]
    known_launch = launch[launch != NO_ROW]
    return np.sort(trace.start[known_launch])


def _find_recurring_names(trace: Trace, calls: Rows) -> Flags:
    """Mark the names whose calls recur, in a trace without steps.

    The recording is cut in two where the second half of the GPU events begins to be
    launched. A name recurs if it is called in both halves. In the second half it must
    be called at least MIN_CALLS_PER_GPU_EVENT times per GPU event, and have
    MIN_SHARE_OF_TIME_LATE of its total time.

    Args:
        calls: Rows of the trace.

    Returns:
        One flag per name of the trace; shape [names].
    """
    is_late = trace.start[calls] >= _find_second_half_ns(trace)
    early = calls[~is_late]
    late = calls[is_late]

    # Figures of each name.
    name_count = len(trace.names)
    early_calls = np.bincount(trace.name[early], minlength=name_count)
    late_calls = np.bincount(trace.name[late], minlength=name_count)
    late_ns = summed(trace.name[late], trace.dur[late], name_count)
    all_ns = summed(trace.name[calls], trace.dur[calls], name_count)

    launched_events = len(_list_launch_times(trace))
    late_events = launched_events - launched_events // 2
    is_in_both_halves = (early_calls > 0) & (late_calls > 0)
    is_frequent = late_calls >= MIN_CALLS_PER_GPU_EVENT * late_events
    keeps_its_time = late_ns >= MIN_SHARE_OF_TIME_LATE * all_ns

    return np.asarray(is_in_both_halves & is_frequent & keeps_its_time)


def find_warm_up_pieces(
    trace: Trace,
    kinds: NDArray[np.int8],
    launching: Flags,
    steps: Steps,
    intervals: StepIntervals | None,
    compiling: Rows,
) -> tuple[WarmUpPiece, ...]:
    """Find what happens once, and when it keeps a thread that launches.

    If the first step is much longer than the others, the last piece is that step with
    all before it.

    Args:
        kinds: The ThreadActivity of each row; see thread_activity.activities.
        launching: True for the tracks of threads that launch; shape [tracks].
        steps: The steps of the trace.
        intervals: When the steps run; None if that is not known.
        compiling: The slices in which something is compiled, as rows.

    Returns:
        Pieces whose covers are disjoint, in the order in which they claim time.
    """
    waits = np.flatnonzero(kinds == ThreadActivity.SYNC)
    waiting_cover = _cover_launching_threads(trace, launching, waits)

    warm_up_pieces: list[WarmUpPiece] = []
    claimed = NOTHING
    for slices in _find_one_time_slices(trace, kinds, steps, compiling):
        is_launching = launching[trace.track[slices.rows]]
        cover = union(slices.start[is_launching], slices.end[is_launching])
        # Waits for the device belong to other findings, except in algorithm searches.
        if not slices.with_waits:
            cover = without(cover, waiting_cover)

        warm_up_pieces.append(WarmUpPiece(slices, without(cover, claimed)))
        claimed = joined(claimed, cover)

    if is_first_step_slow(steps, intervals):
        slices = _make_first_step_slice(trace, steps)
        cover = Cover(slices.start, slices.end)
        warm_up_pieces.append(WarmUpPiece(slices, without(cover, claimed)))

    return tuple(warm_up_pieces)


def _cover_launching_threads(trace: Trace, launching: Flags, slices: Rows) -> Cover:
    """Return the time that some slices cover on the tracks of threads that launch."""
    slices = slices[launching[trace.track[slices]]]
    return union(trace.start[slices], trace.end[slices])


def _make_first_step_slice(trace: Trace, steps: Steps) -> OneTimeSlices:
    """Make the record of the time from the begin of the trace to the end of the first
    step.

    It stands for the rest of the warm-up. It has a start and an end, but no row of the
    trace.
    """
    return OneTimeSlices(
        what="the rest of the first step",
        rows=np.empty(0, dtype=np.intp),
        start=np.array([trace.begin_ns]),
        end=steps.end[:1],
    )


def _find_one_time_slices(
    trace: Trace, kinds: NDArray[np.int8], steps: Steps, compiling: Rows
) -> Iterator[OneTimeSlices]:
    """Yield each kind of work that a program does only once, such as loading of
    kernels.

    Where several kinds cover the same time, it belongs to the one that is yielded
    first.

    Args:
        kinds: The ThreadActivity of each row of the trace.
        steps: The steps of the trace.
        compiling: The slices in which something is compiled, as rows.
    """
    yield find_graph_captures(trace)

    # cuDNN waits for the device in such a search, which belongs to it.
    searches = _find_one_time_searches(trace, steps)
    yield _make_one_time_slices(
        trace, "convolution algorithm searches", searches, with_waits=True
    )

    if len(steps) > 1:
        is_in_first_step = trace.start[compiling] < steps.start[1]
        first_compilations = compiling[is_in_first_step]
        yield _make_one_time_slices(trace, "compilation", first_compilations)

    first_launches = _find_first_launches(trace)
    yield _make_one_time_slices(trace, "first kernel launches", first_launches)

    allocations = np.flatnonzero(kinds == ThreadActivity.ALLOC)
    is_once = mark_one_time_calls(trace, steps, allocations)
    is_long = _are_long(trace, allocations)
    yield _make_one_time_slices(trace, "allocations", allocations[is_once & is_long])

    set_up_calls = _find_set_up_calls(trace, steps)
    yield _make_one_time_slices(trace, "setup calls", set_up_calls)

    first_ops = _find_slow_first_ops(trace)
    yield _make_one_time_slices(trace, "first op calls", first_ops, of_ops=True)


def _find_one_time_searches(trace: Trace, steps: Steps) -> Rows:
    """Find the ops that search for a convolution algorithm and do not recur.

    In such a search, cuDNN measures several algorithms. The library keeps what it found
    for a shape, so a search recurs only if the inputs keep changing their shapes: then
    it starts after the first step. Returns rows of the trace.
    """
    searches = find_algorithm_searches(trace)
    if len(steps) < 2:
        return searches

    is_in_first_step: Flags = trace.start[searches] < steps.start[1]
    return searches[is_in_first_step]


def _find_set_up_calls(trace: Trace, steps: Steps) -> Rows:
    """Find the long runtime calls that set something up once."""
    calls = trace.rows_of(Role.CALL)
    calls = calls[_are_long(trace, calls) & trace.matching(calls, SETS_UP.search)]
    return calls[mark_one_time_calls(trace, steps, calls)]


def _are_long(trace: Trace, calls: Rows) -> Flags:
    """Tell which runtime calls take longer than ordinary ones."""
    are_long: Flags = trace.dur[calls] > LONG_NS
    return are_long


CONVOLUTIONS: Final = lazy_pattern(
    r"(?:cudnn|miopen)_convolution|aten::convolution_backward|ConvolutionBackward"
)
"""Matches ops that call cuDNN or MIOpen for one convolution, or for its gradients."""
EVENT_WAITS: Final = lazy_pattern(r"\A(?:cuda|hip)EventSynchronize\Z")
MIN_TRIES: Final = 3
"""A search measures at least this many algorithms, and launches as many different
kernels."""


@memo()
def find_algorithm_searches(trace: Trace) -> Rows:
    """Find the convolutions in which the library measures algorithms.

    torch.backends.cudnn.benchmark does so. The thread then waits for an event MIN_TRIES
    times or more, each time after it launched something since the wait before, and
    launches as many different kernels. An op that runs one algorithm waits for no
    event.

    Returns:
        The ops, as rows of the trace.
    """
    ops = trace.rows_named(CONVOLUTIONS.search, Role.OP, Role.ANNOTATION)
    waits = trace.rows_named(EVENT_WAITS.search, Role.CALL)
    if not len(ops) or not len(waits):
        return ops[:0]

    kernels = trace.rows_of(Role.KERNEL)
    kernels = kernels[trace.launch[kernels] != NO_ROW]
    launches = CallsInOrder.sort(trace, trace.launch[kernels])
    launched_name = trace.name[kernels[launches.order]]
    event_waits = CallsInOrder.sort(trace, waits)

    searches = []
    for op in ops.tolist():
        waited_ns = event_waits.start[event_waits.find_inside_op(trace, op)]
        if len(waited_ns) < MIN_TRIES:  # nearly all ops, so look no further
            continue

        launches_of_op = launches.find_inside_op(trace, op)
        tries = _count_tries(launches.start[launches_of_op], waited_ns)
        different_kernels = len(distinct(launched_name[launches_of_op]))
        if tries >= MIN_TRIES and different_kernels >= MIN_TRIES:
            searches.append(op)

    return np.array(searches, dtype=np.intp)


def _count_tries(launched_ns: Int64s, waited_ns: Int64s) -> int:
    """Count the waits that come after a launch since the wait before.

    In this example, nothing was launched between the first wait and the second.

    >>> _count_tries(np.array([10, 11, 40]), waited_ns=np.array([20, 30, 50]))
    2

    Args:
        launched_ns: When something was launched, ascending.
        waited_ns: When the waits begin, ascending.
    """
    launches_before_wait = count_below(launched_ns, waited_ns)
    return len(distinct(launches_before_wait[launches_before_wait > 0]))


class CallsInOrder(msgspec.Struct, frozen=True, eq=False):
    """Calls of all threads, sorted by start; arrays of shape [calls]."""

    order: Rows
    """The index of each call among those that were given."""
    start: Int64s
    thread: NDArray[np.integer]

    @classmethod
    def sort(cls, trace: Trace, calls: NDArray[np.integer]) -> CallsInOrder:
        """Sort some calls by their start.

        Args:
            calls: Rows of the trace, in any order.

        Returns:
            The start and the thread of each call in that order, and the order itself as
                indices into `calls`.
        """
        order = np.argsort(trace.start[calls], kind="stable")
        calls_in_order = calls[order]
        return cls(
            order=order,
            start=trace.start[calls_in_order],
            thread=trace.thread_of(calls_in_order),
        )

    def find_inside_op(self, trace: Trace, op: int) -> Rows:
        """Return the indices of the calls that start during an op, on its thread."""
        in_time_of_op = slice_between(self.start, trace.start[op], trace.end[op])
        thread_of_op = trace.thread_of_track[trace.track[op]]
        is_of_thread = self.thread[in_time_of_op] == thread_of_op
        indices: Rows = in_time_of_op.start + np.flatnonzero(is_of_thread)
        return indices


@memo()
def find_tried_launches(trace: Trace) -> Rows:
    """Find the calls that launch what a search for algorithms measures.

    These are the launches of its op up to the last wait for an event. What the op
    launches after that is its own work.

    Returns:
        Rows of the trace.
    """
    searches = find_algorithm_searches(trace)
    if not len(searches):
        return searches

    calls = distinct(trace.launch[trace.gpu_rows]).astype(np.intp)
    calls = calls[calls != NO_ROW]
    launches = CallsInOrder.sort(trace, calls)
    waits = CallsInOrder.sort(trace, trace.rows_named(EVENT_WAITS.search, Role.CALL))

    tried_launches = []
    for search in searches.tolist():
        wait_ns = waits.start[waits.find_inside_op(trace, search)]
        last_wait_ns = wait_ns[-1]  # a search has at least MIN_TRIES waits
        launches_of_search = launches.find_inside_op(trace, search)
        is_tried = launches.start[launches_of_search] < last_wait_ns
        tried_launches.append(calls[launches.order[launches_of_search[is_tried]]])

    return distinct(np.concatenate(tried_launches))


def _make_one_time_slices(
    trace: Trace,
    what: str,
    rows: Rows,
    *,
    with_waits: bool = False,
    of_ops: bool = False,
) -> OneTimeSlices:
    """Make the record of one kind of work that happens once.

    Args:
        what: What the kind is called in a finding, such as `allocations`.
        rows: Its slices, as rows of the trace.
        with_waits: Whether waiting for the device belongs to it.
        of_ops: Whether the rows are ops.
    """
    return OneTimeSlices(
        what=what,
        rows=rows,
        start=trace.start[rows],
        end=trace.end[rows],
        with_waits=with_waits,
        of_ops=of_ops,
    )


def find_graph_captures(trace: Trace) -> OneTimeSlices:
    """Find the captures of CUDA graphs.

    Each goes from a call that begins a capture to the next call on the same thread that
    ends one. It goes to the end of the trace if there is none.
    """
    calls = find_capture_calls(trace)
    has_end = calls.end != NO_ROW
    return OneTimeSlices(
        what="graph capture",
        rows=calls.begin,
        start=trace.start[calls.begin],
        end=np.where(has_end, trace.end[calls.end], trace.end_ns),
    )


def _find_first_launches(trace: Trace) -> Rows:
    """Find the calls that launch a kernel for the first time and load its module.

    The first time counts on each device. Replays of graphs do not count: they are slow
    because their nodes are recorded.
    """
    kernels = trace.rows_of(Role.KERNEL)
    kernels = kernels[trace.launch[kernels] != NO_ROW]
    kernels = kernels[order_by_start(trace.start[kernels], trace.end[kernels])]
    calls = trace.launch[kernels].astype(np.intp)

    device = trace.process_of(kernels)
    _, device_and_name = distinct_rows((device, trace.name[kernels]))
    first_calls = calls[_find_much_longer_firsts(device_and_name, trace.dur[calls])]
    launches = distinct(first_calls[_are_long(trace, first_calls)])
    replays_graph: Flags = mark_graph_calls(trace)[launches]

    return launches[~replays_graph]


def _find_slow_first_ops(trace: Trace) -> Rows:
    """Find the first calls of ops that do more than the work of the op, such as loading
    code.

    Such a call launches GPU work and takes longer than LONG_OP_NS. It also takes many
    times as long as each later call of its name. An op that is called only once does
    not count.

    Returns:
        Rows of the trace.
    """
    ops = trace.rows_of(Role.OP)
    long_ops = ops[trace.dur[ops] > LONG_OP_NS]

    # A launch call lies inside of an op if its row is between the op's and its end_row.
    launches = distinct(trace.launch[trace.gpu_rows])
    launches_inside = count_between(launches, long_ops, trace.end_row[long_ops])
    long_launching_ops = long_ops[launches_inside > 0]

    # Compare only ops that share their name with one of these.
    is_compared_name = np.zeros(len(trace.names), dtype=np.bool_)
    is_compared_name[trace.name[long_launching_ops]] = True
    compared = ops[is_compared_name[trace.name[ops]]]
    compared = compared[np.argsort(trace.start[compared], kind="stable")]
    first = _find_much_longer_firsts(
        trace.name[compared], trace.dur[compared], single=False
    )
    first_ops = compared[first]

    return first_ops[np.isin(first_ops, long_launching_ops, assume_unique=True)]


def _find_much_longer_firsts(
    key: NDArray[np.integer], length_ns: Int64s, *, single: bool = True
) -> Rows:
    """Find the first element of each key that is much longer than all later ones.

    It is so if it takes MIN_RATIO_TO_LATER_CALLS times as long as the longest of them.

    In this example, it is the first of the two elements with the key 7: 900 ns are far
    longer than 9 ns, and 40 ns are not.

    >>> key, length_ns = np.array([7, 5, 7, 5]), np.array([900, 40, 9, 9])
    >>> _find_much_longer_firsts(key, length_ns).tolist()
    [0]

    Args:
        key: Equal for elements that are compared; in the order of time.
        length_ns: The length of each element.
        single: Whether an element counts that is the only one of its key.

    Returns:
        Indices into `key`, in the order of the keys.
    """
    by_key = grouped(key)
    first_of_key = by_key.begins[:-1]
    later_ns = length_ns[by_key.order]
    later_ns[first_of_key] = 0  # the first one is not compared with itself
    longest_later_ns = reduce_groups(np.maximum, later_ns, first_of_key)

    first_ns = length_ns[by_key.first]
    is_much_longer = first_ns >= MIN_RATIO_TO_LATER_CALLS * longest_later_ns
    if not single:
        is_much_longer &= by_key.counts > 1

    return by_key.first[is_much_longer]
