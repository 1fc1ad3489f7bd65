"""A file -> its columns, decoded in several threads; the caller may look meanwhile, or
stop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import msgspec
from msgspec.structs import replace

from fusetui.own_memory import without_collector
from fusetui.trace.model.errors import (
    CannotReadError,
    NotATraceError,
    NothingReadError,
    TraceError,
)
from fusetui.trace.model.raw import Raw
from fusetui.trace.model.report import Prefix, Progress, Stop, never, silent
from fusetui.trace.read.assemble import assemble
from fusetui.trace.read.body import Body, find_body
from fusetui.trace.read.chunks import EXTENT, Chunk
from fusetui.trace.read.mend import Joiner
from fusetui.trace.read.source import LARGE, Source, Stored, present, unpacked
from fusetui.trace.read.workers import Workers

FIRST_LOOK = 16 << 20  # bytes of the document that are available at the first preview
# each later preview shows this many times more; together they cost less than the whole
GROWTH = 4
WORTH_A_LOOK = 128 << 20  # bytes; smaller documents are read in half a second
FAR = 64 << 20  # bytes read the slow way beyond which progress is reported


class Callbacks(msgspec.Struct, frozen=True):
    """The callbacks of a caller while a file is read."""

    progress: Progress = silent
    stop: Stop = never
    # called with growing parts of a large file
    preview: Callable[[Raw], None] | None = None
    alone: bool = False  # decode in this thread, without workers


def read(stored: Stored, callbacks: Callbacks) -> Raw:
    """Reads a trace file. Raises CannotReadError or NotATraceError with one plain
    sentence, or OSError.

    If it is stopped, the result has a `prefix`; raises NothingReadError if that would
    be empty."""
    size = 0 if callbacks.alone else stored.likely_size
    with without_collector(), _room(stored) as room:
        try:
            with Workers(room.fileno(), size, EXTENT) as workers:
                raw = _Reading(stored, room, workers, callbacks).run()
        except TraceError:
            if callbacks.stop():
                raise NothingReadError from None
            if stored.has_changed():
                raise CannotReadError(
                    f"{stored.path} changed while it was read: try again."
                ) from None
            raise
        report = replace(raw.report, changed=stored.has_changed())
        if report.prefix and not len(raw.start):
            raise NothingReadError
        return replace(raw, report=report)


@contextmanager
def _room(stored: Stored) -> Iterator[IO[bytes]]:
    """The file for the document. Freeing unpacked data takes long, so a thread does
    that."""
    room = stored.room()
    try:
        yield room
    finally:
        if stored.packing and os.fstat(room.fileno()).st_size >= LARGE:
            threading.Thread(target=room.close, daemon=True).start()
        else:
            room.close()


class _Reading:
    def __init__(
        self, stored: Stored, room: IO[bytes], workers: Workers, callbacks: Callbacks
    ) -> None:
        self._stored = stored
        self._room = room
        self._workers = workers
        self._callbacks = callbacks
        self._joiner = Joiner()
        self._likely = stored.likely_size  # of the document; exact once it is unpacked
        late = stored.packing or stored.arriving
        self._taken = 0 if late else stored.size  # bytes of the file
        self._decoded = 0.0  # share of the document
        self._look = FIRST_LOOK  # bytes; the next preview shows at least this many
        self._again = 0  # bytes that are decoded a second time
        self._slowly = 0  # bytes that no thread could decode as an extent

    def run(self) -> Raw:
        callbacks = self._callbacks
        source = unpacked(self._stored, self._room, self._grown, callbacks.stop)
        body = find_body(source)
        if source.taken is None:
            self._workers.release(len(source.document), whole=True)
        chunks = self._joined(source, body, self._decode(source))
        prefix = None if _is_whole(source, body, chunks) else self._prefix(chunks)
        if prefix is None:
            callbacks.progress(source.size, source.size)
        return assemble(source, body, chunks, prefix)

    def _grown(self, length: int, taken: int) -> None:
        """Called when more of the document is available."""
        self._taken = taken
        self._likely = max(length * self._stored.size // max(taken, 1), length, 1)
        self._workers.release(length)
        if taken < self._stored.size:
            self._workers.turn()
            self._turned(None)

    def _decode(self, source: Source) -> int:
        """Decodes all extents; returns the byte up to which that was done."""
        if not self._callbacks.stop():
            for _ in self._workers.turns():
                self._turned(source)
                if self._callbacks.stop():
                    break
            else:
                return len(source.document)
        self._workers.halt()
        return self._workers.reached

    def _turned(self, source: Source | None) -> None:
        """Called when a little more was decoded, or while waiting for that."""
        decoded = min(self._workers.done * EXTENT / self._likely, 1.0)
        # the likely size may vary; the bar only grows
        self._decoded = max(self._decoded, decoded)
        self._report(self._taken / self._stored.size, self._decoded)
        if self._workers.reached >= self._again and self._is_due(self._workers.reached):
            file, here = self._stored, present(self._room)  # a part is unpacked
            self._preview(
                source or Source(file.path, file.size, here, None, self._taken)
            )

    def _joined(self, source: Source, body: Body, tried: int) -> list[Chunk]:
        joiner, stop = self._joiner, self._callbacks.stop
        joiner.add(self._workers.collect().values())
        chunks: list[Chunk] = []
        if not stop():
            for chunk in joiner.ordered(source.document, body.start):
                chunks.append(chunk)
                if joiner.knows(chunk):
                    continue
                self._slowly += chunk.end - chunk.start
                if self._slowly > FAR:  # the bar starts again there
                    self._report(1.0, chunk.end / len(source.document))
                    if self._is_due(chunk.end):
                        self._show(source, body, chunks)
                if stop():
                    break
            else:
                return chunks
        joiner.add(chunks)
        return joiner.prefix(source.document, body.start, tried)

    def _is_due(self, reached: int) -> bool:
        """Whether it is time for a preview: the next one is due, and the end is still
        far."""
        if (
            self._likely < WORTH_A_LOOK
            or not self._callbacks.preview
            or self._callbacks.stop()
        ):
            return False
        return self._look <= reached <= self._likely // 2

    def _preview(self, source: Source) -> None:
        """Shows what all threads decoded up to the first gap, if that is a trace."""
        reached = self._workers.reached
        self._again = reached + reached // GROWTH
        try:
            body = find_body(source)
        except NotATraceError:
            return
        self._joiner.add(self._workers.collect().values())
        chunks = self._joiner.prefix(source.document, body.start, reached)
        if chunks and chunks[-1].end >= self._look:  # there may be a gap
            self._show(source, body, chunks)

    def _show(self, source: Source, body: Body, chunks: Sequence[Chunk]) -> None:
        assert self._callbacks.preview
        self._look = chunks[-1].end * GROWTH
        try:
            raw = assemble(source, body, chunks, self._prefix(chunks))
        except NotATraceError:
            return
        if len(raw.start):
            self._callbacks.preview(raw)

    def _prefix(self, chunks: Sequence[Chunk]) -> Prefix:
        read = chunks[-1].end if chunks else 0
        return Prefix(read, self._likely, exact=self._taken == self._stored.size)

    def _report(self, unpacked: float, decoded: float) -> None:
        """Reports progress; for a compressed file, unpacking counts as half of the
        work."""
        share = (unpacked + decoded) / 2 if self._stored.packing else decoded
        self._callbacks.progress(int(self._stored.size * share), self._stored.size)


def _is_whole(source: Source, body: Body, chunks: Sequence[Chunk]) -> bool:
    """Whether the array was read to its end, or that of the file, or as far as damage
    allows."""
    if source.taken is not None:
        return False
    if not chunks:
        return body.start >= len(source.document)
    last = chunks[-1]
    return last.end >= len(source.document) or last.after != -1 or last.too_damaged
