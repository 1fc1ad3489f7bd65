"""Pairs of traces as vLLM writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.servers import call, opened
from tests.analysis.serving.vllm import ATTENTION, Vllm

from fusetui.analysis.graphs.join import join
from fusetui.gpu.roofline.row import work_of
from fusetui.trace import Trace
from fusetui.trace.model.categories import Role
from fusetui.trace.model.joined import Join, Joined
from fusetui.trace.program.origin import origins
from fusetui.trace.program.own_code import program_of, source_of

Event = dict[str, Any]
FULL, PIECEWISE = Vllm(), Vllm("PIECEWISE")
DECODE = "execute_context_0(0)_generation_4(4)"
MIXED = "execute_context_1(13)_generation_2(2)"
BOTH = [FULL, FULL._replace(names=False)]
PARTS = [PIECEWISE, PIECEWISE._replace(names=False)]


def pair(
    tmp_path: Path, replay: list[Event], capture: list[Event]
) -> tuple[Trace, Join]:
    """A replay joined with a capture."""
    trace = opened(tmp_path / "replay.json", replay)
    return join(trace, opened(tmp_path / "capture.json", capture))


def joined_ops(trace: Trace) -> list[str]:
    """The ops of the kernels of graphs in order of time."""
    assert isinstance(trace, Joined)
    rows = np.flatnonzero(trace.captured >= 0)
    rows = rows[np.argsort(trace.start[rows])]
    return [trace.name_of(int(trace.op[row])) for row in rows.tolist()]


def asked(server: Vllm, size: int) -> list[str]:
    return [one.op for piece in server.pieces(size) for one in piece]


def tokens_of(trace: Trace) -> set[int | None]:
    """The rows of all products of graphs."""
    rows = [r for r in trace.rows_of(Role.KERNEL).tolist() if trace.op[r] >= 0]
    works = [
        work_of(trace, r) for r in rows if trace.name_of(int(trace.op[r])) == "aten::mm"
    ]
    return {work.amount.m if work else None for work in works}


@pytest.mark.parametrize("server", BOTH)
def test_vllm_replay_of_one_captured_size_is_joined(
    tmp_path: Path, server: Vllm
) -> None:
    """After a warm-up, whose kernels ran."""
    trace, found = pair(
        tmp_path, server.step(DECODE, 4, 0, 1), server.capture([8, 4, 2, 1])
    )
    assert joined_ops(trace) == asked(server, 4)
    assert tokens_of(trace) == {4}
    assert (found.replays, found.of_replays, found.refused) == (1, 1, ())
    assert found.certainty == ("certain" if server.names else "likely")


@pytest.mark.parametrize("server", PARTS)
def test_piecewise_replays_with_eager_attention_are_joined(
    tmp_path: Path, server: Vllm
) -> None:
    """Sizes count tokens: 3 requests of 15 tokens replay the graphs of 16."""
    steps = [*server.step(MIXED, 16, 0, 1), *server.step(MIXED, 16, 2000, 11)]
    trace, found = pair(tmp_path, steps, server.capture([32, 16, 8]))
    assert joined_ops(trace) == asked(server, 16) * 2
    assert tokens_of(trace) == {16}
    assert (found.replays, found.of_replays, found.refused) == (8, 8, ())
    assert "the capture is for 16 and the step has 15" in found.why_likely
    attention = [r for r in trace.rows_of(Role.KERNEL) if trace.name_of(r) == ATTENTION]
    # they keep their own
    assert {int(trace.launch[r]) >= 0 for r in attention} == {True}


def test_pieces_of_one_layer_are_told_apart(tmp_path: Path) -> None:
    """Each has the calls of its own place in the capture."""
    trace, _ = pair(
        tmp_path, PIECEWISE.step(MIXED, 16, 0, 1), PIECEWISE.capture([16, 8])
    )
    assert isinstance(trace, Joined)
    rows = np.flatnonzero(trace.captured >= 0)
    rows = rows[np.argsort(trace.start[rows])]
    calls = trace.captured[rows]
    assert (np.diff(trace.start[calls]) > 0).all()


def test_whole_and_piecewise_graphs_of_one_size_are_joined_to_their_own(
    tmp_path: Path,
) -> None:
    capture = [*PIECEWISE.capture([4, 2]), *FULL.capture([4, 2], at=50_000)]
    steps = [*FULL.step(DECODE, 4, 0, 1), *PIECEWISE.step(DECODE, 4, 2000, 11)]
    trace, found = pair(tmp_path, steps, capture)
    assert joined_ops(trace) == asked(FULL, 4) + asked(PIECEWISE, 4)
    assert (found.replays, found.of_replays) == (5, 5)


def test_a_step_whose_first_pieces_were_not_recorded(tmp_path: Path) -> None:
    """Of equal pieces nobody knows which are missing."""
    replay = PIECEWISE.step(MIXED, 16, 0, 1, skip=2)
    trace, found = pair(tmp_path, replay, PIECEWISE.capture([16]))
    # only the last piece is of its kind
    assert joined_ops(trace) == asked(PIECEWISE, 16)[-4:]
    assert found.refused == (
        "1 graph replay cannot be joined: 2 graphs of the capture match equally "
        "well, and the step replays 1.",
    )


def test_captured_sizes_far_apart_are_chosen_by_rounding_up(tmp_path: Path) -> None:
    """Far apart, but the next smaller one is there."""
    name = "execute_context_0(0)_generation_9(9)"
    trace, found = pair(tmp_path, FULL.step(name, 32, 0, 1), FULL.capture([64, 32, 8]))
    assert tokens_of(trace) == {32}
    assert found.why_likely == "the capture is for 32 and the step has 9"


def test_capture_without_stacks_is_joined_by_ops(tmp_path: Path) -> None:
    server = FULL._replace(stacks=False)
    trace, _ = pair(tmp_path, server.step(DECODE, 4, 0, 1), server.capture([4]))
    assert joined_ops(trace) == asked(server, 4)
    assert tokens_of(trace) == {4}


def test_capture_with_stacks_gives_source_lines(tmp_path: Path) -> None:
    trace, _ = pair(tmp_path, FULL.step(DECODE, 4, 0, 1), FULL.capture([4]))
    own = origins(trace)
    source = source_of(own, program_of(own, int(trace.rows_of(Role.KERNEL)[0])))
    assert source is not None
    assert source.file == "model.py"


def test_a_capture_without_ops_says_nothing(tmp_path: Path) -> None:
    capture = [event for event in FULL.capture([4]) if event["cat"] != "cpu_op"]
    trace, found = pair(tmp_path, FULL.step(DECODE, 4, 0, 1), capture)
    assert not isinstance(trace, Joined)
    assert found.refused == (
        (
            "The capture recorded no ops around its calls, so it does not identify the "
            "replayed kernels."
        ),
    )


def forked(capture: list[Event]) -> list[Event]:
    """One of two streams waits for the other within each capture."""
    begins = [event for event in capture if "BeginCapture" in event["name"]]
    return [
        *capture,
        *(call("cudaStreamWaitEvent", event["ts"] + 3, 1) for event in begins),
    ]


def test_streams_that_fork_in_a_capture_have_no_order(tmp_path: Path) -> None:
    server = FULL._replace(names=False)
    _, found = pair(tmp_path, server.step(DECODE, 4, 0, 1), forked(server.capture([4])))
    assert found.refused == (
        "1 graph replay cannot be joined: the capture uses several streams, whose order on the"
        " device is not recorded.",
    )


def test_forked_streams_are_joined_by_node_numbers(tmp_path: Path) -> None:
    server = FULL._replace(names=False)
    replay = server.step(DECODE, 4, 0, 1)
    nodes = [event for event in replay if event["cat"] == "kernel"]
    for number, node in enumerate(nodes, 1):
        node["args"] |= {"graph id": 3, "graph node id": number}
    nodes[4]["ts"], nodes[5]["ts"] = nodes[5]["ts"], nodes[4]["ts"]
    trace, found = pair(tmp_path, replay, forked(server.capture([4])))
    assert sorted(joined_ops(trace)) == sorted(asked(server, 4))
    assert (found.replays, found.refused) == (1, ())


def test_streams_that_fork_and_names_are_only_likely(tmp_path: Path) -> None:
    _, found = pair(tmp_path, FULL.step(DECODE, 4, 0, 1), forked(FULL.capture([4])))
    assert found.why_likely == (
        "the capture uses several streams, and kernels of one name may be those of another"
    )


def test_node_numbers_out_of_order_leave_it_to_times(tmp_path: Path) -> None:
    """Then the times decide."""
    server = FULL._replace(names=False)
    replay = server.step(DECODE, 4, 0, 1)
    nodes = [event for event in replay if event["cat"] == "kernel"]
    for number, node in enumerate(nodes):
        node["args"]["graph node id"] = len(nodes) - number
    trace, found = pair(tmp_path, replay, server.capture([4]))
    assert joined_ops(trace) == asked(server, 4)
    assert found.certainty == "likely"


@pytest.mark.parametrize("server", BOTH)
@pytest.mark.parametrize("which", [0, 3, -1])
def test_a_planted_mismatch_is_refused(
    tmp_path: Path, server: Vllm, which: int
) -> None:
    """One product is another kernel."""
    replay = server.step(DECODE, 4, 0, 1)
    nodes = [event for event in replay if event["cat"] == "kernel"]
    at = [n for n, op in enumerate(asked(server, 4)) if op == "aten::mm"][which]
    nodes[at]["name"] = (
        "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)"
    )
    trace, found = pair(tmp_path, replay, server.capture([4, 2]))
    assert not isinstance(trace, Joined)
    assert f"node {at + 1} is void at::native::vectorized_gather" in found.refused[0]


def nested_driver_calls(capture: list[Event]) -> list[Event]:
    """CUDA's runtime calls the driver: both record the begin and the end."""
    found = []
    for event in capture:
        found.append(event)
        if "StreamBeginCapture" in event["name"] or "StreamEndCapture" in event["name"]:
            inner = event["name"].replace("cuda", "cu").replace("_v10000", "_v2")
            ts, dur = event["ts"] + 0.5, event["dur"] - 1
            found.append(
                {**event, "name": inner, "cat": "cuda_driver", "ts": ts, "dur": dur}
            )
    return found


def test_driver_calls_inside_runtime_calls_count_once(tmp_path: Path) -> None:
    server = FULL._replace(names=False)
    capture = nested_driver_calls(server.capture([4, 2]))
    trace, found = pair(tmp_path, server.step(DECODE, 4, 0, 1), capture)
    assert joined_ops(trace) == asked(server, 4)
    assert found.refused == ()


@pytest.mark.parametrize("number", [4, 16])
def test_verify_step_is_joined_by_requests_or_by_tokens(
    tmp_path: Path, number: int
) -> None:
    """SGLang counts either in the names of its captures: 4 requests of 4 tokens."""
    capture = FULL.capture([16, 8, 32])
    for event in capture:
        event["name"] = event["name"].replace("_FULL", "_TARGET_VERIFY")
        if number == 4:
            for tokens in (8, 16, 32):
                event["name"] = event["name"].replace(f"_{tokens}_", f"_{tokens // 4}_")
    trace, found = pair(
        tmp_path, FULL.step("step[TARGET_VERIFY bs=4]", 16, 0, 1), capture
    )
    if number == 4:
        assert tokens_of(trace) == {16}
        assert found.certainty == "certain"
    else:
        assert "captures of 3 sizes match equally well" in found.refused[0]
