"""Plays a job of many ranks: launches, streams and collectives, on one true clock, in
microseconds.

A rank is a program: what its threads do, in order (`backward`: in the thread of
autograd). Kernels run on the compute stream in the order of their launch; a collective
runs on the stream of its process group, begins after the kernels launched before it,
and ends nearly at once on all members: when all have begun, plus the transfer, plus a
jitter. Nothing here knows how fusetui reads traces.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LAUNCH_US, CALL_US, LATENCY_US, GAP_US = 9.0, 5.0, 6.0, 1.2
COLLECTIVE_US, RUNLOOP_US = 42.0, 30.0
# of the ends of a collective: on one host, between hosts
JITTER_US, FAR_JITTER_US = 2.0, 20.0
SKEW_US = 8.0  # by which they are always later on some hosts


class Group(NamedTuple):
    """A process group, as distributedInfo lists it."""

    name: str
    about: str
    ranks: tuple[int, ...]


class Kernel(NamedTuple):
    op: str
    name: str
    us: float
    dims: tuple[tuple[int, ...], ...]
    backward: bool = False


class Collective(NamedTuple):
    """`joined`: later kernels wait for it; else they wait at the next Join."""

    name: str
    group: Group
    elements: int
    us: float
    joined: bool = True
    backward: bool = False


class Exchange(NamedTuple):
    """What two neighbors of a pipeline send each other; `batched`: as one kernel, else
    one of them must send first while the other one receives."""

    group: Group
    peer: int
    sends: bool
    receives: bool
    elements: int
    us: float
    sends_first: bool = True
    batched: bool = False


class Cpu(NamedTuple):
    """Work of the Python thread in an annotation."""

    name: str
    us: float
    backward: bool = False


class Pause(NamedTuple):
    """The Python thread does nothing that is recorded, as in a collection of
    garbage."""

    us: float


class Join(NamedTuple):
    """Later kernels wait for all collectives so far."""


class Sync(NamedTuple):
    """The Python thread waits for the GPU."""

    op: str = "aten::item"
    backward: bool = False


class Step(NamedTuple):
    """A profiler step begins (the one before ends); the last one of a program ends
    it."""


Op = Kernel | Collective | Exchange | Cpu | Pause | Join | Sync | Step


class Slice(NamedTuple):
    """What was recorded: `what` is the op of the program, `start` and `end` on the true
    clock."""

    kind: str  # cpu, launch, kernel, step
    what: Op
    start: float
    end: float
    link: int = 0  # from a launch to its kernel
    sends: bool = False


class Job(NamedTuple):
    """`hosts`: the host of each rank. On the CPU collectives are gloo's."""

    programs: Sequence[Sequence[Op]]
    hosts: Sequence[int]
    seed: int
    gloo: bool = False
    late: Mapping[int, float] = {}  # us by which ranks begin later


class _Rank:
    """How far one rank has come."""

    def __init__(self, program: Sequence[Op], begin: float) -> None:
        self.program, self.at = program, 0
        self.cpu = begin
        self.compute = self.pending = begin
        self.streams: defaultdict[object, float] = defaultdict(lambda: begin)
        self.counts: defaultdict[object, int] = defaultdict(int)
        self.link = 0
        self.slices: list[Slice] = []
        self.step: float | None = None
        self.arrived: tuple[object, ...] | None = None
        self.started = self.called = self.waited = self.stood = self.bubble = 0.0
        # In collectives that compute will join, by their streams.
        self.waits: defaultdict[object, list[tuple[float, float]]] = defaultdict(list)

    def join(self, end: float, waits: Sequence[tuple[float, float]]) -> None:
        """Compute stands still until `end`; these waits count from where it stopped."""
        at = self.compute
        self.stood += max(0.0, max((last for _, last in waits), default=at) - at)
        for start, last in sorted(waits):
            self.waited += max(0.0, last - max(at, start))
            at = max(at, last)
        self.compute = max(self.compute, end)

    def add(
        self, kind: str, what: Op, start: float, end: float, **more: object
    ) -> None:
        self.slices.append(Slice(kind, what, start, end, **more))  # type: ignore[arg-type]


class Played(NamedTuple):
    """Of each rank: what was recorded, how long its compute stood still for a rank that
    had not arrived at a collective yet, the same with the transfers before that, and
    how long in sends and receives."""

    slices: list[list[Slice]]
    waited: list[float]
    stood: list[float]
    bubble: list[float]


def played(job: Job) -> Played:
    """Plays all ranks to their ends. Raises ValueError for a job that hangs."""
    chance = random.Random(f"{job.seed} begin")
    ranks = [
        _Rank(program, 1000.0 + chance.uniform(0, 60) + job.late.get(rank, 0.0))
        for rank, program in enumerate(job.programs)
    ]
    starts: dict[tuple[object, ...], dict[int, float]] = {}
    moved = True
    while moved:
        moved = False
        for number, rank in enumerate(ranks):
            while rank.at < len(rank.program) and _advance(job, number, rank, starts):
                rank.at += 1
                moved = True
    if any(rank.at < len(rank.program) for rank in ranks):
        raise ValueError(
            f"the job hangs: {[rank.program[rank.at : rank.at + 1] for rank in ranks]}"
        )
    return Played(
        [rank.slices for rank in ranks],
        [rank.waited for rank in ranks],
        [rank.stood for rank in ranks],
        [rank.bubble for rank in ranks],
    )


