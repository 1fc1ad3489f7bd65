"""The folder of the cache: where it is, how large it may grow, and how files are written to it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from fusetui.trace.cache.own import SUFFIX, is_users, may_replace, opened, own_files, remove
from fusetui.trace.model.variables import amount

PLACE = "FUSETUI_CACHE"
"""The environment variable that holds the folder, or `off`."""
BOUND = "FUSETUI_CACHE_MB"
"""The environment variable that holds the most that our files may take, in MB."""
LARGEST = 4000  # MB: some thirty traces of 1 GB
STALE = 3600  # seconds after which an unfinished file is considered abandoned


def cache_folder() -> Path | None:
    """Where entries are kept; None if the cache is off, or no folder is known."""
    named = os.environ.get(PLACE)
    if named is None:
        return _users_folder()
    return None if named in ("", "0", "off") else Path(named)


def replace_file(place: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Writes to a temporary name, then renames: others see the old file or the complete new one.

    A file of this name that is not an entry is kept. Raises OSError, leaving nothing unfinished.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not may_replace(place):
        return
    import tempfile  # not needed when a trace comes from the cache

    handle, name = tempfile.mkstemp(SUFFIX, f"{place.name}.", place.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            if not is_users(os.fstat(handle)):
                raise PermissionError("the files of this folder do not become ours")
            write(out)
        os.replace(name, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def make_room(folder: Path) -> None:
    """Removes the least recently used entries until our files are within the limit. Raises
    OSError."""
    with opened(folder) as at:
        files = list(own_files(at))
        left = sum(own.state.st_size for own in files)
        for own in sorted(files, key=lambda own: own.state.st_mtime_ns):
            if not own.finished and time.time() - own.state.st_mtime < STALE:
                continue
            if (left > _bound() or not own.finished) and remove(at, own):
                left -= own.state.st_size


def _users_folder() -> Path | None:
    """The system's folder for the caches of this user."""
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("fusetui", appauthor=False) / "traces"
    except RuntimeError:  # a user without a home folder, as in many containers
        return None
    return folder if folder.is_absolute() else None


def _bound() -> int:
    """The limit in bytes."""
    megabytes = amount(os.environ.get(BOUND, ""))
    return round(1e6 * (LARGEST if megabytes is None else megabytes))
