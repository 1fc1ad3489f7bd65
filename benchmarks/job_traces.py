"""Writes what a played job recorded as torch.profiler writes it: a file per rank, each
on the clock of its host. The args are those of torch 2.5 and later with NCCL 2.2x, and
of gloo without any."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.job_maker import (
    Collective,
    Cpu,
    Exchange,
    Group,
    Job,
    Kernel,
    Slice,
    Sync,
)

ORIGIN_US = 4_534_257_000_000
BASE_NS = 1_711_964_646_000_000_000
DEVICE, MEMORY, DEVICES = "NVIDIA H100 80GB HBM3", 85_017_493_504, 8
COMPUTE_STREAM, FIRST_STREAM = 7, 20
BACKWARD_TID = 900
LISTED = 30
FIRST_STEP = 3  # the number of the first one that is recorded
ARGS = "(ncclDevKernelArgsStorage<4096ul>)"
KERNELS = {
    "allreduce": f"ncclDevKernel_AllReduce_Sum_bf16_RING_LL{ARGS}",
    "_allgather_base": f"ncclDevKernel_AllGather_RING_LL{ARGS}",
    "_reduce_scatter_base": f"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL{ARGS}",
    "p2p": f"ncclDevKernel_SendRecv{ARGS}",
}
ANNOTATIONS = {
    "allreduce": "all_reduce",
    "_allgather_base": "_all_gather_base",
    "_reduce_scatter_base": "_reduce_scatter_base",
}
OPS = {
    "allreduce": "c10d::allreduce_",
    "_allgather_base": "c10d::_allgather_base_",
    "_reduce_scatter_base": "c10d::_reduce_scatter_base_",
}


class Clock(NamedTuple):
    """By how much (us) it is ahead at the true time 0, and by how much more with each
    us."""

    offset_us: float = 0.0
    drift: float = 0.0

    def at(self, true_us: float) -> float:
        return ORIGIN_US + true_us + self.offset_us + self.drift * true_us


class Recording(NamedTuple):
    """How it was recorded: `names` are those of the hosts, if at all; `seq`: with
    numbers."""

    groups: Sequence[Group]
    clocks: Sequence[Clock]  # of each rank
    names: bool = False
    seq: bool = True


def write(
    job: Job, slices: Sequence[Sequence[Slice]], how: Recording, folder: Path
) -> None:
    """FOLDER/rankN.json of all ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, mine in enumerate(slices):
        text = json.dumps(_trace(job, rank, mine, how))
        (folder / f"rank{rank}.json").write_text(text, encoding="utf-8")


def _trace(
    job: Job, rank: int, slices: Sequence[Slice], how: Recording
) -> dict[str, Any]:
    groups = [group for group in how.groups if rank in group.ranks]
    config = [
        {
            "pg_name": group.name,
            "pg_desc": group.about,
            "backend_config": "cpu:gloo,cuda:gloo" if job.gloo else "cuda:nccl",
            "pg_size": len(group.ranks),
            "ranks": list(group.ranks),
        }
        for group in groups
    ]
    about = {
        "backend": "gloo" if job.gloo else "nccl",
        "rank": rank,
        "world_size": len(job.hosts),
        "pg_count": len(config),
        "pg_config": config,
    }
    return {
        "schemaVersion": 1,
        "deviceProperties": []
        if job.gloo
        else [_device(number) for number in range(DEVICES)],
        "record_shapes": 1,
        "distributedInfo": about if job.gloo else about | {"nccl_version": "2.21.5"},
        **({"host_name": f"node{job.hosts[rank]}"} if how.names else {}),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": list(_Writer(job, rank, how).events(slices)),
        "traceName": f"rank{rank}.json",
    }


def _device(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": DEVICE,
        "totalGlobalMem": MEMORY,
        "computeMajor": 9,
        "computeMinor": 0,
        "warpSize": 32,
        "numSms": 132,
    }


def _listed(ranks: Sequence[int]) -> str:
    """As torch does: no more than 30."""
    named = ", ".join(map(str, ranks[:LISTED]))
    return f"[{named}, ...]" if len(ranks) > LISTED else f"[{named}]"


