"""Traces that agents ask about: opened from allowed files, and kept as long as they are in use."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from typing import Any

import msgspec
from msgspec.structs import replace

from fusetui.analysis.questions.launches import wants_capture
from fusetui.analysis.questions.note import note_of
from fusetui.commands.agents.folders import Folders
from fusetui.commands.loading import notices
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotRead

TRACES, ANSWERS = 4, 8  # that are kept
NOT_JOINED = (
    "Graph replays were not joined with captures beside the trace: links there lead out of the "
    "folders that this server may read."
)

State = tuple[str, int, int, int]
"""The path of a file, its size in bytes, when it was modified in ns, and its inode."""


class OpenTrace(msgspec.Struct, frozen=True, eq=False):
    """A trace, and what a user of its figures must know."""

    name: str
    state: State
    trace: Trace
    notes: tuple[str, ...]


class Recent:
    """The values that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The one of this key, made if it is not there."""
        self._kept[key] = self._kept.pop(key) if key in self._kept else make()
        while len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]
        return self._kept[key]


class Opener:
    """Opens what lies in the folders. A file that has changed is read again."""

    def __init__(self, folders: Folders) -> None:
        self.folders = folders
        self._traces, self._answers = Recent(TRACES), Recent(ANSWERS)

    def open(self, name: str) -> OpenTrace:
        """Raises Error with one plain sentence."""
        path = self.folders.file(name)
        try:
            found = os.stat(path)
        except OSError as error:
            raise CannotRead(f"{name} cannot be opened: {error.strerror}.") from None
        state = path, found.st_size, found.st_mtime_ns, found.st_ino
        opened: OpenTrace = self._traces.get(state, lambda: self._read(name, state))
        return opened if opened.name == name else replace(opened, name=name)

    def answer(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """An answer that is kept for its next page."""
        return self._answers.get(key, make)

    def _read(self, name: str, state: State) -> OpenTrace:
        trace = open_trace(state[0])
        trace = replace(trace, report=replace(trace.report, named=name))
        told = [*notices(trace.report)]
        if wants_capture(trace):
            trace, more = self._joined(trace)
            told += more
        notes = (*told, *filter(None, (note_of(trace),)), *trace.notes)
        return OpenTrace(name, state, trace, tuple(dict.fromkeys(notes)))

    def _joined(self, trace: Trace) -> tuple[Trace, list[str]]:
        """With captures that are found beside it, unless a link there leads out of the folders."""
        from fusetui.analysis.serving.opening import files_beside, said, with_captures

        path = trace.report.path
        is_shipped = not self.folders.has(path)
        if not is_shipped and not all(map(self.folders.has, (f.path for f in files_beside(path)))):
            return trace, [NOT_JOINED]
        trace, joins = with_captures(trace, (), open_trace)
        return trace, said(joins)
