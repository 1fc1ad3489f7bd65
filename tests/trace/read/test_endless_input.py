"""Bombs and endless input end with a message, and take no more memory than their
contents."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fusetui.trace import CannotReadError, open_trace
from fusetui.trace.read import assemble, source

EVENT = b'{"ph":"X","name":"a","ts":1}'


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_PIPE_BYTES_BEFORE_EVENT", 4 << 20)


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
    with pytest.raises(CannotReadError, match="no trace event in its first 4 MB"):
        open_trace("/dev/zero")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("packed", [False, True])
def test_pipe_without_an_event_is_refused(tmp_path: Path, packed: bool) -> None:
    text = os.urandom(6 << 20).replace(b'"', b" ")
    path = piped(tmp_path, gzip.compress(text, 0) if packed else text)
    with pytest.raises(CannotReadError, match="no trace event"):
        open_trace(str(path))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("packed", [False, True])
def test_long_pipe_with_events_is_read_to_its_end(tmp_path: Path, packed: bool) -> None:
    text = b"[" + EVENT + b"," + b" " * (6 << 20) + EVENT + b"]"
    path = piped(tmp_path, gzip.compress(text, 0) if packed else text)
    assert len(open_trace(str(path))) == 2


def test_a_long_pipe_goes_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "memory_left", lambda: 1 << 20)
    path = piped(tmp_path, b"[" + b" " * (3 << 20) + EVENT + b"]")
    trace = open_trace(str(path))
    assert len(trace) == 1
    assert trace.args_of(0) == {}


MEASURED = """
import sys
from fusetui.trace import open_trace
def most():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = most()
trace = open_trace(sys.argv[1], cached=False)
print(len(trace), trace.report.complete, most() - before)
"""
"""In a process of its own, whose ru_maxrss would start at that of the process that
starts it."""
needs_proc = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc"
)


def measured(path: Path) -> tuple[int, bool, int]:
    """How many slices a file has, whether it is complete, and the kB of memory that it
    takes."""
    run = subprocess.run(
        [sys.executable, "-P", "-c", MEASURED, str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    slices, complete, kilobytes = run.stdout.split()
    return int(slices), complete == "True", int(kilobytes)


@needs_proc
@pytest.mark.parametrize("unit", [b"1,", b"{},", b"null,", b" "])
def test_10_mb_of_values_that_are_no_events_take_no_memory(
    tmp_path: Path, unit: bytes
) -> None:
    """10 MB of it: a list of 5 million numbers would take 40 MB more than the chunks
    do."""
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(
        gzip.compress(b"[" + EVENT + b"," + unit * (10_000_000 // len(unit)) + b"1]", 1)
    )
    slices, _, kilobytes = measured(path)
    assert slices == 1
    assert kilobytes < 85_000


@needs_proc
def test_sparse_file_is_read_up_to_its_hole_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.write(b"[" + EVENT + b",")
        file.truncate(100 << 20)
    slices, complete, kilobytes = measured(path)
    assert (slices, complete) == (1, False)
    assert kilobytes < 80_000


def test_more_slices_than_memory_are_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assemble, "MIN_CHECKED_SLICES", 10)
    monkeypatch.setattr(assemble, "memory_left", lambda: 1000)
    path = tmp_path / "trace.json"
    path.write_bytes(b"[" + b",".join([EVENT] * 20) + b"]")
    with pytest.raises(
        CannotReadError, match=r"has 20 slices, which take .* of memory"
    ):
        open_trace(str(path))