class _Writer:
    """The events of one rank, with its numbers."""

    def __init__(self, job: Job, rank: int, how: Recording) -> None:
        self.job, self.rank, self.how = job, rank, how
        self.pid, self.device = (
            4000 + 37 * rank,
            rank - job.hosts.index(job.hosts[rank]),
        )
        self.number = 0
        self.seq: dict[tuple[object, ...], int] = {}
        self.external: dict[int, int] = {}
        self.steps = FIRST_STEP
        self.streams: dict[object, int] = {}

    def events(self, slices: Sequence[Slice]) -> Iterator[dict[str, Any]]:
        devices = [] if self.job.gloo else [(self.device, f"GPU {self.device}")]
        for pid, label in [(self.pid, "CPU"), *devices]:
            for name, args in (
                ("name", {"name": "python"}),
                ("labels", {"labels": label}),
            ):
                yield {"name": f"process_{name}", "ph": "M", "ts": self.us(0), "pid": pid, "tid": 0,
                       "args": args}  # fmt: skip
        for one in slices:
            yield from self.of(one)

    def us(self, true_us: float) -> float:
        return round(self.how.clocks[self.rank].at(true_us), 3)

    def thread(self, backward: bool) -> int:
        """On the CPU autograd works in the thread that calls it."""
        return self.pid + (BACKWARD_TID if backward and not self.job.gloo else 0)

    def slice(
        self,
        cat: str,
        name: str,
        start: float,
        end: float,
        args: dict[str, Any],
        **at: int,
    ) -> dict[str, Any]:
        ts = self.us(start)
        place = {"pid": at.get("pid", self.pid), "tid": at.get("tid", self.pid)}
        dur = round(self.us(end) - ts, 3)
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            **place,
            "ts": ts,
            "dur": dur,
            "args": args,
        }

    def cpu(
        self, cat: str, name: str, start: float, end: float, tid: int, **more: Any
    ) -> dict[str, Any]:
        """With an external id of its own."""
        self.number += 1
        args = {"External id": self.number, "Ev Idx": self.number - 1, **more}
        return self.slice(cat, name, start, end, args, tid=tid)

    def of(self, one: Slice) -> Iterator[dict[str, Any]]:
        what = one.what
        if one.kind == "step":
            name = f"ProfilerStep#{self.steps}"
            self.steps += 1
            yield self.cpu("user_annotation", name, one.start, one.end, self.pid)
        elif isinstance(what, Cpu):
            tid = self.thread(what.backward)
            yield self.cpu("user_annotation", what.name, one.start, one.end, tid)
        elif isinstance(what, Sync):
            yield from self.sync(what, one)
        elif isinstance(what, Kernel):
            yield from self.kernel(what, one)
        elif isinstance(what, Collective) and self.job.gloo:
            yield from self.gloo(what, one)
        elif isinstance(what, Collective | Exchange):
            yield from self.collective(what, one)

    def sync(self, what: Sync, one: Slice) -> Iterator[dict[str, Any]]:
        tid = self.thread(what.backward)
        op = self.cpu("cpu_op", what.op, one.start, one.end, tid)
        yield op
        if not self.job.gloo:
            args = {
                "External id": op["args"]["External id"],
                "cbid": 131,
                "correlation": 0,
            }
            start, end = one.start + 2, one.end - 1
            yield self.slice(
                "cuda_runtime", "cudaStreamSynchronize", start, end, args, tid=tid
            )

    def kernel(self, what: Kernel, one: Slice) -> Iterator[dict[str, Any]]:
        if one.kind == "kernel":
            yield from self.on_gpu(what.name, one, COMPUTE_STREAM, [64, 2, 1])
            return
        tid = self.thread(what.backward)
        dims, types = [list(one) for one in what.dims], ["float"] * len(what.dims)
        more = {"Input Dims": dims, "Input type": types}
        op = self.cpu("cpu_op", what.op, one.start, one.end, tid, **more)
        yield op
        if one.kind == "launch":
            self.external[one.link] = op["args"]["External id"]
            yield from self.launch(
                "cudaLaunchKernel", 211, one.start + 3, one.end - 1, one, tid
            )

    def launch(
        self, name: str, cbid: int, start: float, end: float, one: Slice, tid: int
    ) -> Iterator[dict[str, Any]]:
        args = {
            "External id": self.external[one.link],
            "cbid": cbid,
            "correlation": one.link,
        }
        yield self.slice("cuda_runtime", name, start, end, args, tid=tid)
        flow = {"id": one.link, "pid": self.pid, "tid": tid, "ts": self.us(start)}
        yield {"ph": "s", **flow, "cat": "ac2g", "name": "ac2g"}

    def on_gpu(
        self, name: str, one: Slice, stream: int, grid: list[int], **more: Any
    ) -> Iterator[dict[str, Any]]:
        args = {
            "External id": self.external[one.link],
            "queued": 0,
            "device": self.device,
            "context": 1,
            "stream": stream,
            "correlation": one.link,
            "registers per thread": 96,
            "shared memory": 49152,
            "blocks per SM": 0.97,
            "warps per SM": 7.76,
            "grid": grid,
            "block": [256, 1, 1],
            "est. achieved occupancy %": 12,
            **more,
        }
        at = {"pid": self.device, "tid": stream}
        yield self.slice("kernel", name, one.start, one.end, args, **at)
        flow = {"id": one.link, **at, "ts": self.us(one.start)}
        yield {"ph": "f", **flow, "cat": "ac2g", "name": "ac2g", "bp": "e"}

    def collective(
        self, what: Collective | Exchange, one: Slice
    ) -> Iterator[dict[str, Any]]:
        args, name, op, annotation = self.described(what, one)
        batched = isinstance(what, Exchange) and what.batched
        if one.kind == "kernel":
            place = (
                what.group.name
                if isinstance(what, Collective)
                else (what.group, what.peer)
            )
            stream = self.streams.setdefault(
                place, FIRST_STREAM + 4 * len(self.streams)
            )
            yield from self.on_gpu(
                name, one, stream, [24, 1, 1], **({} if batched else args)
            )
            return
        start, end = one.start, one.end
        tid = self.thread(isinstance(what, Collective) and what.backward)
        if isinstance(what, Exchange) and batched:
            yield from self.batch(what, one)
        else:
            args |= {"Seq": self.next_seq(what)} if self.how.seq else {}
            yield self.cpu("cpu_op", op, start, end, tid)
            yield self.cpu(
                "cpu_op", "record_param_comms", start + 3, end - 1, tid, **args
            )
            self.external[one.link] = self.number
            yield self.cpu("user_annotation", annotation, start + 5, end - 2, tid)
        middle = (start + end) / 2
        yield from self.launch("cudaLaunchKernelExC", 430, middle, end - 3, one, tid)

    def batch(self, what: Exchange, one: Slice) -> Iterator[dict[str, Any]]:
        """batch_isend_irecv: its ops are described, the kernel of the group call is
        not."""
        middle = (one.start + one.end) / 2
        ways = [way for way in (True, False) if (what.sends if way else what.receives)]
        each = (middle - one.start) / len(ways)
        for place, way in enumerate(ways):
            args, _, op, _ = self.described(what, one._replace(sends=way))
            start, end = one.start + place * each, one.start + (place + 1) * each - 1
            yield self.cpu("cpu_op", op, start, end, self.pid)
            more = {"Seq": self.next_seq(what)} if self.how.seq else {}
            yield self.cpu(
                "cpu_op",
                "record_param_comms",
                start + 1,
                end - 1,
                self.pid,
                **args,
                **more,
            )
        yield self.cpu(
            "user_annotation", "nccl:coalesced", middle - 1, one.end - 1, self.pid
        )
        self.external[one.link] = self.number

    def next_seq(self, what: Collective | Exchange) -> int:
        key = (what.group, isinstance(what, Exchange))
        self.seq[key] = self.seq.get(key, 0) + 1
        return self.seq[key]

    def described(
        self, what: Collective | Exchange, one: Slice
    ) -> tuple[dict[str, Any], str, str, str]:
        """Its args, and the names of kernel, op and annotation."""
        group, factor = what.group, {"_allgather_base": (1, len(what.group.ranks))}
        size = what.elements
        inside, outside = factor.get(
            what.name if isinstance(what, Collective) else "", (1, 1)
        )
        name = (
            what.name
            if isinstance(what, Collective)
            else "send"
            if one.sends
            else "recv"
        )
        args: dict[str, Any] = {
            "Collective name": name,
            "In msg nelems": size * inside,
            "Out msg nelems": size * outside,
            "Group size": len(group.ranks),
            "dtype": "BFloat16",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": group.name,
            "Process Group Description": group.about,
            "Process Group Ranks": _listed(group.ranks),
        }
        if isinstance(what, Collective):
            return args, KERNELS[name], OPS[name], f"nccl:{ANNOTATIONS[name]}"
        args["Dst Rank" if one.sends else "Src Rank"] = what.peer
        me, other = group.ranks.index(self.rank), group.ranks.index(what.peer)
        annotation = f"nccl:{name} {me}{'->' if one.sends else '<-'}{other}"
        return (
            args,
            KERNELS["p2p"],
            "c10d::send" if one.sends else "c10d::recv_",
            annotation,
        )

    def gloo(self, what: Collective, one: Slice) -> Iterator[dict[str, Any]]:
        """An op where it is issued; an annotation on a thread of gloo while it
        lasts."""
        more = {"Input Dims": [[what.elements]], "Input type": ["float"]}
        if one.kind == "launch":
            yield self.cpu(
                "cpu_op", OPS[what.name], one.start, one.end, self.pid, **more
            )
            return
        tid = self.pid + 1 + self.streams.setdefault(what.group, len(self.streams))
        name = f"gloo:{ANNOTATIONS[what.name]}"
        yield self.cpu("user_annotation", name, one.start, one.end, tid, **more)
