"""The simulator gives what was worked out by hand."""

from __future__ import annotations

import pytest
from tests.analysis.replay.changes import changed
from tests.analysis.replay.programs import (
    Backward,
    Copy,
    GraphLaunch,
    Item,
    Launch,
    Machine,
    Next,
    Own,
    Program,
    Record,
    Sync,
    Thread,
    WaitEvent,
    frame,
    note,
    numbered,
    op,
    program,
    steps,
)
from tests.analysis.replay.recording import lengths, span_of
from tests.analysis.replay.simulator import CALL, Residuals, Slice, simulate


def kernel(name: str, ns: int, call: int = 10, stream: int = 7) -> Launch:
    return Launch(Item(name, ns, stream), call)


def times(run: list[Slice], name: str) -> list[tuple[int, int]]:
    return [(one.start, one.end) for one in run if one.name == name]


QUICK = Machine(latency=4, switch=0)


def test_an_item_starts_after_its_call_begins_and_its_stream_is_free() -> None:
    run = simulate(program(kernel("a", 100), kernel("b", 20), Own(200), kernel("c", 5)))
    assert times(run, "cudaLaunchKernel") == [(0, 10), (10, 20), (220, 230)]
    assert times(run, "a") == [(4000, 4100)]
    assert times(run, "b") == [(4100, 4120)]
    assert times(run, "c") == [(4220, 4225)]


def test_the_switch_of_a_stream_comes_between_its_items() -> None:
    run = simulate(
        program(kernel("a", 100), kernel("b", 20), machine=Machine(4, switch=3))
    )
    assert times(run, "b") == [(107, 127)]


def test_ops_last_as_long_as_what_is_in_them() -> None:
    run = simulate(
        program(op("outer", Own(5), op("inner", Own(7), kernel("a", 1)), Own(2)))
    )
    assert times(run, "outer") == [(0, 24)]
    assert times(run, "inner") == [(5, 22)]


def test_a_launch_call_waits_for_room() -> None:
    launches = [kernel(name, 100) for name in "abc"]
    run = simulate(program(*launches, machine=Machine(4, 0, depth=2)))
    assert times(run, "a") == [(4, 104)]
    assert [one.end for one in run if one.kind == CALL] == [10, 20, 114]
    assert times(run, "c") == [(204, 304)]


def test_a_stream_waits_for_the_event_of_another_one() -> None:
    run = simulate(
        program(
            kernel("a", 100),
            Record(1, 7, 2),
            WaitEvent(1, 20, 3),
            kernel("b", 10, stream=20),
            machine=QUICK,
        )
    )
    assert times(run, "b") == [(104, 114)]
    (wait,) = (one for one in run if one.name == "Stream Wait Event")
    assert wait.args["wait_on_stream"] == 7
    assert wait.args["wait_on_cuda_event_record_corr_id"] == 2
    assert (wait.start, wait.end) == (12, 15)


@pytest.mark.parametrize(
    ("sync", "end"),
    [(Sync("stream", 5), 109), (Sync("device", 5), 135), (Sync("event", 5, on=1), 109)],
)
def test_a_call_returns_after_what_it_waits_for(sync: Sync, end: int) -> None:
    body = (kernel("a", 100), Record(1, 7, 1), kernel("b", 115, stream=20), sync)
    assert times(simulate(program(*body, machine=QUICK)), sync.call) == [(21, end)]


def test_a_call_with_nothing_to_wait_for_takes_its_own_time() -> None:
    run = simulate(program(kernel("a", 1), Own(50), Sync("device", 5), machine=QUICK))
    assert times(run, "cudaDeviceSynchronize") == [(60, 65)]


def test_a_copy_holds_its_call() -> None:
    copy = Copy(Item("Memcpy DtoH (Device -> Pageable)", 30, kind="gpu_memcpy"), 6)
    run = simulate(program(kernel("a", 100), copy, machine=QUICK))
    assert times(run, copy.item.name) == [(104, 134)]
    assert times(run, "cudaMemcpyAsync") == [(10, 140)]


def test_a_graph_is_one_call() -> None:
    graph = GraphLaunch((Item("a", 10), Item("b", 20), Item("c", 5, stream=20)), 50)
    run = simulate(program(graph, machine=QUICK))
    assert times(run, "cudaGraphLaunch") == [(0, 50)]
    assert [times(run, name) for name in "abc"] == [[(4, 14)], [(14, 34)], [(4, 9)]]
    assert {one.link for one in run} == {1}


