"""Finds the traces of captures beside the trace of their replays, by what is in them.

Only for a trace with graph replays that have no op, and in this order:

1. of its folder the NEIGHBORS traces nearest in time, by their first 64 KB: only those in which the
   process of the replays appears, as a graph lives in the process that captured it;
2. of these the bytes, up to BUDGET on disk: for the begin of a stream capture, for annotations that
   say for how many requests it is, and for the names of kernels, which must be those of the replays
   where the calls have any. Of a large file this is kept in the cache and not searched again;
3. at most OPENED of those left are read as captures, those of the right size first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

from fusetui.trace.cache import entry_for
from fusetui.trace.model.ids import Id
from fusetui.trace.read.peek import beginning

ENDINGS = (".json", ".json.gz", ".json.zst")
NEIGHBORS = 64
HEAD = 1 << 16  # bytes of a document
BUDGET = 8 << 20  # bytes on disk of files that are searched whole
LARGEST = 1 << 27  # bytes of a document that are searched
OPENED = 4
_BEGIN = b"StreamBeginCapture"
_NAMED = re.compile(rb'"name": ?"capture_([0-9]{1,9})(?:_[A-Z_]{1,40})?"')


_KERNEL = re.compile(rb'"kernel": ?"([^"\\]{1,8000})"')
PLAIN = re.compile(r'[^"\\]{1,8000}', re.ASCII)
"""Names that stand in JSON as they are."""


class Verdict(msgspec.Struct, frozen=True):
    """What a search of a file found."""

    captures: bool
    sizes: tuple[int, ...] = ()  # requests, as annotations say
    kernels: tuple[bytes, ...] = ()  # hashes of the names of the kernels that calls launch


def candidates(
    path: str, pids: Collection[Id], batches: Sequence[int], kernels: Sequence[str] = ()
) -> list[str]:
    """The files beside a trace that capture graphs, at most OPENED: first those of the smallest
    size that is enough for each of the batches, then those that do not say their size. `pids`:
    of the processes that replay them; `kernels`: names of some that they replay."""
    asked = {_hash(name.encode()) for name in kernels if PLAIN.fullmatch(name)}
    found = [
        (one, verdict)
        for one, verdict in _verdicts(path, pids)
        if verdict.captures and (not verdict.kernels or asked <= set(verdict.kernels))
    ]
    wanted = set()
    for batch in set(batches):
        enough = [s for _, verdict in found for s in verdict.sizes if s >= batch]
        wanted |= {min(enough)} if enough else set()
    sure = [one for one, verdict in found if wanted & set(verdict.sizes)]
    open_ = [one for one, verdict in found if not verdict.sizes or not batches]
    return list(dict.fromkeys((*sure, *open_)))[:OPENED]


def _verdicts(path: str, pids: Collection[Id]) -> Iterator[tuple[str, Verdict]]:
    budget = BUDGET
    own = b"|".join(re.escape(str(pid).encode()) for pid in pids)
    process = re.compile(rb'"pid": ?"?(?:%s)"?[,} \n]' % own)
    for one in _neighbors(path):
        if not process.search(beginning(str(one), HEAD)):
            continue
        entry = entry_for(str(one))
        known = entry.recall("graphs", Verdict) if entry else None
        if known is not None:
            yield str(one), known
            continue
        size = one.stat().st_size
        if size > budget:
            continue
        budget -= size
        verdict = _judged(beginning(str(one), LARGEST))
        if entry:
            entry.keep("graphs", verdict)
        yield str(one), verdict


def _judged(text: bytes) -> Verdict:
    if _BEGIN not in text:
        return Verdict(False)
    sizes = {int(size) for size in _NAMED.findall(text)}
    kernels = {_hash(name) for name in set(_KERNEL.findall(text))}
    return Verdict(True, tuple(sorted(sizes)), tuple(sorted(kernels)))


def _hash(name: bytes) -> bytes:
    from hashlib import blake2b

    return blake2b(name, digest_size=8).digest()


def _neighbors(path: str) -> list[Path]:
    """Other traces in the folder, the nearest in time first."""
    try:
        own = os.stat(path)
        found = [
            (abs(item.stat().st_mtime_ns - own.st_mtime_ns), item.name)
            for item in os.scandir(os.path.dirname(path) or ".")
            if item.name.endswith(ENDINGS)
            and item.is_file()
            and not os.path.samestat(item.stat(), own)
        ]
    except OSError:
        return []
    folder = Path(os.path.dirname(path) or ".")
    return [folder / name for _, name in sorted(found)[:NEIGHBORS]]
