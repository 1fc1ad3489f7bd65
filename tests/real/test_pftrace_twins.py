"""Each .pftrace beside the JSON of the same window: what torch's own two writers made
of it.

What differs is a named exception here: lost, cut or rounded by torch's writer of .pftrace, or not in
one of both forms.
"""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import orjson
import pytest
from tests.real.traces import PFTRACES, existing

import fusetui
from fusetui.analysis.questions.collectives import find_collectives
from fusetui.analysis.why.answer import why
from fusetui.trace import Trace, open_trace
from fusetui.trace.program.modules import module_times
from fusetui.trace.program.origin import origins

NAMES = (
    *(
        "a100_nccl_ddp_full",
        "b300_decode_graph_full",
        "b300_decode_graph_lanes",
        "edge",
    ),
    *("edge_cpu_only", "edge_gpu_only", "edge_one_kernel", "h100_transformer_step"),
    *("h100_transformer_step_full", "lesson_mlp_compiled", "lesson_mlp_eager"),
    *("mi300_vllm_decode_graph_full", "pair_attention_unfused_h100_full"),
)
LATE = ("a100_nccl_ddp_full",)
"""Its base is 51 days old: torch rounds times there, and starts are up to 1 ns off."""
WORK = ("kernel", "gpu_memcpy", "gpu_memset", "graph_event_node", "graph_host_node")
SHARED = "of shared memory, only the dynamic part is there"
COPIED = "kinds and flags of copies are lost"
Args = dict[str, Any]
LOST: dict[tuple[str, str], str] = {
    ("kernel", "shared memory"): SHARED,
    ("gpu_memcpy", "copy kind"): COPIED,
    ("gpu_memcpy", "src kind"): COPIED,
    ("gpu_memcpy", "dst kind"): COPIED,
    ("gpu_memcpy", "flags"): COPIED,
    ("gpu_memset", "flags"): COPIED,
    ("gpu_user_annotation", "External id"): "the id of an annotation of a GPU is lost",
    ("graph_event_node", "cuda event"): "the event of a node is lost",
    ("graph_host_node", "host process"): "process and thread of a host node are lost",
    ("graph_host_node", "host thread"): "process and thread of a host node are lost",
}
"""Args that are in the JSON only, whatever they say."""
MAX_PAIRS_WITH_ARGS = 2_000
"""Of a larger trace, so many are read, spread over all kinds."""
GRIDLESS = ("grid", "block", "registers per thread")


def opened(name: str) -> Trace:
    return open_trace(str(existing(PFTRACES / name)), cached=False)


@cache
def twins(name: str) -> tuple[Trace, Trace]:
    return opened(f"{name}.pftrace.gz"), opened(f"{name}.json.gz")


def rows_of(trace: Trace) -> dict[str, list[int]]:
    """The rows of each category in the order of the file, without the span of the
    profiler."""
    found = defaultdict(list)
    for row in np.argsort(trace.order).tolist():
        if trace.category_of(row) != "Trace":
            found[trace.category_of(row)].append(row)
    # there, JSON has another order
    found["cuda_sync"].sort(key=lambda row: int(trace.start[row]))
    return found


