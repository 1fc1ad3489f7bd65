"""The cache: it returns the same Trace, and never causes a failure."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from fusetui.analysis.questions.summary import summary
from fusetui.trace import Trace, open_trace
from fusetui.trace.cache import entry_for
from fusetui.trace.cache import folder as cache_module
from fusetui.trace.formats import text_of

EVENTS: list[dict[str, Any]] = [
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2, "args": {"name": "thread 2 (main)"}},
    {"ph": "X", "cat": "cpu_op", "name": "a\u00e9", "pid": 1, "tid": 2, "ts": 1, "dur": 9,
     "args": {"n": 1, "big": 2**63 + 1}},
    {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": "x", "ts": 2, "dur": 3},
    {"ph": "X", "name": 17, "ts": "5", "dur": 1, "args": {"odd": True}},
]  # fmt: skip
TEXT = (
    json.dumps({"k": [2**63], "traceEvents": EVENTS, "z": "\u20ac"})[:-1] + ',"bad":}'
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FUSETUI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    return tmp_path / "cache"


@pytest.fixture
def never_read(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From its call on, a trace that is not in the cache cannot be opened."""

    def fail(*_: object) -> None:
        raise AssertionError("the file was read")

    return lambda: monkeypatch.setattr("fusetui.trace.load.read", fail)


def same(a: Trace, b: Trace) -> None:
    for field in msgspec.structs.fields(Trace):
        one, other = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            assert one.tolist() == other.tolist()
        elif field.name != "elements":
            assert one == other, field.name
    assert [a.args_of(row) for row in range(len(a))] == [
        b.args_of(row) for row in range(len(b))
    ]
    assert [one.reach for one in a.elements.stretches] == [
        one.reach for one in b.elements.stretches
    ]
    assert summary(a) == summary(b)


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def test_a_large_trace_is_mapped_once_it_is_kept(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(TEXT, encoding="utf-8")
    alone = open_trace(str(path), cached=False)
    monkeypatch.setattr("fusetui.trace.load.MIN_LARGE_SLICES", 0)
    mapped = open_trace(str(path))
    same(mapped, alone)
    assert alone.start.flags.writeable
    assert not mapped.start.flags.writeable
    monkeypatch.setenv("FUSETUI_CACHE_MB", "0")  # it is removed again at once
    entries(folder)[0].unlink()
    same(open_trace(str(path)), alone)


@pytest.mark.parametrize("packed", [False, True])
def test_second_opening_reads_the_cache_alone(
    tmp_path: Path, folder: Path, packed: bool, never_read: Callable[[], None]
) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(TEXT.encode()) if packed else TEXT.encode())
    first = open_trace(str(path))
    assert len(entries(folder)) == 1
    never_read()
    same(first, open_trace(str(path)))


def test_empty_trace_is_cached(
    tmp_path: Path, folder: Path, never_read: Callable[[], None]
) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": []}')
    first = open_trace(str(path))
    never_read()
    same(first, open_trace(str(path)))


def test_columns_of_the_cache_are_mapped(
    write: Callable[..., Path], folder: Path
) -> None:
    path = str(write(TEXT))
    open_trace(path)
    again = open_trace(path)
    assert not again.start.flags.writeable
    assert not again.start.flags.owndata


@pytest.mark.parametrize("mtime", [True, False], ids=["other time", "same time"])
def test_a_changed_file(write: Callable[..., Path], folder: Path, mtime: bool) -> None:
    path = write(TEXT)
    state = path.stat()
    open_trace(str(path))
    path.write_text(TEXT.replace('"k"', '"q"'))
    if not mtime:
        os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert open_trace(str(path)).names == ("a\u00e9", "q", "17")
    assert len(entries(folder)) == 1


