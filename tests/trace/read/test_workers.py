"""Decoding in several processes gives what one process gives."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import orjson
import pytest
from tests.starting import children

from fusetui.trace import Trace, open_trace
from fusetui.trace.model.errors import NothingRead
from fusetui.trace.read import workers
from fusetui.trace.read.chunks import Chunk, decode_extent

COUNT = 60_000  # 6 MB, which are two extents


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
    monkeypatch.setattr(workers, "FEWEST_FORKED", 0)
    monkeypatch.setattr(workers, "FEWEST_STARTED", 0)
    monkeypatch.setattr("fusetui.trace.cache.entry.SMALLEST", 1 << 60)


def whole(trace: Trace) -> None:
    assert len(trace) == COUNT
    starts = trace.start[trace.order.argsort()]
    assert (starts == [1000 * n for n in range(COUNT)]).all()
    assert (trace.correlation.min(), trace.correlation.max()) == (0, COUNT - 1)
    assert trace.elements.element(55_555) == event(55_555)


@pytest.mark.parametrize("packed", [False, True])
def test_forked(
    file: Path, text: bytes, two_cores: None, tmp_path: Path, packed: bool
) -> None:
    if packed:
        file = tmp_path / "trace.json.gz"
        file.write_bytes(gzip.compress(text, 1))
    whole(open_trace(str(file)))


@pytest.mark.skipif(
    "not hasattr(os, 'memfd_create')", reason="no helpers are started here"
)
@pytest.mark.usefixtures("two_cores")
def test_started_anew_beside_other_threads(file: Path, text: bytes) -> None:
    seen: list[tuple[int, int]] = []
    traces: list[Trace] = []
    thread = threading.Thread(
        target=lambda: traces.append(open_trace(str(file), lambda *at: seen.append(at)))
    )
    thread.start()
    thread.join()
    whole(traces[0])
    assert seen[-1] == (len(text), len(text))
    assert len(seen) > 2


@pytest.mark.usefixtures("two_cores")
def test_a_helper_that_dies(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = os.getpid()

    def deadly(*place: int) -> Chunk | None:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode_extent(*place)

    monkeypatch.setattr(workers, "decode_extent", deadly)
    whole(open_trace(str(file)))


@pytest.mark.usefixtures("two_cores")
def test_no_processes_to_be_had(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError("no more processes")

    monkeypatch.setattr(workers.Workers, "_fork", fail)
    whole(open_trace(str(file)))


@pytest.mark.usefixtures("two_cores")
def test_no_helper_outlives_a_failure(file: Path) -> None:
    before = children()

    def fail(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_trace(str(file), fail)
    assert children() <= before


@pytest.mark.usefixtures("two_cores")
def test_more_cells_than_a_pipe_holds(
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
@pytest.mark.parametrize(
    "beside_a_thread", [False, True], ids=["forked", "started anew"]
)
def test_no_helper_outlives_a_stop(file: Path, beside_a_thread: bool) -> None:
    before, had_enough = children(), threading.Event()

    def stopped() -> Trace:
        return open_trace(
            str(file), lambda *_: had_enough.set(), stop=had_enough.is_set
        )

    if beside_a_thread:
        with ThreadPoolExecutor() as threads, suppress(NothingRead):
            threads.submit(stopped).result()
    else:
        with suppress(NothingRead):
            stopped()
    assert children() <= before


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("where", ["in a cell", "before its first"])
def test_a_helper_that_is_stopped(
    file: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    parent, close = os.getpid(), os.close

    def stop(*place: int) -> Chunk | None:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGSTOP)
        return decode_extent(*place) if len(place) > 1 else close(*place)

    monkeypatch.setattr(workers, "STUCK", 0.2)
    if where == "in a cell":
        monkeypatch.setattr(workers, "decode_extent", stop)
    else:
        monkeypatch.setattr(os, "close", stop)
    whole(open_trace(str(file)))


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("files", [4, 8, 12])
def test_few_files_to_be_had(file: Path, files: int) -> None:
    """Reading ends with a trace or with a message."""
    script = (
        "import resource, sys\n"
        "from fusetui.trace import CannotRead, open_trace\n"
        "import fusetui.trace.read.workers\n"
        "fusetui.trace.read.workers.core_count = lambda: 2\n"
        "fusetui.trace.read.workers.FEWEST_FORKED = 0\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n"
        "try:\n    print(len(open_trace(sys.argv[1], cached=False)))\n"
        "except CannotRead as error:\n    print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-P", "-c", script, str(file)], capture_output=True, text=True
    )
    assert run.stdout.strip() == str(COUNT) or "too many open files" in run.stdout
    assert not run.stderr
