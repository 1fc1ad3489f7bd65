"""What a program does once: the work that a measurement of its steady state should not
contain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.questions.launches import capture_calls, graph_calls
from fusetui.analysis.why.devices import events_in_order
from fusetui.analysis.why.thread_activity import ThreadActivity
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.steps import (
    PROFILED,
    StepLength,
    Steps,
    by_launch_time,
    launched_bounds,
)
from fusetui.trace.model.arrays import Flags, Int64s, Rows, distinct, summed
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.intervals import (
    FOREVER,
    NOTHING,
    Cover,
    joined,
    union,
    without,
)
from fusetui.trace.model.memo import memo

SETS_UP: Final = lazy_pattern(
    r"(?:Stream|Event|Ctx|Context|Graph)Create|GraphInstantiate|PrimaryCtx|ModuleLoad|LibraryLoad"
    r"|LibraryGet|ModuleGet|KernelGet|FuncGet|FuncSet|GetDeviceProp|DeviceGet|StreamGetPriority"
    r"|Occupancy|SetDevice|DeviceEnablePeerAccess|\Acu(?:da)?Init\b|\AhipInit\b"
    r"|GetSymbol(?:Address|Size)|FuncBySymbol|GetDeviceCount|DriverEntryPoint|GetProcAddress"
    r"|ExportTable"
)
"""Calls that create what is then kept, or that are slow because they are the first of a
library."""

LONG_NS: Final = 100_000
"""A runtime call that takes longer is no ordinary one."""
LONG_OP_NS: Final = 1_000_000
TIMES: Final = 10
"""As long as those after it: a first call that did more than its work."""
SLOW_FIRST: Final = 2
"""Times the median of the other steps."""
FEWEST: Final = 3
"""Steps needed for a median of the others."""
OFTEN: Final = 0.1
"""Calls of a name per GPU event: without steps, what is called less often in the second
half of the GPU events does not go on there."""
GOES_ON: Final = 0.25
"""Of the time of the calls of a name: likewise, what takes less of it there."""


class OneTimeSlices(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Slices of CPU threads that happen once; arrays of shape [n], ns of the file."""

    what: str
    rows: Rows
    """None for the first step."""
    start: Int64s
    end: Int64s
    with_waits: bool = False
    """Whether waiting for the device is part of it."""
    of_ops: bool = False
    """Whether the rows are ops, around others that may be the cause."""


class WarmUpPiece(msgspec.Struct, frozen=True, eq=False):
    """One kind of what happens once."""

    slices: OneTimeSlices
    cover: Cover
    """When, on the threads that launch (ns of the file); without what earlier parts
    cover."""


class StepIntervals(msgspec.Struct, frozen=True, eq=False):
    """When each step runs; ns of the file, shape [steps]."""

    start: Int64s
    end: Int64s
    length: StepLength
    """What `end - start` is: the wall or the launched length of the step."""


def step_intervals(trace: Trace, steps: Steps) -> StepIntervals | None:
    """When each step runs. As annotated, if by time the steps hold at least half of the
    GPU's work (see model.steps_tell). Else they only enqueue it, and each runs when its
    launched bounds say, the first from the start of its work on: how far the thread is
    ahead says nothing of how long a step takes. None where a step launched none that is
    known."""
    if not len(steps) or _hold_the_work(trace, steps):
        return StepIntervals(start=steps.start, end=steps.end, length=StepLength.WALL)
    events, launched_ns = by_launch_time(trace)
    events_of_steps = [events[places] for places in steps.slices_of(launched_ns)]
    counts = [len(events_of_step) for events_of_step in events_of_steps]
    if 0 in counts:
        return None
    first_work_ns = int(trace.start[events_of_steps[0]].min())
    first_begin_ns = max(int(steps.start[0]), first_work_ns)
    bounds = launched_bounds(
        wall_bounds=np.append(first_begin_ns, steps.end),
        work_end=trace.end[np.concatenate(events_of_steps)],
        step_of_work=np.repeat(np.arange(len(steps)), counts),
    )
    return StepIntervals(start=bounds[:-1], end=bounds[1:], length=StepLength.LAUNCHED)


