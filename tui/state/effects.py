"""What an action does outside the state, as data. `performing.py` carries it out."""

from __future__ import annotations

import msgspec

from fusetui.analysis.questions.query import Pattern
from fusetui.tui.layout.view import Side


class Read(msgspec.Struct, frozen=True):
    """Read these traces in a thread, instead of what is being read."""

    paths: tuple[str, ...]


class StopReading(msgspec.Struct, frozen=True):
    """Stop reading, and keep what was read so far."""


class Compare(msgspec.Struct, frozen=True, eq=False):
    """Compare two sides, which were read from these paths, in a thread or in another process."""

    a: Side
    b: Side
    paths: tuple[str, ...]


class Summarize(msgspec.Struct, frozen=True):
    """Summarize these traces in a thread, one after the other."""

    wanted: tuple[tuple[int, str], ...]  # the place in the list, and the path


class ReadRanks(msgspec.Struct, frozen=True):
    """Read the ranks of a job in a thread that starts processes."""

    paths: tuple[str, ...]


class Search(msgspec.Struct, frozen=True, eq=False):
    """Search a side, which was read from this path, in a thread, instead of what is searched
    for."""

    side: Side
    text: str
    path: str


class MatchLanes(msgspec.Struct, frozen=True, eq=False):
    """Look in a thread for the lanes of a side that a regular expression matches."""

    side: Side
    pattern: Pattern


class CopyText(msgspec.Struct, frozen=True):
    """Put a text into the clipboard of the terminal (OSC 52)."""

    text: str


class Refuse(msgspec.Struct, frozen=True):
    """End, because there is nothing to show; the sentence says why."""

    sentence: str


class Quit(msgspec.Struct, frozen=True):
    """End with exit code 0."""


class Interrupt(msgspec.Struct, frozen=True):
    """End as by Ctrl+C."""


class Suspend(msgspec.Struct, frozen=True):
    """Suspend the app until `fg`."""


Effect = (
    Read
    | StopReading
    | Compare
    | Summarize
    | ReadRanks
    | Search
    | MatchLanes
    | CopyText
    | Refuse
    | Quit
    | Interrupt
    | Suspend
)
