"""What a capture says while it runs: messages and progress on stderr, escaped."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import TextIO

from fusetui.text.printable import printable


def tell(line: str) -> None:
    """Prints one message; it is not an error if that fails."""
    with suppress(OSError):
        print(printable(line), file=sys.stderr, flush=True)


_REDRAW_SECONDS = 0.5


class Progress:
    """One line per phase with its time. On a terminal the elapsed time is updated."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr

    def say(self, line: str) -> None:
        self._write(f"{printable(line)}\n")

    @contextmanager
    def phase(self, title: str) -> Iterator[None]:
        """Shows `title ...` while the block runs, then its duration in seconds."""
        begin, title = perf_counter(), printable(title)
        self._write(f"{title} ... ")
        try:
            with self._redrawn(lambda: f"\r{title} ... {perf_counter() - begin:.0f} s "):
                yield
        except BaseException:
            self._write("stopped\n")
            raise
        again = f"\r{title} ... " if self._stream.isatty() else ""
        self._write(f"{again}{perf_counter() - begin:.1f} s\n")

    @contextmanager
    def _redrawn(self, line: Callable[[], str]) -> Iterator[None]:
        """Writes the line twice a second from a thread, on a terminal only."""
        if not self._stream.isatty():
            yield
            return
        done = threading.Event()

        def redraw() -> None:
            while not done.wait(_REDRAW_SECONDS):
                self._write(line())

        thread = threading.Thread(target=redraw, name="fusetui progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
