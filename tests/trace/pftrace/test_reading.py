"""Files of torch's monitor of CUPTI: what is in them, what is lost, what is damaged."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import pftraces
from tests.pftraces import BEGIN, CALL, NOTE, OP, OTHER, THREAD, arg, at, packet, varint

from fusetui.trace import CannotReadError, NotATraceError, Trace, open_trace
from fusetui.trace.formats import format_of
from fusetui.trace.layout.counters import counters

Make = Callable[..., Trace]
OPS: list[pftraces.Slice] = [
    (1000, 9000, THREAD, [*OP, arg("External id", (4, 5))]),
    (2000, 3000, THREAD, [*CALL, arg("correlation", (4, 7))]),
]
LAUNCH: pftraces.Field = (
    21,
    [
        (1, [(1, 8), (2, 1), (3, 1)]),
        (2, [(1, 128), (2, 1), (3, 1)]),
        (3, [(1, 1), (4, 32)]),
    ],
)
KERNEL = pftraces.stage(
    4000, 500, 1, (20, 3), LAUNCH, extras=(("device id", "0"), ("correlation", "7"))
)


def test_a_name_that_many_kernels_share_is_held_once(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "gemm<" + "x" * 3_000_000
    monkeypatch.setitem(pftraces.NAMES, 3, name)
    work = [pftraces.stage(4000 + 10 * n, 5, 1, (20, 3), LAUNCH) for n in range(400)]
    tracemalloc.start()
    trace = make(*work)
    assert args(trace, trace.names[0])
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20 * len(name)
    assert trace.names[0].startswith("gemm<xx")
    assert trace.names[0].endswith("... (name 3)")
    assert trace.report.remarks == (
        "1 name has more than 32,768 characters and is cut there.",
    )


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Opens packets, with those before the events in front."""

    def opened(*packets: bytes, head: bool = True, cached: bool = False) -> Trace:
        path = tmp_path / "trace.pftrace"
        path.write_bytes(b"".join((*(pftraces.head() if head else ()), *packets)))
        return open_trace(str(path), cached=cached)

    return opened


def args(trace: Trace, name: str) -> Any:
    rows = [row for row in range(len(trace)) if trace.name_of(row) == name]
    return trace.elements.element(int(trace.order[rows[0]]))["args"]


def test_pftrace_ops_calls_and_kernels_are_linked(make: Make) -> None:
    trace = make(*pftraces.group(OPS), KERNEL)
    assert trace.report.format == "pftrace"
    rows = {trace.name_of(row): row for row in range(len(trace))}
    op, call, kernel = (
        rows[name] for name in ("aten::mm", "cudaLaunchKernel", "sgemm")
    )
    assert (trace.start[op], trace.dur[op], trace.external_id[op]) == (1000, 8000, 5)
    assert (trace.launch[kernel], trace.op[kernel], trace.parent[call]) == (
        call,
        op,
        op,
    )
    assert trace.track_of(op).label == "python 42"
    assert trace.track_of(kernel).label == "GPU 0 stream 7"
    assert trace.keys["baseTimeNanoseconds"] == pftraces.BASE


def test_pftrace_kernel_args_are_those_of_its_packet(make: Make) -> None:
    extras = (
        ("context id", "1"),
        ("stream id", "13"),
        ("correlation", "7"),
        ("graph node id", "3"),
    )
    noted: list[pftraces.Field] = [
        (6, [(1, "correlation"), (2, "x")]),
        (6, [(1, "n"), (2, "1")]),
    ]
    whole = pftraces.stage(4000, 500, 1, (20, 3), LAUNCH, extras=extras)
    assert args(make(whole), "sgemm") == {
        **{
            "device": 0,
            "context": 1,
            "stream": 7,
            "original_stream": 13,
            "correlation": 7,
        },
        **{
            "priority": 0,
            "queued": 0,
            "channel": 0,
            "channel_type": 0,
            "graph node id": 3,
        },
        **{"grid": [8, 1, 1], "block": [128, 1, 1], "registers per thread": 32},
        "dynamic shared memory": 0,
    }
    more = pftraces.stage(4000, 500, 1, (20, 3), extras=extras, noted=noted)
    found = args(make(more), "sgemm")
    assert (found["correlation"], found["correlation (annotation)"], found["n"]) == (
        7,
        "x",
        "1",
    )


