"""When a frame would be stale: as long as the terminal takes the one before."""

from __future__ import annotations

import os
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fusetui.tui.drawing.canvas import terminal_is_behind

if sys.platform == "win32":
    pytest.skip(
        "what Windows calls a terminal cannot be asked", allow_module_level=True
    )

FRAME_BYTES = 1 << 20  # more than a terminal holds
SHOWN: Any = SimpleNamespace(is_headless=False)


def test_a_frame_waits_until_the_terminal_has_taken_the_one_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import pty
    import tty

    taking, given = pty.openpty()
    tty.setraw(given)
    with os.fdopen(given, "w") as file:
        monkeypatch.setattr(sys, "__stderr__", file)
        assert not terminal_is_behind(SHOWN)
        writer = threading.Thread(target=_write, args=(file,))
        writer.start()
        assert _becomes(behind=True)
        _take(taking, FRAME_BYTES // 2)
        assert _becomes(behind=True)
        _take(taking, FRAME_BYTES - FRAME_BYTES // 2)
        writer.join()
        assert _becomes(behind=False)
    os.close(taking)


def test_without_a_terminal_nothing_is_behind() -> None:
    assert not terminal_is_behind(cast(Any, SimpleNamespace(is_headless=True)))


def _write(file: Any) -> None:
    file.write("x" * FRAME_BYTES)
    file.flush()


def _becomes(behind: bool) -> bool:
    until = time.monotonic() + 30
    while terminal_is_behind(SHOWN) != behind and time.monotonic() < until:
        time.sleep(0.001)
    return terminal_is_behind(SHOWN) == behind


def _take(terminal: int, count: int) -> None:
    while count:
        count -= len(os.read(terminal, count))