def pairs(name: str) -> list[tuple[int, int]]:
    """The rows of both that are the same event."""
    one, other = (rows_of(trace) for trace in twins(name))
    assert {k: len(v) for k, v in one.items()} == {k: len(v) for k, v in other.items()}
    return [both for kind in one for both in zip(one[kind], other[kind], strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_names_lanes_and_times(name: str) -> None:
    one, other = twins(name)
    ends = cut_ends(other)
    for row, twin in pairs(name):
        what = other.name_of(twin)
        # only JSON has the function, the direction
        if what.startswith(("HostNode", "Memcpy")):
            what = "HostNode" if what.startswith("HostNode") else "Memcpy"
        # the name of its kind instead
        if not what and other.category_of(twin) == "kernel":
            what = "Kernel"
        assert one.name_of(row) == what
        start = int(one.start[row])
        late = start - int(other.start[twin])
        # JSON has 0 for that
        assert late == 0 or (name in LATE and abs(late) == 1) or start < 0
        here, there = one.track_of(row), other.track_of(twin)
        if not isinstance(there.tid, str):  # text ids become small numbers
            assert (here.layer, here.pid, here.tid) == (
                there.layer,
                there.pid,
                there.tid,
            )
        dur = ends.get(twin, int(other.end[twin])) - int(other.start[twin])
        assert int(one.dur[row]) == dur or other.category_of(twin) == "cuda_sync"


def cut_ends(trace: Trace) -> dict[int, int]:
    """Where torch ends each event of a GPU in a .pftrace: at the next start of its
    lane."""
    lanes = defaultdict(list)
    for row in np.lexsort((trace.order, trace.start)).tolist():
        if trace.category_of(row) in WORK:
            event = trace.elements.element(int(trace.order[row]))
            lanes[event["pid"], event["tid"]].append(row)
    return {
        row: max(
            int(trace.start[row]), min(int(trace.end[row]), int(trace.start[after]))
        )
        for rows in lanes.values()
        for row, after in pairwise(rows)
    }


@pytest.mark.parametrize("name", NAMES)
def test_ends_that_could_be_cut_are_counted(name: str) -> None:
    one, other = twins(name)
    cut = sum(int(other.end[row]) > end for row, end in cut_ends(other).items())
    assert one.report.cut_ends >= cut
    assert other.report.cut_ends == 0


@pytest.mark.parametrize("name", NAMES)
def test_launches_and_ops(name: str) -> None:
    one, other = twins(name)
    same = dict(pairs(name)) | {-1: -1}
    for column in ("launch", "op"):
        here, there = getattr(one, column), getattr(other, column)
        assert all(
            same[int(here[row])] == int(there[twin]) for row, twin in pairs(name)
        )
    assert all(
        int(one.correlation[row]) == int(other.correlation[twin])
        for row, twin in pairs(name)
    )


@pytest.mark.parametrize("name", NAMES)
def test_pftrace_modules_equal_those_of_its_json_twin(name: str) -> None:
    def figures(trace: Trace) -> list[Any]:
        found = module_times(origins(trace)).modules
        return [
            (one.path, one.kind, one.level, one.count, one.kernels) for one in found
        ]

    one, other = (figures(trace) for trace in twins(name))
    assert one == other


@pytest.mark.parametrize("name", ["a100_nccl_ddp_full", "edge"])
def test_pftrace_collectives_equal_those_of_its_json_twin(name: str) -> None:
    """But for the group, where only the ranks of the job, which are lost, name it."""
    one, other = (find_collectives(trace).collectives for trace in twins(name))
    assert len(one) == len(other) > 0
    for here, there in zip(one, other, strict=True):
        assert (here.name, here.dtype, here.sequence) == (
            there.name,
            there.dtype,
            there.sequence,
        )
        assert here.bytes == there.bytes
        assert here.group.ranks in (there.group.ranks, ())


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LATE])
def test_pftrace_gaps_equal_those_of_its_json_twin(name: str) -> None:
    """A nested event that was cut shortens the time in which a GPU is busy, and nothing
    else."""
    one, other = twins(name)
    if one.report.cut_ends or "edge" in name:
        return
    here, there = (why(trace) for trace in (one, other))
    assert [(g.start_ns, g.dur_ns, g.idle) for g in here.gaps] == [
        (g.start_ns, g.dur_ns, g.idle) for g in there.gaps
    ]


