"""What this process asks of Python's collector of cycles and of the allocator, and how
it ends. Nothing else touches them.

Sources: Python's gc and os modules; malloc.h of glibc for mallopt(3) and
malloc_trim(3).
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

YOUNG_OF_COMMAND = 100_000
"""New objects between two runs of the collector, in a command: what is imported stays
anyway."""
YOUNG_OF_APP = 20_000
"""The same in the app; a frame makes some thousands."""
M_ARENA_MAX = -8  # of mallopt(3): how many arenas threads may have


def look_less_often(objects: int) -> None:
    """Make the garbage collector run only after this many new objects."""
    gc.set_threshold(objects)


@contextmanager
def without_collector() -> Iterator[None]:
    """Turn off the garbage collector within the block.

    This saves time where many objects are made that form no cycles.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def freeze() -> None:
    """Make the collector pass over all present objects, until `thaw`."""
    gc.freeze()


def thaw() -> None:
    """Collect the objects that `freeze` protected and nobody uses any more.

    Their memory, such as that of previews, is given back to the system where that is
    possible. This takes a tenth of a second or more. Without a `freeze` before, nothing
    happens.
    """
    has_frozen_objects = gc.get_freeze_count() > 0
    if has_frozen_objects:
        gc.unfreeze()
        gc.collect()
        give_back()


def give_back() -> None:
    """Return freed memory to the system, where that can be asked for (glibc).

    Otherwise chunks and threads would leave behind a quarter of the memory of a large
    trace. This takes 0.2 s per GB.
    """
    import ctypes  # not needed by a start

    with suppress(AttributeError, OSError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, 1)  # threads then share what one of them has freed
        libc.malloc_trim(0)


def end(code: int) -> NoReturn:
    """End the process with an exit code, without tearing down the interpreter.

    Freeing the objects of a large trace one by one would be slow. Torch needs the
    regular exit.
    """
    if "torch" in sys.modules:
        sys.exit(code)
    os._exit(code)
