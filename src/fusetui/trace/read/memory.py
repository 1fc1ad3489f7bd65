"""How much memory is left for a document that is being unpacked, and the unnamed files,
in memory or on disk, that hold it.

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
from typing import IO

from fusetui.text.patterns import lazy_pattern

# documents that would take more than this fraction of the memory are unpacked to disk
SHARE = 4
UNKNOWN = 6 << 30  # bytes, if the system does not say
AVAILABLE = lazy_pattern(r"^MemAvailable:\s+(\d+) kB", re.MULTILINE)
GROUPS = (
    ("", "max", "current", ""),
    ("memory/", "limit_in_bytes", "usage_in_bytes", "total_"),
)
"""Of control groups: the files of the limit and of what is used, and how stat names
pages."""


def file_in_memory() -> IO[bytes]:
    """An unnamed file, in memory if the system supports that."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("fusetui"), "w+b")
    return file_on_disk()


def file_on_disk() -> IO[bytes]:
    import tempfile  # rarely needed, and slow to import

    return tempfile.TemporaryFile()


def memory_left(root: Path = Path("/")) -> int:
    """Bytes that this process may still use, within the machine and its container."""
    found = AVAILABLE.search(_text(root / "proc/meminfo"))
    left = [int(found[1]) * 1024 if found else UNKNOWN]
    for folder, *names, prefix in GROUPS:
        files = (
            root / f"sys/fs/cgroup/{folder}memory.{name}" for name in (*names, "stat")
        )
        most, now, of = (_text(file).strip() for file in files)
        if most.isdigit() and now.isdigit():  # "max" if there is no limit
            parts = dict(line.partition(" ")[::2] for line in of.splitlines())
            kept = (parts.get(f"{prefix}{kind}active_file", "0") for kind in ("", "in"))
            # dropped when needed
            left.append(max(0, int(most) - int(now) + sum(map(int, kept))))
    return min(left)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
