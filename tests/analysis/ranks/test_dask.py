"""A real Dask scheduler with two workers on this machine, one of which dies in the
middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.cli.test_ranks import job
from tests.ports import free_port

from fusetui.analysis.ranks import executors
from fusetui.analysis.ranks.executors import executor_at, summarize
from fusetui.analysis.ranks.model import RankSummary, encode_summary
from fusetui.trace.model.errors import CannotReadError

pytest.importorskip(
    "distributed",
    exc_type=ImportError,
    reason="needs distributed: pip install 'fusetui[dask]'",
)

RANKS = 12
SLOW = """
import os, sys, time
from pathlib import Path
from fusetui.analysis.ranks import executors
from fusetui.analysis.ranks.summary import read_summary
def slow(path, cached):
    "Says which process reads which file, and waits until it may."
    with Path(path).with_suffix(".pid").open("a") as out:
        out.write(f"{os.getpid()}\\\\n")
    while not Path(path).with_name("go").exists():
        time.sleep(0.01)
    return read_summary(path, cached)
executors.read_summary = slow
"""


@contextmanager
def process(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that runs until the block ends."""
    whole = [sys.executable, "-P", *command]
    with subprocess.Popen(whole, stderr=subprocess.PIPE, text=True) as started:
        try:
            yield started
        finally:
            started.send_signal(signal.SIGKILL)


def wait_for(text: str, *started: subprocess.Popen[str]) -> None:
    """Until each of these processes has said this."""
    for one in started:
        assert one.stderr
        assert any(text in line for line in one.stderr)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The place of a scheduler with two workers of one thread each, without nannies."""
    preload = tmp_path / "slow.py"
    preload.write_text(SLOW.replace("\\\\n", "\\n"))
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL", "10s")
    port = free_port()
    where = f"127.0.0.1:{port}"
    quiet = ("--no-dashboard",)
    scheduler = ("-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", *quiet)
    worker = (
        "-m",
        "distributed.cli.dask_worker",
        where,
        "--nthreads",
        "1",
        "--no-nanny",
        *quiet,
    )
    more = ("--preload", str(preload), "--local-directory", str(tmp_path / "dask"))
    with (
        process(*scheduler, "--port", str(port)) as first,
        process(*worker, *more) as second,
        process(*worker, *more) as third,
    ):
        wait_for("Scheduler at", first)
        wait_for("Registered to", second, third)
        yield f"dask://{where}"


def kill_a_worker(folder: Path) -> None:
    """Ends one of the two processes that read files, once both do; then lets the other
    go on."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        working = {
            int(one)
            for path in folder.glob("*.pid")
            for one in path.read_text().split()
        }
        if len(working) == 2:
            os.kill(min(working), signal.SIGKILL)
            break
        time.sleep(0.01)
    (folder / "go").touch()


def test_a_worker_dies_and_the_answer_is_the_same(cluster: str, tmp_path: Path) -> None:
    from threading import Thread

    folder = tmp_path / "job"
    folder.mkdir()
    paths = sorted(map(str, job(folder, RANKS).iterdir()))
    here = summarize(paths, cached=False)
    killer = Thread(target=kill_a_worker, args=(folder,))
    killer.start()
    with executor_at(cluster) as executor:
        there = summarize(paths, executor, cached=False)
    killer.join()
    assert (
        len({one for path in folder.glob("*.pid") for one in path.read_text().split()})
        == 2
    )
    assert as_bytes(there) == as_bytes(here)


def as_bytes(found: tuple[object, ...]) -> list[bytes]:
    return [
        encode_summary(one) if isinstance(one, RankSummary) else repr(one).encode()
        for one in found
    ]


def test_a_scheduler_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "MAX_WAIT_FOR_SCHEDULER_SECONDS", 0.2)
    where = f"dask://127.0.0.1:{free_port()}"
    with pytest.raises(CannotReadError, match="does not answer"), executor_at(where):
        pass


def test_without_distributed_there_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with (
        pytest.raises(CannotReadError, match=r"pip install 'fusetui\[dask\]'"),
        executor_at("dask://a:1"),
    ):
        pass
