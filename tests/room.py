"""A full disk, by simulation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Within the block no file of this process grows beyond `size` bytes."""
    resource = pytest.importorskip(
        "resource", reason="this system limits no sizes of files"
    )
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