def _advance(
    job: Job,
    number: int,
    rank: _Rank,
    starts: dict[tuple[object, ...], dict[int, float]],
) -> bool:
    """Plays the next op of a rank; False where it must wait for another one to
    arrive."""
    op = rank.program[rank.at]
    if isinstance(op, Collective | Exchange):
        return _meet(job, number, rank, op, starts)
    if isinstance(op, Kernel):
        _kernel(rank, op, on_cpu=job.gloo)
    elif isinstance(op, Cpu):
        rank.add("cpu", op, rank.cpu, rank.cpu + op.us)
        rank.cpu += op.us + 2
    elif isinstance(op, Pause):
        rank.cpu += op.us
    elif isinstance(op, Join):
        rank.join(
            rank.pending, [wait for waits in rank.waits.values() for wait in waits]
        )
        rank.waits.clear()
    elif isinstance(op, Sync):
        end = max(rank.cpu + 8, rank.compute + 4, rank.pending + 4)
        rank.add("cpu", op, rank.cpu, end)
        rank.cpu = end + 2
    else:
        if rank.step is not None:
            rank.add("step", op, rank.step, rank.cpu)
        rank.step = rank.cpu = rank.cpu + 1
    return True


def _kernel(rank: _Rank, op: Kernel, on_cpu: bool) -> None:
    if on_cpu:
        rank.add("cpu", op, rank.cpu, rank.cpu + op.us)
        rank.cpu = rank.compute = rank.cpu + op.us + 2
        return
    rank.link += 1
    rank.add("launch", op, rank.cpu, rank.cpu + LAUNCH_US, link=rank.link)
    start = max(rank.cpu + CALL_US + LATENCY_US, rank.compute + GAP_US)
    rank.add("kernel", op, start, start + op.us, link=rank.link)
    rank.cpu += LAUNCH_US + 1
    rank.compute = start + op.us


def _meet(
    job: Job,
    number: int,
    rank: _Rank,
    op: Collective | Exchange,
    starts: dict[tuple[object, ...], dict[int, float]],
) -> bool:
    """A collective, or an exchange of two: all members have arrived before any goes
    on."""
    members = op.group.ranks if isinstance(op, Collective) else (number, op.peer)
    where = (op.group.name, *sorted(members))
    if rank.arrived is None:
        key = (*where, rank.counts[where])
        rank.counts[where] += 1
        rank.arrived, rank.called = key, rank.cpu
        rank.cpu += COLLECTIVE_US
        ready = rank.called + (
            RUNLOOP_US if job.gloo else COLLECTIVE_US / 2 + LATENCY_US
        )
        rank.started = max(ready, rank.compute + GAP_US, rank.streams[where] + GAP_US)
        starts.setdefault(key, {})[number] = rank.started
    key = rank.arrived
    if len(starts[key]) < len(members):
        return False
    rank.arrived = None
    end = _end(job, op, key, number, starts[key])
    rank.streams[where], rank.pending = end, max(rank.pending, end)
    if isinstance(op, Exchange):
        rank.bubble += end - max(rank.started, rank.compute)
        rank.join(end, [])
    else:
        rank.waits[where].append((rank.started, max(starts[key].values())))
        if op.joined:  # and so all that ran before it on its stream
            rank.join(end, rank.waits.pop(where))
    if job.gloo:
        rank.cpu = max(rank.cpu, end + 5)
    _record(rank, op, end)
    return True


def _end(
    job: Job,
    op: Collective | Exchange,
    key: tuple[object, ...],
    rank: int,
    starts: dict[int, float],
) -> float:
    hosts = {job.hosts[member] for member in starts}
    near = random.Random(f"{job.seed} {key} {rank}").uniform(0, JITTER_US)
    host = f"{job.seed} host {job.hosts[rank]}"
    far = random.Random(f"{host} {key}").uniform(0, FAR_JITTER_US)
    far += random.Random(host).uniform(0, SKEW_US)
    if job.gloo:
        near *= 100  # 0.2 ms, as seen on one machine
    return max(starts.values()) + op.us + near + (far if len(hosts) > 1 else 0)


def _record(rank: _Rank, op: Collective | Exchange, end: float) -> None:
    """The call on the CPU and the kernels; what is not batched is one after the
    other."""
    ways = [True]
    if isinstance(op, Exchange):
        ways = [way for way in (True, False) if (op.sends if way else op.receives)]
        if not op.sends_first:
            ways.reverse()
    alone = len(ways) == 1 or (isinstance(op, Exchange) and op.batched)
    middle = end if alone else end - op.us / 2
    for place, way in enumerate(ways[:1] if alone else ways):
        rank.link += 1
        each = COLLECTIVE_US / (1 if alone else 2)
        called = rank.called + place * each
        rank.add("launch", op, called, called + each - 1, link=rank.link, sends=way)
        begin, until = (rank.started, middle) if place == 0 else (middle + GAP_US, end)
        rank.add("kernel", op, begin, until, link=rank.link, sends=way)
