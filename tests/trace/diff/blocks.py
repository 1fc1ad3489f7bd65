"""Takes a repeated block of work (a layer, an iteration) out of a trace, or puts it in once more.

All of it works on the events of the file: which block repeats is found by comparing the names of
the kernels of the busiest stream with themselves, shifted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
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
    times: int  # how often it occurs in a row

    def block(self, nth: int) -> list[Event]:
        start = self.first + nth * self.size
        return self.kernels[start : start + self.size]


@dataclass
class Cut:
    """Events with a change to one block."""

    events: list[Event]
    ns: int  # the time of the kernels that are gone or new


def repeated(events: Iterable[Event]) -> Repeated | None:
    """None where nothing repeats in a row."""
    streams: defaultdict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for event in events:
        if event.get("cat") in WORK and event.get("ph") == "X":
            streams[event.get("pid"), event.get("tid")].append(event)
    busiest: list[Event] = max(streams.values(), key=len, default=[])
    kernels = sorted(busiest, key=begins)
    names = [event["name"] for event in kernels]
    best: tuple[int, int, int, int] | None = None
    for size in range(LEAST, len(names) // LEAST + 1):
        first, length = _longest(names, size)
        covered = (length // size + 1) * size if length else 0
        several = len(set(names[first : first + size])) >= LEAST
        if covered >= LEAST * size and several and (best is None or covered > best[0]):
            best = covered, size, first, covered // size
    return Repeated(kernels, best[2], best[1], best[3]) if best is not None else None


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


def without(events: list[Event], found: Repeated, nth: int) -> Cut | None:
    """The nth block is gone: its kernels, and what the CPU did from its first launch to that of the
    next. None for the last block, and where the CPU does other things around the next one."""
    spans = _spans(events, found, nth)
    if spans is None:
        return None
    block = found.block(nth)
    gone = {id(event) for event in (*block, *spans.inside)}
    ends_at = {id(old): spans.begin + ends(new) - spans.end for old, new in spans.pairs}
    host = spans.end - spans.begin
    gpu = spans.gpu_end - spans.gpu_begin
    gpu = min(gpu, host) if spans.thread else gpu
    left = [event for event in events if id(event) not in gone]
    return Cut(_moved(left, spans, -gpu, -host, ends_at), _time(block))


def doubled(events: list[Event], found: Repeated, nth: int) -> Cut | None:
    """The nth block is there once more, right after itself."""
    spans = _spans(events, found, nth)
    if spans is None:
        return None
    block = found.block(nth)
    host = spans.end - spans.begin
    gpu = max(spans.gpu_end - spans.gpu_begin, host)
    ends_at = {id(new): spans.end + ends(old) - spans.begin for old, new in spans.pairs}
    renamed: dict[Any, int] = {}
    if spans.thread:
        numbers = [(e.get("args") or {}).get("correlation", 0) for e in events]
        for old in dict.fromkeys(e["args"]["correlation"] for e in block):
            renamed[old] = max(numbers) + 1 + len(renamed)
    again = [_again(event, host, renamed) for event in spans.inside]
    again += [_again(event, gpu, renamed) for event in block]
    return Cut(_moved(events, spans, gpu, host, ends_at) + again, _time(block))


@dataclass
class Spans:
    """From the first kernel of a block to that of the next on the GPU, and the same of their launch
    calls on the thread of the CPU (None if one call launches all of them, as a graph does).

    `inside` is what that thread began meanwhile, `pairs` what it was doing before a block began and
    ended in it, each with what does the same for the next block."""

    gpu_begin: Decimal
    gpu_end: Decimal
    begin: Decimal = Decimal(0)
    end: Decimal = Decimal(0)
    thread: tuple[Any, Any] | None = None
    inside: list[Event] = field(default_factory=list)
    pairs: list[tuple[Event, Event]] = field(default_factory=list)


def _moved(
    events: list[Event], spans: Spans, gpu: Decimal, host: Decimal, ends_at: dict[int, Decimal]
) -> list[Event]:
    """What comes after the block, earlier or later; what lies around it, shorter or longer."""
    found = []
    for event in events:
        if "ts" not in event or event.get("ph") == "M":
            found.append(event)
        elif event.get("cat") in (*WORK, "gpu_user_annotation"):
            found.append(_later(event, gpu) if begins(event) >= spans.gpu_end else event)
        elif not spans.thread:
            found.append(event)
        else:
            found.append(_on_host(event, spans, host, ends_at))
    return found


def _on_host(event: Event, spans: Spans, by: Decimal, ends_at: dict[int, Decimal]) -> Event:
    if begins(event) >= spans.end:
        return _later(event, by)
    if id(event) in ends_at:
        return {**event, "dur": ends_at[id(event)] - begins(event)}
    if event.get("ph") == "X" and begins(event) < spans.begin and ends(event) >= spans.end:
        return {**event, "dur": number(event["dur"]) + by}
    return event


def _spans(events: list[Event], found: Repeated, nth: int) -> Spans | None:
    if not 0 <= nth < found.times - 1:
        return None
    block, after = found.block(nth), found.block(nth + 1)
    numbers = [(e.get("args") or {}).get("correlation") for e in (*block, after[0])]
    if len(set(numbers)) == 1:
        return Spans(begins(block[0]), begins(after[0]))
    calls = {
        e["args"]["correlation"]: e
        for e in events
        if e.get("cat") in ("cuda_runtime", "cuda_driver")
        and "correlation" in (e.get("args") or {})
    }
    launches = [calls[n] for n in numbers if n in calls]
    threads = {(call["pid"], call["tid"]) for call in launches}
    if len(launches) < len(numbers) or len(threads) != 1:
        return None
    begin, end, thread = begins(launches[0]), begins(launches[-1]), threads.pop()
    on_thread = [
        e
        for e in events
        if e.get("ph") == "X"
        and e.get("cat") not in WORK
        and (e.get("pid"), e.get("tid")) == thread
    ]
    inside = [e for e in on_thread if begin <= begins(e) < end]
    old = sorted((e for e in on_thread if begins(e) < begin < ends(e) <= end), key=_order)
    new = sorted((e for e in inside if end < ends(e)), key=_order)
    if begin >= end or [e["cat"] for e in old] != [e["cat"] for e in new]:
        return None
    pairs = list(zip(old, new, strict=True))
    return Spans(begins(block[0]), begins(after[0]), begin, end, thread, inside, pairs)


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


def _time(block: Iterable[Event]) -> int:
    return sum(int(number(event["dur"]) * 1000) for event in block)
