"""Guards against what the user's code may do to this process: change its folder, or fork."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


@contextmanager
def same_folder() -> Iterator[None]:
    """Restores the working directory after the block."""
    try:
        before = os.getcwd()
    except OSError:  # it was removed
        before = None
    try:
        yield
    finally:
        if before is not None:
            with suppress(OSError):
                os.chdir(before)


@contextmanager
def parent_only() -> Iterator[None]:
    """A child process that was forked in the block ends here, as if its program had ended."""
    parent = os.getpid()
    try:
        yield
    except BaseException as error:
        if os.getpid() != parent:
            _leave(error)
        raise
    leave_if_forked(parent)


def leave_if_forked(parent: int) -> None:
    """Ends the process, unless it is the one with this number."""
    if os.getpid() != parent:
        _leave(None)


def _leave(error: BaseException | None) -> NoReturn:
    """Exits with the code that Python would have used, but without the parent's clean-up."""
    code: object = 0
    if isinstance(error, SystemExit):
        code = error.code or 0
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code if isinstance(code, int) else 1)
