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
    """Has the collector run only after so many new objects."""
    gc.set_threshold(objects)


@contextmanager
def without_collector() -> Iterator[None]:
    """Turns off the collector, where many objects are made that form no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def freeze() -> None:
    """Has the collector pass over all objects that there are, until `thaw`."""
    gc.freeze()


def thaw() -> None:
    """Collects what is no longer used of all that stayed, such as previews, and gives
    the memory back where the system can. Takes a tenth of a second or more."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()
        give_back()


def give_back() -> None:
    """Returns what was freed to the system, where that can be asked for (glibc): a
    quarter of the memory of a large trace would be what chunks and threads leave
    behind. Takes 0.2 s a GB."""
    import ctypes  # not needed by a start

    with suppress(AttributeError, OSError, TypeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_ARENA_MAX, 1)  # threads then share what one of them has freed
        libc.malloc_trim(0)


def end(code: int) -> NoReturn:
    """Ends the process without tearing down the interpreter, because freeing the
    objects of a large trace one by one is slow. Torch needs the regular exit."""
    if "torch" in sys.modules:
        sys.exit(code)
    os._exit(code)