def _hold_the_work(trace: Trace, steps: Steps) -> bool:
    """Whether the steps hold at least half of the time in which the devices work; also
    where there is no GPU work."""
    events = trace.gpu_rows
    device = trace.process_of_track[trace.track[events]]
    busy_ns = 0
    inside_ns = 0
    for number in distinct(device).tolist():
        of_device = events[device == number]
        busy = union(trace.start[of_device], trace.end[of_device])
        busy_ns += busy.ns
        inside_ns += int(busy.within(steps.start, steps.end).sum())
    return 2 * inside_ns >= busy_ns


class FirstStep(NamedTuple):
    """How long the first step takes, and the median of the others (ns)."""

    first_ns: int
    others_ns: float


def first_step(steps: Steps, times: StepIntervals | None) -> FirstStep | None:
    """The first step and the others; None if there are too few steps, or if their work
    differs by design, as in a server."""
    if times is None or len(steps) < FEWEST or steps.are_of_server:
        return None
    length_ns = times.end - times.start
    return FirstStep(
        first_ns=int(length_ns[0]), others_ns=float(np.median(length_ns[1:]))
    )


def slow_first_step(steps: Steps, times: StepIntervals | None) -> bool:
    """Whether the first step takes SLOW_FIRST times as long as the others."""
    step = first_step(steps, times)
    return step is not None and step.first_ns > SLOW_FIRST * step.others_ns > 0


def earlier_steps_are_missing(steps: Steps) -> bool:
    """Whether the program had run steps before the recording, by the number of the
    first one: the profiler counts from 0, programs count from 0 or 1."""
    if not steps.printed:
        return False
    first_number = 0 if steps.by == PROFILED else 1
    return steps.numbers[0] > first_number


def recurring(trace: Trace, steps: Steps, calls: Rows) -> Flags:
    """Which calls belong to the steady state: those after the first step, and those in
    it if calls of their name are at least half as many in each later step. Where there
    are fewer than two steps, those whose name goes on; see _goes_on."""
    name = trace.name[calls]
    if len(steps) < 2:
        return _goes_on(trace, calls)[name]
    is_after_first = trace.start[calls] >= steps.start[1]
    names = len(trace.names)
    calls_after = np.bincount(name[is_after_first], minlength=names)
    calls_in_first = np.bincount(name[~is_after_first], minlength=names)
    later_steps = len(steps) - 1
    recurs = 2 * calls_after >= calls_in_first * later_steps
    is_steady: Flags = is_after_first | recurs[name]
    return is_steady


def only_once(trace: Trace, steps: Steps, calls: Rows) -> Flags:
    """Which calls belong to the start of the program: none of those that recur. Where
    there are fewer than two steps, neither do the later calls of a name that was called
    before the second half of the GPU events."""
    is_once = ~recurring(trace, steps, calls)
    if len(steps) >= 2:
        return is_once
    name = trace.name[calls]
    is_late = trace.start[calls] >= _second_half_ns(trace)
    is_early_name = np.zeros(len(trace.names), dtype=np.bool_)
    is_early_name[name[~is_late]] = True
    repeats_early_call = is_late & is_early_name[name]
    return is_once & ~repeats_early_call


def _second_half_ns(trace: Trace) -> int:
    """When the second half of the GPU events begins to be launched (ns of the file);
    FOREVER if no launch is known."""
    launched_ns = _launch_times(trace)
    if not len(launched_ns):
        return FOREVER
    middle = len(launched_ns) // 2
    return int(launched_ns[middle])


def _launch_times(trace: Trace) -> Int64s:
    """When each GPU event with a known launch was launched, in order."""
    calls = trace.launch[trace.gpu_rows]
    return np.sort(trace.start[calls[calls >= 0]])


def _goes_on(trace: Trace, calls: Rows) -> Flags:
    """For each name, whether its calls begin before the second half of the GPU events
    and go on there: OFTEN per GPU event, and with GOES_ON of their time; shape
    [names]."""
    names = len(trace.names)
    name = trace.name[calls]
    dur_ns = trace.dur[calls]
    is_late = trace.start[calls] >= _second_half_ns(trace)
    early_calls = np.bincount(name[~is_late], minlength=names)
    late_calls = np.bincount(name[is_late], minlength=names)
    late_ns = summed(name[is_late], dur_ns[is_late], names)
    all_ns = summed(name, dur_ns, names)

    launched_events = len(_launch_times(trace))
    late_events = launched_events - launched_events // 2
    goes_on: Flags = (early_calls > 0) & (late_calls > 0)
    goes_on &= late_calls >= OFTEN * late_events
    goes_on &= late_ns >= GOES_ON * all_ns
    return goes_on


