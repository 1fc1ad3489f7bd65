"""Files are written whole or not at all, and never over another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusetui.trace import open_trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.source import open_source
from fusetui.trace.scrub.document import save, scrub_file

TRACE = {
    "username": "adal",
    "traceEvents": [{"ph": "X", "name": "run of adal", "ts": 1, "dur": 2}],
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "in.json"
    path.write_text(json.dumps(TRACE))
    return path


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".json.zst"])
def test_a_file_is_packed_as_its_name_says(
    ending: str, trace: Path, tmp_path: Path
) -> None:
    marks = {".json": b"{", ".json.gz": b"\x1f\x8b", ".json.zst": b"\x28\xb5\x2f\xfd"}
    out = tmp_path / f"out{ending}"
    assert scrub_file(str(trace), str(out)).events == 1
    text = open_source(str(out)).document[:]
    assert b"<user1>" in text
    assert b"adal" not in text
    assert out.read_bytes().startswith(marks[ending])
    assert open_trace(str(out)).names == ("run of <user1>",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.json", out.name]


def test_a_packed_file_tells_no_name_and_no_time(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "box17.json.gz"
    scrub_file(str(trace), str(out))
    flags, time = out.read_bytes()[3], out.read_bytes()[4:8]
    assert (flags, time) == (0, bytes(4))


@pytest.mark.parametrize("name", ["in.json", "there.json", "link.json"])
def test_scrub_overwrites_no_file(name: str, trace: Path, tmp_path: Path) -> None:
    (tmp_path / "there.json").write_text("mine")
    (tmp_path / "link.json").symlink_to("nowhere")
    with pytest.raises(TraceError, match=f"{name} already exists"):
        scrub_file(str(trace), str(tmp_path / name))
    assert json.loads(trace.read_text()) == TRACE
    assert (tmp_path / "there.json").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()


def test_a_name_that_is_taken_meanwhile_stays(tmp_path: Path) -> None:
    out = tmp_path / "out.json"

    def texts() -> Iterator[bytes]:
        out.write_text("mine")
        yield b"[]"

    with pytest.raises(TraceError, match="already exists"):
        save(str(out), texts())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("out.json", "mine")
    ]


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("out.txt", "must end in .json"),
        ("out", "must end in .json"),
        ("no/out.json", "no such folder"),
    ],
)
def test_scrubbed_file_that_cannot_be_written_is_one_sentence(
    out: str, message: str, trace: Path, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=message):
        scrub_file(str(trace), str(tmp_path / out))


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    def texts() -> Iterator[bytes]:
        yield b"["
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save(str(tmp_path / "out.json.gz"), texts())
    assert list(tmp_path.iterdir()) == []


def test_a_trace_without_an_event_that_can_be_read_is_not_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "in.json"
    path.write_text('{"traceEvents": [{"ph" "X"}]}')
    with pytest.raises(TraceError, match="no readable event"):
        scrub_file(str(path), str(tmp_path / "out.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]
