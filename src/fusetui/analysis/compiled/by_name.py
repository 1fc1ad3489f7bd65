"""Finds the Python lines behind compiled kernels and ops by their names."""

from __future__ import annotations

import numpy as np

from fusetui.analysis.compiled.answer import source_lines
from fusetui.analysis.compiled.kernels import JoinedKernels, join_kernels
from fusetui.analysis.compiled.model import SourceLine
from fusetui.trace.compile_log.log import CompileLog
from fusetui.trace.compile_log.stacks import CodeLine
from fusetui.trace.model.arrays import Integers
from fusetui.trace.model.columns import Trace


def find_lines_of_kernel_names(
    trace: Trace, log: CompileLog | None
) -> dict[str, tuple[SourceLine, ...]]:
    """Return the lines behind each GPU kernel in compiled regions, by its name.

    The lines of all runs are put together. Names without a known line are left out;
    without a log the result is empty.
    """
    if log is None:
        return {}

    joined = join_kernels(trace, log)
    events = np.flatnonzero(joined.items.item_of_gpu_event >= 0)
    items = joined.items.item_of_gpu_event[events]
    return _collect_lines_by_name(joined, trace.gpu_rows[events], items)


def find_lines_of_op_names(
    trace: Trace, log: CompileLog | None
) -> dict[str, tuple[SourceLine, ...]]:
    """Return the lines behind each CPU op that compiled regions call, by its name.

    The lines of all calls are put together. Names without a known line are left out;
    without a log the result is empty.
    """
    if log is None:
        return {}

    joined = join_kernels(trace, log)
    return _collect_lines_by_name(
        joined, joined.items.spans.rows, np.arange(len(joined.items))
    )


def _collect_lines_by_name(
    joined: JoinedKernels, rows: Integers, items: Integers
) -> dict[str, tuple[SourceLine, ...]]:
    """Collect for each name of a slice the Python lines behind the kernels of that
    name.

    Args:
        joined: The kernels of the trace with their lines.
        rows: Slices of the trace, which give the names.
        items: For each of these slices the index of the kernel run that it
            belongs to.
    """
    trace = joined.trace

    # Each pair of a name and a kernel is looked at once.
    kinds = np.stack((trace.name[rows], joined.kernel_of_item[items]))
    lines: dict[str, dict[tuple[str, int], CodeLine]] = {}
    for name, kernel in np.unique(kinds, axis=1).T.tolist():
        lines_of_name = lines.setdefault(trace.names[name], {})
        for line in joined.kernels[kernel].lines:
            lines_of_name.setdefault((line.file, line.line), line)

    return {
        name: source_lines(
            lines_of_name[position] for position in sorted(lines_of_name)
        )
        for name, lines_of_name in lines.items()
        if lines_of_name
    }
