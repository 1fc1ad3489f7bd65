"""Large real traces, of which one has events that begin and end on their own."""

from __future__ import annotations

from tests.real.traces import each_named
from tests.trace.read.test_scanned import (
    pytestmark,
    test_scanned_columns_of_traces_are_those_of_python,
)

any_trace = each_named("mi300_sglang_capture", "mtia_inference")
