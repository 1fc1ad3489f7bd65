"""Parts of all real traces."""

from __future__ import annotations

from tests.real.traces import each_of, listed
from tests.trace.test_cut import (
    test_the_figures_of_the_part_are_those_of_the_whole,
)

any_trace = each_of(listed())
