"""A large log: bounds of time and memory; docs/compile.md has the figures."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.compile_logs import write_log

from fusetui.trace.compile_log.log import read_compile_log
from fusetui.trace.compile_log.records import LogRecords, read_records

MEGABYTES = 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    write_log(folder, MEGABYTES)
    return folder


def test_a_log_is_indexed_by_columns(folder: Path) -> None:
    records = read_records(str(folder / "torch_trace.log"))
    columns = [
        getattr(records, name) for name in ("kind", "frame", "header", "payload", "end")
    ]
    assert sum(column.nbytes for column in columns) < MEGABYTES * 1_000_000 / 100


def test_payloads_are_read_when_they_are_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    text = LogRecords.text

    def noted(log: LogRecords, record: int) -> str:
        read.append(record)
        return text(log, record)

    monkeypatch.setattr(LogRecords, "text", noted)
    log = read_compile_log(str(folder))
    assert len(log.graphs) > 50
    assert read == []
    assert log.graphs[7].code is not None
    assert log.text(log.graphs[7].code).startswith("# AOT ID")
    assert len(read) == 1
