"""The account as its definition has it, moment by moment: slow, and written apart from
the code.

Every definition is in docs/why.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from fusetui.analysis.why.backward_threads import find_lent_work
from fusetui.trace import Trace

COMMUNICATES = (
    "nccl",
    "cross_device_reduce",
    "multimem_all",
    "allreduce_fusion",
    "deep_ep",
)
ALLOCATES = ("Malloc", "Free", "HostAlloc", "HostRegister", "MemCreate", "MemMap")
# the first that is there counts
LAYERS = {"call": 0, "op": 1, "python": 1, "annotation": 2}
RANGES = ("ProfilerStep#", "Optimizer.", "enumerate(DataLoader)#", "DataLoader", "##")
"""What files of 2021 record as ops, though nothing runs but what lies in it."""
NEVER = 1 << 62


class Slice(NamedTuple):
    row: int
    start: int
    end: int
    name: str
    category: str
    thread: tuple[object, object]
    correlation: int


class Segment(NamedTuple):
    """From a moment to another one: what a device or a thread does."""

    start: int
    end: int
    what: str


def slices_of(trace: Trace) -> list[Slice]:
    threads = [(track.pid, track.tid) for track in trace.tracks]
    columns = (
        trace.start,
        trace.end,
        trace.name,
        trace.cat,
        trace.track,
        trace.correlation,
    )
    return [
        Slice(
            row,
            start,
            end,
            trace.names[name],
            trace.categories[cat].lower(),
            threads[t],
            c,
        )
        for row, (start, end, name, cat, t, c) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        )
    ]


def kind_of(one: Slice) -> str | None:
    if one.category.endswith(("runtime", "driver")):
        return "call"
    op = "annotation" if one.name.startswith(RANGES) else "op"
    named = {"cpu_op": op, "operator": op, "python_function": "python"}
    return {**named, "user_annotation": "annotation"}.get(one.category)


def is_gpu(category: str) -> bool:
    return category in ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


class Slow:
    """One trace."""

    def __init__(self, trace: Trace) -> None:
        self.slices = slices_of(trace)
        self.events: dict[object, list[Slice]] = defaultdict(list)
        self.calls: dict[int, list[Slice]] = defaultdict(list)
        self.host: dict[tuple[object, object], list[Slice]] = defaultdict(list)
        for one in self.slices:
            if is_gpu(one.category):
                self.events[one.thread[0]].append(one)
            elif kind := kind_of(one):
                self.host[one.thread].append(one)
                if kind == "call":
                    self.calls[one.correlation].append(one)
        lent = find_lent_work(trace)  # who waits for whom: test_account.py
        for row, track in zip(lent.rows.tolist(), lent.track.tolist(), strict=True):
            waiting = trace.tracks[track]
            self.host[(waiting.pid, waiting.tid)].append(self.slices[row])
        pageable = [
            e for found in self.events.values() for e in found if "Pageable" in e.name
        ]
        self.pageable = {call.row for event in pageable if (call := self.launch(event))}
        self.doing: dict[tuple[object, object], list[Segment]] = {}

    def launch(self, event: Slice) -> Slice | None:
        """Its launch call: the one with its correlation that starts last, but not after
        it; the inner one of two that start together."""
        if event.correlation in (0, -1):
            return None
        before = [c for c in self.calls[event.correlation] if c.start <= event.start]
        return max(before, key=lambda call: (call.start, call.row)) if before else None

    def kind_of_call(self, call: Slice) -> str:
        name = call.name
        copies = "Memcpy" in name
        later = copies and "Async" in name and call.row in self.pageable
        if "Synchronize" in name or (copies and "Async" not in name) or later:
            return "host_sync"
        return "host_alloc" if any(word in name for word in ALLOCATES) else "host_call"

    def what_thread_does(self, thread: tuple[object, object]) -> list[Segment]:
        """By what counts at each moment, for the whole trace: a call, else the op or
        frame that started last (of two the shorter, then the op), else an
        annotation."""
        if thread not in self.doing:
            self.doing[thread] = list(self._sweep(self.host[thread]))
        return self.doing[thread]

    def _sweep(self, slices: Sequence[Slice]) -> Iterator[Segment]:
        times = sorted({time for one in slices for time in (one.start, one.end)})
        waiting = sorted(slices, key=lambda one: -one.start)
        active: list[tuple[int, int, int, str, Slice]] = []
        for begin, end in pairwise(times):
            while waiting and waiting[-1].start <= begin:
                one = waiting.pop()
                kind = kind_of(one) or ""  # "op" comes before "python"
                heappush(
                    active, (LAYERS[kind], -one.start, one.end - one.start, kind, one)
                )
            while active and active[0][-1].end <= begin:
                heappop(active)
            if active:
                *_, kind, one = active[0]
                what = self.kind_of_call(one) if kind == "call" else f"host_{kind}"
                yield Segment(begin, end, what)

    def host_part(self, call: Slice, begin: int, end: int) -> Iterator[Segment]:
        at = begin
        found = self.what_thread_does(call.thread)
        for number in range(
            max(0, bisect_right(found, begin, key=lambda s: s.start) - 1), NEVER
        ):
            if number >= len(found) or found[number].start >= end:
                break
            low, high = max(at, found[number].start), min(end, found[number].end)
            if low < high:
                yield Segment(at, low, "host_nothing")
                yield Segment(low, high, found[number].what)
                at = high
        yield Segment(at, end, "host_nothing")


class SlowDevice:
    """One device of it."""

    def __init__(self, slow: Slow, device: object) -> None:
        self.slow = slow
        self.device = device
        self.events = slow.events[device]

    @cached_property
    def gaps(self) -> list[tuple[int, int, Slice]]:
        """Begin, end and the event that ends it."""
        found = []
        first, *rest = self.in_order
        latest = first.end
        for event in rest:
            if event.start > latest:
                found.append((latest, event.start, event))
            latest = max(latest, event.end)
        return found

    @cached_property
    def in_order(self) -> list[Slice]:
        return sorted(self.events, key=lambda e: (e.start, e.start - e.end, e.row))

    @cached_property
    def latency(self) -> int:
        delays = []
        first = self.first_starts
        for begin, end, event in self.gaps:
            call = self.slow.launch(event)
            if call and first[call.row] >= end and call.start > begin:
                delays.append(end - call.start)
        return sorted(delays)[len(delays) // 4] if len(delays) >= 20 else 0

    @cached_property
    def first_starts(self) -> dict[int, int]:
        first: dict[int, int] = {}
        for event in self.events:
            call = self.slow.launch(event)
            if call:
                first[call.row] = min(first.get(call.row, NEVER), event.start)
        return first

    @cached_property
    def idle(self) -> list[Segment]:
        """Why the device is idle, moment by moment, between its first and its last
        event."""
        return [part for gap in self.gaps for part in self.reasons(*gap)]

    def before(self, begin: int) -> list[Segment]:
        """Likewise from a moment on to the first event."""
        first = self.in_order[0]
        return (
            list(self.reasons(begin, first.start, first)) if begin < first.start else []
        )

    def reasons(self, begin: int, end: int, event: Slice) -> Iterator[Segment]:
        call = self.slow.launch(event)
        if call is None:
            yield Segment(begin, end, "unlinked")
        elif self.first_starts[call.row] < end:
            yield Segment(begin, end, "graph")
        else:
            called = min(max(call.start, begin), end)
            returned = min(max(call.end, called), end)
            due = min(max(call.start + self.latency, returned), end)
            yield from self.slow.host_part(call, begin, called)
            yield Segment(called, returned, "launch_call")
            yield Segment(returned, due, "launch_latency")
            yield Segment(due, end, "queued")

    @cached_property
    def busy(self) -> list[Segment]:
        return list(self._running())

    def _running(self) -> Iterator[Segment]:
        """What runs, moment by moment: the classes of all events that do, in the order
        of names."""
        edges: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for event in self.events:
            edges[event.start].append((class_of(event), 1))
            edges[event.end].append((class_of(event), -1))
        running = dict.fromkeys(("comm", "compute", "copy"), 0)
        for begin, end in pairwise([*sorted(edges), NEVER]):
            for what, change in edges[begin]:
                running[what] += change
            yield Segment(
                begin, end, " ".join(what for what, n in running.items() if n)
            )

    def account(self, begin: int, end: int) -> dict[str, object]:
        """The figures of a window; by DeviceAccount's names."""
        last = max(event.end for event in self.events)
        busy = sums(self.busy, begin, end)
        idle = sums(self.idle, begin, end)
        idle.update(sums(self.before(begin), begin, end))
        idle["after"] = max(0, end - max(last, begin))
        comm, both = of(busy, "comm"), of(busy, "comm", "compute")
        copy, alone = of(busy, "copy"), busy.get("copy", 0)
        return {
            "device": self.device,
            "span_ns": end - begin,
            "compute_ns": of(busy, "compute"),
            "exposed_comm_ns": comm - both,
            "exposed_copy_ns": alone,
            "idle_ns": sum(idle.values()),
            "hidden_comm_ns": both,
            "hidden_copy_ns": copy - alone,
            "launch_latency_usual_ns": self.latency,
            "idle": {what: ns for what, ns in idle.items() if ns},
        }


def class_of(event: Slice) -> str:
    if event.category == "kernel":
        return (
            "comm"
            if any(word in event.name.lower() for word in COMMUNICATES)
            else "compute"
        )
    return (
        "comm"
        if "ptop" in event.name.lower() or "peer" in event.name.lower()
        else "copy"
    )


def sums(segments: Sequence[Segment], begin: int, end: int) -> Counter[str]:
    """How much of the window each of them takes; the segments are in order of time."""
    found: Counter[str] = Counter()
    first = bisect_right(segments, begin, key=lambda s: s.start) - 1
    last = bisect_right(segments, end, key=lambda s: s.start)
    for start, until, what in segments[max(0, first) : last]:
        found[what] += max(0, min(until, end) - max(start, begin))
    return found


def of(busy: Counter[str], *wanted: str) -> int:
    """How long all of these ran."""
    return sum(ns for what, ns in busy.items() if set(wanted) <= set(what.split()))
