"""Plays a job of many ranks, with launches, streams and collectives, on one true clock.

A rank is a program: what its threads do, in order; `backward` work is done by the
thread of autograd. Kernels run on the compute stream in the order of their launch. A
collective runs on the stream of its process group and begins after the kernels launched
before it. It ends on all members nearly at the same time: when all have begun, plus the
transfer, plus a jitter. All times are in microseconds. Nothing here uses code of
fusetui.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

LAUNCH_US = 9.0
"""The launch of a kernel, on the CPU."""
CALL_US = 5.0
"""From the begin of a launch until its call."""
LATENCY_US = 6.0
"""From the call to the earliest begin of the kernel."""
GAP_US = 1.2
"""Between two kernels of a stream."""
COLLECTIVE_US = 42.0
"""The launch of a collective, on the CPU."""
RUNLOOP_US = 30.0
"""From the call to the begin of a collective of gloo."""
JITTER_US = 2.0
"""By how much the ends of a collective differ, at most, on one host."""
FAR_JITTER_US = 20.0
"""The same between hosts."""
GLOO_JITTER_FACTOR = 100
"""The ends of gloo's collectives differ by 0.2 ms, as seen on one machine."""
SKEW_US = 8.0
"""By how much they are always later on some hosts, at most."""
FIRST_BEGIN_US = 1000.0
BEGIN_SPREAD_US = 60
"""Ranks begin within this time."""


class Group(NamedTuple):
    """A process group, as distributedInfo lists it."""

    name: str
    about: str
    ranks: tuple[int, ...]


class Kernel(NamedTuple):
    """A kernel of `op`, which takes `us`; `dims` are the shapes of the op's inputs."""

    op: str
    name: str
    us: float
    dims: tuple[tuple[int, ...], ...]
    backward: bool = False


class Collective(NamedTuple):
    """A collective of a group, which takes `us` once all members have begun. `joined`:
    later kernels wait for it; otherwise they wait at the next Join."""

    name: str
    group: Group
    elements: int
    us: float
    joined: bool = True
    backward: bool = False


class Exchange(NamedTuple):
    """What two neighbors of a pipeline send each other. `batched`: as one kernel;
    otherwise one of them must send first while the other one receives."""

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
    """A profiler step ends and the next one begins; the last one of a program only
    ends it."""


Op = Kernel | Collective | Exchange | Cpu | Pause | Join | Sync | Step


class Slice(NamedTuple):
    """What was recorded of an op of the program, `what`; `start` and `end` are on the
    true clock. `kind` is cpu, launch, kernel or step. `link` is the number that a
    launch and its kernel share; of an Exchange, `sends` says which half it is."""

    kind: str
    what: Op
    start: float
    end: float
    link: int = 0
    sends: bool = False


class Job(NamedTuple):
    """The programs of all ranks, and the host of each. `gloo`: everything runs on the
    CPU. `late`: by how many us a rank begins later."""

    programs: Sequence[Sequence[Op]]
    hosts: Sequence[int]
    seed: int
    gloo: bool = False
    late: Mapping[int, float] = {}


class _Wait(NamedTuple):
    """A collective of a rank: when it began there, and when the last member began."""

    begin: float
    last_arrival: float


_Meeting = tuple[object, ...]
"""One collective: its group, its members, and its number among theirs."""


class _Rank:
    """How far one rank has come."""

    def __init__(self, program: Sequence[Op], begin: float) -> None:
        self.program = program
        self.position = 0
        self.cpu = begin
        """When the Python thread is free."""
        self.compute = begin
        """When the compute stream is free."""
        self.pending = begin
        """When all collectives so far have ended."""
        self.streams: defaultdict[object, float] = defaultdict(lambda: begin)
        """When the stream of a group is free."""
        self.meetings: defaultdict[object, int] = defaultdict(int)
        """How many collectives the rank has had with the same members."""
        self.waits: defaultdict[object, list[_Wait]] = defaultdict(list)
        """Collectives that compute has not waited for yet, by their stream."""
        self.slices: list[Slice] = []
        self.link = 0
        self.step_begin: float | None = None
        # of the collective at `position`, once it was called
        self.meeting: _Meeting | None = None
        self.called = 0.0
        self.begun = 0.0
        # see Played
        self.waited = 0.0
        self.stood = 0.0
        self.bubble = 0.0

    @property
    def has_ended(self) -> bool:
        return self.position == len(self.program)

    def join(self, end: float, waits: Sequence[_Wait]) -> None:
        """Let compute stand still until `end`. Time counts as waiting for a rank while
        one of the collectives has begun and its last member has not arrived."""
        stopped = self.compute
        last_arrival = max((wait.last_arrival for wait in waits), default=stopped)
        self.stood += max(0.0, last_arrival - stopped)
        counted_until = stopped
        for wait in sorted(waits):
            begin = max(counted_until, wait.begin)
            self.waited += max(0.0, wait.last_arrival - begin)
            counted_until = max(counted_until, wait.last_arrival)
        self.compute = max(self.compute, end)

    def record(
        self,
        kind: str,
        what: Op,
        start: float,
        end: float,
        link: int = 0,
        sends: bool = False,
    ) -> None:
        self.slices.append(Slice(kind, what, start, end, link=link, sends=sends))