@pytest.mark.parametrize("name", NAMES)
def test_pftrace_args_equal_those_of_its_json_twin(name: str) -> None:
    one, other = twins(name)
    every = pairs(name)
    step = 1 + len(every) // MAX_PAIRS_WITH_ARGS
    for row, twin in every[::step]:
        kind = other.category_of(twin)
        here = one.elements.element(int(one.order[row])).get("args", {})
        there = other.elements.element(int(other.order[twin])).get("args", {})
        for key in [key for key in there if (kind, key) in LOST]:
            del there[key]
        if kind == "kernel":
            there = as_launched(there) | as_noted(other.name_of(twin), there)
            here.pop("dynamic shared memory", None)
        if "NaN" in there.values():  # then all args are one text
            assert json.loads(here["annotation"]).keys() == there.keys()
        else:
            assert here == as_written(there)


def as_written(value: Any) -> Any:
    """Any args in torch's debug annotations."""
    match value:
        case None:
            return "null"
        case dict():  # an empty one has no value, as an empty list
            return {
                key: as_written(inner) for key, inner in value.items() if inner != {}
            } | {key: [] for key, inner in value.items() if inner == {}}
        case list():
            return [[] if inner == {} else as_written(inner) for inner in value]
        case int() if not isinstance(value, bool) and value >= 1 << 63:
            return value - (1 << 64) if value < 1 << 64 else float(value)  # wraps
    return value


def as_launched(args: Args) -> Args:
    found = {key: args[key] for key in KERNEL if key in args}
    if found["grid"][0] == 0:  # then nothing of the launch is written
        return {key: found[key] for key in found if key not in GRIDLESS}
    return found


def as_noted(name: str, args: Args) -> Args:
    """What annotates a graph or names a collective."""
    if name in ODD:
        return ODD[name]
    noted = {key: args[key] for key in args if key not in KERNEL}
    text = noted.get("annotation", "")
    if text.startswith("[{"):  # a list is one text in JSON, and here its dicts
        del noted["annotation"]
        for part in json.loads(text):
            noted |= part if isinstance(part, dict) else {"annotation": part}
    kept = OF_NCCL if "func" in noted else ()
    return {
        k: v if isinstance(v, str) or k in kept else orjson.dumps(v).decode()
        for k, v in noted.items()
    }


KERNEL = (
    *("device", "context", "stream", "original_stream", "correlation", "grid", "block"),
    *("registers per thread", "priority", "queued", "channel", "channel_type"),
    *("graph id", "graph node id"),
)
OF_NCCL = ("count", "root", "n_channels", "n_warps", "seq", "rank")
ODD: dict[str, Args] = {
    "graph node 6": {"annotation": "text in a list"},  # JSON: a list of one text
    "graph node 8": {"annotation": "5"},  # JSON: the number
    # JSON spreads it
    "graph node 9": {"annotation": '{"json": "text", "deep": {"a": [1]}}'},
    "graph node 10": {},  # JSON: a number that is no annotation
    "ncclDevKernel metadata is no JSON": {},  # JSON: as annotation
    "ncclDevKernel metadata is a list": {},  # JSON: as annotation
}
"""Kernels whose annotations have forms that torch's own registry never gives."""


@pytest.mark.parametrize("name", ["a100_nccl_ddp_full", "h100_transformer_step_full"])
def test_pftrace_ranks_equal_those_of_its_json_twin(name: str) -> None:
    """The job, the host, the devices and memory are lost; starts may be 1 ns late."""
    json_, pftrace = (
        fusetui.ranks(str(existing(PFTRACES / f"{name}.{ending}.gz")))
        for ending in ("json", "pftrace")
    )
    lost = {"path": "", "device": "", "memory_peak_bytes": None}
    of_json, of_pftrace = (
        {**msgspec.to_builtins(answer.ranks[0]), **lost} for answer in (json_, pftrace)
    )
    idle = of_json.pop("idle"), of_pftrace.pop("idle")
    assert of_pftrace == of_json
    assert idle[0].keys() == idle[1].keys()
    assert all(abs(idle[0][reason] - idle[1][reason]) < 10 for reason in idle[0])
    for key in ("steps", "collectives", "unmatched", "one_given", "untold", "kinds"):
        assert getattr(pftrace, key) == getattr(json_, key)
