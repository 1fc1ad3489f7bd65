"""The forms that a trace file may have, and the messages about files that are not
traces."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fusetui.trace import CannotReadError, NotATraceError, Trace, open_trace

Write = Callable[[str | bytes], Path]
EVENT = (
    '{"ph":"X","cat":"cpu_op","name":"aten::a","pid":1,"tid":1,"ts":10.000,"dur":5.000}'
)


def opened(path: Path) -> Trace:
    return open_trace(str(path))


@pytest.mark.parametrize(
    "text",
    [
        f'{{"schemaVersion": 1, "traceEvents": [{EVENT}]}}',
        f'{{"traceEvents":[{EVENT}],"schemaVersion":1}}',
        f"[{EVENT}]",
        f"[{EVENT}",
        f"[{EVENT},",
        f"\n [ {EVENT} , ] ",
        f'\ufeff{{"traceEvents" : \n[\n{EVENT}\n]\n}}\n',
    ],
)
def test_every_form_of_a_document_gives_the_same_event(write: Write, text: str) -> None:
    trace = opened(write(text))
    assert [trace.name_of(row) for row in range(len(trace))] == ["aten::a"]
    assert (trace.start[0], trace.dur[0]) == (10_000, 5_000)
    assert trace.report.complete
    assert trace.report.events == 1
    assert not trace.report.skipped


def test_keys_before_and_after_the_events_are_kept(write: Write) -> None:
    trace = opened(
        write(f'{{"a": [1, {{"b": 2}}], "traceEvents": [{EVENT}], "c": "]}}"}}')
    )
    assert trace.keys == {"a": [1, {"b": 2}], "c": "]}"}


def test_document_without_events_is_an_empty_trace(write: Write) -> None:
    trace = opened(write('{"traceEvents": []}'))
    assert (len(trace), trace.report.events, trace.tracks) == (0, 0, ())
    assert trace.report.complete


def test_gzip_is_recognized_by_content_whatever_the_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(
        gzip.compress(f"[{EVENT}]".encode()) + gzip.compress(b"\n", mtime=0)
    )
    trace = opened(path)
    assert len(trace) == 1
    assert trace.report.bytes == path.stat().st_size


def test_dash_reads_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        sys, "stdin", io.TextIOWrapper(io.BytesIO(f"[{EVENT}]".encode()))
    )
    assert len(open_trace("-")) == 1


def test_gzip_cut_short(tmp_path: Path) -> None:
    whole = gzip.compress(
        json.dumps([json.loads(EVENT)] * 400).encode(), compresslevel=0
    )
    path = tmp_path / "trace.json.gz"
    path.write_bytes(whole[: len(whole) // 2])
    trace = opened(path)
    assert 150 < len(trace) < 250
    assert not trace.report.complete
    assert trace.report.cut == f"the gzip data ends early, at byte {len(whole) // 2}"


def test_gzip_without_its_checksum_is_read_and_reported_as_cut(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(f"[{EVENT}]".encode())[:-4])
    trace = opened(path)
    assert len(trace) == 1
    assert trace.report.cut
    assert not trace.report.complete


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_gzip_damaged_in_the_middle_is_read_up_to_there(
    tmp_path: Path, share: float
) -> None:
    text = json.dumps(
        [{**json.loads(EVENT), "name": str(n * 7919 % 1009)} for n in range(1500)]
    )
    whole = bytearray(gzip.compress(text.encode()))
    at = int(len(whole) * share)
    whole[at : at + 40] = b"\xff" * 40
    path = tmp_path / "trace.json.gz"
    path.write_bytes(whole)
    trace = opened(path)
    assert "damaged near byte" in str(trace.report.cut)
    assert len(trace) > 1500 * share * 0.8


def test_gzip_with_a_wrong_checksum_is_read_whole_and_reported(tmp_path: Path) -> None:
    whole = bytearray(gzip.compress(json.dumps([json.loads(EVENT)] * 400).encode()))
    whole[-6] ^= 0xFF  # in the checksum
    path = tmp_path / "trace.json.gz"
    path.write_bytes(whole)
    trace = opened(path)
    assert "damaged" in str(trace.report.cut)
    assert len(trace) == 400


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hello", "not the JSON"),
        ("<html>", "a web page"),
        (b"\x00\x01\x02", "not the JSON"),
        ("   \n", "not the JSON"),
        ("17", "not the JSON"),
        ("{}", "no traceEvents"),
        ('{"a": 1}', "no traceEvents"),
        (
            '{"schemaVersion": 1, "deviceProp',
            "ends early, at byte 32, before the first",
        ),
        ('{"schema": "1.1.1", "nodes": [{"id": 1}]}', "execution trace"),
        ('{"traceEvents": 5}', "not a list"),
        ('{"traceEvents": {"a": 1}}', "not a list"),
        ("[]", "not of trace events"),
        ("[1, 2]", "not of trace events"),
        ('[{"a": 1}, {"b": 2}]', "not of trace events"),
        (gzip.compress(b"hello", mtime=0), "not the JSON"),
        (
            gzip.compress(b'{"traceEvents": [', 0, mtime=0)[:-20],
            "before the first trace event",
        ),
        (b"\x1f\x8b", "gzip"),
        (b"\x1f\x8b\x08\x00garbage", "gzip"),
    ],
)
def test_files_that_are_no_traces_are_refused_in_one_sentence(
    write: Write, text: str | bytes, says: str
) -> None:
    path = write(text)
    with pytest.raises(NotATraceError) as caught:
        opened(path)
    message = str(caught.value)
    assert says in message
    assert str(path) in message
    assert message.isprintable()
    assert message.endswith(".")


def test_empty_file_is_refused(write: Write) -> None:
    with pytest.raises(CannotReadError, match="is empty"):
        opened(write(""))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotReadError, match="no such file"):
        opened(tmp_path / "nowhere.json")


def test_folder_is_not_read_as_a_trace(tmp_path: Path) -> None:
    with pytest.raises(CannotReadError, match="cannot be opened"):
        opened(tmp_path)


def test_progress_counts_up_to_the_size_of_the_file(write: Write) -> None:
    seen: list[tuple[int, int]] = []
    path = write(f"[{EVENT}]")
    open_trace(str(path), lambda done, total: seen.append((done, total)))
    assert seen
    assert all(0 <= done <= total == path.stat().st_size for done, total in seen)


def test_many_chunks_give_every_event_once(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["fusetui.trace.read.reading"], "EXTENT_BYTES", 300)
    trap = 'text },\n{"ph": "X"} of a name'  # looks like the border of two events
    events: list[dict[str, Any]] = [
        {"ph": "X", "name": f"op{n}", "ts": n, "dur": 1, "args": {"n": n, "trap": trap}}
        for n in range(200)
    ]
    text = ",\n".join(json.dumps(event) for event in events)
    trace = opened(write(f'{{"traceEvents": [\n{text}\n], "z": 1}}'))
    assert [trace.name_of(row) for row in range(len(trace))] == [
        e["name"] for e in events
    ]
    assert [trace.args_of(row) for row in range(len(trace))] == [
        e["args"] for e in events
    ]
    assert trace.keys == {"z": 1}
    assert not trace.report.skipped
