"""The cache folder: its location, its maximum size, and which of its files are ours. No
others are read, replaced or removed.

A file is ours if it is a regular file of this user, has a name that only fusetui uses,
and begins with our signature. The name alone is not enough, since the folder may hold
other files of the user.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec

from fusetui.text.figures import amount
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.new_file import TEMPORARY_SUFFIX, replaced_file
from fusetui.trace.read.document import read_at

FOLDER_VARIABLE = "FUSETUI_CACHE"
"""The environment variable that holds the folder, or what turns the cache off."""
OFF = ("", "0", "off")
MAX_MEGABYTES_VARIABLE = "FUSETUI_CACHE_MB"
"""The environment variable that holds the most that our files may take, in MB."""
DEFAULT_MAX_MEGABYTES = 4000  # some thirty traces of 1 GB
ABANDONED_SECONDS = 3600  # after which an unfinished file will not be finished

MAGIC = b"fusetui\x1a"
"""The first bytes of every entry of any version, also while it is being written."""
BESIDE = (
    "autograd",
    "callers",
    "captured",
    "dependencies",
    "graphs",
    "inputs",
    "memory",
    "nodes",
    "ranks",
    "sizes",
    "transfers",
)
"""What may be kept beside an entry: the last part of the names of such files."""
_ENTRY = lazy_pattern(rf"[0-9a-f]{{32}}\.v\d{{1,4}}(?:\.(?:{'|'.join(BESIDE)}))?")
_UNFINISHED = lazy_pattern(
    rf"{_ENTRY.pattern}\.[a-z0-9_]{{8}}{re.escape(TEMPORARY_SUFFIX)}"
)

_READ = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_CAREFULLY = _READ | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

Folder = int | Path
"""A folder as a descriptor, or by its path where the system has none for folders
(Windows)."""


class OwnFile(msgspec.Struct, frozen=True):
    """A file of ours in the open folder, and the state in which it was listed."""

    name: str
    state: os.stat_result
    finished: bool  # False: it is being written, or was left so


def cache_folder() -> Path | None:
    """The folder of the cache. None if the cache is off, or the user has no folder for
    it."""
    named = os.environ.get(FOLDER_VARIABLE)
    if named is not None:
        return None if named in OFF else Path(named)
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("fusetui", appauthor=False) / "traces"
    except RuntimeError:  # a user without a home folder, as in many containers
        return None
    return folder if folder.is_absolute() else None


def is_own_file(place: Path) -> bool:
    """Whether there is a regular file of this user at a path; a link to one does not
    count."""
    try:
        _check_regular(os.lstat(place))
    except OSError:
        return False
    return True


@contextmanager
def open_own(place: Path) -> Iterator[IO[bytes]]:
    """Open the file of an entry, if it is a regular file of this user. Raises OSError.

    Links are not followed, and nothing that could block is opened.
    """
    _check_regular(os.lstat(place))
    with os.fdopen(os.open(place, _CAREFULLY), "rb") as file:
        # another file may have taken its place between the two calls
        _check_regular(os.fstat(file.fileno()))
        yield file


def replace_file(place: Path, write: Callable[[IO[bytes]], None]) -> None:
    """Write a file of the cache, so that others see the old one or the complete new
    one. A file of this name that is not an entry is kept.

    Raises OSError, leaving nothing unfinished.
    """
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if _may_replace(place):
        with replaced_file(place) as out:
            # some file systems give every file to one user
            _check_regular(os.fstat(out.fileno()))
            write(out)


def make_room(folder: Path) -> None:
    """Remove files of the cache until it is within its limit.

    The least recently used go first. An unfinished file goes once it is older than
    ABANDONED_SECONDS: the process that was writing it has ended. Raises OSError.
    """
    megabytes = amount(os.environ.get(MAX_MEGABYTES_VARIABLE, ""))
    if megabytes is None:
        megabytes = DEFAULT_MAX_MEGABYTES
    max_bytes = round(1e6 * megabytes)
    with opened(folder) as open_folder:
        files = sorted(own_files(open_folder), key=lambda file: file.state.st_mtime_ns)
        total_bytes = sum(file.state.st_size for file in files)
        for file in files:
            if file.finished:
                is_removable = total_bytes > max_bytes
            else:
                age_seconds = time.time() - file.state.st_mtime
                is_removable = age_seconds >= ABANDONED_SECONDS
            if is_removable and remove(open_folder, file):
                total_bytes -= file.state.st_size


@contextmanager
def opened(folder: Path) -> Iterator[Folder]:
    """Open a folder, so that all further calls are about this very folder, even if it
    is renamed. Where the system cannot, it is the path."""
    if not hasattr(os, "O_DIRECTORY"):
        yield folder
        return
    descriptor = os.open(folder, _READ | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def own_files(folder: Folder) -> Iterator[OwnFile]:
    """Yield the files in a folder that fusetui wrote, finished or not.

    A file is one if it is a regular file of this user with a name and a signature that
    fusetui gives. Raises OSError if the folder cannot be listed.
    """
    with os.scandir(folder) as items:
        for item in items:
            finished = _ENTRY.fullmatch(item.name) is not None
            if not finished and not item.name.endswith(TEMPORARY_SUFFIX):
                continue
            with suppress(OSError):  # it is gone, or we may not read it
                state = _stat_itself(folder, item.name)
                if _is_own_state(folder, item.name, state):
                    yield OwnFile(name=item.name, state=state, finished=finished)


def remove(folder: Folder, file: OwnFile) -> bool:
    """Remove a file, unless another file has its name by now.

    Returns:
        Whether it is gone; also if another process removed it.
    """
    try:
        is_same = os.path.samestat(_stat_itself(folder, file.name), file.state)
        if is_same:
            path, dir_fd = _path_for_system(folder, file.name)
            os.unlink(path, dir_fd=dir_fd)
        return is_same
    except FileNotFoundError:  # another process removed it
        return True
    except OSError:
        return False


def _may_replace(place: Path) -> bool:
    """Whether a path may be written: there is no file, an entry, or an empty file, as
    after a power failure."""
    try:
        with open_own(place) as file:
            return file.read(len(MAGIC)) in (MAGIC, b"")
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _is_own_state(folder: Folder, name: str, state: os.stat_result) -> bool:
    """Whether a file in this state was written by fusetui, by its name and its
    signature. Raises OSError."""
    _check_regular(state)
    path, dir_fd = _path_for_system(folder, name)
    file = os.open(path, _CAREFULLY, dir_fd=dir_fd)
    try:
        if not os.path.samestat(os.fstat(file), state):
            return False
        head = read_at(file, 0, len(MAGIC))
    finally:
        os.close(file)
    if _UNFINISHED.fullmatch(name):  # a process may end before it has written anything
        return MAGIC.startswith(head)
    return head == MAGIC and _ENTRY.fullmatch(name) is not None


def _stat_itself(folder: Folder, name: str) -> os.stat_result:
    """The state of a file itself, not of what it may link to. Raises OSError."""
    path, dir_fd = _path_for_system(folder, name)
    return os.stat(path, dir_fd=dir_fd, follow_symlinks=False)


def _path_for_system(folder: Folder, name: str) -> tuple[str, int | None]:
    """The path and the dir_fd of a file in a folder, as calls of the system take them."""
    if isinstance(folder, int):
        return name, folder
    return str(folder / name), None


def _check_regular(state: os.stat_result) -> None:
    """Raise PermissionError unless a state is that of a regular file of this user.
    Where the system does not tell users, any user will do."""
    is_of_user = not hasattr(os, "geteuid") or state.st_uid == os.geteuid()
    if not stat.S_ISREG(state.st_mode) or not is_of_user:
        raise PermissionError("it is not a regular file of this user")
