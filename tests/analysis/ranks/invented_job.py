"""Jobs of a few ranks, simulated and written as torch.profiler does. A thread launches
kernels and collectives, and waits for the device at the end of each step. A collective
ends on all ranks of its group when the last of them has begun it, plus its transfer.
Nothing here uses fusetui."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

LAUNCH, LATENCY, RETURN = 2_000, 6_000, 1_000  # ns
COMPUTE, ASIDE = 7, 20  # streams
APART = 2_000  # ns: arrivals that are closer are not told apart, as on one host
ALL_REDUCE = (
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
)
Event = dict[str, Any]


class Work(NamedTuple):
    """`host` ns of an op of the thread, then a kernel of so many ns; or a collective of
    `group` with this transfer, `aside` on a stream of its own that waits for what was
    computed before. `joins`: waits for what that stream was given. `call`: what calls
    about events take."""

    host: int
    ns: int
    name: str = "ampere_sgemm_64x32_tn"
    group: tuple[int, ...] = ()
    aside: bool = False
    joins: bool = False
    call: int = 500


Steps = Sequence[Sequence[Work]]


class Run(NamedTuple):
    """What was simulated: events of each rank, and when its steps end."""

    events: list[list[Event]]
    ends: list[list[int]]
    # the rank that arrives last at each collective; -1: several, to APART
    last: list[int]

    @property
    def steps(self) -> list[int]:
        """From when the last rank has ended a step to when the last one has ended the
        next one."""
        ends = [max(each) for each in zip(*self.ends, strict=True)]
        return [b - a for a, b in pairwise(ends)]


class _Rank:
    """What a rank has done so far."""

    def __init__(self, number: int, begin: int) -> None:
        self.number, self.host, self.at = number, begin, 0
        # when each has done its work
        self.streams: defaultdict[int, int] = defaultdict(int)
        self.events: list[Event] = []
        self.links = 0
        # the call that recorded the last event of each stream
        self.recorded: dict[int, int] = {}

    def call(self, name: str, ns: int) -> int:
        self.links += 1
        self.events.append(_slice("cuda_runtime", name, self.host, ns, self.links))
        self.host += ns
        return self.links

    def wait(self, stream: int, other: int, ns: int) -> None:
        """A stream waits for what another one was given."""
        record = self.call("cudaEventRecord", ns)
        link = self.call("cudaStreamWaitEvent", ns)
        sync = _slice("cuda_sync", "Stream Wait Event", self.host - ns, ns, link)
        told = {"wait_on_stream": other, "wait_on_cuda_event_record_corr_id": record}
        sync["args"] |= told | {
            "wait_on_cuda_event_id": 1,
            "device": 0,
            "stream": stream,
        }
        self.events.append(sync | {"pid": 0, "tid": stream})
        self.streams[stream] = max(self.streams[stream], self.streams[other])

    def launch(self, work: Work) -> tuple[int, int]:
        """When the kernel or collective begins on this rank, and its number."""
        since = self.host
        self.host += work.host
        if work.aside:
            self.wait(ASIDE, COMPUTE, work.call)
        if work.joins:
            self.wait(COMPUTE, ASIDE, work.call)
        ready = self.host + LATENCY
        link = self.call("cudaLaunchKernel", LAUNCH)
        self.events.append(_slice("cpu_op", "aten::mm", since, self.host - since))
        return max(ready, self.streams[ASIDE if work.aside else COMPUTE]), link

    def run(self, work: Work, start: int, end: int, link: int) -> None:
        stream = ASIDE if work.aside else COMPUTE
        self.streams[stream] = end
        name = ALL_REDUCE if work.group else work.name
        one = _slice("kernel", name, start, end - start, link) | {
            "pid": 0,
            "tid": stream,
        }
        one["args"] |= {"device": 0, "stream": stream}
        if work.group:
            told = {
                "Collective name": "allreduce",
                "dtype": "BFloat16",
                "In msg nelems": 1024,
            }
            group = {
                "Group size": len(work.group),
                "Process Group Name": str(min(work.group)),
            }
            one["args"] |= told | group | {"Process Group Ranks": str([*work.group])}
        self.events.append(one)


def simulated(programs: Sequence[Steps], begin: Sequence[int]) -> Run:
    """`begin`: when the thread of each rank begins."""
    ranks = [_Rank(number, time) for number, time in enumerate(begin)]
    run = Run([rank.events for rank in ranks], [[] for _ in ranks], [])
    for number in range(len(programs[0])):
        started = [rank.host for rank in ranks]
        _step(ranks, [program[number] for program in programs], run.last)
        for rank, since in zip(ranks, started, strict=True):
            end = max(rank.host, *rank.streams.values()) + RETURN
            rank.call("cudaDeviceSynchronize", end - rank.host)
            name = f"ProfilerStep#{number}"
            rank.events.append(_slice("user_annotation", name, since, end - since))
            run.ends[rank.number].append(end)
    return run


def _step(
    ranks: Sequence[_Rank], works: Sequence[Sequence[Work]], last: list[int]
) -> None:
    """Each rank goes on to its next collective, and all on once one has its whole
    group."""
    at, there = [0 for _ in ranks], dict[int, tuple[int, int]]()
    while True:
        for rank in ranks:
            own = works[rank.number]
            while rank.number not in there and at[rank.number] < len(own):
                work = own[at[rank.number]]
                start, link = rank.launch(work)
                if work.group:
                    there[rank.number] = start, link
                else:
                    rank.run(work, start, start + work.ns, link)
                    at[rank.number] += 1
        if not there:
            return
        group = next(
            group
            for group in (works[number][at[number]].group for number in there)
            if all(n in there and works[n][at[n]].group == group for n in group)
        )
        begun = {number: there.pop(number) for number in group}
        latest = max(start for start, _ in begun.values())
        lasts = [
            number for number, (start, _) in begun.items() if latest - start <= APART
        ]
        last.append(lasts[0] if len(lasts) == 1 else -1)
        for number, (start, link) in begun.items():
            work = works[number][at[number]]
            ranks[number].run(work, start, latest + work.ns, link)
            at[number] += 1


def write(run: Run, folder: Path, ahead: Sequence[int] = ()) -> Path:
    """FOLDER/rankN.json of all ranks, which ran on one host; or each on one of its own,
    whose clock is so many ns `ahead`."""
    for rank, events in enumerate(run.events):
        info = {"rank": rank, "world_size": len(run.events), "backend": "nccl"}
        shift = ahead[rank] / 1000 if ahead else 0.0
        moved = [one | {"ts": one["ts"] + shift} for one in events]
        host = f"h{rank if ahead else 0}"
        about = {"distributedInfo": info, "host_name": host, "traceEvents": moved}
        (folder / f"rank{rank}.json").write_text(json.dumps(about))
    return folder


def annotation(name: str, start: int, ns: int) -> Event:
    """On the thread that launches."""
    return _slice("user_annotation", name, start, ns)


def _slice(cat: str, name: str, start: int, ns: int, link: int = 0) -> Event:
    place = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1}
    return place | {"ts": start / 1000, "dur": ns / 1000, "args": {"correlation": link}}