def test_a_correlation_of_an_annotation_is_none(make: Make) -> None:
    noted: list[pftraces.Field] = [(6, [(1, "correlation"), (2, "7")])]
    trace = make(
        *pftraces.group(OPS), pftraces.stage(4000, 500, 1, (20, 3), noted=noted)
    )
    assert trace.correlation[trace.gpu_rows].tolist() == [0]
    assert trace.launch[trace.gpu_rows].tolist() == [-1]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((4, 7), 7),
        ((4, -1), -1),
        ((5, 0.5), 0.5),
        ((5, float("inf")), "inf"),
        ((2, 1), True),
        ((6, 'a"\\'), 'a"\\'),
        (None, []),
        ((12, [(4, 2)]), [2]),
        ((11, [(10, "k"), (6, "v")]), {"k": "v"}),
    ],
)
def test_pftrace_arg_values_keep_their_types(
    make: Make, value: Any, expected: Any
) -> None:
    given = arg("x", *([] if value is None else [value]))
    trace = make(*pftraces.group([(0, 1, THREAD, [*OP, given])]))
    assert args(trace, "aten::mm")["x"] == expected


def test_pftrace_nested_lists_are_args(make: Make) -> None:
    """An empty list has no value."""
    dims = arg("Input Dims", (12, [(12, [(4, 2)]), (12, [(4, 3)])]), (12, []))
    trace = make(*pftraces.group([(0, 1, THREAD, [*OP, dims])]))
    assert args(trace, "aten::mm")["Input Dims"] == [[2, 3], []]


def test_pftrace_args_nested_too_deeply_say_so(make: Make) -> None:
    inner = b""
    for _ in range(5000):
        inner = pftraces.message([(12, inner)])
    trace = make(*pftraces.group([(0, 1, THREAD, [*OP, (4, b"\x52\x01x" + inner)])]))
    assert "too deeply nested" in str(args(trace, "aten::mm")["x"])


def test_waits_and_overhead_have_no_category_in_the_file(make: Make) -> None:
    sync = arg("cuda_sync_kind", (6, "Stream Sync"))
    tracks = [
        packet((60, [(1, 8), (3, [(1, 2147483647), (6, "Overhead")])])),
        packet((60, [(1, 9), (5, 8), (4, [(1, 2147483647), (2, 0), (5, "Overhead")])])),
    ]
    group: list[pftraces.Slice] = [
        (0, 1, THREAD, [sync]),
        (0, 1, 9, []),
        (0, 1, OTHER, []),
    ]
    trace = make(*tracks, *pftraces.group(group))
    assert sorted(map(trace.category_of, range(3))) == ["", "cuda_sync", "overhead"]
    assert {track.pid for track in trace.tracks} == {42, -1}


@pytest.mark.parametrize(
    ("masked", "name", "tid"),
    [
        (448585456, "thread -1698898192", 1698898192),
        (2147483647, "stream -1", 1),
        (7, "4294967303", 4294967303),
        (7, "thread 4377 (python)", 7),
        (7, "worker 9", 7),
    ],
)
def test_ids_are_cut_to_31_bits(make: Make, masked: int, name: str, tid: int) -> None:
    thread = packet((60, [(1, 9), (5, 1), (4, [(1, 42), (2, masked), (5, name)])]))
    assert make(thread, *pftraces.group([(0, 1, 9, OP)])).tracks[0].tid == tid


def test_two_threads_whose_ids_became_equal(make: Make) -> None:
    threads = [
        packet((60, [(1, n), (5, 1), (4, [(1, 42), (2, 42), (5, f"w{n}")])]))
        for n in (8, 9)
    ]
    trace = make(*threads, *pftraces.group([(0, 1, 8, OP), (0, 1, 9, OP)]))
    assert len(trace.tracks) == 2


def test_ends_that_torch_cut(make: Make) -> None:
    """The first one may have gone on; the last of its lane, and those of other lanes,
    have not."""
    one, two = pftraces.stage(0, 100), pftraces.stage(100, 50)
    other, note = pftraces.stage(50, 50, queue=101), pftraces.stage(50, 50, 4)
    assert make(one, two, other, note).report.cut_ends == 1


def test_pftrace_flows_between_nodes_are_counted_in_pairs(make: Make) -> None:
    trace = make(
        pftraces.stage(0, 10, number=1),
        pftraces.stage(20, 5, 1, (18, 1), (18, 99), number=2),
    )
    assert (trace.report.phases["s"], trace.report.phases["f"]) == (1, 1)
    last = [trace.elements.element(trace.report.events - n) for n in (2, 1)]
    assert [(e["ph"], e["id"], e["ts"]) for e in last] == [
        ("s", 1 << 40, 0.01),
        ("f", 1 << 40, 0.02),
    ]


def test_pftrace_counters_are_read(make: Make) -> None:
    trace = make(
        pftraces.counter(5, 250.5),
        pftraces.counter(6, 3, 1),
        pftraces.counter(7, 251.0),
    )
    found = {
        one.label: (one.time.tolist(), one.value.tolist()) for one in counters(trace)
    }
    assert found == {"Power (W)": ([5, 7], [250.5, 251.0]), "Clock": ([6], [3.0])}


