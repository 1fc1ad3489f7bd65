"""The most memory of real traces, of which one has many memory events and one none."""

from __future__ import annotations

from tests.analysis.questions.test_memory import (
    test_memory_peaks_by_the_scanner_equal_each_event_alone,
)
from tests.real.traces import each_named

any_trace = each_named("h100_owlv2", "a100_train_diff_control", "mi250_minitoy")