def warm_up(
    trace: Trace,
    kinds: NDArray[np.int8],
    launching: Flags,
    steps: Steps,
    times: StepIntervals | None,
    compiling: Rows,
) -> tuple[WarmUpPiece, ...]:
    """What happens once, and when on the threads that launch (`launching`: their
    tracks); disjoint. The last piece is the first step, with all before it, if it is
    much longer than the others. `kinds`: see activities; `times`: of the steps;
    `compiling`: the slices in which something is compiled."""
    waits = np.flatnonzero(kinds == ThreadActivity.SYNC)
    waiting = _while_launching(trace, launching, waits)
    warm_up_pieces: list[WarmUpPiece] = []
    claimed = NOTHING
    for slices in _one_time_slices(trace, kinds, steps, compiling):
        is_launching = launching[trace.track[slices.rows]]
        cover = union(slices.start[is_launching], slices.end[is_launching])
        if not slices.with_waits:
            cover = without(cover, waiting)
        warm_up_pieces.append(WarmUpPiece(slices, without(cover, claimed)))
        claimed = joined(claimed, cover)
    if slow_first_step(steps, times):
        slices = _first_step_slice(trace, steps)
        cover = Cover(slices.start, slices.end)
        warm_up_pieces.append(WarmUpPiece(slices, without(cover, claimed)))
    return tuple(warm_up_pieces)


def _while_launching(trace: Trace, launching: Flags, rows: Rows) -> Cover:
    """The time that these rows cover on the tracks of threads that launch."""
    rows = rows[launching[trace.track[rows]]]
    return union(trace.start[rows], trace.end[rows])


def _first_step_slice(trace: Trace, steps: Steps) -> OneTimeSlices:
    """The time from the begin of the trace to the end of the first step, without a
    row."""
    return OneTimeSlices(
        what="the rest of the first step",
        rows=np.empty(0, dtype=np.intp),
        start=np.array([trace.begin_ns]),
        end=steps.end[:1],
    )


def _one_time_slices(
    trace: Trace, kinds: NDArray[np.int8], steps: Steps, compiling: Rows
) -> Iterator[OneTimeSlices]:
    """All kinds of what happens once, in the order in which they claim time. The
    arguments are those of warm_up."""
    yield captures(trace)
    yield _searches(trace, steps)
    if len(steps) > 1:
        is_in_first_step = trace.start[compiling] < steps.start[1]
        yield _slices(trace, "compilation", compiling[is_in_first_step])
    yield _slices(trace, "first launches of kernels", _first_launches(trace))
    allocations = np.flatnonzero(kinds == ThreadActivity.ALLOC)
    allocations = allocations[only_once(trace, steps, allocations)]
    yield _slices(trace, "allocations", allocations[_are_long(trace, allocations)])
    yield _slices(trace, "calls that set something up", _set_up_calls(trace, steps))
    first_ops = _slices(trace, "first calls of ops", _first_ops(trace))
    yield msgspec.structs.replace(first_ops, of_ops=True)


def _searches(trace: Trace, steps: Steps) -> OneTimeSlices:
    """The searches for algorithms that do not recur; waiting is a part of them."""
    searches = algorithm_searches(trace)
    searches = searches[~_recurring_searches(trace, steps, searches)]
    slices = _slices(trace, "the search for algorithms of convolutions", searches)
    return msgspec.structs.replace(slices, with_waits=True)


def _set_up_calls(trace: Trace, steps: Steps) -> Rows:
    """The long runtime calls that set something up once."""
    calls = trace.rows_of(Role.CALL)
    calls = calls[_are_long(trace, calls) & trace.matching(calls, SETS_UP.search)]
    return calls[only_once(trace, steps, calls)]


