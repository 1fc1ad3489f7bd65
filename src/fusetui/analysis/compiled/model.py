"""The records of what torch.compile did, as `fusetui compile --json` prints them."""

from __future__ import annotations

from typing import Literal

import msgspec

Pass = Literal["forward", "backward", "inference", "unknown"]
RemedyKind = Literal["mark_dynamic", "dynamic", "constant"]


class SourceLine(msgspec.Struct, frozen=True):
    """A line of Python. `code` is its text; it is "" if that is not known."""

    file: str
    line: int
    function: str
    code: str

    def __hash__(self) -> int:
        return hash((self.file, self.line))


class LogOfTrace(msgspec.Struct, frozen=True):
    """The compile log that was read."""

    path: str
    logs: int
    graph_folders: int  # folders that torch_compile_debug wrote
    graphs: int
    unread: tuple[str, ...]  # a sentence for each log that could not be read
    unread_records: int


class CompiledKernel(msgspec.Struct, frozen=True):
    """A kernel of a compiled region, with all its runs in the recording."""

    name: str
    handle: str  # of the wrapper's call, NAME:NUMBER; "" without provenance
    calls: int
    total_ns: int  # on the GPU; without GPU events it is the time of the op
    on_gpu: bool
    lines: tuple[SourceLine, ...]
    possible: bool  # one of several calls of the wrapper: `lines` are those of all
    not_joined: str  # why `lines` are not known; "" if they are


class CompiledRegion(msgspec.Struct, frozen=True):
    """A compiled function, for one set of guards, and the kernels that it launched."""

    compile_id: str  # 0/1; "" of work outside of a recorded region
    function: str  # "" if unknown
    file: str
    line: int  # 0 if unknown
    calls: int  # in the recording
    cpu_ns: int  # of those calls
    kernel_ns: int
    joined_by: str  # key, wrapper, compile id, kernel file; "" if not joined
    key: str
    pass_: Pass = msgspec.field(name="pass")
    cache: str = ""  # miss, hit, bypass; "" if unknown
    kernels: tuple[CompiledKernel, ...] = ()


class PassedBreak(msgspec.Struct, frozen=True):
    """A graph break, and what it cost in the recording."""

    compile_id: str  # of the region that ends there; "" if unknown
    file: str
    line: int
    function: str
    reason: str  # in the log's own words; "" without a log
    explanation: str
    hints: tuple[str, ...]
    # how often the recording passed it, and the time between the two regions
    passed: int
    between_ns: int
    median_between_ns: int | None  # None: it was not passed
    code: str


class Guard(msgspec.Struct, frozen=True):
    """A guard that failed."""

    entry: str  # the entry of the cache, as 0/1; "" if unknown
    text: str


class CompiledOnce(msgspec.Struct, frozen=True):
    """One compilation."""

    compile_id: str
    function: str
    file: str
    line: int
    backward: bool
    start_ns: int | None  # after the begin of the trace; None: unknown
    duration_ns: int
    inductor_ns: int
    in_recording: bool | None  # whether it overlaps the recording; None: unknown
    guards: tuple[Guard, ...]  # that failed, the newest entry of the cache first
    failure: str
    cache: str
    from_log: bool  # False: known by the trace alone


class FrequentGuard(msgspec.Struct, frozen=True):
    """A guard that failed in several compilations.

    `text` has `*` in place of the values that change.
    """

    function: str
    text: str
    compilations: int


class Remedy(msgspec.Struct, frozen=True):
    """What would avoid compilations, as the log proves."""

    kind: RemedyKind
    function: str
    subject: str  # a tensor or an expression
    dimension: int | None  # of mark_dynamic
    values: tuple[str, ...]  # that it had, or that compiled code expected
    compilations: int  # that it would avoid


class NotJoined(msgspec.Struct, frozen=True):
    """Kernels of compiled regions that have no line, all for the same reason."""

    why: str
    detail: str  # a key or a name; "" if there is none
    kernels: int
    total_ns: int


class CompileAnswer(msgspec.Struct, frozen=True):
    """What torch.compile made of a program, and what it cost in a recording.

    `kernels` are the runs of kernels in compiled regions, `joined` those whose lines
    are known.
    """

    log: LogOfTrace | None
    recorded: bool  # whether a trace was given
    regions: tuple[CompiledRegion, ...]
    kernels: int
    joined: int
    possible: int  # those of `joined` that may be of other lines
    not_joined: tuple[NotJoined, ...]
    breaks: tuple[PassedBreak, ...]
    compilations: tuple[CompiledOnce, ...]
    guards: tuple[FrequentGuard, ...]  # the most frequent first
    remedies: tuple[Remedy, ...]
