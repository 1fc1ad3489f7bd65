"""Columns of the tables of every fifth real trace."""

from __future__ import annotations

from tests.real.traces import each_of, listed
from tests.tables.test_columns import (
    test_table_of_a_trace_has_all_columns_with_their_types,
)

any_trace = each_of(listed()[::5])
