"""Writes what a played job recorded as torch.profiler writes it: a file per rank, each
on the clock of its host. The args of events are those of torch 2.5 and later with NCCL
2.2x, and of gloo without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
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
"""Added to the true clock, so that times are as large as in real traces."""
BASE_NS = 1_711_964_646_000_000_000
DEVICE_NAME = "NVIDIA H100 80GB HBM3"
DEVICE_BYTES = 85_017_493_504
DEVICES = 8
COMPUTE_STREAM = 7
FIRST_STREAM = 20
"""Of those of process groups; STREAMS_APART from each other."""
STREAMS_APART = 4
BACKWARD_TID_OFFSET = 900
MAX_LISTED_RANKS = 30
FIRST_STEP = 3
"""The number of the first step that is recorded."""
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
    """The clock of a host: by how many us it is ahead of the true one at its time 0,
    and by how much more with each us."""

    offset_us: float = 0.0
    drift: float = 0.0

    def at(self, true_us: float) -> float:
        """Return what the clock shows at a time of the true clock, in us."""
        return ORIGIN_US + true_us + self.offset_us + self.drift * true_us


class Recording(NamedTuple):
    """How a job was recorded: its process groups and the clock of each rank. `names`:
    the traces have the names of the hosts; `seq`: their collectives are numbered."""

    groups: Sequence[Group]
    clocks: Sequence[Clock]
    names: bool = False
    seq: bool = True


def write(
    job: Job, slices: Sequence[Sequence[Slice]], how: Recording, folder: Path
) -> None:
    """Write FOLDER/rankN.json of all ranks; `slices` are those of each rank, and `how`
    says how they were recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    for rank, slices_of_rank in enumerate(slices):
        document = orjson.dumps(_make_trace(job, rank, slices_of_rank, how))
        (folder / f"rank{rank}.json").write_bytes(document)


def _make_trace(
    job: Job, rank: int, slices: Sequence[Slice], how: Recording
) -> dict[str, Any]:
    """Return the document of a rank, with the keys that torch.profiler writes."""
    groups = [
        {
            "pg_name": group.name,
            "pg_desc": group.about,
            "backend_config": "cpu:gloo,cuda:gloo" if job.gloo else "cuda:nccl",
            "pg_size": len(group.ranks),
            "ranks": list(group.ranks),
        }
        for group in how.groups
        if rank in group.ranks
    ]

    distributed = {
        "backend": "gloo" if job.gloo else "nccl",
        "rank": rank,
        "world_size": len(job.hosts),
        "pg_count": len(groups),
        "pg_config": groups,
    }
    if not job.gloo:
        distributed["nccl_version"] = "2.21.5"

    devices = [] if job.gloo else [_make_device(number) for number in range(DEVICES)]

    trace: dict[str, Any] = {
        "schemaVersion": 1,
        "deviceProperties": devices,
        "record_shapes": 1,
        "distributedInfo": distributed,
    }
    if how.names:
        trace["host_name"] = f"node{job.hosts[rank]}"

    trace |= {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "traceEvents": list(_Writer(job, rank, how).events(slices)),
        "traceName": f"rank{rank}.json",
    }
    return trace


def _make_device(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "name": DEVICE_NAME,
        "totalGlobalMem": DEVICE_BYTES,
        "computeMajor": 9,
        "computeMinor": 0,
        "warpSize": 32,
        "numSms": 132,
    }


def _list_ranks(ranks: Sequence[int]) -> str:
    """Return ranks as text, such as `[0, 1, 2]`. Like torch, it lists at most 30 of
    them."""
    listed = ", ".join(str(rank) for rank in ranks[:MAX_LISTED_RANKS])
    return f"[{listed}, ...]" if len(ranks) > MAX_LISTED_RANKS else f"[{listed}]"


class _Description(NamedTuple):
    """How a trace describes a collective: the args of its events, and the names of its
    kernel, op and annotation."""

    args: dict[str, Any]
    kernel: str
    op: str
    annotation: str


