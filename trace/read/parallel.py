"""Decodes the chunks of a large document in several processes at once.

Every process takes the next chunk from a shared counter. The others leave the columns of theirs in
a file in memory, so that nobody waits for anybody. A chunk that does not decode is left to the
caller, who reads it in order and exactly.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

from fusetui.trace.read.chunks import Chunk, decode_chunk

FEWEST = 4  # chunks that are worth a second process
MOST = 4  # processes; more of them wait for memory, not for a core
Cut = tuple[int, int]
Reached = Callable[[int], None]
"""Called with the byte up to which chunks were given out."""


def decode_all(data: Any, cuts: Sequence[Cut], reached: Reached) -> list[Chunk | None]:
    """The chunk of each [start, end), None where the bytes do not decode as a list of events."""
    found: list[Chunk | None] = [None] * len(cuts)
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else None)
    counter = context.Value("i", 0)
    boxes = [_file_in_memory() for _ in range(_processes(len(cuts)) - 1)]
    workers = [
        context.Process(target=_work, args=(data, cuts, counter, box), daemon=True) for box in boxes
    ]
    for worker in workers:
        worker.start()
    for number, chunk in _next_chunks(data, cuts, counter):
        found[number] = chunk
        reached(cuts[number][1])
    for worker, box in zip(workers, boxes, strict=True):
        worker.join()
        for number, chunk in _unpacked(box):
            found[number] = chunk
    return found


def _processes(chunks: int) -> int:
    """How many to use: one where forking is unsafe (other threads run) or not possible."""
    if chunks < FEWEST or not hasattr(os, "fork") or threading.active_count() > 1:
        return 1
    return min(len(os.sched_getaffinity(0)), MOST)


def _next_chunks(
    data: Any, cuts: Sequence[Cut], counter: Any
) -> Iterator[tuple[int, Chunk | None]]:
    """Chunks that nobody else has taken, until there are none left."""
    while True:
        with counter.get_lock():
            number = counter.value
            counter.value += 1
        if number >= len(cuts):
            return
        yield number, decode_chunk(data, *cuts[number])


def _work(data: Any, cuts: Sequence[Cut], counter: Any, box: IO[bytes]) -> None:
    for item in _next_chunks(data, cuts, counter):
        pickle.dump(item, box, protocol=5)
    box.flush()


def _unpacked(box: IO[bytes]) -> Iterator[tuple[int, Chunk | None]]:
    """What a worker left; one that died leaves its last chunk undecoded."""
    box.seek(0)
    with box:
        while True:
            try:
                yield pickle.load(box)
            except (EOFError, pickle.UnpicklingError):
                return


def _file_in_memory() -> IO[bytes]:
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("fusetui"), "w+b")
    return tempfile.TemporaryFile()
