from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.analysis.servers import Server, opened
from tests.finding import find
from tests.places import ROOT
from tests.tui.conftest import mlp_events
from tests.tui.explainable import training
from tests.tui.prepared import explained
from tests.tui.prepared import opened as app_opened

from fusetui.analysis.graphs.join import join
from fusetui.trace import Trace, open_trace
from fusetui.trace.layout.counters import counters, curve_of
from fusetui.tui.drawing.details import details, format_event_as_json, list_all_details
from fusetui.tui.drawing.schemes import UNICODE

Write = Callable[[str | bytes], Path]


def said(trace: Trace, text: str, height: int = 6) -> list[str]:
    row = int(find(trace, text)[0])
    return [
        line.text for line in details(app_opened(trace).side, row, 120, height, UNICODE)
    ]


def test_a_kernel_says_who_launched_it(mlp: Trace) -> None:
    line = "by cudaLaunchKernel ‹ aten::mm ‹ aten::linear ‹ ProfilerStep#3"
    assert line in " ".join(said(mlp, "gemm"))


def test_a_kernel_says_how_long_it_waited(mlp: Trace) -> None:
    assert "launched 40 us earlier by" in " ".join(said(mlp, "gemm"))
    assert "launched 407 us earlier (for 394 us the stream was busy)" in " ".join(
        said(mlp, "triton_poi")
    )


def test_a_kernel_name_is_marked_and_explained(mlp: Trace) -> None:
    lines = said(mlp, "gemm")
    assert lines[1].startswith("ampere_bf16_s16816gemm")
    assert lines[2].startswith("└─1──┘")
    assert lines[3].startswith("1 ")


def test_a_replayed_kernel_says_where_it_was_captured(tmp_path: Path) -> None:
    server = Server()
    trace = opened(tmp_path / "replay.json", server.step(4, 0, 1))
    trace, _ = join(trace, opened(tmp_path / "capture.json", server.capture(4)))
    lines = said(trace, "Cijk")
    assert any(
        line.startswith("captured by hipLaunchKernel ‹ aten::mm   launched")
        for line in lines
    )
    assert any("[4, 64] x [64, 64]" in line for line in lines)


def test_a_query_of_occupancy_says_what_it_is_for() -> None:
    """The call that a library makes before it launches a GEMM; a launch needs no
    explanation."""
    trace = open_trace(str(ROOT / "sample_traces" / "lessons" / "mlp-eager.json.gz"))
    text = " ".join(said(trace, "cudaOccupancyMax", height=8))
    assert "how many blocks of its kernel fit on one multiprocessor" in text
    assert "occupancy query" not in " ".join(said(trace, "cudaLaunchKernel", height=8))
    row = int(find(trace, "cudaOccupancyMax")[0])
    everything = list_all_details(app_opened(trace).side, row, 120, UNICODE)
    assert any("occupancy query" in line.text for line in everything)


def test_an_op_says_what_it_launched(mlp: Trace) -> None:
    assert any(
        "launched 1 GPU event, 180 us" in line for line in said(mlp, "aten::linear")
    )


def test_the_launch_of_a_graph_says_how_many_kernels_it_replayed(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    link = {"args": {"correlation": 1}, "pid": 0, "tid": 7}
    nodes = [("k", "kernel"), ("k", "kernel"), ("Memset (Device)", "gpu_memset")]
    trace = trace_of(
        [
            event("cudaGraphLaunch", 0, 8, cat="cuda_runtime", args=link["args"]),
            *(
                event(name, 10 + 5 * n, 5, cat=cat, **link)
                for n, (name, cat) in enumerate(nodes)
            ),
        ]
    )
    assert "launched 3 GPU events (2 kernels), 15 us" in said(trace, "cudaGraphLaunch")


def test_the_lines_do_not_move_while_stepping(mlp: Trace) -> None:
    assert len(said(mlp, "gemm")) == len(said(mlp, "triton_poi"))


def test_details_of_an_annotation_leave_no_line_blank(
    trace_of: Callable[..., Trace], event: Callable[..., Any]
) -> None:
    """The lines that would explain a kernel's name show more of its own."""
    name = "a very long annotation " * 9
    trace = trace_of([event(name, 0, 8, args={"share": 0.0037878787, "of": 12})])
    lines = said(trace, "annotation", height=7)
    assert "".join(lines[1:3]).rstrip() == name.rstrip()
    assert lines[-1] == "share 0.003788   of 12"


def test_details_of_a_kernel_tell_the_counters_of_its_own_gpu(
    trace_of: Callable[..., Trace],
) -> None:
    """The clock fell in the middle of the kernel; the counter of another GPU is not
    told."""
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "ts": 10,
        "dur": 10,
    }
    samples = [(0, 5, 2000), (0, 15, 1000), (0, 25, 1000), (1, 5, 999)]
    counted = [
        {"ph": "C", "name": "SM Clock (MHz)", "pid": f"GPU {gpu} Counters", "ts": ts}
        | {"args": {"": mhz}}
        for gpu, ts, mhz in samples
    ]
    trace = trace_of([kernel, *counted])
    curves = tuple(map(curve_of, counters(trace)))
    side = replace(app_opened(trace).side, counters=curves)
    for lines in (
        details(side, 0, 120, 9, UNICODE),
        list_all_details(side, 0, 120, UNICODE),
    ):
        assert [line.text for line in lines if "while it ran" in line.text] == [
            "while it ran: SM clock 1500 MHz"
        ]


