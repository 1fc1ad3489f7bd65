"""The report of how a file was read, so that no loss is silent; and how to record
missing data, in the terms of the recording tool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from fusetui.text.figures import size
from fusetui.text.printable import without_credentials


class Skipped(msgspec.Struct, frozen=True):
    """One unreadable element."""

    byte: int  # in the unpacked document
    reason: str


class Prefix(msgspec.Struct, frozen=True):
    """Only the first `read` of `total` bytes of the document were read."""

    read: int
    total: int
    # False: `total` is an estimate; a packed file was not fully unpacked
    exact: bool = True

    def __str__(self) -> str:
        """How much was read, in words: `the first 340 MB of 1.007 GB`."""
        about = "" if self.exact else "about "
        return f"the first {size(self.read)} of {about}{size(self.total)}"


class Report(msgspec.Struct, frozen=True):
    """The counts of one reading."""

    path: str
    bytes: int  # of the file as stored
    events: int  # elements of traceEvents, including unreadable ones
    phases: Counter[str]  # events by phase (ph)
    unreadable: int  # elements
    skipped: tuple[Skipped, ...]  # the first 10,000 unreadable ones
    complete: bool  # False if the file was truncated, or not read to its end
    cut: str | None  # how a compressed file ended too early
    negative_durations: int  # shown as zero
    # GPU events that start before their launch call: clocks differ
    negative_delays: int = 0
    # begin events without an end: shown up to the trace's, or as instants
    unfinished: int = 0
    unmatched_ends: int = 0  # end events without a begin
    # what was read, if reading was stopped or is still going on
    prefix: Prefix | None = None
    # the byte at which reading stopped because of too much damage
    too_damaged: int = -1
    # the file changed while it was read: figures may mix two states
    changed: bool = False
    format: str = "json"  # the name of its format, see formats.py
    # what has no place in a trace, and how much of it there is
    left_out: dict[str, int] = {}
    remarks: tuple[str, ...] = ()  # sentences about what was read
    # GPU events that may have lasted longer: the writer ended them at the next
    cut_ends: int = 0
    converted_from: str = ""  # the format that this JSON was converted from
    named: str = ""  # what the user called it where that is not its path: sample:NAME
    compile_log: str = ""  # the file or folder of it that the user named
    process_names: tuple[str, ...] = ()  # names and labels of processes, each once
    damaged_keys: tuple[str, ...] = ()  # text around the events that is no JSON
    pending: bool = False  # changes lie in a file beside it that is not read

    @property
    def writer(self) -> str:
        """The format in which the trace was recorded, even if it was converted to JSON
        since."""
        return self.converted_from or self.format

    @property
    def file(self) -> str:
        """The file as the user named it; a URL without its credentials."""
        return self.named or without_credentials(self.path)

    @property
    def missing(self) -> str:
        """What of the file is missing from the trace, in a few words; "" if nothing
        is."""
        if self.changed:
            return "the file changed while it was read"
        if self.prefix:
            return f"only {self.prefix} were read"
        if self.too_damaged >= 0:
            return f"too damaged to be read beyond byte {self.too_damaged}"
        if self.pending:
            return "changes in a file next to it are not read"
        return "" if self.complete else "the file is truncated"

    @property
    def whole(self) -> bool:
        """Whether everything that was recorded was read."""
        return not (self.missing or self.cut or self.unreadable)


Progress = Callable[[int, int], None]
"""Called repeatedly with (bytes read, bytes in total) of the file as stored."""

# Polled; return True to stop. What was read until then is kept.
Stop = Callable[[], bool]


def silent(*_: int) -> None:
    """A Progress that ignores what it is told."""


def never() -> bool:
    """A Stop that never stops."""
    return False


NSYS_OPTIONS = {
    "with_stack=True": "torch.profiler.profile(with_stack=True)",
    "profile_memory=True": "torch.profiler.profile(profile_memory=True)",
    "record_shapes=True": "torch.autograd.profiler.emit_nvtx(record_shapes=True)",
    "ProfilerActivity.CPU": "torch.autograd.profiler.emit_nvtx()",
    "ProfilerActivity.CUDA": "nsys profile -t cuda,nvtx",
    "record_function": "torch.cuda.nvtx.range",
    "with_stack=True or record_function": "torch.cuda.nvtx.range",
    "torch 1.12 or later, which records deviceProperties": "the table TARGET_INFO_GPU of the export",
}
"""What records the same with Nsight Systems, by the options of torch.profiler."""
JSON_EXPORT = "an export named .json, not .pftrace"
PFTRACE_OPTIONS = {
    "profile_memory=True": JSON_EXPORT,
    "torch 1.12 or later, which records deviceProperties": JSON_EXPORT,
}
"""What records what torch loses when it writes that format, likewise."""
OPTIONS_OF_FORMAT = {"nsys": NSYS_OPTIONS, "pftrace": PFTRACE_OPTIONS}


def recorded_with(option: str, form: str) -> str:
    """How to record with another format what an option of torch.profiler records. It is
    the option itself if there is no other way."""
    return OPTIONS_OF_FORMAT.get(form, {}).get(option, option)
