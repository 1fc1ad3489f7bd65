"""Jobs of a few ranks, simulated and written as torch.profiler does. A thread launches kernels and
collectives to one stream, and waits for the device at the end of each step; a collective ends on
all ranks when the last of them has begun it, plus its transfer. Nothing here uses fusetui."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

LAUNCH, LATENCY, RETURN = 2_000, 6_000, 1_000  # ns
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


class Work(NamedTuple):
    """`host` ns of an op of the thread, then a kernel of so many ns, or a transfer."""

    host: int
    ns: int
    name: str = "ampere_sgemm_64x32_tn"
    meets: bool = False


Steps = Sequence[Sequence[Work]]


class Run(NamedTuple):
    """What was simulated: events of each rank, and when its steps end."""

    events: list[list[dict[str, Any]]]
    ends: list[list[int]]
    last: list[int]  # the rank that arrives last at each collective; -1: several

    @property
    def steps(self) -> list[int]:
        """From when the last rank has ended a step to when the last one has ended the next one."""
        ends = [max(each) for each in zip(*self.ends, strict=True)]
        return [b - a for a, b in pairwise(ends)]


def simulated(ranks: Sequence[Steps], begin: Sequence[int]) -> Run:
    """`begin`: when the thread of each rank begins."""
    run = Run([[] for _ in ranks], [[] for _ in ranks], [])
    host, stream = list(begin), [0 for _ in ranks]
    for number in range(len(ranks[0])):
        started = list(host)
        for pieces in zip(*(rank[number] for rank in ranks), strict=True):
            starts = []
            for rank, work in enumerate(pieces):
                events = run.events[rank]
                events.append(_slice("cpu_op", "aten::mm", host[rank], work.host + LAUNCH))
                call = host[rank] + work.host
                link = len(events)
                events.append(_slice("cuda_runtime", "cudaLaunchKernel", call, LAUNCH, link))
                starts.append(max(call + LATENCY, stream[rank]))
                host[rank] = call + LAUNCH
            meets = pieces[0].meets
            if meets:
                lasts = [n for n, start in enumerate(starts) if start == max(starts)]
                run.last.append(lasts[0] if len(lasts) == 1 else -1)
            for rank, work in enumerate(pieces):
                stream[rank] = (max(starts) if meets else starts[rank]) + work.ns
                run.events[rank].append(_kernel(rank, len(ranks), work, starts[rank], stream[rank],
                                                len(run.events[rank]) - 1))  # fmt: skip
        for rank in range(len(ranks)):
            end = max(host[rank], stream[rank]) + RETURN
            wait = _slice("cuda_runtime", "cudaDeviceSynchronize", host[rank], end - host[rank])
            name, length = f"ProfilerStep#{number}", end - started[rank]
            run.events[rank] += [wait, _slice("user_annotation", name, started[rank], length)]
            run.ends[rank].append(end)
            host[rank] = end
    return run


def write(run: Run, folder: Path) -> Path:
    """FOLDER/rankN.json of all ranks, which ran on one host."""
    for rank, events in enumerate(run.events):
        info = {"rank": rank, "world_size": len(run.events), "backend": "nccl"}
        about = {"distributedInfo": info, "host_name": "h", "traceEvents": events}
        (folder / f"rank{rank}.json").write_text(json.dumps(about))
    return folder


def _slice(cat: str, name: str, start: int, ns: int, link: int = 0) -> dict[str, Any]:
    place = {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1}
    return place | {"ts": start / 1000, "dur": ns / 1000, "args": {"correlation": link}}


def _kernel(rank: int, size: int, work: Work, start: int, end: int, link: int) -> dict[str, Any]:
    name = ALL_REDUCE if work.meets else work.name
    one = _slice("kernel", name, start, end - start, link) | {"pid": rank, "tid": 7}
    one["args"] |= {"device": rank, "stream": 7}
    if work.meets:
        told = {"Collective name": "allreduce", "dtype": "BFloat16", "In msg nelems": 1024}
        group = {"Group size": size, "Process Group Name": "0", "Out msg nelems": 1024}
        one["args"] |= told | group | {"Process Group Ranks": str([*range(size)])}
    return one
