"""Other processes of ours: what they return, and what becomes of them."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import time
from itertools import count

import numpy as np
import pytest

from fusetui.own_process import CancelledError, OwnProcess, ProcessDiedError, calls

SECONDS = 60  # after which a test that waits for another process fails
POSIX = pytest.mark.skipif(os.name != "posix", reason="waits for a pipe")


def test_own_process_calls_functions_one_after_the_other() -> None:
    with OwnProcess() as process:
        assert process.call(operator.add, 1, 2) == 3
        assert process.call(os.getpid) == process.call(os.getpid) != os.getpid()


def test_large_arrays_and_texts_arrive_as_they_were_sent() -> None:
    numbers, texts = np.arange(300_000), ("日", "a" * 300_000)
    with OwnProcess() as process:
        columns = process.call(np.stack, [numbers, numbers])
        assert columns.tolist() == [numbers.tolist()] * 2
        assert process.call(operator.add, texts, texts) == texts * 2


def test_an_error_is_raised_here_and_the_process_goes_on() -> None:
    with OwnProcess() as process:
        with pytest.raises(ZeroDivisionError):
            process.call(operator.truediv, 1, 0)
        assert process.call(operator.add, 1, 2) == 3


def test_output_printed_in_the_own_process_is_no_answer() -> None:
    with OwnProcess() as process:
        process.call(print, "PWN")
        assert process.call(os.system, "echo PWN") == 0
        assert process.call(operator.add, 1, 2) == 3


def test_own_process_that_dies_is_an_error() -> None:
    with OwnProcess() as process:
        with pytest.raises(ProcessDiedError):
            process.call(os._exit, 3)
        with pytest.raises(ProcessDiedError):
            process.call(operator.add, 1, 2)


@POSIX
def test_values_of_a_generator_arrive_one_by_one() -> None:
    with OwnProcess() as process:
        values = process.stream(count, cancelled=lambda: False)
        assert [next(values) for _ in range(3)] == [0, 1, 2]


@POSIX
def test_a_generator_that_ends() -> None:
    with OwnProcess() as process:
        for _ in range(2):
            assert list(process.stream(range, 3, cancelled=lambda: False)) == [0, 1, 2]


@POSIX
def test_a_cancelled_stream_of_the_own_process_ends_at_once() -> None:
    with OwnProcess() as process, pytest.raises(CancelledError):
        list(process.stream(map, time.sleep, [1000 * SECONDS], cancelled=lambda: True))


def test_calls_are_divided_among_several_processes() -> None:
    arguments = [(n, 10) for n in range(20)]
    assert dict(calls(operator.mul, arguments, processes=2)) == {
        n: 10 * n for n in range(20)
    }


def test_a_process_that_dies_takes_nothing_else_with_it() -> None:
    codes = [("1",), ("__import__('os')._exit(3)",), ("3",), ("4",)]
    assert dict(calls(eval, codes, processes=2)) == {0: 1, 2: 3, 3: 4}


def test_an_error_ends_the_calls() -> None:
    with pytest.raises(ZeroDivisionError):
        list(calls(operator.truediv, [(1, 0)] * 3, processes=2))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_no_process_outlives_the_one_that_asked() -> None:
    """Even if that one is killed while a function is running."""
    code = (
        "import time\n"
        "from fusetui.own_process import OwnProcess\n"
        "process = OwnProcess()\n"
        "print(process.call(__import__('os').getpid), flush=True)\n"
        f"process.call(time.sleep, {SECONDS * 1000})\n"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True
    ) as asker:
        assert asker.stdout is not None
        number = int(asker.stdout.readline())
        asker.send_signal(signal.SIGKILL)
    until = time.monotonic() + SECONDS
    while _is_running(number) and time.monotonic() < until:
        time.sleep(0.01)
    assert not _is_running(number)


def _is_running(number: int) -> bool:
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
