"""Creates new files, which appear under their name when they are complete.

Every writer of fusetui creates its files here. A file is written under a temporary
name that nobody can predict, and is created exclusively and without following links:
nobody else who may write to the folder can place a file or a link there first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.source import reason

EXISTS = "{} already exists: choose another name, or move it."
TEMPORARY_SUFFIX = ".part"

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL
_SAFELY = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


class CannotWriteError(TraceError):
    """The file to be written exists, has an unknown ending, or there is no space for
    it."""


@contextmanager
def new_file(path: str, *, replace: bool = False) -> Iterator[IO[bytes]]:
    """Open a new file for writing, which gets its name when the block ends.

    With `replace` it takes the place of a regular file of that name. Raises
    CannotWriteError for what the system refuses, also within the block, and leaves
    nothing behind.
    """
    check_new(path, replace=replace)
    try:
        with temporary_file(Path(path), mode=0o666) as (file, temporary):
            yield file
            file.close()
            if replace:
                temporary.replace(path)
            else:
                _publish(temporary, path)
    except OSError as error:
        raise CannotWriteError(f"{path} cannot be written: {reason(error)}.") from None


@contextmanager
def replaced_file(place: Path) -> Iterator[IO[bytes]]:
    """Open a file for writing that takes the place of whatever is at `place` when the
    block ends.

    Others see the old file or the complete new one, which only this user can read.
    Raises OSError, leaving nothing unfinished.
    """
    with temporary_file(place, mode=0o600) as (file, temporary):
        yield file
        file.close()
        temporary.replace(place)


@contextmanager
def temporary_file(place: Path, *, mode: int) -> Iterator[tuple[IO[bytes], Path]]:
    """Create a file beside `place`, and give it with its path. It is removed when the
    block ends, unless the block has renamed it.

    `mode` holds its permissions, of which the umask takes some away. Raises OSError.
    """
    temporary = place.with_name(f"{place.name}.{_random_part()}{TEMPORARY_SUFFIX}")
    file = os.fdopen(os.open(temporary, _CREATE | _SAFELY, mode), "w+b")
    try:
        yield file, temporary
    finally:
        with suppress(OSError):  # the block closes it to hear of a full disk
            file.close()
        with suppress(OSError):
            temporary.unlink()


def _random_part() -> str:
    """Returns eight random hexadecimal digits, which nobody else can predict."""
    return os.urandom(4).hex()


def check_new(path: str, *, replace: bool = False) -> None:
    """Raise CannotWriteError unless a file of this name can be created. With `replace`,
    a regular file may be there already."""
    if os.path.lexists(path) and not (replace and os.path.isfile(path)):
        raise CannotWriteError(EXISTS.format(path))
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise CannotWriteError(f"{path} cannot be written: no such folder.")


def _publish(temporary: Path, path: str) -> None:
    """Give a complete file its final name. Raises OSError, and CannotWriteError if
    another file has got that name meanwhile."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise CannotWriteError(EXISTS.format(path)) from None
    except OSError:  # a file system without hard links
        temporary.rename(path)
