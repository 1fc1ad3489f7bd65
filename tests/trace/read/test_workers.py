"""Decoding in several threads gives what one thread gives."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from fusetui.own_process import OwnProcess
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.errors import NothingReadError
from fusetui.trace.read import workers
from fusetui.trace.read.chunks import Chunk, decode_extent

COUNT = 60_000  # 6 MB
EXTENT = 1 << 19  # bytes: the file has more of them than there are threads
SECONDS = 60  # after which a test that waits for another thread fails


def event(n: int) -> dict[str, object]:
    plain = {"ph": "X", "cat": "cpu_op", "name": f"op{n % 97}", "pid": 1, "tid": n % 5}
    return {**plain, "ts": n, "dur": 1, "args": {"correlation": n}}


@pytest.fixture(scope="module")
def text() -> bytes:
    return b"[" + b",\n".join(orjson.dumps(event(n)) for n in range(COUNT)) + b"]"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> Path:
    path = tmp_path_factory.mktemp("workers") / "trace.json"
    path.write_bytes(text)
    return path


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "core_count", lambda: 2)
    monkeypatch.setattr(workers, "MIN_BYTES_FOR_THREADS", 0)
    monkeypatch.setattr(
        sys.modules["fusetui.trace.read.reading"], "EXTENT_BYTES", EXTENT
    )
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 1 << 60)


def whole(trace: Trace) -> None:
    assert len(trace) == COUNT
    starts = trace.start[trace.order.argsort()]
    assert (starts == [1000 * n for n in range(COUNT)]).all()
    assert (trace.correlation.min(), trace.correlation.max()) == (0, COUNT - 1)
    assert trace.elements.element(55_555) == event(55_555)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("packed", [False, True])
def test_the_trace_is_whole(
    file: Path, text: bytes, tmp_path: Path, packed: bool
) -> None:
    if packed:
        file = tmp_path / "trace.json.gz"
        file.write_bytes(gzip.compress(text, 1))
    whole(open_trace(str(file)))


@pytest.mark.usefixtures("two_cores")
def test_progress_is_reported_up_to_the_end(file: Path, text: bytes) -> None:
    seen: list[tuple[int, int]] = []
    whole(open_trace(str(file), lambda *at: seen.append(at)))
    assert seen[-1] == (len(text), len(text))
    assert len(seen) > 2


@pytest.mark.usefixtures("two_cores")
def test_two_threads_decode_extents_while_the_caller_waits(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each waits for the other in its first extent; the caller decodes none."""
    both_began = threading.Barrier(2, timeout=SECONDS)
    decoding: set[int] = set()

    def meet(*place: int) -> Chunk | None:
        if threading.get_ident() not in decoding:
            decoding.add(threading.get_ident())
            both_began.wait()
        return decode_extent(*place)

    monkeypatch.setattr(workers, "decode_extent", meet)
    whole(open_trace(str(file)))
    assert len(decoding) == 2
    assert threading.get_ident() not in decoding


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("dies", [False, True])
def test_processes_decode_where_there_is_no_compiled_scanner(
    file: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Where a process dies, its thread decodes."""
    monkeypatch.setattr("fusetui.trace.read.scanned.scan", None)
    monkeypatch.setattr(workers, "MIN_BYTES_FOR_PROCESSES", 0)
    asked: list[int] = []
    call = OwnProcess.call

    def noted(process: OwnProcess, function: Any, *place: Any) -> Any:
        asked.append(place[1])
        if dies and len(asked) == 3:
            process.kill()
        return call(process, function, *place)

    monkeypatch.setattr(OwnProcess, "call", noted)
    whole(open_trace(str(file)))
    assert len(asked) >= COUNT * 100 // EXTENT


@pytest.mark.usefixtures("two_cores")
def test_no_process_is_started_where_the_scanner_is_compiled(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.trace.read.scanned.scan", SimpleNamespace(events=none))
    monkeypatch.setattr(workers, "MIN_BYTES_FOR_PROCESSES", 0)
    monkeypatch.setattr("fusetui.own_process.OwnProcess", None)
    whole(open_trace(str(file)))


def none(*_: object) -> None:
    """A scanner that does not know the text."""


@pytest.mark.parametrize("lacking", ["a core", "pread", "size"])
def test_the_caller_decodes_where_threads_are_of_no_use(
    file: Path, two_cores: None, monkeypatch: pytest.MonkeyPatch, lacking: str
) -> None:
    if lacking == "a core":
        monkeypatch.setattr(workers, "core_count", lambda: 1)
    elif lacking == "pread":
        monkeypatch.delattr(os, "pread")
    else:
        monkeypatch.setattr(workers, "MIN_BYTES_FOR_THREADS", 1 << 30)
    decoding: set[int] = set()

    def noted(*place: int) -> Chunk | None:
        decoding.add(threading.get_ident())
        return decode_extent(*place)

    monkeypatch.setattr(workers, "decode_extent", noted)
    whole(open_trace(str(file)))
    assert decoding == {threading.get_ident()}


@pytest.mark.usefixtures("two_cores")
def test_an_extent_that_fails_in_a_thread(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the slow way."""

    def fail(file: int, extent: int, size: int) -> Chunk | None:
        if extent == 1:
            raise MemoryError
        return decode_extent(file, extent, size)

    monkeypatch.setattr(workers, "decode_extent", fail)
    whole(open_trace(str(file)))


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("threads", [0, 1])
def test_few_threads_to_be_had(
    file: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    left = [None] * threads
    start = threading.Thread.start

    def limited(thread: threading.Thread) -> None:
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    whole(open_trace(str(file)))
    assert not left


@pytest.mark.usefixtures("two_cores")
def test_no_thread_outlives_a_failure(file: Path) -> None:
    before = threading.active_count()

    def fail(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_trace(str(file), fail)
    assert threading.active_count() == before


@pytest.mark.usefixtures("two_cores")
def test_no_thread_outlives_a_stop(file: Path) -> None:
    before, had_enough = threading.active_count(), threading.Event()
    with suppress(NothingReadError):
        open_trace(str(file), lambda *_: had_enough.set(), stop=had_enough.is_set)
    assert had_enough.is_set()
    assert threading.active_count() == before


@pytest.mark.usefixtures("two_cores")
def test_after_a_halt_no_extent_is_begun(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []
    first_began, may_end = threading.Event(), threading.Event()

    def slow(_: int, extent: int, __: int) -> Chunk | None:
        begun.append(extent)
        first_began.set()
        may_end.wait(SECONDS)
        return None

    monkeypatch.setattr(workers, "decode_extent", slow)
    with file.open("rb") as opened:
        crew = workers.Workers(opened.fileno(), COUNT, extent=60)
        crew.release(COUNT)
        assert first_began.wait(SECONDS)
        threading.Timer(0.05, may_end.set).start()
        crew.halt()
    assert len(begun) <= 2


@pytest.mark.usefixtures("two_cores")
def test_many_extents_are_decoded_once_each(
    write: Callable[[bytes], Path], text: bytes
) -> None:
    size = 1_100_000
    path = write(text[:size])
    with (
        path.open("rb") as opened,
        workers.Workers(opened.fileno(), size, extent=60) as crew,
    ):
        crew.release(size)
        list(crew.turns())
        chunks = crew.collect()
    assert sum(chunk.events for chunk in chunks.values()) > 0.8 * text.count(
        b"\n", 0, size
    )


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("files", [4, 8, 12])
def test_few_files_to_be_had(file: Path, files: int) -> None:
    """Reading ends with a trace or with a message."""
    script = (
        "import resource, sys\n"
        "from fusetui.trace import CannotReadError, open_trace\n"
        "import fusetui.trace.read.workers\n"
        "fusetui.trace.read.workers.core_count = lambda: 2\n"
        "fusetui.trace.read.workers.MIN_BYTES_FOR_THREADS = 0\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n"
        "try:\n    print(len(open_trace(sys.argv[1], cached=False)))\n"
        "except CannotReadError as error:\n    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", script, str(file)], capture_output=True, text=True
    )
    assert run.stdout.strip() == str(COUNT) or "too many open files" in run.stdout
    assert not run.stderr