def test_a_file_that_changed_in_its_middle_alone(
    write: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in its size, nor in its time: what no program can set tells it."""
    monkeypatch.setattr("fusetui.trace.cache.entry.COMPARED_BYTES", 4)
    path = write(TEXT)
    state = path.stat()
    open_trace(str(path))
    path.write_text(TEXT.replace('"k"', '"q"'))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert "q" in open_trace(str(path)).names


@pytest.mark.parametrize("share", [0.02, 0.05, 0.3, 0.6, 0.99])
def test_damaged_entry_is_ignored_and_written_anew(
    write: Callable[..., Path], folder: Path, share: float
) -> None:
    path = str(write(TEXT))
    first = open_trace(path)
    entry = entries(folder)[0]
    data = bytearray(entry.read_bytes())
    data[int(share * len(data))] ^= 0xFF
    entry.write_bytes(data)
    same(first, open_trace(path))
    assert entry.read_bytes() != data


@pytest.mark.parametrize(
    "content", [b"", b"x", b"fusetui\x1a", b"fusetui\x1a" + bytes(99)]
)
def test_entry_with_foreign_content_is_ignored(
    write: Callable[..., Path], folder: Path, content: bytes
) -> None:
    path = str(write(TEXT))
    first = open_trace(path)
    entries(folder)[0].write_bytes(content)
    same(first, open_trace(path))


def test_entry_of_another_version_is_ignored(
    write: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write(TEXT))
    open_trace(path)
    old = entries(folder)[0].read_bytes()
    monkeypatch.setattr("fusetui.trace.cache.entry.VERSION", 99)
    entry = entry_for(path)
    assert entry
    entry.place.write_bytes(old)
    assert entry.trace(text_of) is None


def test_a_file_that_is_gone_later(write: Callable[..., Path], folder: Path) -> None:
    path = write(TEXT)
    open_trace(str(path))
    trace = open_trace(str(path))
    path.unlink()
    assert trace.args_of(0)["n"] == 1  # it is still open


@pytest.mark.parametrize("value", ["", "0", "off"])
def test_cache_that_is_off_has_no_entries(
    write: Callable[..., Path],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    value: str,
) -> None:
    monkeypatch.setenv("FUSETUI_CACHE", value)
    assert entry_for(str(write(TEXT))) is None


def test_small_files_are_not_kept(write: Callable[..., Path], tmp_path: Path) -> None:
    assert entry_for(str(write(TEXT))) is None


def test_standard_input_is_not_kept(folder: Path) -> None:
    assert entry_for("-") is None


def test_cache_without_room_or_permission_costs_nothing(
    write: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(write(TEXT))
    folder.write_text("a file where the folder should be")
    assert len(open_trace(path)) == 3
    folder.unlink()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fusetui.trace.cache.entry.write", full)
    assert len(open_trace(path)) == 3
    assert entries(folder) == []


def test_the_oldest_go_first(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [tmp_path / f"{n}.json" for n in range(3)]
    for path in paths:
        path.write_text(TEXT)
    places = []
    for age, path in zip((30, 20, 10), paths, strict=True):
        open_trace(str(path))
        entry = entry_for(str(path))
        assert entry
        places.append(entry.place)
        os.utime(entry.place, (entry.place.stat().st_mtime - age,) * 2)
    open_trace(str(paths[0]))  # used again: now the youngest
    size = places[0].stat().st_size
    monkeypatch.setenv("FUSETUI_CACHE_MB", str(2.5 * size / 1e6))
    cache_module.make_room(folder)
    assert entries(folder) == sorted([places[0], places[2]])


OPEN_OFTEN = """
import sys
from pathlib import Path
from fusetui.analysis.questions.summary import summary
from fusetui.trace import open_trace
from fusetui.trace.cache import entry

entry.MIN_DOCUMENT_BYTES = 0
for _ in range(5):
    assert len(open_trace(sys.argv[1])) == 3
    for place in Path(sys.argv[2]).glob("*.v*"):
        place.unlink(missing_ok=True)
"""


def test_several_processes_share_the_cache(
    write: Callable[..., Path], folder: Path
) -> None:
    command = [sys.executable, "-P", "-c", OPEN_OFTEN, str(write(TEXT)), str(folder)]
    processes = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait() for process in processes] == [0, 0]
    assert not list(folder.glob("*.part"))