def test_all_details_hold_every_arg(mlp: Trace) -> None:
    row = int(find(mlp, "gemm")[0])
    text = "\n".join(
        line.text for line in list_all_details(app_opened(mlp).side, row, 80, UNICODE)
    )
    assert "correlation: 1" in text


def test_all_details_explain_the_words_of_a_short_name(mlp: Trace) -> None:
    row = int(find(mlp, "gemm")[0])
    lines = [
        line.text for line in list_all_details(app_opened(mlp).side, row, 80, UNICODE)
    ]
    assert "short name: gemm bf16 128x128x32 tn sm80 s5" in lines
    assert any(line.startswith("  cublas-legacy: a library") for line in lines)
    assert "  s5: 5 pipeline stages: slices of K in flight" in lines


def test_args_that_only_the_profiler_needs_are_explained_in_full_details_alone(
    trace_of: Callable[..., Trace],
) -> None:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "pid": 1, "tid": 1}
    trace = trace_of([{**call, "ts": 0, "dur": 5, "args": {"cbid": 20}}])
    side = app_opened(trace).side
    below = [line.text for line in details(side, 0, 80, 6, UNICODE)]
    everything = [line.text for line in list_all_details(side, 0, 80, UNICODE)]
    assert not [line for line in below if "cbid" in line]
    assert "  cbid: 20   (the number of the called function in CUPTI)" in everything


@pytest.mark.parametrize(
    ("kind", "explained"),
    [("Dispatch Kernel", "by a launch of its own"), ("HtoD", "")],
)
def test_the_kind_of_a_kernel_of_rocm_is_explained(
    trace_of: Callable[..., Trace], kind: str, explained: str
) -> None:
    """Other args of this name are shown as they are."""
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 3}
    trace = trace_of([{**kernel, "ts": 0, "dur": 5, "args": {"kind": kind}}])
    side = app_opened(trace).side
    (line,) = [
        line.text
        for line in list_all_details(side, 0, 120, UNICODE)
        if line.text.startswith("  kind: ")
    ]
    assert explained in line
    assert ("(" in line) == bool(explained)


@pytest.mark.parametrize("depth", [100, 600, 900])
def test_args_that_are_nested_deeply(
    trace_of: Callable[..., Trace],
    launched: Callable[..., list[dict[str, Any]]],
    depth: int,
) -> None:
    events = launched(1, 0, 10)
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    for event in events:
        event["args"]["deep"] = deep
    trace = trace_of(events)
    side = app_opened(trace).side
    for row in range(len(trace)):
        text = "\n".join(line.text for line in list_all_details(side, row, 80, UNICODE))
        assert "…" in text or "too deeply nested to show" in text
        assert len(details(side, row, 80, 6, UNICODE)) <= 6


def test_more_args_than_anybody_reads(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]
) -> None:
    side = app_opened(trace_of([event(args={f"a{n}": n for n in range(1234)})])).side
    assert list_all_details(side, 0, 80, UNICODE)[-1].text == "  and 234 more"


def test_args_that_cannot_be_shown_any_more(write: Write) -> None:
    path = write(json.dumps(mlp_events()))
    trace = open_trace(str(path))
    path.write_text("[]")
    text = " ".join(said(trace, "gemm"))
    assert "no args are shown: " in text
    assert "args" not in [
        line.text for line in list_all_details(app_opened(trace).side, 0, 80, UNICODE)
    ]


def test_a_packed_file_that_has_changed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.trace.read.source.LARGE", 0)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(json.dumps(mlp_events()).encode()))
    trace = open_trace(str(path))
    assert "unpacking the file to read the args..." in said(trace, "gemm")
    path.write_bytes(b"another")
    assert "no args are shown: " in " ".join(said(trace, "gemm"))


def test_the_raw_event_is_json_again(trace_of: Callable[..., Trace]) -> None:
    """Whatever it contains, on lines that fit."""
    args = {"a": 1, "text": "two  words " * 20, "list": [{"b": None}] * 40, "": {}}
    event = {
        "ph": "X",
        "name": "f",
        "pid": 1,
        "tid": 1,
        "ts": 0,
        "dur": 1,
        "args": args,
    }
    trace = trace_of([event])
    lines = [line.text for line in format_event_as_json(trace, 0, 60, UNICODE)]
    assert max(map(len, lines)) <= 60
    text = "".join(line[8:] if line.startswith(" " * 8) else line for line in lines)
    assert json.loads(text) == event


def test_modules_come_first_and_args_last(trace_of: Callable[..., Trace]) -> None:
    """Nothing is listed twice, and the files of frames are short."""
    side = explained(app_opened(trace_of(training()))).side
    row = int(side.trace.gpu_rows[0])
    lines = [line.text for line in list_all_details(side, row, 90, UNICODE)]
    of = [next(n for n, line in enumerate(lines) if word in line) for word in MARKS]
    assert of == sorted(of)
    assert not [line for line in lines if ".py(" in line]
    frame = [line for line in lines if "my_model.py:40" in line]
    assert len(frame) == 1


MARKS = ("module Attention_0", "launched ", "my_model.py:40", "args")


def test_a_slice_without_args_says_so(
    trace_of: Callable[..., Trace], event: Callable[..., dict[str, Any]]
) -> None:
    side = app_opened(trace_of([event("a", 0, 5)])).side
    lines = [line.text for line in list_all_details(side, 0, 80, UNICODE)]
    assert lines[-1] == "no args"
