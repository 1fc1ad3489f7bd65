"""Exports of Nsight Systems of two H100s."""

from __future__ import annotations

from tests.real.traces import EXPORTS, each_of, listed
from tests.trace.nsys.test_against_sql import (
    db,
    test_how_long_the_gpus_were_busy,
    test_kernels_of_exports_equal_sql_by_name_and_device,
    test_launches_are_joined_within_a_process,
    test_ranges_with_an_id_are_ops_or_annotations,
    test_spans_of_gpu_work,
    test_synchronizations_are_on_the_device_of_their_context,
    test_the_session_has_a_time,
    test_the_text_of_a_trace_from_the_cache_is_the_same,
    test_the_text_of_the_events_says_what_the_columns_say,
    trace,
)

any_export = each_of(listed(EXPORTS, "*.sqlite"))
