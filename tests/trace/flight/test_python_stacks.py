"""The text of faulthandler -> the frames of the main thread."""

from __future__ import annotations

from fusetui.trace.flight.columns import Frame
from fusetui.trace.flight.python_stacks import MAX_FRAMES, main_thread

TWO_THREADS = """\
Current thread 0x00007ff422ffd6c0 (most recent call first):
  File "/lib/loader.py", line 3 in run

Thread 0x00007ff449e5ab80 (most recent call first):
  File "/job.py", line 10 in train
  File "/job.py", line 20 in <module>
"""


def test_the_last_thread_is_the_main_thread() -> None:
    assert main_thread(TWO_THREADS) == (
        Frame(function="train", file="/job.py", line=10),
        Frame(function="<module>", file="/job.py", line=20),
    )


def test_a_thread_without_frames_is_passed_over() -> None:
    text = TWO_THREADS + "\nThread 0x1 (most recent call first):\n  <no Python frame>\n"
    assert main_thread(text)[0].function == "train"


def test_a_text_without_stacks_has_no_frames() -> None:
    assert main_thread("Failed\n" * 3) == ()


def test_an_endless_stack_is_cut() -> None:
    line = '  File "/job.py", line 1 in f\n'
    assert len(main_thread("Thread 0x1\n" + line * 5_000)) == MAX_FRAMES
