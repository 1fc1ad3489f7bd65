"""Tables of small real traces."""

from __future__ import annotations

from tests.real.traces import each_of, listed
from tests.tables.test_slices import (
    test_kernels_are_the_events,
    test_slices_are_the_events,
)

any_trace = each_of(listed(below_bytes=1 << 18))
