"""Bombs and endless input end with a message, and take no more memory than their contents."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fusetui.trace import CannotRead, open_trace
from fusetui.trace.read import assemble, source

EVENT = b'{"ph":"X","name":"a","ts":1}'


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "PATIENCE", 4 << 20)


def piped(tmp_path: Path, text: bytes) -> Path:
    """A named pipe that is written to as long as it is read."""
    path = tmp_path / "pipe"
    os.mkfifo(path)

    def write() -> None:
        with path.open("wb", buffering=0) as pipe:
            try:
                pipe.write(text)
            except BrokenPipeError:
                return

    threading.Thread(target=write, daemon=True).start()
    return path


@pytest.mark.usefixtures("impatient")
def test_a_device_without_end() -> None:
    with pytest.raises(CannotRead, match="no trace event in its first 4 MB"):
        open_trace("/dev/zero")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe_without_an_event(tmp_path: Path, packed: bool) -> None:
    text = os.urandom(6 << 20).replace(b'"', b" ")
    path = piped(tmp_path, gzip.compress(text, 0) if packed else text)
    with pytest.raises(CannotRead, match="no trace event"):
        open_trace(str(path))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("packed", [False, True])
def test_a_long_pipe_with_events(tmp_path: Path, packed: bool) -> None:
    text = b"[" + EVENT + b"," + b" " * (6 << 20) + EVENT + b"]"
    path = piped(tmp_path, gzip.compress(text, 0) if packed else text)
    assert len(open_trace(str(path))) == 2


def test_a_long_pipe_goes_to_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "memory_left", lambda: 1 << 20)
    path = piped(tmp_path, b"[" + b" " * (3 << 20) + EVENT + b"]")
    trace = open_trace(str(path))
    assert len(trace) == 1
    assert trace.args_of(0) == {}


@pytest.mark.parametrize("unit", [b"1,", b"{},", b"null,", b" "])
def test_what_is_no_event_takes_no_memory(tmp_path: Path, unit: bytes) -> None:
    """20 MB of it, read in a separate process."""
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(
        gzip.compress(b"[" + EVENT + b"," + unit * (20_000_000 // len(unit)) + b"1]", 1)
    )
    script = (
        "import resource, sys\n"
        "from fusetui.trace import open_trace\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "trace = open_trace(sys.argv[1], cached=False)\n"
        "print(len(trace), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", script, str(path)], capture_output=True, text=True
    )
    slices, kilobytes = map(int, run.stdout.split())
    assert slices == 1
    assert kilobytes < 100_000


def test_a_sparse_file(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.write(b"[" + EVENT + b",")
        file.truncate(100 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    trace = open_trace(str(path))
    assert len(trace) == 1
    assert not trace.report.complete
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 80_000


def test_more_slices_than_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assemble, "MANY", 10)
    monkeypatch.setattr(assemble, "memory_left", lambda: 1000)
    path = tmp_path / "trace.json"
    path.write_bytes(b"[" + b",".join([EVENT] * 20) + b"]")
    with pytest.raises(CannotRead, match=r"has 20 slices, which take .* of memory"):
        open_trace(str(path))
