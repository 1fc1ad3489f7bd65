"""The collectives of a rank: recorded, inferred from 2023's files, and of gloo on the
CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fusetui.analysis.questions.collectives import (
    FROM_ANNOTATIONS,
    FROM_NAMES,
    ONE_GROUP,
    SIZES,
    find_collectives,
    normalize_collective_name,
)
from fusetui.analysis.questions.process_groups import infer_rank
from fusetui.analysis.ranks.summary import extract_summary
from fusetui.gpu.dtypes import scalar_bytes
from fusetui.trace import Trace

Make = Callable[..., Any]
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)"
TWO = {"distributedInfo": {"backend": "nccl", "rank": 1, "world_size": 2}}


def comms(number: int, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    args = {"correlation": number, **args}
    plain = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "name": ALL_REDUCE}
    return {**plain, "ts": ts, "dur": dur, "args": args}


def call(number: int, ts: float) -> dict[str, Any]:
    plain = {
        "ph": "X",
        "cat": "cuda_runtime",
        "pid": 1,
        "tid": 1,
        "name": "cudaLaunchKernelExC",
    }
    return {**plain, "ts": ts, "dur": 1, "args": {"correlation": number}}


def mark(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    plain = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "name": name}
    return {**plain, "ts": ts, "dur": dur, "args": args}


def test_collective_has_name_group_and_bytes_recorded_on_its_kernel(
    trace_of: Make,
) -> None:
    args = {
        "Collective name": "_allgather_base",
        "dtype": "BFloat16",
        "In msg nelems": 100,
        "Out msg nelems": 200,
        "Group size": 2,
        "Process Group Name": "3",
        "Process Group Ranks": "[4, 5]",
        "Seq": 17,
    }
    found = find_collectives(trace_of([call(1, 5), comms(1, 10, 30, **args)]))
    (told,) = found.collectives
    assert (told.name, told.dtype, told.sequence, told.inferred) == (
        *("all_gather", "BFloat16", 17),
        (),
    )
    assert told.bytes == 200 * 2  # the output of a gather, as nccl-tests counts it
    assert (told.group.name, told.group.ranks, told.group.size) == ("3", (4, 5), 2)
    assert found.issued.tolist() == [5_000]


def test_nccl_payload_of_the_monitor_gives_the_collective(trace_of: Make) -> None:
    args = {
        "func": "AllGather",
        "datatype": "ncclBfloat16",
        "count": 100,
        "seq": 3,
        "process_group": "3",
        "process_group_ranks": [4, 5],
    }
    (told,) = find_collectives(
        trace_of([call(1, 5), comms(1, 10, 30, **args)])
    ).collectives
    assert (told.name, told.dtype, told.sequence, told.inferred) == (
        "all_gather",
        "BFloat16",
        3,
        (),
    )
    assert told.bytes == 100 * 2 * 2  # NCCL counts what one rank gives
    assert (told.group.name, told.group.ranks, told.group.size) == ("3", (4, 5), 2)


def test_a_gather_of_an_unknown_group_has_no_size(trace_of: Make) -> None:
    args = {"func": "AllGather", "datatype": "ncclFloat32", "count": 100}
    (told,) = find_collectives(
        trace_of([call(1, 5), comms(1, 10, 30, **args)])
    ).collectives
    assert told.bytes == -1


def test_ranks_that_were_cut_off_are_taken_from_distributed_info(
    trace_of: Make,
) -> None:
    listed = [{"pg_name": "3", "pg_desc": "tp", "pg_size": 3, "ranks": [0, 1, 2]}]
    args = {"Collective name": "allreduce", "Process Group Name": "3", "Group size": 3}
    args["Process Group Ranks"] = "[0, 1, ..., ...]"
    trace = trace_of([comms(1, 10, 30, **args)], distributedInfo={"pg_config": listed})
    assert find_collectives(trace).collectives[0].group.ranks == (0, 1, 2)


def test_numbers_that_no_column_can_hold_are_not_known(trace_of: Make) -> None:
    args = {"Collective name": "send", "dtype": "Float", "In msg nelems": 1 << 61}
    args |= {"Dst Rank": 1 << 60, "Group size": 1 << 70, "Seq": -5}
    shapes = {"Input Dims": [[1 << 40, 1 << 40]], "Input type": ["float"]}
    events = [comms(1, 10, 30, **args), mark("gloo:all_reduce", 50, 4, **shapes)]
    summary = extract_summary(trace_of(events), "rank0.json")
    found = summary.collectives
    for column in (found.size, found.peer, found.sequence):
        assert column.tolist() == [-1, -1]
    assert [group.size for group in summary.groups] == [0]


def test_a_file_of_2023_is_read_by_its_annotations(trace_of: Make) -> None:
    shapes = {"Input Dims": [[10, 5], []], "Input type": ["float", ""]}
    events = [mark("nccl:all_to_all", 4, 4, **shapes), call(1, 5), comms(1, 10, 30)]
    (told,) = find_collectives(trace_of(events, **TWO)).collectives
    assert (told.name, told.bytes, told.group.size) == ("all_to_all", 10 * 5 * 4, 2)
    assert told.inferred == (ONE_GROUP, FROM_ANNOTATIONS, SIZES)


def test_a_kernel_alone_is_called_after_its_name(trace_of: Make) -> None:
    (told,) = find_collectives(trace_of([comms(1, 10, 30)])).collectives
    assert (told.name, told.bytes, told.inferred) == (
        "all_reduce",
        -1,
        (ONE_GROUP, FROM_NAMES),
    )


def test_gloo_is_issued_by_the_op_of_the_same_number(
    trace_of: Make, event: Make
) -> None:
    """The annotations lie on a thread of gloo's own; the ops on the one that issues."""
    ops = [event("c10d::allreduce_", ts, 2) for ts in (10, 50)]
    marks = [{**mark("gloo:all_reduce", ts, 20), "tid": 9} for ts in (13, 53)]
    trace: Trace = trace_of([*ops, *marks])
    found = find_collectives(trace)
    assert [one.name for one in found.collectives] == ["all_reduce", "all_reduce"]
    assert found.issued.tolist() == [10_000, 50_000]
    assert trace.start[found.rows].tolist() == [13_000, 53_000]


def test_names_of_one_collective_are_one_name() -> None:
    same = (
        "nccl:all_reduce",
        "allreduce",
        "AllReduce",
        "c10d::allreduce_",
        "allreduce_coalesced",
    )
    assert {normalize_collective_name(name) for name in same} == {"all_reduce"}
    assert normalize_collective_name("nccl:_reduce_scatter_base") == "reduce_scatter"
    assert normalize_collective_name("my_own_kernel") == "my_own_kernel"


def test_scalar_bytes_knows_names_of_torch_and_c10() -> None:
    sizes = [
        scalar_bytes(name) for name in ("Float", "c10::BFloat16", "long int", "Unheard")
    ]
    assert sizes == [4, 2, 8, 0]


def test_the_rank_is_recorded_or_in_the_name_of_the_file() -> None:
    assert infer_rank(TWO, "/job/rank7.json") == (1, "distributedInfo")
    assert infer_rank({}, "/rank3/trace_rank-12.json.gz") == (12, "file name")
    assert infer_rank({}, "/rank3/trace.json") == (-1, "file order")
