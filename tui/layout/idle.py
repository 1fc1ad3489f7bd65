"""Why a device was idle, as shown by the timeline: a letter and a few words for each reason."""

from __future__ import annotations

from typing import Final

from fusetui.analysis.why.words import SHORT

LETTERS: Final = {
    "unlinked": "?",
    "graph": "g",
    "host_sync": "s",
    "host_alloc": "m",
    "host_call": "r",
    "host_op": "o",
    "host_python": "p",
    "host_annotation": "a",
    "host_nothing": "n",
    "launch_call": "c",
    "launch_latency": "l",
    "queued": "q",
    "after": "e",
}
"""By the names of gaps.IDLE."""


def legend(names: list[str]) -> list[str]:
    """`s sync` for each reason."""
    return [f"{LETTERS[name]} {SHORT[name]}" for name in names]
