"""Folders with traces, and what a folder that has none of its own holds, as that of all runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

RECORD = "run.json"
SWEEP = "sweep.json"
ENDINGS = (".json", ".json.gz", ".json.zst")
DEPTH = 2  # levels of folders
LISTED = 10_000  # entries of a folder that are looked at
FOLDERS = 500  # folders that are looked into, the newest first


def folders_below(name: str) -> list[str]:
    """Run folders and other folders with traces, the newest first; [] where `name` has traces of
    its own. No file is read."""
    top = Path(name)
    if not top.is_dir() or _newest(top) is not None:
        return []
    found = islice(_below(top, DEPTH), FOLDERS)
    newest = sorted(((changed, str(path)) for path, changed in found), reverse=True)
    return [path for _, path in newest]


def changed(path: Path) -> float:
    """When it was written; 0 if that cannot be told."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def listed(folder: Path) -> list[Path]:
    """What is in a folder, of very many entries the first; [] if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return [folder / entry.name for entry in islice(entries, LISTED)]
    except OSError:
        return []


def _below(folder: Path, depth: int) -> Iterator[tuple[Path, float]]:
    """Folders with traces, and when the newest trace of each was written. Hidden folders are left
    out: a capture that is not complete is one."""
    inner = [path for path in listed(folder) if path.name[0] != "." and path.is_dir()]
    for path in sorted(inner, key=changed, reverse=True)[:FOLDERS]:
        newest = _newest(path)
        if newest is not None:
            yield path, newest
        elif depth > 1:
            yield from _below(path, depth - 1)


def _newest(folder: Path) -> float | None:
    """When the record of a run or the newest trace was written; None in a folder without either."""
    if (folder / RECORD).is_file():
        return changed(folder / RECORD)
    names = (path for path in listed(folder) if path.name.endswith(ENDINGS) and path.name != SWEEP)
    return max((changed(path) for path in names if path.is_file()), default=None)
