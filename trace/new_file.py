"""Files that are there once they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fusetui.trace.model.errors import TraceError
from fusetui.trace.read.source import reason

EXISTS = "{} exists already: give another name, or move it away."


class CannotWrite(TraceError):  # noqa: N818
    """The file to be written exists, has an unknown ending, or there is no space for it."""


@contextmanager
def new_file(path: str, *, replace: bool = False) -> Iterator[Path]:
    """The name of a file to create, which gets its own name when the block ends. Raises CannotWrite
    for what the system refuses, also within the block, and leaves nothing behind."""
    check_new(path, replace=replace)
    part = Path(f"{path}.{os.getpid()}.part")
    try:
        yield part
        if replace:
            part.replace(path)
            return
        try:
            os.link(part, path)
        except FileExistsError:
            raise CannotWrite(EXISTS.format(path)) from None  # by now
        except OSError:  # a file system without hard links
            part.rename(path)
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {reason(error)}.") from None
    finally:
        with suppress(OSError):
            part.unlink()


def check_new(path: str, *, replace: bool = False) -> None:
    """Raises CannotWrite unless a file of this name can be created, or replaced: no device is."""
    if os.path.lexists(path) and not (replace and os.path.isfile(path)):
        raise CannotWrite(EXISTS.format(path))
    if not os.path.isdir(os.path.dirname(path) or "."):
        raise CannotWrite(f"{path} cannot be written: there is no such folder.")
