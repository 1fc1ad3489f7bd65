"""Finds the Python lines behind compiled kernels and ops by their names."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from fusetui.analysis.compiled.answer import source_lines
from fusetui.analysis.compiled.kernels import JoinedKernels, join_kernels
from fusetui.analysis.compiled.lines import sort_distinct_lines
from fusetui.analysis.compiled.model import SourceLine
from fusetui.trace.compile_log.log import CompileLog
from fusetui.trace.compile_log.stacks import CodeLine
from fusetui.trace.model.arrays import Integers, distinct_rows
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
    run = joined.kernel_runs.run_of_gpu_event
    is_launched_by_run = run >= 0
    return _collect_lines_by_name(
        joined, trace.gpu_rows[is_launched_by_run], run[is_launched_by_run]
    )


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
    ops = joined.kernel_runs.spans.rows
    every_run = np.arange(len(joined.kernel_runs))
    return _collect_lines_by_name(joined, ops, every_run)


def _collect_lines_by_name(
    joined: JoinedKernels, rows: Integers, runs: Integers
) -> dict[str, tuple[SourceLine, ...]]:
    """Collect for each name of a slice the Python lines behind the kernels of that
    name.

    Args:
        joined: The kernels of the trace with their lines.
        rows: Slices of the trace, which give the names.
        runs: For each of these slices the index of the kernel run that it
            belongs to.
    """
    trace = joined.trace
    name_of_row = trace.name[rows]
    kernel_of_row = joined.kernel_of_run[runs]

    # Each pair of a name and a kernel is looked at once.
    first_of_pair, _ = distinct_rows((name_of_row, kernel_of_row))
    lines_by_name: defaultdict[str, list[CodeLine]] = defaultdict(list)
    for index in first_of_pair.tolist():
        name = trace.names[name_of_row[index]]
        kernel = joined.kernels[kernel_of_row[index]]
        lines_by_name[name] += kernel.lines

    return {
        name: source_lines(sort_distinct_lines(lines))
        for name, lines in lines_by_name.items()
        if lines
    }
