"""A progress bar for work that takes over a second, shown on terminals only."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from typing import Self, TextIO

from fusetui.text.cutting import clip
from fusetui.text.figures import percent
from fusetui.text.printable import printable, without_credentials

PATIENCE_S = 1.0
REFRESH_S = 0.1
BAR = 24


class Bar:
    """`reading big.json  [#######-----]    58 %`, on one line that is erased at the end."""

    def __init__(self, title: str, stream: TextIO) -> None:
        self._title = printable(without_credentials(title))
        self._stream = stream
        self._due = time.monotonic() + PATIENCE_S
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            self._write("")

    def update(self, done: int, total: int) -> None:
        """Redraws the bar if it is time to."""
        if time.monotonic() < self._due or not self._stream.isatty():
            return
        self._due = time.monotonic() + REFRESH_S
        self._drawn = True
        filled = BAR * done // max(total, 1)
        figures = f"  [{'#' * filled}{'-' * (BAR - filled)}] {percent(done, max(total, 1)):>7}"
        columns = shutil.get_terminal_size().columns - 1
        self._write(clip(self._title, max(columns - len(figures), 8), "...") + figures)

    def _write(self, line: str) -> None:
        with suppress(OSError):  # a bar that cannot be drawn is not an error
            self._stream.write(f"\r\x1b[K{line}")
            self._stream.flush()
