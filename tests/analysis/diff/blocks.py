"""Takes a repeated block of work (a layer, an iteration) out of a trace, or puts it in
once more.

All of it works on the events of the file: which block repeats is found by comparing the
names of the kernels of the busiest stream with themselves, shifted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

Event = dict[str, Any]
Thread = tuple[Any, Any]
"""pid and tid."""
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
MIN_KERNELS = MIN_REPETITIONS = 4
"""A block has at least so many different kernels, and occurs at least so often."""


def number(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))


def begins(event: Event) -> Decimal:
    """The start of an event in us."""
    return number(event["ts"])


def ends(event: Event) -> Decimal:
    """The end of an event in us."""
    return number(event["ts"]) + number(event.get("dur", 0))


@dataclass
class Repeated:
    """The kernels of one stream in order, and the block that covers most of them."""

    kernels: list[Event]
    first: int  # the first kernel of the first block
    size: int  # of a block, in kernels
    last: int  # so far each kernel is that of a block before

    @property
    def times(self) -> int:
        """How often it occurs in a row."""
        return (self.last - self.first) // self.size

    def block(self, nth: int) -> list[Event]:
        start = self.first + nth * self.size
        return self.kernels[start : start + self.size]


@dataclass
class Cut:
    """Events with a change to one block, or to one block in each step."""

    events: list[Event]
    # the time of the kernels that are gone or new, on all streams, of each step
    ns: list[int]
    pieces: int  # how many these are, in a step


def in_all_steps(events: list[Event]) -> list[Repeated]:
    """What repeats in a step, for each step; none unless all steps have the same. A
    trace without steps is one."""
    streams: defaultdict[Thread, list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") in WORK and event.get("ph") == "X":
            streams[_thread(event)].append(event)
    busiest: list[Event] = max(streams.values(), key=len, default=[])
    blocks = []
    for kernels in _by_step(events, sorted(busiest, key=begins)):
        block = repeated(kernels)
        if block is None:
            return []
        blocks.append(_from_an_op(events, block))
    sizes = {(block.size, block.times) for block in blocks}
    return blocks if len(sizes) == 1 else []


def _by_step(events: list[Event], kernels: list[Event]) -> list[list[Event]]:
    """The kernels of each step that launched any; all of them where no step did."""
    call_of = _calls(events)
    of_steps = []
    for begin, end in _bounds_of_steps(events):
        of_step = []
        for kernel in kernels:
            call = call_of.get(_correlation(kernel))
            if call is not None and begin <= begins(call) < end:
                of_step.append(kernel)
        if of_step:
            of_steps.append(of_step)
    return of_steps or [kernels]


def _bounds_of_steps(events: list[Event]) -> list[tuple[Decimal, Decimal]]:
    """The start and end of each annotation ProfilerStep of the CPU, in order."""
    bounds = set()
    for event in events:
        is_step = str(event.get("name")).startswith("ProfilerStep")
        if is_step and event.get("cat") == "user_annotation":
            bounds.add((begins(event), ends(event)))
    return sorted(bounds)


def _from_an_op(events: list[Event], block: Repeated) -> Repeated:
    """The same from the first kernel on that no op launches together with the one
    before it: only whole ops make a layer. The block itself if there is none."""
    call_of = _calls(events)
    for first in range(block.first, block.first + block.size):
        kernel = block.kernels[first]
        kernel_before = block.kernels[max(0, first - 1)]
        call = call_of.get(_correlation(kernel))
        call_before = call_of.get(_correlation(kernel_before))
        if call is None or call_before is None:
            return replace(block, first=first)
        if _op_begins(events, call) >= begins(call_before):
            return replace(block, first=first)
    return block


def _op_begins(events: list[Event], call: Event) -> Decimal:
    """The start of the innermost op around a call, else that of the call."""
    at = begins(call)
    starts = []
    for event in events:
        is_op = event.get("cat") == "cpu_op" and _thread(event) == _thread(call)
        if is_op and begins(event) <= at < ends(event):
            starts.append(begins(event))
    return max(starts, default=at)


def repeated(kernels: list[Event]) -> Repeated | None:
    """The block that covers most kernels of a stream; None where nothing repeats in a
    row. Of blocks that cover equally many, the smallest."""
    names = [event["name"] for event in kernels]
    best: Repeated | None = None
    most_covered = 0
    for size in range(MIN_KERNELS, len(names) // MIN_REPETITIONS + 1):
        first, length = _longest(names, size)
        covered = (length // size + 1) * size if length else 0
        different = len(set(names[first : first + size]))
        if covered < MIN_REPETITIONS * size or different < MIN_KERNELS:
            continue
        if covered > most_covered:
            most_covered = covered
            last = first + length + size
            best = Repeated(kernels=kernels, first=first, size=size, last=last)
    return best


def _longest(names: list[str], size: int) -> tuple[int, int]:
    """The longest stretch in which each name is the one `size` places later: its first
    place and its length."""
    best_start = best_length = 0
    start = 0
    for place in range(len(names) - size + 1):
        is_last = place == len(names) - size
        if not is_last and names[place] == names[place + size]:
            continue
        if place - start > best_length:
            best_start, best_length = start, place - start
        start = place + 1
    return best_start, best_length


def without(events: list[Event], found: Sequence[Repeated], nth: int) -> Cut | None:
    """The nth block of each step is gone: its kernels, what the CPU did from its first
    launch to that of the next, and what that launched on other streams. None for the
    last block, and where the CPU does other things around the next one."""
    return _in_each(events, found, nth, _without)


def doubled(events: list[Event], found: Sequence[Repeated], nth: int) -> Cut | None:
    """The nth block of each step is there once more, right after itself."""
    return _in_each(events, found, nth, _doubled)


Change = Callable[[list[Event], "Spans"], list[Event]]


def _in_each(
    events: list[Event], found: Sequence[Repeated], nth: int, change: Change
) -> Cut | None:
    """The events after the change to the nth block of each step. The last step is
    changed first: what comes before a block stays as it is."""
    work_ns: list[int] = []  # of each step, the last one first
    pieces = 0
    for block in reversed(found):
        spans = _spans(events, block, nth)
        if spans is None:
            return None
        events = change(events, spans)
        work_ns.append(sum(int(number(event["dur"]) * 1000) for event in spans.work))
        pieces = len(spans.work)
    if not work_ns:
        return None
    return Cut(events=events, ns=work_ns[::-1], pieces=pieces)


def _without(events: list[Event], spans: Spans) -> list[Event]:
    """Without the block: what follows comes earlier, by the length of the block on its
    own side, the CPU or the GPU. What began before the block ends as its twin in the
    next block did."""
    gone = {id(event) for event in (*spans.work, *spans.inside)}
    left = [event for event in events if id(event) not in gone]
    ends_at = {}
    for event, twin in spans.pairs:
        ends_at[id(event)] = spans.begin + ends(twin) - spans.end
    gpu = spans.gpu_us
    if spans.thread is not None:
        gpu = min(gpu, spans.host_us)
    return _moved(left, spans, gpu=-gpu, host=-spans.host_us, ends_at=ends_at)


def _doubled(events: list[Event], spans: Spans) -> list[Event]:
    """With the block once more, under correlations of its own: what follows comes
    later."""
    host = spans.host_us
    gpu = max(spans.gpu_us, host)
    ends_at = {}
    for twin, event in spans.pairs:
        ends_at[id(event)] = spans.end + ends(twin) - spans.begin
    correlations: dict[Any, int] = {}  # new ones by old ones
    if spans.thread is not None:
        next_free = max(_correlation(event) or 0 for event in events) + 1
        for old in dict.fromkeys(map(_correlation, spans.work)):
            correlations[old] = next_free + len(correlations)
    again = [_again(event, host, correlations) for event in spans.inside]
    again += [_again(event, gpu, correlations) for event in spans.work]
    return _moved(events, spans, gpu=gpu, host=host, ends_at=ends_at) + again


@dataclass
class Spans:
    """From the first kernel of a block to that of the next on the GPU, and the same of
    their launch calls on the thread of the CPU (None if one call launches all of them,
    as a graph does).

    `work` is all that these launched, on any stream; `inside` what that thread began
    meanwhile, `pairs` what it was doing before a block began and ended in it, each with
    what does the same for the next block."""

    gpu_begin: Decimal
    gpu_end: Decimal
    work: list[Event]
    begin: Decimal = Decimal(0)
    end: Decimal = Decimal(0)
    thread: Thread | None = None
    inside: list[Event] = field(default_factory=list)
    pairs: list[tuple[Event, Event]] = field(default_factory=list)

    @property
    def gpu_us(self) -> Decimal:
        """From the first kernel of the block to that of the next."""
        return self.gpu_end - self.gpu_begin

    @property
    def host_us(self) -> Decimal:
        """From the first launch call of the block to that of the next."""
        return self.end - self.begin


def _moved(
    events: list[Event],
    spans: Spans,
    *,
    gpu: Decimal,
    host: Decimal,
    ends_at: dict[int, Decimal],
) -> list[Event]:
    """What comes after the block, earlier or later by `gpu` or `host` us; what lies
    around it, shorter or longer; events of `ends_at` (by id) with this end."""
    moved = []
    for event in events:
        is_timed = "ts" in event and event.get("ph") != "M"
        if not is_timed:
            moved.append(event)
        elif event.get("cat") in (*WORK, "gpu_user_annotation"):
            is_after = begins(event) >= spans.gpu_end
            moved.append(_later(event, gpu) if is_after else event)
        elif spans.thread is not None:
            moved.append(_on_host(event, spans, host, ends_at))
        else:
            moved.append(event)
    return moved


def _on_host(
    event: Event, spans: Spans, by: Decimal, ends_at: dict[int, Decimal]
) -> Event:
    """An event of the CPU with its new time."""
    if begins(event) >= spans.end:
        return _later(event, by)
    if id(event) in ends_at:
        return {**event, "dur": ends_at[id(event)] - begins(event)}
    is_around = begins(event) < spans.begin and ends(event) >= spans.end
    if event.get("ph") == "X" and is_around:
        return {**event, "dur": number(event["dur"]) + by}
    return event


def _spans(events: list[Event], block: Repeated, nth: int) -> Spans | None:
    """Where the nth block lies. None for the last block, where its launch calls are not
    all recorded on one thread, and where the CPU does other things around the next
    one."""
    if not 0 <= nth < block.times - 1:
        return None
    kernels = block.block(nth)
    next_kernel = block.block(nth + 1)[0]
    gpu_begin = begins(kernels[0])
    gpu_end = begins(next_kernel)
    correlations = [_correlation(kernel) for kernel in (*kernels, next_kernel)]
    is_one_launch = len(set(correlations)) == 1
    if is_one_launch:
        return Spans(gpu_begin=gpu_begin, gpu_end=gpu_end, work=kernels)
    call_of = _calls(events)
    launches = [call_of[each] for each in correlations if each in call_of]
    threads = {_thread(call) for call in launches}
    if len(launches) < len(correlations) or len(threads) != 1:
        return None
    thread = threads.pop()
    begin = begins(launches[0])
    end = begins(launches[-1])
    if begin >= end:
        return None
    on_thread = _slices_of_thread(events, thread)
    inside = [event for event in on_thread if begin <= begins(event) < end]
    pairs = _pairs_across(on_thread, begin, end)
    if pairs is None:
        return None
    launched = {
        correlation
        for correlation, call in call_of.items()
        if _thread(call) == thread and begin <= begins(call) < end
    }
    return Spans(
        gpu_begin=gpu_begin,
        gpu_end=gpu_end,
        work=[
            event
            for event in events
            if event.get("cat") in WORK and _correlation(event) in launched
        ],
        begin=begin,
        end=end,
        thread=thread,
        inside=inside,
        pairs=pairs,
    )


def _slices_of_thread(events: list[Event], thread: Thread) -> list[Event]:
    """What a thread of the CPU did."""
    return [
        event
        for event in events
        if event.get("ph") == "X"
        and event.get("cat") not in WORK
        and _thread(event) == thread
    ]


def _pairs_across(
    on_thread: list[Event], begin: Decimal, end: Decimal
) -> list[tuple[Event, Event]] | None:
    """What the thread was doing when the block began (and ended in it), each with what
    it was doing when the next block began; None if these are of other categories."""
    across_begin = []
    across_end = []
    for event in on_thread:
        if begins(event) < begin < ends(event) <= end:
            across_begin.append(event)
        if begin <= begins(event) < end < ends(event):
            across_end.append(event)
    across_begin.sort(key=_order)
    across_end.sort(key=_order)
    categories = [event["cat"] for event in across_begin]
    if categories != [event["cat"] for event in across_end]:
        return None
    return list(zip(across_begin, across_end, strict=True))


def _calls(events: Iterable[Event]) -> dict[Any, Event]:
    """The launch calls by correlation; of several, the last one of the file."""
    call_of = {}
    for event in events:
        is_call = event.get("cat") in ("cuda_runtime", "cuda_driver")
        correlation = _correlation(event)
        if is_call and correlation is not None:
            call_of[correlation] = event
    return call_of


def _correlation(event: Event) -> Any:
    return (event.get("args") or {}).get("correlation")


def _thread(event: Event) -> Thread:
    return event.get("pid"), event.get("tid")


def _order(event: Event) -> tuple[Decimal, Decimal]:
    """By start; of equal ones, the longest first."""
    return begins(event), -ends(event)


def _later(event: Event, by: Decimal) -> Event:
    return {**event, "ts": begins(event) + by}


def _again(event: Event, by: Decimal, correlations: dict[Any, int]) -> Event:
    """A copy of an event, later by so many us, under its new correlation."""
    args = dict(event.get("args") or {})
    if args.get("correlation") in correlations:
        args["correlation"] = correlations[args["correlation"]]
        args.pop("External id", None)
    return {**_later(event, by), "args": args}
