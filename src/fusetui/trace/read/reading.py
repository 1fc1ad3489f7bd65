"""Reads a file into columns, decoding in several threads; the caller may look at
partial results, or stop."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import msgspec
from msgspec.structs import replace

from fusetui.debug_log import debug
from fusetui.own_memory import without_collector
from fusetui.trace.model.errors import (
    CannotReadError,
    NotATraceError,
    NothingReadError,
    TraceError,
)
from fusetui.trace.model.raw import Raw
from fusetui.trace.model.report import Prefix, Progress, Stop, never, silent
from fusetui.trace.read import scanned
from fusetui.trace.read.assemble import assemble
from fusetui.trace.read.body import Body, find_body
from fusetui.trace.read.chunks import EXTENT_BYTES, Chunk
from fusetui.trace.read.damaged import ChunkStitcher
from fusetui.trace.read.source import LARGE, Source, Stored, present, unpacked
from fusetui.trace.read.workers import Workers

MIN_BYTES_FOR_PREVIEWS = 128 << 20  # smaller documents are read in half a second
FIRST_PREVIEW_BYTES = 16 << 20  # of the document, that the first preview shows
# Each later preview shows this many times more; together they cost less than the whole.
PREVIEW_GROWTH = 4
MIN_SLOW_BYTES_REPORTED = 64 << 20  # read the slow way without a report of progress


class Callbacks(msgspec.Struct, frozen=True):
    """The callbacks of a caller while a file is read."""

    progress: Progress = silent
    stop: Stop = never
    # called with growing parts of a large file
    preview: Callable[[Raw], None] | None = None
    alone: bool = False  # decode in this thread, without workers


def read(stored: Stored, callbacks: Callbacks) -> Raw:
    """Read a JSON trace into columns. Raises CannotReadError or NotATraceError with one
    plain sentence, or OSError.

    If the user stops it, the result has a `prefix`, which says how far the document was
    read. Raises NothingReadError if there would be no event in it.
    """
    scanner = getattr(scanned.scan, "__file__", None)
    debug("the events are decoded by %s", scanner or "Python: there is no scanner")
    size = 0 if callbacks.alone else stored.likely_size
    with without_collector(), _room(stored) as room:
        try:
            with Workers(room.fileno(), size, EXTENT_BYTES) as workers:
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
    """The file that holds the unpacked document, closed at the end of the block.
    Freeing large unpacked data takes long, so another thread does that."""
    room = stored.room()
    try:
        yield room
    finally:
        if stored.packing and os.fstat(room.fileno()).st_size >= LARGE:
            threading.Thread(target=room.close, daemon=True).start()
        else:
            room.close()


class _Reading:
    """The reading of one file, and how far it is."""

    def __init__(
        self, stored: Stored, room: IO[bytes], workers: Workers, callbacks: Callbacks
    ) -> None:
        """Prepare to read a file. `room` is the file that what has to be unpacked or
        fetched is put into."""
        self._stored = stored
        self._room = room
        self._workers = workers
        self._callbacks = callbacks
        self._stitcher = ChunkStitcher()
        # of the document, in bytes; exact once it is unpacked
        self._likely_size = stored.likely_size
        is_complete = not (stored.packing or stored.arriving)
        # bytes of the file that were unpacked or fetched
        self._taken = stored.size if is_complete else 0
        self._decoded_share = 0.0  # of the document
        # The next preview shows at least this many bytes, ...
        self._next_preview_bytes = FIRST_PREVIEW_BYTES
        # ... and is not tried before so many are decoded.
        self._next_try_bytes = 0
        self._slow_bytes = 0  # that no thread could decode as an extent

    def run(self) -> Raw:
        """Read the file into columns. Raises CannotReadError or NotATraceError."""
        source = unpacked(
            self._stored, self._room, self._document_grown, self._callbacks.stop
        )
        body = find_body(source)
        if source.taken is None:
            self._workers.release(len(source.document), whole=True)
        tried_bytes = self._decode_extents(source)
        chunks = self._join_chunks(source, body, tried_bytes)
        if _is_whole(source, body, chunks):
            self._callbacks.progress(source.size, source.size)
            return assemble(source, body, chunks)
        return assemble(source, body, chunks, self._describe_prefix(chunks))

    def _document_grown(self, length: int, taken: int) -> None:
        """Release the new part of a document that is still being unpacked, so that
        threads decode it.

        `length` bytes of the document are there; `taken` bytes of the file were needed
        for them.
        """
        self._taken = taken
        expected = length * self._stored.size // max(taken, 1)
        self._likely_size = max(expected, length, 1)
        self._workers.release(length)
        if taken < self._stored.size:
            self._workers.turn()
            self._turn_taken(None)

    def _decode_extents(self, source: Source) -> int:
        """Let the threads decode all extents, which are ranges of the document of equal
        size. Return the byte up to which they are done, which is the end unless reading
        is stopped."""
        if not self._callbacks.stop():
            for _ in self._workers.turns():
                self._turn_taken(source)
                if self._callbacks.stop():
                    break
            else:
                return len(source.document)
        self._workers.halt()
        return self._workers.reached

    def _turn_taken(self, source: Source | None) -> None:
        """Report the progress, and show a preview if there is enough for it. `source`
        is None while the document is incomplete."""
        decoded_bytes = self._workers.done * EXTENT_BYTES
        share = min(decoded_bytes / self._likely_size, 1.0)
        # The likely size may vary; the bar only grows.
        self._decoded_share = max(self._decoded_share, share)
        self._report(self._taken / self._stored.size, self._decoded_share)
        reached = self._workers.reached
        if reached >= self._next_try_bytes and self._is_preview_due(reached):
            self._try_preview(source or self._source_so_far())

    def _source_so_far(self) -> Source:
        """The part of the document that is there already."""
        return Source(
            path=self._stored.path,
            size=self._stored.size,
            document=present(self._room),
            taken=self._taken,
        )

    def _join_chunks(self, source: Source, body: Body, tried_bytes: int) -> list[Chunk]:
        """All chunks of the document in order. Those that no thread could decode are
        read here.

        If reading is stopped, they end before the first gap. `tried_bytes` is how far
        the threads came.
        """
        stitcher = self._stitcher
        stop = self._callbacks.stop
        stitcher.add(self._workers.collect().values())
        chunks: list[Chunk] = []
        if not stop():
            for chunk in stitcher.ordered(source.document, body.start):
                chunks.append(chunk)
                if stitcher.knows(chunk):
                    continue
                self._slow_chunk_read(source, body, chunks)
                if stop():
                    break
            else:
                debug(
                    "%d chunks, %d bytes of them not as whole extents",
                    len(chunks),
                    self._slow_bytes,
                )
                return chunks
        stitcher.add(chunks)
        return stitcher.prefix(source.document, body.start, tried_bytes)

    def _slow_chunk_read(
        self, source: Source, body: Body, chunks: Sequence[Chunk]
    ) -> None:
        """Count the bytes of the last chunk, which no thread could decode. Once there
        are many, report the progress of this slow reading."""
        last = chunks[-1]
        self._slow_bytes += last.end - last.start
        if self._slow_bytes > MIN_SLOW_BYTES_REPORTED:  # the bar starts again there
            self._report(1.0, last.end / len(source.document))
            if self._is_preview_due(last.end):
                self._show_preview(source, body, chunks)

    def _is_preview_due(self, reached: int) -> bool:
        """Whether `reached` bytes are enough for the next preview, and the end is still
        far."""
        if self._callbacks.preview is None or self._callbacks.stop():
            return False
        if self._likely_size < MIN_BYTES_FOR_PREVIEWS:
            return False
        return self._next_preview_bytes <= reached <= self._likely_size // 2

    def _try_preview(self, source: Source) -> None:
        """Show a preview of everything decoded before the first gap, if that is a trace
        and has grown enough."""
        reached = self._workers.reached
        self._next_try_bytes = reached + reached // PREVIEW_GROWTH
        try:
            body = find_body(source)
        except NotATraceError:
            return
        self._stitcher.add(self._workers.collect().values())
        chunks = self._stitcher.prefix(source.document, body.start, reached)
        # They end earlier where a thread is not yet done with what comes next.
        has_enough = bool(chunks) and chunks[-1].end >= self._next_preview_bytes
        if has_enough:
            self._show_preview(source, body, chunks)

    def _show_preview(
        self, source: Source, body: Body, chunks: Sequence[Chunk]
    ) -> None:
        """Show the trace that these chunks make, unless it has no slice."""
        assert self._callbacks.preview
        self._next_preview_bytes = chunks[-1].end * PREVIEW_GROWTH
        try:
            raw = assemble(source, body, chunks, self._describe_prefix(chunks))
        except NotATraceError:
            return
        if len(raw.start):
            self._callbacks.preview(raw)

    def _describe_prefix(self, chunks: Sequence[Chunk]) -> Prefix:
        """How much of the document these chunks are."""
        return Prefix(
            read=chunks[-1].end if chunks else 0,
            total=self._likely_size,
            exact=self._taken == self._stored.size,
        )

    def _report(self, unpacked_share: float, decoded_share: float) -> None:
        """Report the progress in bytes of the file. For a compressed file, unpacking
        counts as half of the work."""
        share = decoded_share
        if self._stored.packing:
            share = (unpacked_share + decoded_share) / 2
        self._callbacks.progress(int(self._stored.size * share), self._stored.size)


def _is_whole(source: Source, body: Body, chunks: Sequence[Chunk]) -> bool:
    """Whether the list of events was read to its end, to the end of the file, or as far
    as damage allows."""
    if source.taken is not None:
        return False
    if not chunks:
        return body.start >= len(source.document)
    last = chunks[-1]
    is_closed = last.after != -1
    return is_closed or last.too_damaged or last.end >= len(source.document)
