"""Finds the traces of captures beside the trace of their replays, by what is in them.

Only for a trace with graph replays that have no op. Of at most NEIGHBORS files of its folder, those
nearest in time, each is looked at once: its bytes are searched for the begin of a stream capture,
and for annotations that say for how many requests one is. Files beyond BUDGET, counted as they lie
on disk, are looked at in their first 256 KB only. What was found in a large file is kept in the
cache, so that it is not searched again. At most OPENED files are read as captures, those of the
right size first.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from fusetui.trace.cache import entry_for
from fusetui.trace.read.peek import ENOUGH, beginning

ENDINGS = (".json", ".json.gz", ".json.zst")
NEIGHBORS = 64
BUDGET = 8 << 20  # bytes on disk of files that are searched whole
LARGEST = 1 << 27  # bytes of a document that are searched
OPENED = 4
_BEGIN = b"StreamBeginCapture"
_NAMED = re.compile(rb'"name": ?"captur[a-z]{0,10}_([0-9]{1,9})[_"]', re.IGNORECASE)
_CAPTURING = re.compile(
    rb'"name": ?"[^"]{0,120}(?:captur[a-z]{0,3}_(?:[0-9]|begin|graph|model))', re.I
)


class Verdict(msgspec.Struct, frozen=True):
    """What a search of a file found."""

    captures: bool
    sizes: tuple[int, ...] = ()  # requests, as annotations say


def candidates(path: str, batches: Sequence[int]) -> list[str]:
    """The files beside a trace that capture graphs, at most OPENED: first those of the smallest
    size that is enough for each of the batches, then those that do not say their size."""
    found = [(one, verdict) for one, verdict in _verdicts(path) if verdict.captures]
    wanted = set()
    for batch in set(batches):
        enough = [s for _, verdict in found for s in verdict.sizes if s >= batch]
        wanted |= {min(enough)} if enough else set()
    sure = [one for one, verdict in found if wanted & set(verdict.sizes)]
    open_ = [one for one, verdict in found if not verdict.sizes or not batches]
    return list(dict.fromkeys((*sure, *open_)))[:OPENED]


def _verdicts(path: str) -> Iterator[tuple[str, Verdict]]:
    budget = BUDGET
    for one in _neighbors(path):
        entry = entry_for(str(one))
        known = entry.recall("graphs", Verdict) if entry else None
        if known is not None:
            yield str(one), known
            continue
        size = one.stat().st_size
        whole = size <= budget
        budget -= size if whole else 0
        verdict = _judged(beginning(str(one), LARGEST if whole else ENOUGH))
        if entry and whole:
            entry.keep("graphs", verdict)
        yield str(one), verdict


def _judged(text: bytes) -> Verdict:
    sizes = {int(size) for size in _NAMED.findall(text)}
    found = _BEGIN in text or _CAPTURING.search(text[:ENOUGH]) is not None
    return Verdict(found, tuple(sorted(sizes)))


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