def test_backward_runs_in_its_own_thread_while_the_first_one_waits() -> None:
    run = simulate(
        program(Own(10), Backward((op("b", Own(20)),), 3, 4), op("after", Own(1)))
    )
    assert times(run, "b") == [(13, 33)]
    assert {one.lane for one in run if one.name == "b"} == {4190}
    assert times(run, "after") == [(37, 38)]


def test_threads_give_work_to_a_stream_in_the_order_of_their_calls() -> None:
    first = Thread((kernel("a", 10), Own(50), kernel("c", 10)))
    other = Thread((Own(5), kernel("b", 10)), start=10, number=4200)
    run = simulate(numbered(Program((first, other), QUICK)))
    assert [times(run, name) for name in "abc"] == [[(4, 14)], [(19, 29)], [(64, 74)]]


def test_a_worker_makes_batches_ahead() -> None:
    """It has two when the first is asked for, and its next one is ready at 300."""
    body = (Own(220), Next(100, workers=1, delay=2))
    run = simulate(
        program(*body, Next(100, workers=1, delay=2), Next(100, workers=1, delay=2))
    )
    name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
    assert times(run, name) == [(220, 222), (222, 224), (224, 324)]


def test_a_step_ends_with_the_last_item_that_it_launched() -> None:
    whole = program(
        *steps((kernel("a", 100),), (kernel("b", 50), Own(300))), machine=QUICK
    )
    assert lengths(simulate(whole)) == {"ProfilerStep#4": 320 - 104}
    assert span_of(simulate(whole)) == 320


def test_residuals_are_the_same_in_a_changed_program() -> None:
    whole = program(kernel("a", 100), kernel("b", 100), Own(5000), kernel("c", 100))
    chance = Residuals(1, launch=500, switch=50)
    before, after = (
        simulate(whole, chance),
        simulate(changed(whole, "kernel:b x0"), chance),
    )
    assert times(before, "a")[0][0] > 4000
    assert times(before, "a") == times(after, "a")
    assert times(before, "c") == times(after, "c")
    assert times(simulate(whole, Residuals(1, launch=500, draw=1)), "a") != times(
        before, "a"
    )


WORKERS = "loader:workers=4"


def busy(*changes: str) -> int:
    """The length of the second of two steps that a change meets."""
    body = (
        note(
            "fwd",
            frame("m.py(1): f", Own(100), op("aten::mm", Own(60), kernel("gemm", 400))),
        ),
        frame("nn.Module: Tail_0", op("aten::add", Own(40), kernel("elementwise", 80))),
        Next(1000),
        Sync("stream", 10),
    )
    return lengths(
        simulate(changed(program(*steps(body, body), machine=QUICK), *changes))
    )["ProfilerStep#4"]


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ((), 100 + 60 + 10 + 40 + 10 + 1000 + 10),
        (("kernel:gemm x2",), 1230),
        (("loader",), 1000),
        ((WORKERS,), 160 + 4 + 400 + 80 + 10),
        ((WORKERS, "kernel:gemm x0.5"), 160 + 4 + 200 + 80 + 10),
        ((WORKERS, "family:gemm 40ns"), 160 + 10 + 40 + 4 + 80 + 10),
        (("python x0.5",), 1180),
        (("op:aten::mm x0",), 100 + 50 + 1010),
        (("op:aten::mm x0.5",), 1200),
        (("module:Tail x0",), 100 + 70 + 1010),
        ((WORKERS, "no-sync:cudaStreamSynchronize"), 160 + 4 + 400 + 80),
        (("graph:fwd",), 10_000 + 50 + 1010),
    ],
)
def test_changes_are_made_to_the_program(changes: tuple[str, ...], wanted: int) -> None:
    assert busy(*changes) == wanted


def test_a_graph_with_a_wait_inside_is_refused() -> None:
    with pytest.raises(ValueError, match="a wait lies inside"):
        changed(program(note("all", kernel("a", 1), Sync("device", 1))), "graph:all")


def test_a_fused_chain_does_not_write_and_read_its_intermediate_result() -> None:
    """Two inputs and an output, then an input and an output: two are read and one is
    written."""
    ops = (
        op("a", kernel("k", 300), dims=((4,), (4,))),
        op("b", kernel("l", 200), dims=((4,),)),
    )
    run = simulate(
        changed(program(frame("nn.Module: Gate_0", *ops), machine=QUICK), "fuse")
    )
    assert times(run, "k") == [(4, 304)]
    assert times(run, "l") == []
