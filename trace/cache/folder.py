"""The folder of the cache: where it is, how large it may grow, and how files get into it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

PLACE = "FUSETUI_CACHE"
"""The environment variable with the folder, or `off`."""
BOUND = "FUSETUI_CACHE_MB"
"""The environment variable with the most that the folder may hold, in MB."""
LARGEST = 4000  # MB: some thirty traces of 1 GB
UNFINISHED = ".part"
STALE = 3600  # seconds after which an unfinished file is nobody's any more


def cache_folder() -> Path | None:
    """Where entries are kept; None when the cache is switched off."""
    named = os.environ.get(PLACE)
    if named is None:
        from platformdirs import user_cache_path

        return user_cache_path("fusetui", appauthor=False) / "traces"
    return None if named in ("", "0", "off") else Path(named)


def replace_file(place: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write under a temporary name, then rename: others see the old file or the whole new one.

    Raises OSError; what was written by then is gone again.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    import tempfile  # with a trace from the cache, nobody needs it

    handle, name = tempfile.mkstemp(UNFINISHED, dir=place.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            write(out)
        os.replace(name, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def make_room(folder: Path) -> None:
    """Remove what was used longest ago until the folder is within its bound. Raises OSError."""
    files = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    left = sum(state.st_size for _, state in files)
    for path, state in sorted(files, key=lambda item: item[1].st_mtime_ns):
        unfinished = path.suffix == UNFINISHED
        if unfinished and time.time() - state.st_mtime < STALE:
            continue
        if left > _bound() or unfinished:
            path.unlink(missing_ok=True)
            left -= state.st_size


def _bound() -> int:
    """Bytes."""
    try:
        return int(float(os.environ[BOUND]) * 1e6)
    except (KeyError, ValueError, OverflowError):
        return LARGEST * 1_000_000
