"""The records of a log: where they are, and what survives damage."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from tests.compile_logs import HEAD, Kernel, Line, Log

from fusetui.trace.compile_log.records import is_compile_log, read_records
from fusetui.trace.model.errors import CannotReadError, NotATraceError

GELU = Line(10, "h = gelu(x)")


def kinds(path: Path) -> list[str]:
    log = read_records(str(path))
    return [log.kinds[number] for number in log.kind.tolist()]


def test_records_and_their_payloads(tmp_path: Path) -> None:
    log = Log().artifact("some", "first\n\n  third\ttab").metrics()
    records = read_records(str(log.write(tmp_path)))
    assert records.text(0) == "first\n\n  third\ttab"
    assert records.header_json(1)["compilation_metrics"]["co_name"] == "forward"
    assert (records.frame[0], records.compile[0], records.attempt[0]) == (0, 0, 0)
    assert records.process == 4711


def test_a_compressed_log_is_read_too(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(str(Log().artifact("some", "text")).encode()))
    records = read_records(str(path))
    assert records.text(0) == "text"


def test_events_of_the_compiler_are_counted_only(tmp_path: Path) -> None:
    log = Log().record({"chromium_event": {}}, "{}").artifact("some", "text")
    records = read_records(str(log.write(tmp_path)))
    assert len(records) == 1
    assert records.unused == 1


def test_records_beyond_a_chunk_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    for number in range(200):
        log.artifact(f"kind{number % 7}", f"text {number}\n" * (number % 13))
    path = log.write(tmp_path)
    whole = kinds(path)
    for size in (600, 1000, 1 << 14):
        monkeypatch.setattr("fusetui.trace.compile_log.records.CHUNK_BYTES", size)
        assert kinds(path) == whole
        assert read_records(str(path)).text(7).startswith("text 7")


def test_a_payload_line_longer_than_a_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.trace.compile_log.records.CHUNK_BYTES", 500)
    log = Log().artifact("long", "x" * 5000).artifact("next", "text")
    records = read_records(str(log.write(tmp_path)))
    assert kinds(tmp_path / "torch_trace.log") == ["long", "next"]
    assert records.text(0) == "x" * 5000


@pytest.mark.parametrize(
    "line",
    [
        "no record at all",
        f"{HEAD}{{broken",
        f'{HEAD}{{"artifact": {{"name": 3}}}}',
        f'{HEAD}{{"str": ["x"]}}',
        f"{HEAD}[1, 2]",
    ],
)
def test_what_is_no_record_is_counted(tmp_path: Path, line: str) -> None:
    text = f"{Log().artifact('a', 'one')}{line}\n{Log().artifact('b', 'two')}"
    path = tmp_path / "x.log"
    path.write_text(text)
    records = read_records(str(path))
    assert kinds(path) == ["a", "b"]
    assert records.unread_count == 1
    assert records.text(0) == "one"


def test_a_log_that_ends_within_a_record(tmp_path: Path) -> None:
    text = str(Log().graph("k", [Kernel("cpp_fused_0", (GELU,))]))
    path = tmp_path / "x.log"
    for end in range(len(HEAD) + 10, len(text), 97):
        path.write_text(text[:end])
        if is_compile_log(text[:end].encode()):
            read_records(str(path))


def test_files_that_are_no_logs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text('{"traceEvents": []}')
    with pytest.raises(NotATraceError):
        read_records(str(path))
    path.write_text("")
    with pytest.raises(CannotReadError):
        read_records(str(path))
