"""What happened while a file was read: nothing is dropped silently."""

from __future__ import annotations

from collections import Counter

import msgspec

from fusetui.trace.text.figures import size


class Skipped(msgspec.Struct, frozen=True):
    """One element that could not be read."""

    byte: int  # in the unpacked document
    reason: str


class Prefix(msgspec.Struct, frozen=True):
    """Only the first `read` bytes of the document were read, of `total`."""

    read: int
    total: int
    exact: bool = True  # false: `total` is an estimate, a packed file was not unpacked to its end

    def __str__(self) -> str:
        """`the first 340 MB of 1.007 GB`."""
        about = "" if self.exact else "about "
        return f"the first {size(self.read)} of {about}{size(self.total)}"


class Report(msgspec.Struct, frozen=True):
    """The counts of one reading."""

    path: str
    bytes: int  # of the file as stored
    events: int  # elements of traceEvents, the unreadable ones included
    phases: Counter[str]  # events by phase (ph)
    unreadable: int  # elements
    skipped: tuple[Skipped, ...]  # the first 10,000 of the unreadable ones
    complete: bool  # false when the file was cut short, or not read to its end
    cut: str | None  # how a compressed file ended too early
    negative_durations: int  # shown as zero
    negative_delays: int  # GPU events that start before their launch call does: clocks differ
    unfinished: int  # begin events without an end: shown up to the end of the trace
    unmatched_ends: int  # end events without a begin
    prefix: Prefix | None = None  # what was read, when reading was stopped or still goes on
    too_damaged: int = -1  # the byte from which on nothing was read, because of too much damage
    changed: bool = False  # while it was read, the file became another: figures may mix the two

    @property
    def missing(self) -> str:
        """What of the file is not in the trace, in a few words; blank when it is whole."""
        if self.changed:
            return "the file changed while it was read"
        if self.prefix:
            return f"only {self.prefix} were read"
        if self.too_damaged >= 0:
            return f"too damaged to be read from byte {self.too_damaged} on"
        return "" if self.complete else "the file was cut short"
