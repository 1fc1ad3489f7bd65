"""Numbered tasks, some of them done by a second process."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from tests.laptops import needs_fork

from fusetui.trace.read import workers
from fusetui.trace.read.aside import Aside

TASKS = 40


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_cores", lambda: 2)


def slow_square(number: int) -> tuple[int, int]:
    time.sleep(0.005)
    return number * number, os.getpid()


def squares(found: dict[int, tuple[int, int]]) -> list[int]:
    return [found[number][0] for number in range(TASKS)]


EXPECTED = [number * number for number in range(TASKS)]


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_two_processes_share_the_tasks() -> None:
    with Aside(TASKS, slow_square) as aside:
        found = aside.results()
    assert squares(found) == EXPECTED
    assert len({process for _, process in found.values()}) == 2


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_the_other_process_works_while_this_one_does_something_else() -> None:
    with Aside(TASKS, slow_square) as aside:
        time.sleep(0.02 * TASKS)
        found = aside.results()
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

    with Aside(TASKS, deadly) as aside:
        assert squares(aside.results()) == EXPECTED


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_what_another_process_cannot_do_fails_here() -> None:
    def fails(number: int) -> int:
        raise ValueError(number)

    with Aside(TASKS, fails) as aside, pytest.raises(ValueError):  # noqa: PT011
        aside.results()


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_nothing_is_left_of_it() -> None:
    before = os.listdir("/proc/self/fd")
    with Aside(TASKS, slow_square):
        pass
    assert os.listdir("/proc/self/fd") == before
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@needs_fork
@pytest.mark.usefixtures("two_cores")
def test_beside_other_threads_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    with Aside(TASKS, slow_square) as aside:
        found = aside.results()
    done.set()
    other.join()
    assert squares(found) == EXPECTED


def test_with_one_core_nothing_is_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_cores", lambda: 1)
    with Aside(TASKS, slow_square) as aside:
        found = aside.results()
    assert {process for _, process in found.values()} == {os.getpid()}
