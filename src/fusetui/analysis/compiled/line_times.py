"""Adds up the time of compiled kernels by Python line."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import numpy as np

from fusetui.analysis.compiled.kernels import joined_kernels
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


class _Sums:
    """What has been added up for one line so far."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.split_ns = 0
        self.possible_ns = 0
        self.runs = 0
        self.kernels: dict[str, None] = {}


def line_times(
    trace: Trace, log: CompileLog | None, file: str | None = None
) -> CompiledLines:
    """Add up the time of compiled kernels by line of Python.

    Args:
        trace: The trace.
        log: The compile log of the trace.
        file: Lists only lines of this file or folder. The time of others counts as
            unknown.
    """
    joined = joined_kernels(trace, log)
    item_ns = joined.item_ns()

    sums_of_line: dict[CodeLine, _Sums] = defaultdict(_Sums)
    unknown_ns = 0
    for kernel_index, kernel in enumerate(joined.kernels):
        is_of_kernel = joined.kernel_of_item == kernel_index
        ns = int(item_ns[is_of_kernel].sum())
        if not kernel.lines:
            unknown_ns += ns
            continue

        parts = _even_parts(ns, len(kernel.lines))
        for line, part_ns in zip(kernel.lines, parts, strict=True):
            if file is not None and not is_in(line.file, file):
                unknown_ns += part_ns
                continue

            line_sums = sums_of_line[line]
            line_sums.total_ns += part_ns
            line_sums.split_ns += part_ns if len(kernel.lines) > 1 else 0
            line_sums.possible_ns += part_ns if kernel.is_possible else 0
            line_sums.runs += int(np.count_nonzero(is_of_kernel))
            line_sums.kernels[kernel.name] = None

    lines = [
        LineTime(
            file=line.file,
            line=line.line,
            function=line.function,
            code=line.code,
            total_ns=line_sums.total_ns,
            split_ns=line_sums.split_ns,
            possible_ns=line_sums.possible_ns,
            runs=line_sums.runs,
            kernels=tuple(line_sums.kernels),
        )
        for line, line_sums in sums_of_line.items()
    ]
    lines.sort(key=lambda line: (-line.total_ns, line.file, line.line))
    return CompiledLines(
        lines=tuple(lines), kernel_ns=int(item_ns.sum()), unknown_ns=unknown_ns
    )


def _even_parts(ns: int, count: int) -> list[int]:
    """Divide a time into parts that add up to it and differ by at most 1 ns."""
    part, remainder = divmod(ns, count)
    # The first parts get 1 ns more, until nothing is left.
    return [part + (number < remainder) for number in range(count)]
