"""Numbered tasks, some of them done by a second process."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from pathlib import Path

import pytest
from tests.laptops import needs_fork
from tests.starting import children

from fusetui.trace.read import reread, workers
from fusetui.trace.read.reread import Aside

TASKS = 40


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "core_count", lambda: 2)
    monkeypatch.setattr(reread, "may_fork", lambda: True)  # other tests may have left threads


def slow_square(number: int) -> tuple[int, int]:
    time.sleep(0.005)
    return number * number, os.getpid()


def once_there_are(files: int, folder: Path) -> None:
    """Waits for others, who leave files there."""
    deadline = time.monotonic() + 60
    while len(os.listdir(folder)) < files and time.monotonic() < deadline:
        time.sleep(0.001)


def squares(found: dict[int, tuple[int, int]]) -> list[int]:
    return [found[number][0] for number in range(TASKS)]


EXPECTED = [number * number for number in range(TASKS)]


@needs_fork
@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("processes", [2, 4])
def test_processes_share_the_tasks(
    processes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them does its second task before each has done one."""
    monkeypatch.setattr(workers, "core_count", lambda: processes)

    def square(number: int) -> tuple[int, int]:
        (tmp_path / str(os.getpid())).touch()
        once_there_are(processes, tmp_path)
        return slow_square(number)

    with Aside(TASKS, square) as every:
        found = every.results()
    assert squares(found) == EXPECTED
    assert len({process for _, process in found.values()}) == processes


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_the_other_process_works_while_this_one_does_something_else(tmp_path: Path) -> None:
    def square(number: int) -> tuple[int, int]:
        (tmp_path / str(number)).touch()
        return slow_square(number)

    with Aside(TASKS, square) as both:
        once_there_are(TASKS, tmp_path)
        found = both.results()
    assert squares(found) == EXPECTED
    assert os.getpid() not in {process for _, process in found.values()}


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_what_a_dead_process_took_is_done_here() -> None:
    own = os.getpid()

    def deadly(number: int) -> tuple[int, int]:
        if os.getpid() != own:
            os.kill(os.getpid(), signal.SIGKILL)
        return slow_square(number)

    with Aside(TASKS, deadly) as both:
        assert squares(both.results()) == EXPECTED


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_what_another_process_cannot_do_fails_here() -> None:
    def fails(number: int) -> int:
        raise ValueError(number)

    with Aside(TASKS, fails) as both, pytest.raises(ValueError):  # noqa: PT011
        both.results()


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_nothing_is_left_of_it() -> None:
    gc.collect()  # what other tests left open
    files, processes = set(os.listdir("/proc/self/fd")), children()
    with Aside(TASKS, slow_square):
        assert len(children() - processes) == 1
    assert set(os.listdir("/proc/self/fd")) <= files
    assert children() <= processes


def test_beside_other_threads_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "core_count", lambda: 2)
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    with Aside(TASKS, slow_square) as both:
        found = both.results()
    done.set()
    other.join()
    assert {process for _, process in found.values()} == {os.getpid()}


def test_with_one_core_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "core_count", lambda: 1)
    with Aside(TASKS, slow_square) as both:
        found = both.results()
    assert {process for _, process in found.values()} == {os.getpid()}
