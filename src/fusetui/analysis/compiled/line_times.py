"""Adds up the time of compiled kernels by Python line."""

from __future__ import annotations

from collections import defaultdict

import msgspec

from fusetui.analysis.compiled.kernels import KernelOfGraph, join_kernels
from fusetui.trace.compile_log.log import CompileLog
from fusetui.trace.compile_log.stacks import CodeLine
from fusetui.trace.model.columns import Trace
from fusetui.trace.program.own_code import is_in


class LineTime(msgspec.Struct, frozen=True):
    """A line of Python, and the time of compiled kernels that came from it.

    A kernel that came from several lines counts for each of them with an equal part.
    """

    file: str
    line: int
    function: str
    code: str
    total_ns: int
    split_ns: int  # the part of `total_ns` that is from kernels of several lines
    possible_ns: int  # the part of `total_ns` from kernels that may be of other lines
    runs: int  # runs of kernels that came from the line, whole or in part
    kernels: tuple[str, ...]  # the names of those kernels


class CompiledLines(msgspec.Struct, frozen=True):
    """The time of compiled kernels by line of Python, the longest first.

    The `total_ns` of all lines and `unknown_ns` add up to `kernel_ns`.
    """

    lines: tuple[LineTime, ...]
    kernel_ns: int
    unknown_ns: int  # of kernels whose lines are not known


class _TimesOfLine:
    """Adds up the times of the kernels of one line of Python."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.split_ns = 0  # the parts of kernels that other lines share
        self.possible_ns = 0  # of kernels that are only possibly of this line
        self.runs = 0
        self.kernels: dict[str, None] = {}  # an ordered set of names

    def add(self, kernel: KernelOfGraph, part_ns: int, runs: int) -> None:
        """Add the part of a kernel's time that counts for this line.

        Args:
            kernel: The kernel.
            part_ns: The part, over all runs.
            runs: How often the kernel ran.
        """
        self.total_ns += part_ns
        if len(kernel.lines) > 1:
            self.split_ns += part_ns
        if kernel.is_possible:
            self.possible_ns += part_ns
        self.runs += runs
        self.kernels[kernel.name] = None

    def line_time(self, line: CodeLine) -> LineTime:
        """Return the times that were added up for a line of Python, as a record with
        the text of the line."""
        return LineTime(
            file=line.file,
            line=line.line,
            function=line.function,
            code=line.code,
            total_ns=self.total_ns,
            split_ns=self.split_ns,
            possible_ns=self.possible_ns,
            runs=self.runs,
            kernels=tuple(self.kernels),
        )


def sum_times_by_line(
    trace: Trace, log: CompileLog | None, file: str | None = None
) -> CompiledLines:
    """Add up the time of compiled kernels by line of Python.

    The time of a kernel of several lines is divided evenly: 9 ns of three lines count
    as 3 ns of each.

    Args:
        trace: The trace.
        log: The compile log of the trace.
        file: Lists only lines of this file or folder. The time of others counts as
            unknown.
    """
    joined = join_kernels(trace, log)
    runs_of_kernel = joined.runs_of_kernels().tolist()
    ns_of_kernel = joined.ns_of_kernels().tolist()

    times_of_line: dict[CodeLine, _TimesOfLine] = defaultdict(_TimesOfLine)
    unknown_ns = 0
    for kernel, runs, ns in zip(
        joined.kernels, runs_of_kernel, ns_of_kernel, strict=True
    ):
        if not kernel.lines:
            unknown_ns += ns
            continue

        parts = _divide_evenly(ns, len(kernel.lines))
        for line, part_ns in zip(kernel.lines, parts, strict=True):
            if file is None or is_in(line.file, file):
                times_of_line[line].add(kernel, part_ns, runs)
            else:
                unknown_ns += part_ns

    lines = [times.line_time(line) for line, times in times_of_line.items()]
    lines.sort(key=lambda line: (-line.total_ns, line.file, line.line))
    return CompiledLines(
        lines=tuple(lines), kernel_ns=sum(ns_of_kernel), unknown_ns=unknown_ns
    )


def _divide_evenly(ns: int, count: int) -> list[int]:
    """Divide a time into parts that add up to it: 8 ns into 3, 3 and 2 ns."""
    part, remainder = divmod(ns, count)
    # The first parts get 1 ns more, until nothing is left.
    return [part + 1] * remainder + [part] * (count - remainder)