class Played(NamedTuple):
    """What all ranks did: a list with an item for each rank.

    - `slices`: what was recorded.
    - `waited`: us that its compute stood still for a rank that had not arrived at a
      collective yet.
    - `stood`: the same with the transfers before that.
    - `bubble`: us that it stood still in sends and receives.
    """

    slices: list[list[Slice]]
    waited: list[float]
    stood: list[float]
    bubble: list[float]


def play_job(job: Job) -> Played:
    """Play all ranks of a job to their ends and return what they did. Raises ValueError
    for a job that hangs.

    Ranks are advanced in turn; one that waits for another rank is tried again in the
    next round.
    """
    generator = random.Random(f"{job.seed} begin")
    ranks = []
    for number, program in enumerate(job.programs):
        begin = FIRST_BEGIN_US + generator.uniform(0, BEGIN_SPREAD_US)
        ranks.append(_Rank(program, begin + job.late.get(number, 0.0)))

    begins: dict[_Meeting, dict[int, float]] = {}
    any_moved = True
    while any_moved:
        any_moved = False
        for number, rank in enumerate(ranks):
            while not rank.has_ended and _play_next_op(job, number, rank, begins):
                rank.position += 1
                any_moved = True

    if not all(rank.has_ended for rank in ranks):
        stuck_at = [
            [] if rank.has_ended else [rank.program[rank.position]] for rank in ranks
        ]
        raise ValueError(f"the job hangs: {stuck_at}")

    return Played(
        slices=[rank.slices for rank in ranks],
        waited=[rank.waited for rank in ranks],
        stood=[rank.stood for rank in ranks],
        bubble=[rank.bubble for rank in ranks],
    )


def _play_next_op(
    job: Job, number: int, rank: _Rank, begins: dict[_Meeting, dict[int, float]]
) -> bool:
    """Play the next op of a rank and return True. Returns False if it must wait for
    another rank to arrive, to be tried again later."""
    op = rank.program[rank.position]
    match op:
        case Collective() | Exchange():
            return _play_collective(job, number, rank, op, begins)
        case Kernel():
            _run_kernel(rank, op, on_cpu=job.gloo)
        case Cpu():
            rank.record("cpu", op, rank.cpu, rank.cpu + op.us)
            rank.cpu += op.us + 2
        case Pause():
            rank.cpu += op.us
        case Join():
            waits = [wait for waits in rank.waits.values() for wait in waits]
            rank.join(rank.pending, waits)
            rank.waits.clear()
        case Sync():
            end = max(rank.cpu + 8, rank.compute + 4, rank.pending + 4)
            rank.record("cpu", op, rank.cpu, end)
            rank.cpu = end + 2
        case Step():
            if rank.step_begin is not None:
                rank.record("step", op, rank.step_begin, rank.cpu)
            rank.cpu += 1
            rank.step_begin = rank.cpu

    return True


def _run_kernel(rank: _Rank, op: Kernel, on_cpu: bool) -> None:
    """Run an op on the CPU, or launch its kernel. The kernel begins when it has reached
    the GPU and the stream is free."""
    if on_cpu:
        rank.record("cpu", op, rank.cpu, rank.cpu + op.us)
        rank.cpu = rank.cpu + op.us + 2
        rank.compute = rank.cpu
        return

    rank.link += 1
    rank.record("launch", op, rank.cpu, rank.cpu + LAUNCH_US, link=rank.link)
    begin = max(rank.cpu + CALL_US + LATENCY_US, rank.compute + GAP_US)
    end = begin + op.us
    rank.record("kernel", op, begin, end, link=rank.link)
    rank.cpu += LAUNCH_US + 1
    rank.compute = end


