"""Trees and tables of the app, of real traces that are read in a moment."""

from __future__ import annotations

from tests.real.traces import each_of, listed
from tests.tui.layout.test_sums import (
    test_callers_trees_of_traces_equal_ops,
    test_kernel_tables_of_traces_equal_kernels,
    test_module_trees_of_traces_equal_modules,
    test_op_trees_of_traces_add_up,
    trace,
)

any_trace = each_of(listed(below_bytes=1 << 20))
