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
WORK = ("kernel", "gpu_memcpy", "gpu_memset")
LEAST = 4
"""A block has so many different kernels, and repeats so often."""


def number(value: Any) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(str(value))


def begins(event: Event) -> Decimal:
    return number(event["ts"])


def ends(event: Event) -> Decimal:
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
    """What repeats in a step, for each step; none unless all steps have it. A trace
    without steps is one."""
    streams: defaultdict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") in WORK and event.get("ph") == "X":
            streams[event.get("pid"), event.get("tid")].append(event)
    busiest: list[Event] = max(streams.values(), key=len, default=[])
    steps = _by_step(events, sorted(busiest, key=begins))
    found = [_from_an_op(events, repeated(kernels)) for kernels in steps]
    alike = {(one.size, one.times) if one is not None else None for one in found}
    return [one for one in found if one is not None] if len(alike) == 1 else []


def _by_step(events: list[Event], kernels: list[Event]) -> list[list[Event]]:
    """Kernels by the step that launched them."""
    marks = [e for e in events if str(e.get("name")).startswith("ProfilerStep")]
    spans = sorted(
        {(begins(e), ends(e)) for e in marks if e.get("cat") == "user_annotation"}
    )
    called = {n: begins(call) for n, call in _calls(events).items()}
    times = [called.get((e.get("args") or {}).get("correlation")) for e in kernels]
    timed = [
        (time, e) for time, e in zip(times, kernels, strict=True) if time is not None
    ]
    found = [[e for time, e in timed if begin <= time < end] for begin, end in spans]
    return [of_step for of_step in found if of_step] or [kernels]


def _from_an_op(events: list[Event], found: Repeated | None) -> Repeated | None:
    """The same from the first kernel on that no op launches together with the one
    before it: only whole ops make a layer."""
    calls = _calls(events)
    for first in range(found.first, found.first + found.size) if found else ():
        assert found is not None
        numbers = [
            _correlation(e) for e in found.kernels[max(0, first - 1) : first + 1]
        ]
        before, call = calls.get(numbers[0]), calls.get(numbers[-1])
        if before is None or call is None or _op_begins(events, call) >= begins(before):
            return replace(found, first=first)
    return found


def _op_begins(events: list[Event], call: Event) -> Decimal:
    """Of the innermost op around a call."""
    ops = (
        e for e in events if e.get("cat") == "cpu_op" and _thread(e) == _thread(call)
    )
    at = begins(call)
    return max((begins(e) for e in ops if begins(e) <= at < ends(e)), default=at)