def _are_long(trace: Trace, calls: Rows) -> Flags:
    """Which runtime calls take longer than ordinary ones."""
    are_long: Flags = trace.dur[calls] > LONG_NS
    return are_long


CONVOLUTIONS: Final = lazy_pattern(
    r"(?:cudnn|miopen)_convolution|aten::convolution_backward|ConvolutionBackward"
)
"""Ops that call cuDNN or MIOpen for one convolution, or for its gradients."""
EVENT_WAITS: Final = lazy_pattern(r"\A(?:cuda|hip)EventSynchronize\Z")
MIN_TRIES: Final = 3
"""Algorithms that are measured, and different kernels that they launch."""


@memo()
def algorithm_searches(trace: Trace) -> Rows:
    """Convolutions in which the library measures algorithms
    (torch.backends.cudnn.benchmark): its thread waits for an event MIN_TRIES times or
    more, each time after it launched something since the wait before, and launches as
    many different kernels. An op that runs one algorithm waits for no event."""
    ops = trace.rows_named(CONVOLUTIONS.search, Role.OP, Role.ANNOTATION)
    waits = trace.rows_named(EVENT_WAITS.search, Role.CALL)
    if not len(ops) or not len(waits):
        return ops[:0]
    kernels = trace.rows_of(Role.KERNEL)
    kernels = kernels[trace.launch[kernels] >= 0]
    launches = CallsInOrder.of(trace, trace.launch[kernels])
    kernel_of_launch = kernels[launches.order]
    waits_in_order = CallsInOrder.of(trace, waits)
    searches = []
    for op in ops.tolist():
        waited_ns = waits_in_order.start[waits_in_order.within(trace, op)]
        if len(waited_ns) < MIN_TRIES:
            continue
        launches_of_op = launches.within(trace, op)
        tries = _count_tries(launches.start[launches_of_op], waited_ns)
        names = distinct(trace.name[kernel_of_launch[launches_of_op]])
        if tries >= MIN_TRIES and len(names) >= MIN_TRIES:
            searches.append(op)
    return np.array(searches, dtype=np.intp)


def _count_tries(launched_ns: Int64s, waited_ns: Int64s) -> int:
    """How many of the waits come after a launch since the wait before; both in
    order."""
    launched_before_wait = np.searchsorted(launched_ns, waited_ns)
    launched_since_last = np.diff(launched_before_wait, prepend=0)
    return int(np.count_nonzero(launched_since_last))


class CallsInOrder(msgspec.Struct, frozen=True, eq=False):
    """Calls of all threads by start; arrays of shape [calls]."""

    order: Rows
    """Their places among the calls that were given."""
    start: Int64s
    thread: NDArray[np.integer]

    @classmethod
    def of(cls, trace: Trace, calls: NDArray[np.integer]) -> CallsInOrder:
        """These calls, by their starts."""
        order = np.argsort(trace.start[calls], kind="stable")
        calls_in_order = calls[order]
        return cls(
            order=order,
            start=trace.start[calls_in_order],
            thread=trace.thread_of_track[trace.track[calls_in_order]],
        )

    def within(self, trace: Trace, op: int) -> Rows:
        """The places of the calls that start during an op, on its thread."""
        first = int(self.start.searchsorted(trace.start[op]))
        after_last = int(self.start.searchsorted(trace.end[op]))
        thread_of_op = trace.thread_of_track[trace.track[op]]
        is_of_thread = self.thread[first:after_last] == thread_of_op
        places: Rows = first + np.flatnonzero(is_of_thread)
        return places


@memo()
def tried_launches(trace: Trace) -> Rows:
    """The calls that launch what a search for algorithms measures: those of its op up
    to the last wait for an event. What the op launches after that is its own work."""
    searches = algorithm_searches(trace)
    if not len(searches):
        return searches
    calls = distinct(trace.launch[trace.gpu_rows]).astype(np.intp)
    calls = calls[calls >= 0]
    thread_of_call = trace.thread_of_track[trace.track[calls]]
    start = trace.start[calls]
    waits = CallsInOrder.of(trace, trace.rows_named(EVENT_WAITS.search, Role.CALL))
    are_tries = np.zeros(len(calls), dtype=np.bool_)
    for search in searches.tolist():
        wait_ns = waits.start[waits.within(trace, search)]
        last_wait_ns = wait_ns[-1]  # there are at least MIN_TRIES
        is_within = (start >= trace.start[search]) & (start < last_wait_ns)
        thread = trace.thread_of_track[trace.track[search]]
        are_tries |= is_within & (thread_of_call == thread)
    return calls[are_tries]