def _play_collective(
    job: Job,
    number: int,
    rank: _Rank,
    op: Collective | Exchange,
    begins: dict[_Meeting, dict[int, float]],
) -> bool:
    """Call a collective, or an exchange of two ranks, and end it. Returns False until
    all members have called it. `begins` has when it began on each member, so far."""
    members = op.group.ranks if isinstance(op, Collective) else (number, op.peer)

    stream = (op.group.name, *sorted(members))
    if rank.meeting is None:
        rank.meeting = _call_collective(job, rank, stream)
        begins.setdefault(rank.meeting, {})[number] = rank.begun

    begin_of = begins[rank.meeting]
    if len(begin_of) < len(members):
        return False

    end = _compute_end(job, op, rank.meeting, number, begin_of)
    rank.meeting = None
    rank.streams[stream] = end
    rank.pending = max(rank.pending, end)

    if isinstance(op, Exchange):
        rank.bubble += end - max(rank.begun, rank.compute)
        rank.join(end, [])
    else:
        wait = _Wait(begin=rank.begun, last_arrival=max(begin_of.values()))
        rank.waits[stream].append(wait)
        if op.joined:  # and so all that ran before it on its stream
            rank.join(end, rank.waits.pop(stream))

    if job.gloo:
        rank.cpu = max(rank.cpu, end + 5)

    _record_collective(rank, op, end)
    return True


def _call_collective(job: Job, rank: _Rank, stream: _Meeting) -> _Meeting:
    """Call the next collective on a stream and return its meeting, which names it on
    all ranks. Sets when it was called and when it began on this rank."""
    meeting = (*stream, rank.meetings[stream])
    rank.meetings[stream] += 1
    rank.called = rank.cpu
    rank.cpu += COLLECTIVE_US
    start_delay_us = RUNLOOP_US if job.gloo else COLLECTIVE_US / 2 + LATENCY_US
    rank.begun = max(
        rank.called + start_delay_us,
        rank.compute + GAP_US,
        rank.streams[stream] + GAP_US,
    )
    return meeting


def _compute_end(
    job: Job,
    op: Collective | Exchange,
    meeting: _Meeting,
    rank: int,
    begin_of: Mapping[int, float],
) -> float:
    """Return when a collective ends on a rank, in us. The jitter is computed from the
    seed, so it is the same whatever else the job does."""
    jitter = random.Random(f"{job.seed} {meeting} {rank}").uniform(0, JITTER_US)
    if job.gloo:
        jitter *= GLOO_JITTER_FACTOR

    host_key = f"{job.seed} host {job.hosts[rank]}"
    far_jitter = random.Random(f"{host_key} {meeting}").uniform(0, FAR_JITTER_US)

    far_jitter += random.Random(host_key).uniform(0, SKEW_US)
    hosts = {job.hosts[member] for member in begin_of}
    if len(hosts) == 1:
        far_jitter = 0

    return max(begin_of.values()) + op.us + jitter + far_jitter


def _record_collective(rank: _Rank, op: Collective | Exchange, end: float) -> None:
    """Record the launch and the kernel of a collective. An exchange that is not batched
    has those of the send and of the receive, one after the other."""
    halves = [True]  # whether it sends
    if isinstance(op, Exchange):
        halves = []
        if op.sends:
            halves.append(True)
        if op.receives:
            halves.append(False)
        if not op.sends_first:
            halves.reverse()
        if op.batched:
            halves = halves[:1]

    launch_us = COLLECTIVE_US / len(halves)
    middle = end if len(halves) == 1 else end - op.us / 2
    for place, sends in enumerate(halves):
        is_first = place == 0
        rank.link += 1
        called = rank.called + place * launch_us
        rank.record(
            "launch",
            op,
            called,
            called + launch_us - 1,
            link=rank.link,
            sends=sends,
        )
        rank.record(
            "kernel",
            op,
            rank.begun if is_first else middle + GAP_US,
            middle if is_first else end,
            link=rank.link,
            sends=sends,
        )
