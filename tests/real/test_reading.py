"""Real traces of several years and vendors, read in several ways."""

from __future__ import annotations

from tests.real.traces import each_named
from tests.trace.conftest import small_extents
from tests.trace.model.test_arguments import (
    test_arguments_of_many_slices_equal_each_alone,
)
from tests.trace.read.test_reread import (
    test_args_and_sequence_numbers_of_traces_equal_each_alone,
)

any_trace = each_named("h100_bert-small", "mi250_minitoy", "v100_resnet50_2021")
