"""The bytes of a document, asked for long after it was read.

A file is opened anew each time: it may be gone or another one by then, and to map a file that
somebody shortens can end the process.
"""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import msgspec

from fusetui.trace.errors import CannotRead
from fusetui.trace.read.source import Source, State, open_source, state_of
from fusetui.trace.read.unpack import packing_of


class Text(Protocol):
    """What is known of a document that was read."""

    @property
    def at_hand(self) -> bool:
        """Can any part be had at once."""

    def problem(self) -> str:
        """Why no part can be had any more, in one sentence; "" when it can."""

    def part(self, start: int, end: int) -> Any:
        """The bytes [start, end). Raises TraceError."""


class Held(msgspec.Struct, frozen=True, eq=False):
    """A document in memory, or in a file that nobody else knows."""

    data: Any

    @property
    def at_hand(self) -> bool:
        return True

    def problem(self) -> str:
        return ""

    def part(self, start: int, end: int) -> Any:
        return memoryview(self.data)[start:end]


class Filed:
    """A document in a file that must still be the one that was read."""

    def __init__(self, path: str, state: State) -> None:
        self._path = path
        self._state = state
        self._unpacked: Held | None = None
        self._lock = Lock()

    @property
    def at_hand(self) -> bool:
        """A packed file is unpacked again when its first part is asked for."""
        return self._unpacked is not None or bool(self.problem()) or not self._is_packed

    def problem(self) -> str:
        try:
            same = self._unpacked is not None or state_of(os.stat(self._path)) == self._state
        except OSError as error:
            return f"{self._path} cannot be read any more: {(error.strerror or '').lower()}"
        return "" if same else f"{self._path} has changed since it was read"

    def part(self, start: int, end: int) -> Any:
        problem = self.problem()
        if problem:
            raise CannotRead(f"{problem}.")
        if self._is_packed:
            return self._unpack().part(start, end)
        with Path(self._path).open("rb") as file:
            return os.pread(file.fileno(), end - start, start)

    @cached_property
    def _is_packed(self) -> bool:
        with Path(self._path).open("rb") as file:
            return packing_of(file.read(4)) is not None

    def _unpack(self) -> Held:
        """Once; who comes meanwhile waits."""
        with self._lock:
            if self._unpacked is None:
                self._unpacked = Held(open_source(self._path).data)
            return self._unpacked


def text_of(source: Source) -> Text:
    """Of a document that was just read."""
    return Filed(source.path, source.state) if source.state else Held(source.data)
