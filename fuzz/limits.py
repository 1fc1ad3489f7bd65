"""How long and how much memory an input may take."""

from __future__ import annotations

import faulthandler
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fuzz.checks import check

SECONDS = 5.0  # of a processor for each question: others may work on the same machine
STUCK = 60.0  # seconds after which a question is not waited for any more
MEMORY = 1 << 30  # bytes of a process, whatever it reads
SPACE = 8 << 30  # bytes of addresses, so that the machine is never in danger


@contextmanager
def limited(asked: str) -> Iterator[None]:
    """Raises WrongError when what is asked takes too long; ends the process where it
    hangs."""
    faulthandler.dump_traceback_later(STUCK, exit=True, file=2)
    begin = _work()
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
    work = _work() - begin
    check(work <= SECONDS, f"slow: {asked}", f"{work:.1f} s")


def _work() -> float:
    """Seconds of a processor that this process and its children have had."""
    times = (
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return sum(found.ru_utime + found.ru_stime for found in times)


def peak() -> int:
    """The most bytes that this process or one of its children ever had."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(who).ru_maxrss for who in both) * 1024


def held() -> int:
    """The bytes that this process has now; on systems that do not tell, the most it
    ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak()
    return pages * resource.getpagesize()


class Before:
    """What this process had when it began with an input: other tests need memory,
    too."""

    peak = held = 0


def check_memory() -> None:
    """Of this process and of its children, since they began."""
    most = peak()
    check(
        most <= max(Before.held + MEMORY, Before.peak), "memory", f"{most / 1e6:.0f} MB"
    )


def limit_space() -> None:
    """What needs more ends with a MemoryError, not with the machine. AddressSanitizer
    reserves terabytes of addresses, so that there is no such limit beside it."""
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (SPACE, SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
