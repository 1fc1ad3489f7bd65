"""Unnamed files that hold a document, in memory or on disk.

They are buffered: a write without a buffer may take a part and not say so. Whoever writes to them
flushes before anybody reads by their number.
"""

from __future__ import annotations

import os
from typing import IO

SHARE = 4  # documents that would take more than this fraction of the memory are unpacked to disk


def file_in_memory() -> IO[bytes]:
    """An unnamed file, in memory if the system supports that."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("fusetui"), "w+b")
    return file_on_disk()


def file_on_disk() -> IO[bytes]:
    """An unnamed file on disk."""
    import tempfile  # rarely needed, and slow to import

    return tempfile.TemporaryFile()
