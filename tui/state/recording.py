"""What is asked of the world to record a program that runs."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True):
    """Have `fusetui record` record a program, and open the trace after these; 0: list them all."""

    pid: int = 0
    beside: tuple[str, ...] = ()
