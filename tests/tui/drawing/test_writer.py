"""When a frame would be stale: as long as the one before is being written."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

from textual.drivers._writer_thread import WriterThread

from fusetui.tui.drawing.canvas import writer_is_behind


def test_a_frame_waits_until_the_terminal_has_taken_the_one_before() -> None:
    taking, given = os.pipe()
    with os.fdopen(given, "w") as file:
        thread = WriterThread(file)
        app = cast(Any, SimpleNamespace(_driver=SimpleNamespace(_writer_thread=thread)))
        thread.start()
        assert _becomes(app, behind=False)
        thread.write("x" * (1 << 20))  # more than a pipe holds
        assert _becomes(app, behind=True)
        taker = threading.Thread(target=_take, args=(taking, 1 << 20))
        taker.start()
        assert _becomes(app, behind=False)
        taker.join()
        thread.stop()
    os.close(taking)


def test_without_a_terminal_nothing_is_behind() -> None:
    assert not writer_is_behind(cast(Any, SimpleNamespace()))


def _becomes(app: Any, behind: bool) -> bool:
    until = time.monotonic() + 30
    while writer_is_behind(app) != behind and time.monotonic() < until:
        time.sleep(0.001)
    return writer_is_behind(app) == behind


def _take(pipe: int, count: int) -> None:
    while count:
        count -= len(os.read(pipe, count))
