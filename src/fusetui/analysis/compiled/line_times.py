"""The time of compiled kernels by line of Python."""

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
    """A line of Python, and the time of compiled kernels that came from it. A kernel
    that came from several lines counts for each of them with an equal part."""

    file: str
    line: int
    function: str
    code: str
    total_ns: int
    split_ns: int  # of it, from kernels of several lines
    possible_ns: int  # of it, from kernels that may be of other lines
    runs: int  # of kernels that came from it, whole or in part
    kernels: tuple[str, ...]  # the names of those kernels


class CompiledLines(msgspec.Struct, frozen=True):
    """Sorted by time, the largest first. The `total_ns` of all lines and `unknown_ns`
    add up to `kernel_ns`."""

    lines: tuple[LineTime, ...]
    kernel_ns: int
    unknown_ns: int  # of kernels whose lines are not known


class _Sums:
    """What has been added up for one line."""

    def __init__(self) -> None:
        self.total_ns = 0
        self.split_ns = 0
        self.possible_ns = 0
        self.runs = 0
        self.kernels: dict[str, None] = {}


def line_times(
    trace: Trace, log: CompileLog | None, file: str | None = None
) -> CompiledLines:
    """The time of compiled kernels by line; with `file`, only lines of that file or
    folder are listed, and the time of others counts as unknown."""
    joined = joined_kernels(trace, log)
    item_ns = joined.item_ns()
    sums: dict[CodeLine, _Sums] = defaultdict(_Sums)
    unknown_ns = 0
    for number, kernel in enumerate(joined.kernels):
        of_kernel = joined.kernel_of_item == number
        ns = int(item_ns[of_kernel].sum())
        if not kernel.lines:
            unknown_ns += ns
            continue
        parts = _even_parts(ns, len(kernel.lines))
        for line, part_ns in zip(kernel.lines, parts, strict=True):
            if file is not None and not is_in(line.file, file):
                unknown_ns += part_ns
                continue
            of_line = sums[line]
            of_line.total_ns += part_ns
            of_line.split_ns += part_ns if len(kernel.lines) > 1 else 0
            of_line.possible_ns += part_ns if kernel.is_possible else 0
            of_line.runs += int(np.count_nonzero(of_kernel))
            of_line.kernels[kernel.name] = None
    lines = [
        LineTime(
            file=line.file,
            line=line.line,
            function=line.function,
            code=line.code,
            total_ns=of_line.total_ns,
            split_ns=of_line.split_ns,
            possible_ns=of_line.possible_ns,
            runs=of_line.runs,
            kernels=tuple(of_line.kernels),
        )
        for line, of_line in sums.items()
    ]
    lines.sort(key=lambda line: (-line.total_ns, line.file, line.line))
    return CompiledLines(
        lines=tuple(lines), kernel_ns=int(item_ns.sum()), unknown_ns=unknown_ns
    )


def _even_parts(ns: int, count: int) -> list[int]:
    """So many parts of a time, which add up to it and differ by 1 ns at most."""
    part, rest = divmod(ns, count)
    return [part + (number < rest) for number in range(count)]