def _recurring_searches(trace: Trace, steps: Steps, searches: Rows) -> Flags:
    """Which searches come after the first step, where inputs keep changing their
    shapes; without steps none: the library keeps what it found for a shape."""
    if len(steps) < 2:
        return np.zeros(len(searches), dtype=np.bool_)
    recurs: Flags = trace.start[searches] >= steps.start[1]
    return recurs


def _slices(trace: Trace, what: str, rows: Rows) -> OneTimeSlices:
    """These rows as a kind of what happens once."""
    return OneTimeSlices(
        what=what, rows=rows, start=trace.start[rows], end=trace.end[rows]
    )


def captures(trace: Trace) -> OneTimeSlices:
    """The captures of graphs: from each begin of one to the next end of one on the same
    thread, else to the end of the trace."""
    begins, ends = capture_calls(trace)
    return OneTimeSlices(
        what="the capture of graphs",
        rows=begins,
        start=trace.start[begins],
        end=np.where(ends >= 0, trace.end[ends], trace.end_ns),
    )


def _first_launches(trace: Trace) -> Rows:
    """The calls that launch a kernel for the first time on its device and load its
    module. Replays of graphs are slow because their nodes are recorded: they do not
    count."""
    kernels = trace.rows_of(Role.KERNEL)
    kernels = kernels[trace.launch[kernels] >= 0]
    events = events_in_order(trace, kernels.astype(np.int32), trace.start[kernels])
    calls = trace.launch[events].astype(np.intp)
    device = trace.process_of_track[trace.track[events]].astype(np.int64)
    name_on_device = device * len(trace.names) + trace.name[events]
    first = _firsts(name_on_device, trace.dur[calls])
    first_calls = calls[first]
    is_long = trace.dur[first_calls] > LONG_NS
    launches = distinct(first_calls[is_long])
    return launches[~graph_calls(trace)[launches]]


def _first_ops(trace: Trace) -> Rows:
    """The first calls of ops that launch work and take long, much longer than all later
    ones of their name."""
    ops = trace.rows_of(Role.OP)
    long_ops = ops[trace.dur[ops] > LONG_OP_NS]
    launches = distinct(trace.launch[trace.gpu_rows])
    first_inside = np.searchsorted(launches, long_ops)
    after_last_inside = np.searchsorted(launches, trace.end_row[long_ops])
    long_ops = long_ops[first_inside < after_last_inside]
    has_long_op = np.zeros(len(trace.names), dtype=np.bool_)
    has_long_op[trace.name[long_ops]] = True
    candidates = ops[has_long_op[trace.name[ops]]]
    candidates = candidates[np.argsort(trace.start[candidates], kind="stable")]
    first = _firsts(trace.name[candidates], trace.dur[candidates], single=False)
    first_ops = candidates[first]
    return first_ops[np.isin(first_ops, long_ops, assume_unique=True)]


def _firsts(
    key: NDArray[np.integer], length_ns: Int64s, *, single: bool = True
) -> Rows:
    """The places of those that are the first of their key and TIMES as long as all
    later ones, in the order of the keys. `single`: also if there are no later ones."""
    by_key = np.argsort(key, kind="stable")
    if not len(by_key):
        return by_key
    is_first = np.append(True, np.diff(key[by_key]) != 0)
    begin_of_key = np.flatnonzero(is_first)
    counts = np.diff(np.append(begin_of_key, len(by_key)))
    later_ns = length_ns[by_key]
    later_ns[begin_of_key] = 0  # the first ones
    longest_later_ns = np.maximum.reduceat(later_ns, begin_of_key)
    first = by_key[begin_of_key]
    is_much_longer = length_ns[first] >= TIMES * longest_later_ns
    if not single:
        is_much_longer &= counts > 1
    return first[is_much_longer]
