"""Numbered tasks in threads beside the caller."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress

import pytest

from fusetui.trace.read import scanned, workers
from fusetui.trace.read.threads import MAX_THREADS, in_threads

TASKS = 40
SECONDS = 60  # after which a test that waits for another thread fails
NEVER_SECONDS = 1e4  # longer than any test
MAX_SCANS = 200


@pytest.fixture
def with_cores(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda count: monkeypatch.setattr(workers, "core_count", lambda: count)


def square(number: int) -> int:
    return number * number


SQUARES = [square(number) for number in range(TASKS)]


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_results_are_in_order(with_cores: Callable[[int], None], cores: int) -> None:
    with_cores(cores)
    with in_threads(square, TASKS, is_worth_it=True) as wait_for_results:
        assert wait_for_results() == SQUARES


@pytest.mark.parametrize(("cores", "is_worth_it"), [(1, True), (2, False)])
def test_one_core_or_a_small_task_starts_no_thread(
    with_cores: Callable[[int], None], cores: int, is_worth_it: bool
) -> None:
    with_cores(cores)
    with in_threads(
        lambda _: threading.get_ident(), TASKS, is_worth_it
    ) as wait_for_results:
        assert set(wait_for_results()) == {threading.get_ident()}


def test_tasks_run_at_the_same_time(with_cores: Callable[[int], None]) -> None:
    """Each waits until as many have begun as there are threads."""
    with_cores(16)
    all_began = threading.Barrier(MAX_THREADS, timeout=SECONDS)
    with in_threads(
        lambda _: all_began.wait(), MAX_THREADS, is_worth_it=True
    ) as wait_for_results:
        assert sorted(wait_for_results()) == list(range(MAX_THREADS))


def test_tasks_run_while_the_caller_does_something_else(
    with_cores: Callable[[int], None],
) -> None:
    with_cores(2)
    last_began = threading.Event()

    def tell(number: int) -> None:
        if number == TASKS - 1:
            last_began.set()

    with in_threads(tell, TASKS, is_worth_it=True):
        assert last_began.wait(SECONDS)


def test_an_error_of_a_task_reaches_the_caller(
    with_cores: Callable[[int], None],
) -> None:
    with_cores(2)

    def fail(number: int) -> None:
        raise ValueError(number)

    with (
        in_threads(fail, TASKS, is_worth_it=True) as wait_for_results,
        pytest.raises(ValueError, match="0"),
    ):
        wait_for_results()


def test_tasks_that_nobody_waits_for_are_dropped(
    with_cores: Callable[[int], None],
) -> None:
    with_cores(2)
    block_ended = threading.Event()
    begun: list[int] = []

    def wait(number: int) -> None:
        begun.append(number)
        block_ended.wait(SECONDS)

    with suppress(KeyboardInterrupt), in_threads(wait, TASKS, is_worth_it=True):
        threading.Timer(0.05, block_ended.set).start()
        raise KeyboardInterrupt
    assert len(begun) <= 2 * 2


@pytest.mark.skipif(scanned.scan is None, reason="the scanner was not compiled here")
def test_the_scanner_lets_other_threads_run() -> None:
    """Threads take no turns here: another one runs only while the scanner releases the
    GIL."""
    event = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1.0,"dur":1.0}'
    text = b",".join([event] * 50_000)
    may_run = threading.Lock()
    may_run.acquire()
    has_run = threading.Event()

    def run() -> None:
        with may_run:
            has_run.set()

    usual_seconds = sys.getswitchinterval()
    sys.setswitchinterval(NEVER_SECONDS)
    try:
        other = threading.Thread(target=run)
        other.start()
        may_run.release()
        scans = 0
        while not has_run.is_set() and scans < MAX_SCANS:
            assert scanned.scanned(text) is not None
            scans += 1
    finally:
        sys.setswitchinterval(usual_seconds)
    other.join()
    assert 1 <= scans < MAX_SCANS