class _Writer:
    """The events of one rank, and the numbers that it has used."""

    def __init__(self, job: Job, rank: int, how: Recording) -> None:
        self.job = job
        self.rank = rank
        self.how = how
        self.pid = 4000 + 37 * rank
        first_rank_of_host = job.hosts.index(job.hosts[rank])
        self.device = rank - first_rank_of_host
        self.last_external_id = 0
        self.external_ids: dict[int, int] = {}
        """Of the op of a launch, by the number that it shares with its kernel."""
        self.last_seq: dict[tuple[object, ...], int] = {}
        """By group, sends and receives apart."""
        self.next_step = FIRST_STEP
        self.streams: dict[object, int] = {}
        """By group; for gloo the threads instead."""

    def events(self, slices: Sequence[Slice]) -> Iterator[dict[str, Any]]:
        """Yield all events of the trace of this rank: the names of its processes, then
        its slices."""
        yield from self.process_names(self.pid, "CPU")
        if not self.job.gloo:
            yield from self.process_names(self.device, f"GPU {self.device}")
        for item in slices:
            yield from self.events_of(item)

    def process_names(self, pid: int, label: str) -> Iterator[dict[str, Any]]:
        yield self.metadata("process_name", pid, {"name": "python"})
        yield self.metadata("process_labels", pid, {"labels": label})

    def metadata(self, name: str, pid: int, args: dict[str, Any]) -> dict[str, Any]:
        """Return a metadata event of a process."""
        return {
            "name": name,
            "ph": "M",
            "ts": self.us(0),
            "pid": pid,
            "tid": 0,
            "args": args,
        }

    def events_of(self, item: Slice) -> Iterator[dict[str, Any]]:
        """Yield the events of a trace that stand for one recorded slice."""
        what = item.what

        if item.kind == "step":
            name = f"ProfilerStep#{self.next_step}"
            self.next_step += 1
            yield self.cpu("user_annotation", name, item.start, item.end, self.pid)
            return

        match what:
            case Cpu():
                tid = self.thread(what.backward)
                yield self.cpu("user_annotation", what.name, item.start, item.end, tid)
            case Sync():
                yield from self.sync(what, item)
            case Kernel():
                yield from self.kernel(what, item)
            case Collective() if self.job.gloo:
                yield from self.gloo(what, item)
            case Collective() | Exchange():
                yield from self.collective(what, item)

    def us(self, true_us: float) -> float:
        """The time in the trace, for one of the true clock."""
        return round(self.how.clocks[self.rank].at(true_us), 3)

    def thread(self, backward: bool) -> int:
        """Return the thread that does the work. Without a GPU, autograd works in the
        thread that calls it."""
        if backward and not self.job.gloo:
            return self.pid + BACKWARD_TID_OFFSET
        return self.pid

    def slice(
        self,
        cat: str,
        name: str,
        start: float,
        end: float,
        args: dict[str, Any],
        pid: int,
        tid: int,
    ) -> dict[str, Any]:
        """Return a complete event, whose `start` and `end` are us of the true clock."""
        ts = self.us(start)
        return {
            "ph": "X",
            "cat": cat,
            "name": name,
            "pid": pid,
            "tid": tid,
            "ts": ts,
            "dur": round(self.us(end) - ts, 3),
            "args": args,
        }

    def cpu(
        self, cat: str, name: str, start: float, end: float, tid: int, **more: Any
    ) -> dict[str, Any]:
        """Return an op or an annotation with the next External id; `more` are other
        args."""
        self.last_external_id += 1
        args = {
            "External id": self.last_external_id,
            "Ev Idx": self.last_external_id - 1,
            **more,
        }
        return self.slice(cat, name, start, end, args, pid=self.pid, tid=tid)

    def sync(self, what: Sync, item: Slice) -> Iterator[dict[str, Any]]:
        """Yield an op that waits for the GPU and, if there is a GPU, the call in it
        that waits."""
        tid = self.thread(what.backward)
        op = self.cpu("cpu_op", what.op, item.start, item.end, tid)

        yield op
        if self.job.gloo:
            return

        args = {
            "External id": op["args"]["External id"],
            "cbid": 131,
            "correlation": 0,
        }
        yield self.slice(
            "cuda_runtime",
            "cudaStreamSynchronize",
            item.start + 2,
            item.end - 1,
            args,
            pid=self.pid,
            tid=tid,
        )

    def kernel(self, what: Kernel, item: Slice) -> Iterator[dict[str, Any]]:
        """Yield the kernel itself, or for its launch the op with the launch call in it."""
        if item.kind == "kernel":
            yield from self.on_gpu(what.name, item, COMPUTE_STREAM, grid=[64, 2, 1])
            return

        tid = self.thread(what.backward)
        inputs = {
            "Input Dims": [list(dims) for dims in what.dims],
            "Input type": ["float"] * len(what.dims),
        }
        op = self.cpu("cpu_op", what.op, item.start, item.end, tid, **inputs)
        yield op

        if item.kind == "launch":
            self.external_ids[item.link] = op["args"]["External id"]
            yield from self.launch(
                "cudaLaunchKernel",
                cbid=211,
                start=item.start + 3,
                end=item.end - 1,
                item=item,
                tid=tid,
            )

    def launch(
        self, name: str, cbid: int, start: float, end: float, item: Slice, tid: int
    ) -> Iterator[dict[str, Any]]:
        """Yield a launch call, and the start of its arrow to the kernel."""
        args = {
            "External id": self.external_ids[item.link],
            "cbid": cbid,
            "correlation": item.link,
        }
        yield self.slice("cuda_runtime", name, start, end, args, pid=self.pid, tid=tid)
        yield {
            "ph": "s",
            "id": item.link,
            "pid": self.pid,
            "tid": tid,
            "ts": self.us(start),
            "cat": "ac2g",
            "name": "ac2g",
        }

    def on_gpu(
        self, name: str, item: Slice, stream: int, grid: list[int], **more: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield a kernel, and the end of the arrow from its launch; `more` are other
        args."""
        args = {
            "External id": self.external_ids[item.link],
            "queued": 0,
            "device": self.device,
            "context": 1,
            "stream": stream,
            "correlation": item.link,
            "registers per thread": 96,
            "shared memory": 49152,
            "blocks per SM": 0.97,
            "warps per SM": 7.76,
            "grid": grid,
            "block": [256, 1, 1],
            "est. achieved occupancy %": 12,
            **more,
        }
        yield self.slice(
            "kernel", name, item.start, item.end, args, pid=self.device, tid=stream
        )
        yield {
            "ph": "f",
            "id": item.link,
            "pid": self.device,
            "tid": stream,
            "ts": self.us(item.start),
            "cat": "ac2g",
            "name": "ac2g",
            "bp": "e",
        }

    def collective(
        self, what: Collective | Exchange, item: Slice
    ) -> Iterator[dict[str, Any]]:
        """Yield the kernel of a collective, or for its launch the op with an annotation
        and the launch call."""
        description = self.described(what, item)
        is_batched = isinstance(what, Exchange) and what.batched
        if item.kind == "kernel":
            # Nothing describes the kernel of a batch: see `batch`.
            args = {} if is_batched else description.args
            stream = self.stream_of(what)
            yield from self.on_gpu(
                description.kernel, item, stream, grid=[24, 1, 1], **args
            )
            return

        start = item.start

        end = item.end
        tid = self.thread(isinstance(what, Collective) and what.backward)
        if isinstance(what, Exchange) and is_batched:
            yield from self.batch(what, item)
        else:
            args = {**description.args, **self.numbered(what)}
            yield self.cpu("cpu_op", description.op, start, end, tid)
            yield self.cpu(
                "cpu_op", "record_param_comms", start + 3, end - 1, tid, **args
            )
            self.external_ids[item.link] = self.last_external_id
            yield self.cpu(
                "user_annotation", description.annotation, start + 5, end - 2, tid
            )

        yield from self.launch(
            "cudaLaunchKernelExC",
            cbid=430,
            start=(start + end) / 2,
            end=end - 3,
            item=item,
            tid=tid,
        )

    def stream_of(self, what: Collective | Exchange) -> int:
        """Return the stream of a group. For an exchange it is the stream of the two
        neighbors. A new one is taken for the first collective."""
        if isinstance(what, Collective):
            key: object = what.group.name
        else:
            key = (what.group, what.peer)
        next_stream = FIRST_STREAM + STREAMS_APART * len(self.streams)
        return self.streams.setdefault(key, next_stream)

    def batch(self, what: Exchange, item: Slice) -> Iterator[dict[str, Any]]:
        """Yield the events of batch_isend_irecv: its ops are described, but the kernel
        of the group call is not."""
        middle = (item.start + item.end) / 2

        halves = []  # whether each sends
        if what.sends:
            halves.append(True)

        if what.receives:
            halves.append(False)

        op_us = (middle - item.start) / len(halves)
        for place, sends in enumerate(halves):
            description = self.described(what, item._replace(sends=sends))
            start = item.start + place * op_us
            end = item.start + (place + 1) * op_us - 1
            yield self.cpu("cpu_op", description.op, start, end, self.pid)
            args = {**description.args, **self.numbered(what)}
            yield self.cpu(
                "cpu_op", "record_param_comms", start + 1, end - 1, self.pid, **args
            )

        yield self.cpu(
            "user_annotation", "nccl:coalesced", middle - 1, item.end - 1, self.pid
        )
        self.external_ids[item.link] = self.last_external_id

    def numbered(self, what: Collective | Exchange) -> dict[str, int]:
        """Return the arg with the next number of the group, or nothing if the recording
        has no numbers. Sends and receives are numbered apart."""
        if not self.how.seq:
            return {}
        key = (what.group, isinstance(what, Exchange))
        self.last_seq[key] = self.last_seq.get(key, 0) + 1
        return {"Seq": self.last_seq[key]}

    def described(self, what: Collective | Exchange, item: Slice) -> _Description:
        """Return how a trace describes a collective: the args of its events, and the
        names of its kernel, op and annotation."""
        group = what.group
        out_factor = 1
        if isinstance(what, Collective):
            name = what.name
            if name == "_allgather_base":
                out_factor = len(group.ranks)
        else:
            name = "send" if item.sends else "recv"

        args: dict[str, Any] = {
            "Collective name": name,
            "In msg nelems": what.elements,
            "Out msg nelems": what.elements * out_factor,
            "Group size": len(group.ranks),
            "dtype": "BFloat16",
            "In split size": "[]",
            "Out split size": "[]",
            "Process Group Name": group.name,
            "Process Group Description": group.about,
            "Process Group Ranks": _list_ranks(group.ranks),
        }
        if isinstance(what, Collective):
            return _Description(
                args=args,
                kernel=KERNELS[name],
                op=OPS[name],
                annotation=f"nccl:{ANNOTATIONS[name]}",
            )

        args["Dst Rank" if item.sends else "Src Rank"] = what.peer
        here = group.ranks.index(self.rank)
        there = group.ranks.index(what.peer)
        arrow = "->" if item.sends else "<-"

        return _Description(
            args=args,
            kernel=KERNELS["p2p"],
            op="c10d::send" if item.sends else "c10d::recv_",
            annotation=f"nccl:{name} {here}{arrow}{there}",
        )

    def gloo(self, what: Collective, item: Slice) -> Iterator[dict[str, Any]]:
        """Yield the op where a collective of gloo is issued, or its annotation on a
        thread of gloo while it lasts."""
        inputs = {"Input Dims": [[what.elements]], "Input type": ["float"]}
        if item.kind == "launch":
            yield self.cpu(
                "cpu_op", OPS[what.name], item.start, item.end, self.pid, **inputs
            )
            return

        thread = self.streams.setdefault(what.group, len(self.streams))
        name = f"gloo:{ANNOTATIONS[what.name]}"
        yield self.cpu(
            "user_annotation",
            name,
            item.start,
            item.end,
            self.pid + 1 + thread,
            **inputs,
        )
