"""A part of a trace as a trace: what is kept, what is clipped, and the figures of its
time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.corpus.files import WITH_GPU
from tests.corpus.fixtures import any_of

from fusetui.analysis.questions.note import note_of
from fusetui.analysis.why.model import DeviceAccount
from fusetui.analysis.why.selection import Selection, account_for_selection
from fusetui.commands.cut import _describe_whole
from fusetui.trace import CannotReadError, Trace, open_trace
from fusetui.trace.cut import farthest, part_of, texts_of

Make = Callable[..., Any]
Event = dict[str, Any]


def slices(*rows: tuple[str, str, float, float], **args: Any) -> list[Event]:
    """(category, name, ts, dur) of each; of the GPU on stream 7."""
    found = []
    for cat, name, ts, dur in rows:
        gpu = cat in ("kernel", "gpu_memcpy")
        place = {"pid": 0, "tid": 7} if gpu else {"pid": 1, "tid": 1}
        found.append(
            {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **place}
        )
        if args:
            found[-1]["args"] = args
    return found


def cut(trace: Trace, begin_us: float, end_us: float) -> dict[str, Any]:
    """The document of the part between two times of the file."""
    part = part_of(trace, round(begin_us * 1000), round(end_us * 1000))
    found: dict[str, Any] = json.loads(b"".join(texts_of(trace, part, {})))
    return found


def kept(trace: Trace, begin_us: float, end_us: float) -> list[tuple[Any, ...]]:
    events = cut(trace, begin_us, end_us)["traceEvents"]
    return [(event["name"], event.get("ts", 0), event.get("dur")) for event in events]


def test_a_launch_before_the_window_is_kept_with_its_op_and_frame(
    trace_of: Make,
) -> None:
    """The kernel was launched before the window, in an op in a frame; another op was
    over by then."""
    events = [
        *slices(
            ("python_function", "f.py(1): f", 0, 100), ("cpu_op", "aten::mm", 5, 20)
        ),
        *slices(("cpu_op", "aten::add", 30, 5)),
        *slices(
            ("cuda_runtime", "cudaLaunchKernel", 10, 2),
            ("kernel", "k", 50, 10),
            correlation=1,
        ),
    ]
    assert kept(trace_of(events), 52, 55) == [
        ("f.py(1): f", 10.0, 50.0),
        ("aten::mm", 10.0, 15.0),
        ("cudaLaunchKernel", 10, 2),
        ("k", 50, 10),
    ]


def test_an_event_that_is_not_clipped_is_cut_out_byte_for_byte(trace_of: Make) -> None:
    (event,) = slices(("cpu_op", "a", 10.125, 2), note="\u00e9")
    trace = trace_of([event, *slices(("cpu_op", "b", 90, 5))])
    found = b"".join(texts_of(trace, part_of(trace, 10_000, 20_000), {}))
    assert trace.elements.text.part(*_place(trace, b"10.125")) in found


def _place(trace: Trace, word: bytes) -> tuple[int, int]:
    """Where the event with this word stands in the file."""
    whole = bytes(trace.elements.text.part(0, trace.elements.stretches[-1].end))
    at = whole.index(word)
    return whole.rindex(b'{"ph"', 0, at), whole.index(b"}}", at) + 2


def test_neighbors_on_the_device_tell_why_it_was_idle(trace_of: Make) -> None:
    times = (10, 40, 50, 60, 90)
    trace = trace_of(slices(*(("kernel", f"k{ts}", ts, 5) for ts in times)))
    assert [name for name, *_ in kept(trace, 48, 58)] == ["k40", "k50", "k60"]
    # nothing runs in it
    assert [name for name, *_ in kept(trace, 70, 72)] == ["k60", "k90"]


def test_neighbors_that_are_too_far_away_are_left_out(trace_of: Make) -> None:
    trace = trace_of(slices(("kernel", "a", 10, 5), ("kernel", "b", 3e6, 5)))
    assert [name for name, *_ in kept(trace, 10, 20)] == ["a"]


def test_cut_keeps_counters_and_instants_of_its_time_and_all_labels(
    trace_of: Make,
) -> None:
    others = [
        {"ph": "C", "name": "c", "pid": 1, "ts": ts, "args": {"": ts}}
        for ts in (5, 15, 25)
    ]
    label = {
        "ph": "M",
        "name": "process_name",
        "pid": 1,
        "ts": 0,
        "args": {"name": "python"},
    }
    events = [label, *others, *slices(("cpu_op", "a", 10, 10))]
    names = kept(trace_of(events), 10, 20)
    assert names == [("process_name", 0, None), ("c", 15, None), ("a", 10, 10)]


def test_cut_finds_counters_far_behind_their_slices(write: Make) -> None:
    """Many stretches, of which the last ones hold no slices: of these, only what may
    lie in the time is read."""
    label = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}
    ops = slices(*(("cpu_op", "a" * 5000, ts, 1) for ts in range(1000)))
    counts = [
        {"ph": "C", "name": "c", "pid": 1, "ts": ts, "args": {"": 5000 * "0"}}
        for ts in range(1000)
    ]
    path = write(json.dumps({"traceEvents": [label, *ops, *counts]}))
    trace = open_trace(str(path))
    assert len(trace.elements.stretches) > 2
    names = [(name[:1], ts) for name, ts, _ in kept(trace, 500, 502)]
    assert names == [("p", 0), ("a", 500), ("a", 501), ("c", 500), ("c", 501)]


def test_a_pair_becomes_one_event(trace_of: Make) -> None:
    pair = [
        {"ph": "B", "name": "a", "pid": 1, "tid": 1, "ts": 10, "args": {"x": 1}},
        {"ph": "E", "pid": 1, "tid": 1, "ts": 30},
    ]
    (event,) = cut(trace_of(pair), 0, 20)["traceEvents"]
    assert (event["ph"], event["ts"], event["dur"]) == ("X", 10, 10)
    assert event["args"] == {"x": 1}


@pytest.mark.parametrize("end_us", [15, 25, 1000])
def test_events_stay_in_the_order_of_the_file(write: Make, end_us: float) -> None:
    """All of a stretch is copied in one piece, a part of it event by event."""
    label = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}
    count = {"ph": "C", "name": "c", "pid": 1, "ts": 21, "args": {"": 1}}
    a, b = slices(("cpu_op", "a", 10, 2), ("cpu_op", "b", 40, 2))
    events = [count, b, label, a]
    path = write('{"traceEvents": [' + " ,\n\t".join(map(json.dumps, events)) + " ]}")
    found = cut(open_trace(str(path)), 10, end_us)["traceEvents"]
    assert found == [event for event in events if event.get("ts", 0) < end_us]


def test_a_damaged_event_is_left_out_of_a_cut_alone(write: Make) -> None:
    good = [
        json.dumps(event)
        for event in slices(("cpu_op", "a", 10, 5), ("cpu_op", "b", 12, 1))
    ]
    path = write(
        '{"traceEvents": [' + ", ".join([good[0], '{"ph": "X", "na', good[1]]) + "]}"
    )
    names = [name for name, *_ in kept(open_trace(str(path)), 0, 20)]
    assert names[:1] == ["a"]


def test_a_file_that_changes_meanwhile_gives_no_part(write: Make) -> None:
    path = write(
        json.dumps(
            {"traceEvents": slices(("kernel", "k", 10, 5), ("kernel", "l", 20, 5))}
        )
    )
    trace = open_trace(str(path))
    pieces = texts_of(trace, part_of(trace, 0, 30_000), {})
    next(pieces)
    path.write_text('{"traceEvents": []}')
    with pytest.raises(CannotReadError, match="changed"):
        list(pieces)


def test_every_answer_says_that_it_is_a_part(trace_of: Make, write: Make) -> None:
    trace = trace_of(slices(("kernel", "k", 10, 5), ("kernel", "l", 20, 5)))
    part = part_of(trace, 10_000, 15_000)
    about = {"cut_from": msgspec.to_builtins(_describe_whole(trace, part, "run.json"))}
    path = write(b"".join(texts_of(trace, part, about)))
    assert note_of(open_trace(str(path))) == (
        "This trace is the part 0 ns to 5.00 us of run.json, which lasts 15 us."
    )


@pytest.mark.parametrize(
    "value", [None, 7, {}, {"file": "x", "from_ns": -1}, {"file": 3}]
)
def test_a_key_that_means_nothing_is_ignored(trace_of: Make, value: Any) -> None:
    trace = trace_of(slices(("kernel", "k", 10, 5)), cut_from=value)
    assert note_of(trace) == ""
    assert account_for_selection(trace).devices


any_trace = any_of(*WITH_GPU)


def test_the_figures_of_the_part_are_those_of_the_whole(
    any_trace: Path, write: Make
) -> None:
    """A fifth of the GPU's time, in the middle: its events, and its account with all
    reasons."""
    whole = open_trace(str(any_trace), cached=False)
    gpu = whole.gpu_rows
    if not len(gpu):
        pytest.skip("there are no GPU events")
    first, last = int(whole.start[gpu].min()), int(whole.end[gpu].max())
    begin, end = (first + (last - first) * fifth // 5 for fifth in (2, 3))
    cut_out = part_of(whole, begin, end)
    about = {"cut_from": msgspec.to_builtins(_describe_whole(whole, cut_out, ""))}
    part = open_trace(
        str(write(b"".join(texts_of(whole, cut_out, about)))), cached=False
    )
    assert not part.report.unreadable
    assert len(part) == len(cut_out.rows)
    assert _events(part, begin, end) == _events(whole, begin, end)
    if _has_neighbors(whole, begin, end):
        assert _account(part, begin, end) == _account(whole, begin, end)


def _events(trace: Trace, begin: int, end: int) -> list[tuple[Any, ...]]:
    """The GPU events of a time, with the names of their calls and ops."""

    def name(row: int) -> str:
        return trace.name_of(row) if row >= 0 else ""

    rows = trace.gpu_rows
    rows = rows[(trace.end[rows] > begin) & (trace.start[rows] < end)]
    columns = (trace.start, trace.dur, trace.launch, trace.op)
    times = zip(
        rows.tolist(), *(column[rows].tolist() for column in columns), strict=True
    )
    return sorted(
        (start, dur, name(row), name(call), name(op), trace.track_of(row).label)
        for row, start, dur, call, op in times
    )


def _account(trace: Trace, begin: int, end: int) -> tuple[DeviceAccount, ...]:
    base = trace.begin_ns
    return account_for_selection(
        trace, Selection(from_ns=begin - base, to_ns=end - base)
    ).devices


def _has_neighbors(trace: Trace, begin: int, end: int) -> bool:
    """Whether each device has an event near both borders, which the part has then
    too."""
    rows = trace.gpu_rows
    device = trace.process_of_track[trace.track[rows]]
    near = farthest(begin, end)
    return all(
        (trace.end[own] <= begin).any()
        and (trace.end[own][trace.end[own] <= begin].max() >= begin - near)
        and (trace.start[own] >= end).any()
        and (trace.start[own][trace.start[own] >= end].min() <= end + near)
        for own in (rows[device == number] for number in set(device.tolist()))
    )
