"""Graph replays joined with the capture of their graphs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.analysis.servers import NVJET, Server, call, gpu, opened
from tests.corpus.files import corpus_path

from fusetui.analysis.graphs.join import join
from fusetui.analysis.questions.launches import wants_capture
from fusetui.analysis.questions.summary import summary
from fusetui.gpu.roofline.row import work_of
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.categories import Role
from fusetui.trace.model.joined import Join, Joined
from fusetui.trace.program.modules import module_times
from fusetui.trace.program.origin import origins
from fusetui.trace.program.own_code import path_of, program_of, source_of

SERVER = Server()
CUDA = Server(hip=False, product=NVJET)


def ops_of(trace: Trace) -> list[str]:
    """The op of every kernel that a graph launched, in order of time; "" for none."""
    rows = trace.rows_of(Role.KERNEL)
    rows = rows[np.argsort(trace.start[rows])]
    return [trace.name_of(op) if op >= 0 else "" for op in trace.op[rows].tolist()]


def pair(
    tmp_path: Path,
    replay: list[list[dict[str, object]]],
    capture: list[list[dict[str, object]]],
) -> tuple[Trace, Join]:
    """A replay joined with a capture."""
    trace = opened(tmp_path / "replay.json", *replay)
    return join(trace, opened(tmp_path / "capture.json", *capture))


def test_every_node_has_the_op_of_its_call(tmp_path: Path) -> None:
    trace, found = pair(tmp_path, [SERVER.step(4, 0, 1)], [SERVER.capture(4)])
    assert ops_of(trace) == [launch.op for launch in SERVER.launches(4)]
    assert (found.replays, found.of_replays, found.kernels) == (1, 1, 13)
    assert (found.certainty, found.refused) == ("certain", ())


def test_module_frame_and_work(tmp_path: Path) -> None:
    trace, _ = pair(tmp_path, [SERVER.step(4, 0, 1)], [SERVER.capture(4)])
    row = next(
        r for r in trace.rows_of(Role.KERNEL) if trace.name_of(r) == SERVER.product
    )
    own = origins(trace)
    program = program_of(own, int(row))
    assert path_of(own, program) == "capture_4_DECODE > Tiny_0 > Linear_0"
    source = source_of(own, program)
    assert source is not None
    assert (source.file, source.line) == ("model.py", 7)
    work = work_of(trace, int(row))
    assert work is not None
    amount = work.amount
    assert (amount.m, amount.n, amount.k, amount.flop) == (4, 64, 64, 2 * 4 * 64 * 64)
    assert amount.bytes == 2 * (4 * 64 + 64 * 64 + 4 * 64)


def test_each_replay_has_work_of_its_own(tmp_path: Path) -> None:
    """Two kernels of one captured op are not two kernels of one call."""
    steps = [SERVER.step(4, 0, 1), SERVER.step(4, 500, 2)]
    trace, _ = pair(tmp_path, steps, [SERVER.capture(4)])
    rows = [
        r
        for r in trace.rows_of(Role.KERNEL).tolist()
        if trace.name_of(r) == SERVER.product
    ]
    assert [work_of(trace, row) is not None for row in rows] == [True] * 6


def test_the_figures_of_the_trace_stay(tmp_path: Path) -> None:
    trace = opened(tmp_path / "replay.json", SERVER.step(4, 0, 1))
    after, _ = join(trace, opened(tmp_path / "capture.json", SERVER.capture(4)))
    a, b = summary(trace), summary(after)
    assert (a.slices, a.span_ns, a.base_ns, a.tracks) == (
        b.slices,
        b.span_ns,
        b.base_ns,
        b.tracks,
    )
    assert (a.gpu_events_with_op, b.gpu_events_with_op) == (0, 13)


def test_no_cpu_time_of_the_capture_counts(tmp_path: Path) -> None:
    trace, _ = pair(tmp_path, [SERVER.step(4, 0, 1)], [SERVER.capture(4)])
    found = {module.module: module for module in module_times(origins(trace)).modules}
    assert (found["Tiny_*"].kernels, found["Tiny_*"].cpu_ns) == (13, 0)
    assert found["Linear_*"].gpu_ns == 3 * 10_500


def test_one_wrong_name_refuses_the_join(tmp_path: Path) -> None:
    replay = SERVER.step(4, 0, 1)
    replay[-2]["name"] = "another_kernel"
    trace, found = pair(tmp_path, [replay], [SERVER.capture(4)])
    assert not isinstance(trace, Joined)
    assert found.refused == (
        "1 graph replay cannot be joined: node 12 is another_kernel, and the capture has"
        " my_attention.",
    )


def test_another_model_is_refused(tmp_path: Path) -> None:
    trace, found = pair(tmp_path, [SERVER.step(4, 0, 1)], [Server(layers=2).capture(4)])
    assert ops_of(trace) == [""] * 13
    assert "the replay has 13 nodes, and the capture 9" in found.refused[0]


def test_a_replay_cut_at_the_edge_is_refused(tmp_path: Path) -> None:
    steps = [SERVER.step(4, 0, 1), SERVER.step(4, 500, 2, cut=slice(9))]
    trace, found = pair(tmp_path, steps, [SERVER.capture(4)])
    assert ops_of(trace).count("") == 9
    assert (found.replays, found.of_replays) == (1, 2)
    assert found.refused == (
        "1 graph replay cannot be joined: it has only the first 9 of 13 nodes of the "
        "capture. It may be cut off at the boundary of the recorded window.",
    )


def test_batch_of_the_step_chooses_among_captured_sizes(tmp_path: Path) -> None:
    """Equal kernels: the batch of the step decides, rounded up to a captured size."""
    captures = [SERVER.capture(size, 1000 * n) for n, size in enumerate((8, 4, 2), 1)]
    steps = [SERVER.step(4, 0, 1), SERVER.step(3, 500, 2), SERVER.step(8, 900, 3)]
    trace, found = pair(tmp_path, steps, captures)
    rows = [
        r
        for r in trace.rows_of(Role.KERNEL).tolist()
        if trace.name_of(r) == SERVER.product
    ]
    works = [work_of(trace, row) for row in rows]
    assert [work.amount.m if work else None for work in works] == [4] * 3 + [4] * 3 + [
        8
    ] * 3
    assert found.why_likely == "the capture is for 4 and the step has 3"


def test_a_capture_that_is_far_too_large_is_refused(tmp_path: Path) -> None:
    _, found = pair(tmp_path, [SERVER.step(4, 0, 1)], [SERVER.capture(8)])
    assert found.refused == (
        "1 graph replay cannot be joined: the capture is for 8 and the step has 4, "
        "and no server pads that far.",
    )


def test_a_capture_that_is_too_small_is_refused(tmp_path: Path) -> None:
    _, found = pair(tmp_path, [SERVER.step(8, 0, 1)], [SERVER.capture(4)])
    assert found.refused == (
        "1 graph replay cannot be joined: the capture is for 4 and the step has 8.",
    )


def test_rows_of_products_choose_the_size_where_no_annotation_does(
    tmp_path: Path,
) -> None:
    """Where no annotation names the size, as in vLLM."""
    captures = [
        SERVER.capture(size, 1000 * n, named=False) for n, size in enumerate((8, 4), 1)
    ]
    name = "execute_context_0(0)_generation_4(4)"
    trace, found = pair(tmp_path, [SERVER.step(4, 0, 1, name)], captures)
    row = next(
        r
        for r in trace.rows_of(Role.KERNEL).tolist()
        if trace.name_of(r) == SERVER.product
    )
    work = work_of(trace, row)
    assert work is not None
    assert (work.amount.m, found.certainty) == (4, "certain")


def test_sizes_without_a_batch_are_not_guessed(tmp_path: Path) -> None:
    captures = [SERVER.capture(size, 1000 * n) for n, size in enumerate((8, 4), 1)]
    _, found = pair(tmp_path, [SERVER.step(4, 0, 1, name="execute_model")], captures)
    assert found.refused == (
        "1 graph replay cannot be joined: captures of 2 sizes match equally well: "
        "the step does not state its batch size.",
    )


def piecewise(
    at: float, pieces: int, number: int, step: bool
) -> list[dict[str, object]]:
    """A graph in equal parts, captured or replayed one after the other."""
    server = Server(layers=0)
    if not step:
        parts = [server.capture(4, at + 1000 * n) for n in range(pieces)]
        for n, part in enumerate(parts):
            for event in part:
                event["name"] = event["name"].replace("Embedding_0", f"Embedding_{n}")
        return [event for part in parts for event in part]
    found = [
        event
        for n in range(pieces)
        for event in server.step(4, at + 100 * n, number + n)
    ]
    notes = [event for event in found if event["name"].startswith("step[")]
    rest = [event for event in found if not event["name"].startswith("step[")]
    return [{**notes[0], "dur": 100 * pieces}, *rest]


def test_equal_parts_by_their_order(tmp_path: Path) -> None:
    steps = [piecewise(0, 3, 1, step=True), piecewise(1000, 3, 11, step=True)]
    trace, found = pair(tmp_path, steps, [piecewise(5000, 3, 0, step=False)])
    own = origins(trace)
    rows = trace.rows_of(Role.KERNEL)
    rows = rows[np.argsort(trace.start[rows])]
    places = [path_of(own, program_of(own, int(row)))[-1] for row in rows]
    assert places == ["0", "1", "2"] * 2
    assert found.why_likely == "identical parts of a graph are matched by order"


def test_equal_parts_of_another_number_are_refused(tmp_path: Path) -> None:
    replay, capture = piecewise(0, 2, 1, step=True), piecewise(5000, 3, 0, step=False)
    _, found = pair(tmp_path, [replay], [capture])
    assert found.refused == (
        "2 graph replays cannot be joined: 3 graphs of the capture match equally "
        "well, and the step replays 2.",
    )


def test_without_names_the_kinds_must_agree(tmp_path: Path) -> None:
    trace, found = pair(tmp_path, [CUDA.step(4, 0, 1)], [CUDA.capture(4)])
    assert ops_of(trace) == [launch.op for launch in CUDA.launches(4)]
    assert found.certainty == "likely"
    assert "do not name their kernels" in found.why_likely


def test_without_names_one_wrong_kind_refuses(tmp_path: Path) -> None:
    replay = CUDA.step(4, 0, 1)
    product = next(event for event in replay if event["name"] == NVJET)
    product["name"] = "void at::native::vectorized_elementwise_kernel<4, X>(int)"
    product["name"] = SERVER.launches(4)[0].kernel
    _, found = pair(tmp_path, [replay], [CUDA.capture(4)])
    assert "node 3 is void at::native::vectorized_gather_kernel" in found.refused[0]
    assert "and the capture has aten::mm" in found.refused[0]


def test_without_names_and_kinds_nothing_is_guessed(tmp_path: Path) -> None:
    replay = CUDA.step(4, 0, 1)
    for event in replay:
        event["name"] = "mystery" if event["cat"] == "kernel" else event["name"]
    _, found = pair(tmp_path, [replay], [CUDA.capture(4)])
    assert "too few have a known kind" in found.refused[0]


def test_nodes_are_joined_in_the_order_of_their_ids(tmp_path: Path) -> None:
    """A graph with two branches runs in another order than it was captured in."""
    replay = SERVER.step(4, 0, 1)
    nodes = [event for event in replay if event["cat"] == "kernel"]
    for number, node in enumerate(nodes, 1):
        node["args"]["graph node id"] = number
    nodes[4]["ts"], nodes[5]["ts"] = nodes[5]["ts"], nodes[4]["ts"]
    _, found = pair(tmp_path, [replay], [SERVER.capture(4)])
    assert (found.kernels, found.certainty) == (13, "certain")


def test_nodes_whose_times_are_wrong(tmp_path: Path) -> None:
    """The file has them in order; all names agree."""
    replay = SERVER.step(4, 0, 1)
    nodes = [event for event in replay if event["cat"] == "kernel"]
    for node in nodes[5:]:
        node["ts"] -= 15
    trace, found = pair(tmp_path, [replay], [SERVER.capture(4)])
    assert (found.kernels, found.certainty) == (13, "certain")
    by_file = sorted(
        trace.rows_of(Role.KERNEL).tolist(), key=lambda row: int(trace.order[row])
    )
    ops = [trace.name_of(int(trace.op[row])) for row in by_file]
    assert ops == [launch.op for launch in SERVER.launches(4)]


def test_without_names_times_alone_decide(tmp_path: Path) -> None:
    replay = CUDA.step(4, 0, 1)
    nodes = [event for event in replay if event["cat"] == "kernel"]
    for node in nodes[5:]:
        node["ts"] -= 15
    _, found = pair(tmp_path, [replay], [CUDA.capture(4)])
    assert (found.kernels, len(found.refused)) == (0, 1)


def test_copies_and_sets_are_nodes(tmp_path: Path) -> None:
    capture = SERVER.capture(4)
    capture[-1]["ts"] += 50  # the end
    capture.append(call("hipMemcpyAsync", capture[-1]["ts"] - 20))
    replay = [
        *SERVER.step(4, 0, 1),
        gpu("Memcpy DtoD (Device -> Device)", 99, 1, 1, "gpu_memcpy"),
    ]
    _, found = pair(tmp_path, [replay], [capture])
    assert (found.kernels, found.certainty) == (14, "certain")


def test_a_copy_that_left_no_node(tmp_path: Path) -> None:
    """The names of the kernels settle it."""
    capture = SERVER.capture(4)
    capture[-1]["ts"] += 50
    capture.append(call("hipMemcpyAsync", capture[-1]["ts"] - 20))
    trace, found = pair(tmp_path, [SERVER.step(4, 0, 1)], [capture])
    assert ops_of(trace) == [launch.op for launch in SERVER.launches(4)]
    assert (found.kernels, found.certainty) == (13, "certain")


def test_without_names_a_copy_without_a_node_refuses(tmp_path: Path) -> None:
    capture = CUDA.capture(4)
    capture[-1]["ts"] += 50
    capture.append(call("cudaMemcpyAsync", capture[-1]["ts"] - 20))
    trace, found = pair(tmp_path, [CUDA.step(4, 0, 1)], [capture])
    assert ops_of(trace) == [""] * 13
    assert len(found.refused) == 1


def test_nodes_that_were_not_recorded(tmp_path: Path) -> None:
    trace, found = pair(
        tmp_path, [SERVER.step(4, 0, 1, cut=slice(0))], [SERVER.capture(4)]
    )
    assert not wants_capture(trace)
    assert found.refused == (
        (
            "1 graph launch recorded no kernels, because the profiler did not trace "
            "graph nodes."
        ),
    )


def test_a_capture_without_its_end(tmp_path: Path) -> None:
    capture = [
        event for event in SERVER.capture(4) if "EndCapture" not in event["name"]
    ]
    _, found = pair(tmp_path, [SERVER.step(4, 0, 1)], [capture])
    assert found.refused == (
        "1 graph replay cannot be joined: the other trace captures no graph.",
        "The capture contains no complete stream capture: 1 capture did not end in it.",
    )


def test_capture_and_replay_in_one_trace(tmp_path: Path) -> None:
    trace = opened(
        tmp_path / "both.json", SERVER.capture(4, 0), SERVER.step(4, 2000, 1)
    )
    after, found = join(trace, trace)
    assert (found.replays, len(after)) == (1, len(trace))
    assert ops_of(after) == [
        "aten::embedding",
        *(launch.op for launch in SERVER.launches(4)),
    ]


def test_second_capture_joins_what_the_first_left(tmp_path: Path) -> None:
    other = Server(layers=5)
    trace = opened(
        tmp_path / "replay.json", SERVER.step(4, 0, 1), other.step(4, 900, 2)
    )
    trace, _ = join(trace, opened(tmp_path / "a.json", SERVER.capture(4)))
    assert wants_capture(trace)
    trace, _ = join(trace, opened(tmp_path / "b.json", other.capture(4)))
    assert not wants_capture(trace)
    launches = [*SERVER.launches(4), *other.launches(4)]
    assert ops_of(trace) == [launch.op for launch in launches]
    assert len(trace.notes) == 2


def kernels_with_their_names(replay: Path, capture: Path) -> int:
    """How many kernels of the replay are joined, all with the name that the call of the
    capture recorded."""
    trace, found = join(open_trace(str(replay)), open_trace(str(capture)))
    assert isinstance(trace, Joined)
    assert (found.certainty, found.refused) == ("certain", ())
    nodes = np.flatnonzero(trace.captured >= 0)
    names = [
        trace.args_of(int(trace.captured[node]))["kernel"] for node in nodes.tolist()
    ]
    assert names == [trace.name_of(node) for node in nodes.tolist()]
    assert (trace.op[nodes] >= 0).all()
    return found.kernels


def test_every_replay_has_the_kernel_names_of_its_capture() -> None:
    replay, capture = corpus_path("serving"), corpus_path("serving-capture")
    assert kernels_with_their_names(replay, capture) == 3 * 13
