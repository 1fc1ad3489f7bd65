"""Small real traces, read as on macOS and Windows."""

from __future__ import annotations

from tests.cli.test_laptops import as_read_here, laptop, test_a_trace_is_the_same
from tests.real.traces import each_of, listed

any_trace = each_of(listed(below_bytes=1 << 18))