def test_times_before_the_base_are_kept(make: Make) -> None:
    trace = make(pftraces.stage(-5000, 100), *pftraces.group([(0, 1, THREAD, OP)]))
    assert trace.begin_ns == -5000


def test_unknown_packets_are_counted(make: Make) -> None:
    trace = make(
        *pftraces.group(OPS),
        packet((70, b"x")),
        packet((8, 1), (11, [(9, 3), (11, 2)])),
    )
    report = trace.report
    assert (len(trace), report.unreadable) == (2, 2)
    assert [one.reason for one in report.skipped] == [
        "a packet of another kind",
        "a damaged event",
    ]


@pytest.mark.parametrize("kept", range(0, 400, 13))
def test_a_file_that_was_cut(make: Make, tmp_path: Path, kept: int) -> None:
    whole = b"".join((*pftraces.group(OPS), KERNEL))
    trace = make(whole[: min(kept, len(whole) - 1)])
    assert not trace.report.complete or len(whole[:kept]) in boundaries(whole)
    assert trace.report.unreadable == 0
    assert len(trace) + trace.report.unfinished <= 3


def boundaries(data: bytes) -> set[int]:
    found, at_ = {0}, 0
    while at_ < len(data):
        size = (
            data[at_ + 1]
            if data[at_ + 1] < 128
            else data[at_ + 1] - 128 + data[at_ + 2] * 128
        )
        at_ += 2 + (data[at_ + 1] > 127) + size
        found.add(at_)
    return found


def test_slices_whose_ends_were_cut_off_are_instants(make: Make) -> None:
    trace = make(*pftraces.group(OPS)[:3])
    assert ([trace.name_of(0)], len(trace)) == (["aten::mm"], 1)
    assert (trace.report.unfinished, trace.report.phases["i"]) == (1, 1)


@pytest.mark.parametrize(
    "more",
    [
        b"\x0a" + varint(1 << 63) + b"x",
        b"\x0a" + b"\xff" * 11,
        b"\x0a" + varint(1 << 35) + b"\x0a" * 100,
        b"\x08\x01",
    ],
)
def test_bytes_that_are_no_packet_end_the_reading_of_a_pftrace(
    make: Make, more: bytes
) -> None:
    trace = make(*pftraces.group(OPS), more, *pftraces.group(OPS))
    assert len(trace) == 2
    assert trace.report.too_damaged == len(
        b"".join((*pftraces.head(), *pftraces.group(OPS)))
    )


def test_a_damaged_begin_says_that_ends_are_less_exact(make: Make) -> None:
    bad = at(5, (11, b"\x48\x01\x58\xff"))
    trace = make(bad, *pftraces.group(OPS), at(9, (11, [(9, BEGIN), (11, THREAD)])))
    assert "may be inexact" in trace.report.skipped[0].reason


def test_a_packet_larger_than_what_is_read_at_once(make: Make) -> None:
    text = arg("x", (6, "y" * (3 << 20)))
    trace = make(
        *pftraces.group([(0, 5, THREAD, [*OP, text]), (2, 3, THREAD, NOTE)]), KERNEL
    )
    assert len(trace) == 3
    assert len(args(trace, "aten::mm")["x"]) == 3 << 20


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_pftrace_from_the_cache_scans_its_events_again(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pack: Callable[[bytes], bytes],
) -> None:
    """Its events are scanned again."""
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    path = tmp_path / "x.pftrace"
    path.write_bytes(pack(b"".join((*pftraces.head(), *pftraces.group(OPS), KERNEL))))
    first, again = (open_trace(str(path)) for _ in range(2))
    assert not again.elements.text.at_hand
    elements = [trace.elements.element(n) for trace in (first, again) for n in range(8)]
    assert elements[:8] == elements[8:]
    assert again.elements.text.at_hand
    os.utime(path, ns=(1, 1))
    if pack is bytes:
        assert "has changed" in again.elements.text.problem()


def test_a_trace_of_another_writer_has_one_sentence(make: Make) -> None:
    other = packet((8, 1), (6, [(1, [(1, 6), (2, 7)]), (1, [(1, 1), (2, 9)])]))
    with pytest.raises(
        NotATraceError, match=r"a Perfetto trace \(protobuf\): convert it"
    ):
        make(other * 5, head=False)


def test_pftrace_is_recognized_by_its_first_packet() -> None:
    head = b"".join(pftraces.head())
    assert format_of(head) == "pftrace"
    for size in range(30):
        assert format_of(head[:size]) == "json"


def test_pftrace_of_tables_alone_is_an_empty_trace(make: Make) -> None:
    assert len(make()) == 0


def test_pftrace_durations_beyond_146_years_are_refused(make: Make) -> None:
    with pytest.raises((NotATraceError, CannotReadError), match="146 years"):
        make(*[pftraces.stage(-pftraces.BASE, 1 << 60)] * 8)
