"""Runs an invented program: host threads, streams that work in order, events, waits,
and a queue with an end. What it gives is the truth that a prediction is judged by.

An item starts when the one before it in its stream has ended (and the switch is over),
its launch call has begun (and the latency is over), and the events that its stream
waits for have happened. With residuals each of the three may come later by chance; the
chance hangs on the item's key, so a changed program meets the same.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from tests.analysis.replay.programs import (
    FRAME,
    NOTE,
    Backward,
    Call,
    Copy,
    GraphLaunch,
    Host,
    Item,
    Launch,
    Machine,
    Next,
    Own,
    Program,
    Range,
    Record,
    Sync,
    WaitEvent,
)

CALL, SYNC = "cuda_runtime", "cuda_sync"
ENGINE_CALL = (
    "<built-in method run_backward of torch._C._EngineBase object at 0x7f2a91c0b2d0>"
)
LOADERS = "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"


@dataclass(frozen=True)
class Slice:
    """Something with a start and an end: on a thread of the host, or a stream (`lane`)
    of the GPU.

    `link` is the correlation of a call and of what it gave to the GPU.
    """

    kind: str
    name: str
    lane: int
    start: int
    end: int
    link: int = 0
    args: dict[str, Any] = field(default_factory=dict)
    source: Host | Item | None = None


@dataclass(frozen=True)
class Residuals:
    """Mean delays by chance in ns, on each way to an item's start; `draw` makes them
    other ones."""

    seed: int
    launch: int = 0
    switch: int = 0
    event: int = 0
    draw: int = 0

    def of(self, key: int, way: str) -> int:
        mean = getattr(self, way)
        chance = random.Random(f"{self.seed} {self.draw} {key} {way}")
        return int(chance.expovariate(1 / mean)) if mean else 0


@dataclass
class _Thread:
    number: int
    clock: int


@dataclass
class _Stream:
    """`end` of the last item, and the events that the next one waits for."""

    end: int | None = None
    waits: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Event:
    time: int
    stream: int
    link: int


Clock = Generator[int, None, None]


class _Run:
    """What has happened so far. Each thread is a generator that gives its clock before
    it does what others notice, and goes on when no other one is earlier."""

    def __init__(self, machine: Machine, residuals: Residuals | None) -> None:
        self.machine, self.residuals = machine, residuals
        self.slices: list[Slice] = []
        self.streams: defaultdict[int, _Stream] = defaultdict(_Stream)
        self.events: dict[int, _Event] = {}
        self.flying: list[int] = []  # ends of items, a heap
        self.batches: list[tuple[int, int]] = []  # ready, taken
        self.workers: list[int] = []
        self.links = 0

    def body(self, thread: _Thread, body: tuple[Host, ...]) -> Clock:
        for host in body:
            if isinstance(host, Own):
                thread.clock += host.ns
            elif isinstance(host, Range):
                at, start = len(self.slices), thread.clock
                yield from self.body(thread, host.body)
                self.add(thread, host.kind, host.name, start, host, at=at)
            elif isinstance(host, Backward):
                yield from self.backward(thread, host)
            elif isinstance(host, Next):
                self.next(thread, host)
            else:
                yield thread.clock
                self.call(thread, host)

    def add(
        self,
        thread: _Thread,
        kind: str,
        name: str,
        start: int,
        source: Host,
        link: int = 0,
        at: int | None = None,
    ) -> None:
        """A slice of a thread that ends now; `at`: before the slices from there on."""
        made = Slice(
            kind, name, thread.number, start, thread.clock, link, source=source
        )
        self.slices.insert(len(self.slices) if at is None else at, made)

    def backward(self, thread: _Thread, host: Backward) -> Clock:
        at, start = len(self.slices), thread.clock
        engine = _Thread(host.thread, start + host.enter)
        yield from self.body(engine, host.body)
        thread.clock = engine.clock + host.leave
        if host.framed:
            self.add(thread, FRAME, ENGINE_CALL, start, host, at=at)

    def next(self, thread: _Thread, host: Next) -> None:
        start = thread.clock
        if host.workers:
            thread.clock = max(start, self.batch(host, start)) + host.delay
            self.batches[-1] = (self.batches[-1][0], thread.clock)
        else:
            thread.clock += host.ns
        name = f"enumerate(DataLoader)#{LOADERS[host.workers > 0]}.__next__"
        self.add(thread, NOTE, name, start, host)

    def batch(self, host: Next, now: int) -> int:
        """When the next batch is ready. Workers begin with the program, each after the
        batch that it made before, and when there is room for it."""
        if not self.workers:
            self.workers = [0] * host.workers
        room, number = host.ahead * host.workers, len(self.batches)
        taken = self.batches[number - room][1] if number >= room else 0
        worker = number % host.workers
        ready = max(self.workers[worker], taken) + host.ns
        self.workers[worker] = ready
        self.batches.append((ready, now))
        return ready

    def call(self, thread: _Thread, host: Host) -> None:
        """A runtime call: what it does happens when it begins."""
        self.links += 1
        start, link = thread.clock, self.links
        if isinstance(host, Launch | GraphLaunch | Copy):
            thread.clock = self.launch(host, start, link)
        elif isinstance(host, Sync):
            thread.clock = max(start, self.finished(host)) + host.ns
        elif isinstance(host, Record | WaitEvent | Call):
            self.note(host, start, link)
            thread.clock += host.ns
        self.add(thread, CALL, _name(host), start, host, link)
        if isinstance(host, Sync | WaitEvent) and self.machine.records_syncs:
            self.record_sync(host, start, thread.clock, link)

    def launch(self, host: Launch | GraphLaunch | Copy, start: int, link: int) -> int:
        """Gives what a call launches to the streams, and tells when the call
        returns."""
        if isinstance(host, GraphLaunch):
            for item in host.items:
                self.give(item, start, link, fills=False)
            return start + host.ns
        if isinstance(host, Copy):
            return self.give(host.item, start, link) + host.ns
        end = self.room(start) + host.ns
        self.give(host.item, start, link)
        return end

    def note(self, host: Record | WaitEvent | Call, start: int, link: int) -> None:
        """An event happens when its stream has done what it was given before."""
        if isinstance(host, Record):
            end = self.streams[host.stream].end
            self.events[host.event] = _Event(max(start, end or 0), host.stream, link)
        elif isinstance(host, WaitEvent) and host.event in self.events:
            self.streams[host.stream].waits.append(self.events[host.event].time)

    def give(self, item: Item, start: int, link: int, fills: bool = True) -> int:
        """Hands an item to its stream and tells its end; those of graphs fill no
        queue."""
        stream, chance = self.streams[item.stream], self.residuals
        late = chance.of if chance else lambda key, way: 0
        ready = [start + self.machine.latency + late(item.key, "launch")]
        if stream.end is not None:
            ready.append(stream.end + self.machine.switch + late(item.key, "switch"))
        ready += [wait + late(item.key, "event") for wait in stream.waits]
        stream.waits.clear()
        begin = max(ready)
        stream.end = begin + item.ns
        if fills:
            heapq.heappush(self.flying, stream.end)
        self.slices.append(
            Slice(
                item.kind, item.name, item.stream, begin, stream.end, link, source=item
            )
        )
        return stream.end

    def room(self, now: int) -> int:
        """When fewer items are in flight than the queue holds."""
        while self.flying and (
            self.flying[0] <= now or len(self.flying) >= self.machine.depth
        ):
            now = max(now, heapq.heappop(self.flying))
        return now

    def finished(self, sync: Sync) -> int:
        """The end of what a call waits for: of all that was given before it began."""
        if sync.what == "event":
            return self.events[sync.on].time if sync.on in self.events else 0
        chosen = (
            [self.streams[sync.on]]
            if sync.what == "stream"
            else list(self.streams.values())
        )
        return max((stream.end or 0 for stream in chosen), default=0)

    def record_sync(
        self, host: Sync | WaitEvent, start: int, end: int, link: int
    ) -> None:
        """The cuda_sync event beside a call that waits."""
        kind, lane = "Context Sync", -1
        args: dict[str, Any] = {}
        if isinstance(host, WaitEvent) or host.what == "event":
            number = host.event if isinstance(host, WaitEvent) else host.on
            event = self.events.get(number, _Event(0, -1, -1))
            args = {
                "wait_on_stream": event.stream,
                "wait_on_cuda_event_record_corr_id": event.link,
                "wait_on_cuda_event_id": number,
            }
            kind = "Event Sync" if isinstance(host, Sync) else "Stream Wait Event"
            lane = host.stream if isinstance(host, WaitEvent) else -1
        elif host.what == "stream":
            kind, lane = "Stream Sync", host.on
        args = {"cuda_sync_kind": kind, **args, "stream": lane}
        self.slices.append(Slice(SYNC, kind, lane, start, end, link, args, host))


def _name(host: Host) -> str:
    if isinstance(host, Record):
        return "cudaEventRecord"
    if isinstance(host, WaitEvent):
        return "cudaStreamWaitEvent"
    return host.call if isinstance(host, Sync) else host.name  # type: ignore[union-attr]


def simulate(program: Program, residuals: Residuals | None = None) -> list[Slice]:
    """All that happens; on each thread, outer slices come before inner ones."""
    run = _Run(program.machine, residuals)
    waiting: list[tuple[int, int, Clock]] = []
    for number, one in enumerate(program.threads):
        clock = run.body(_Thread(one.number, one.start), one.body)
        heapq.heappush(waiting, (one.start, number, clock))
    while waiting:
        _, number, clock = heapq.heappop(waiting)
        now = next(clock, None)
        if now is not None:
            heapq.heappush(waiting, (now, number, clock))
    return run.slices