def repeated(kernels: list[Event]) -> Repeated | None:
    """Of the kernels of a stream; None where nothing repeats in a row."""
    names = [event["name"] for event in kernels]
    best: tuple[int, int, int, int] | None = None
    for size in range(LEAST, len(names) // LEAST + 1):
        first, length = _longest(names, size)
        covered = (length // size + 1) * size if length else 0
        several = len(set(names[first : first + size])) >= LEAST
        if covered >= LEAST * size and several and (best is None or covered > best[0]):
            best = covered, first, size, first + length + size
    return Repeated(kernels, *best[1:]) if best is not None else None


def _longest(names: list[str], size: int) -> tuple[int, int]:
    """The longest stretch in which each name is the one `size` places later."""
    best, start = (0, 0), 0
    for n in range(len(names) - size + 1):
        same = n < len(names) - size and names[n] == names[n + size]
        if not same:
            if n - start > best[1]:
                best = start, n - start
            start = n + 1
    return best


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
    """The last step first: what comes before a block stays as it is."""
    times, pieces = [], 0
    for one in reversed(found):
        spans = _spans(events, one, nth)
        if spans is None:
            return None
        events = change(events, spans)
        times.append(sum(int(number(event["dur"]) * 1000) for event in spans.work))
        pieces = len(spans.work)
    return Cut(events, times[::-1], pieces) if times else None


def _without(events: list[Event], spans: Spans) -> list[Event]:
    gone = {id(event) for event in (*spans.work, *spans.inside)}
    ends_at = {id(old): spans.begin + ends(new) - spans.end for old, new in spans.pairs}
    host = spans.end - spans.begin
    gpu = spans.gpu_end - spans.gpu_begin
    gpu = min(gpu, host) if spans.thread else gpu
    left = [event for event in events if id(event) not in gone]
    return _moved(left, spans, -gpu, -host, ends_at)


def _doubled(events: list[Event], spans: Spans) -> list[Event]:
    host = spans.end - spans.begin
    gpu = max(spans.gpu_end - spans.gpu_begin, host)
    ends_at = {id(new): spans.end + ends(old) - spans.begin for old, new in spans.pairs}
    renamed: dict[Any, int] = {}
    if spans.thread:
        numbers = [_correlation(e) or 0 for e in events]
        for old in dict.fromkeys(map(_correlation, spans.work)):
            renamed[old] = max(numbers) + 1 + len(renamed)
    again = [_again(event, host, renamed) for event in spans.inside]
    again += [_again(event, gpu, renamed) for event in spans.work]
    return _moved(events, spans, gpu, host, ends_at) + again


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
    thread: tuple[Any, Any] | None = None
    inside: list[Event] = field(default_factory=list)
    pairs: list[tuple[Event, Event]] = field(default_factory=list)


def _moved(
    events: list[Event],
    spans: Spans,
    gpu: Decimal,
    host: Decimal,
    ends_at: dict[int, Decimal],
) -> list[Event]:
    """What comes after the block, earlier or later; what lies around it, shorter or
    longer."""
    found = []
    for event in events:
        if "ts" not in event or event.get("ph") == "M":
            found.append(event)
        elif event.get("cat") in (*WORK, "gpu_user_annotation"):
            found.append(
                _later(event, gpu) if begins(event) >= spans.gpu_end else event
            )
        elif not spans.thread:
            found.append(event)
        else:
            found.append(_on_host(event, spans, host, ends_at))
    return found


def _on_host(
    event: Event, spans: Spans, by: Decimal, ends_at: dict[int, Decimal]
) -> Event:
    if begins(event) >= spans.end:
        return _later(event, by)
    if id(event) in ends_at:
        return {**event, "dur": ends_at[id(event)] - begins(event)}
    if (
        event.get("ph") == "X"
        and begins(event) < spans.begin
        and ends(event) >= spans.end
    ):
        return {**event, "dur": number(event["dur"]) + by}
    return event


def _spans(events: list[Event], found: Repeated, nth: int) -> Spans | None:
    if not 0 <= nth < found.times - 1:
        return None
    block, after = found.block(nth), found.block(nth + 1)
    gpu = begins(block[0]), begins(after[0])
    numbers = list(map(_correlation, (*block, after[0])))
    if len(set(numbers)) == 1:
        return Spans(*gpu, block)
    calls = _calls(events)
    launches = [calls[n] for n in numbers if n in calls]
    threads = {_thread(call) for call in launches}
    if len(launches) < len(numbers) or len(threads) != 1:
        return None
    begin, end, thread = begins(launches[0]), begins(launches[-1]), threads.pop()
    on_thread = [
        e
        for e in events
        if e.get("ph") == "X" and e.get("cat") not in WORK and _thread(e) == thread
    ]
    inside = [e for e in on_thread if begin <= begins(e) < end]
    old = sorted(
        (e for e in on_thread if begins(e) < begin < ends(e) <= end), key=_order
    )
    new = sorted((e for e in inside if end < ends(e)), key=_order)
    if begin >= end or [e["cat"] for e in old] != [e["cat"] for e in new]:
        return None
    launched = {n for n, call in calls.items() if begin <= begins(call) < end} & {
        n for n, call in calls.items() if _thread(call) == thread
    }
    work = [e for e in events if e.get("cat") in WORK and _correlation(e) in launched]
    pairs = list(zip(old, new, strict=True))
    return Spans(*gpu, work, begin, end, thread, inside, pairs)


def _calls(events: Iterable[Event]) -> dict[Any, Event]:
    calls = (e for e in events if e.get("cat") in ("cuda_runtime", "cuda_driver"))
    return {_correlation(e): e for e in calls if _correlation(e) is not None}


def _correlation(event: Event) -> Any:
    return (event.get("args") or {}).get("correlation")


def _thread(event: Event) -> tuple[Any, Any]:
    return event.get("pid"), event.get("tid")


def _order(event: Event) -> tuple[Decimal, Decimal]:
    return begins(event), -ends(event)


def _later(event: Event, by: Decimal) -> Event:
    return {**event, "ts": begins(event) + by}


def _again(event: Event, by: Decimal, renamed: dict[Any, int]) -> Event:
    args = dict(event.get("args") or {})
    if args.get("correlation") in renamed:
        args["correlation"] = renamed[args["correlation"]]
        args.pop("External id", None)
    return {**_later(event, by), "args": args}
