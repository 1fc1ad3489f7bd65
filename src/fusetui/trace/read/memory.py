"""The memory available for decompressing a document, and the unnamed files, in memory
or on disk, that store it.

The files are buffered: a write without a buffer may take a part and not say so. Whoever
writes to them flushes before anybody reads by their number.

Sources: proc(5) for MemAvailable; the kernel's admin
guide for memory.max, memory.current and memory.stat of a control group (version 2),
memory.limit_in_bytes, memory.usage_in_bytes and memory.stat (version 1).
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import IO, NamedTuple

from fusetui.text.patterns import lazy_pattern

# A document that would take more than one fourth of the memory is unpacked to disk.
SHARE = 4
ASSUMED_BYTES = 6 << 30  # that are left, if the system does not say
AVAILABLE = lazy_pattern(r"^MemAvailable:\s+(\d+) kB", re.MULTILINE)


class ControlGroup(NamedTuple):
    """Where a version of control groups has its figures."""

    folder: str
    limit_file: str
    usage_file: str
    prefix: str  # of the names in memory.stat


CONTROL_GROUPS = (
    ControlGroup("", "memory.max", "memory.current", ""),
    ControlGroup("memory/", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)


def file_in_memory() -> IO[bytes]:
    """An unnamed file in memory, or on disk if the system has no files in memory."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("fusetui"), "w+b")
    return file_on_disk()


def file_on_disk() -> IO[bytes]:
    """An unnamed temporary file, which is gone once it is closed."""
    import tempfile  # rarely needed, and slow to import

    return tempfile.TemporaryFile()


def memory_left(root: Path = Path("/")) -> int:
    """The bytes of memory that this process may still use, within the machine and its
    container. ASSUMED_BYTES if the system does not say. `root` is where proc and sys
    are."""
    available = AVAILABLE.search(_read_or_blank(root / "proc/meminfo"))
    bytes_left = int(available[1]) * 1024 if available else ASSUMED_BYTES
    for group in CONTROL_GROUPS:
        in_group = _memory_left_in_group(group, root)
        if in_group is not None:
            bytes_left = min(bytes_left, in_group)
    return bytes_left


def _memory_left_in_group(group: ControlGroup, root: Path) -> int | None:
    """The bytes of memory that are left within the limit of a control group. None if it
    has no limit.

    Pages of files count as free, because the kernel drops them when memory is needed.
    """
    folder = root / "sys/fs/cgroup" / group.folder
    limit = _read_or_blank(folder / group.limit_file).strip()
    usage = _read_or_blank(folder / group.usage_file).strip()
    if not (limit.isdigit() and usage.isdigit()):  # the limit may be "max"
        return None
    bytes_of = {}
    for line in _read_or_blank(folder / "memory.stat").strip().splitlines():
        name, _, value = line.partition(" ")
        bytes_of[name] = value
    active = int(bytes_of.get(f"{group.prefix}active_file", "0"))
    inactive = int(bytes_of.get(f"{group.prefix}inactive_file", "0"))
    droppable = active + inactive  # pages of files, when memory is needed
    return max(0, int(limit) - int(usage) + droppable)


def _read_or_blank(path: Path) -> str:
    """The text of a file; "" if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
