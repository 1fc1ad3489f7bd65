"""Commands on exports of Nsight Systems of two H100s."""

from __future__ import annotations

import pytest
from tests.cli.conftest import fusetui
from tests.cli.test_nsys import (
    Run,
    test_a_conversion_says_the_same,
    test_a_diff_with_itself_finds_no_change,
    test_diff_of_nsys_export_and_torch_trace_answers,
    test_every_question_is_answered,
    test_stacks_missing_from_an_nsys_file_are_advised_for_torch_profiler_only,
)
from tests.real.traces import EXPORTS, each_of, existing

SMALLEST = EXPORTS / "h100_2gpu_1s.sqlite"
LARGEST = EXPORTS / "mfu_2gpu_before.sqlite"
any_export = each_of([SMALLEST])


@pytest.mark.parametrize("command", ["summary", "why"])
def test_larger_exports_are_read_too(fusetui: Run, command: str) -> None:
    assert fusetui(command, existing(LARGEST)).code == 0


def test_processes_are_ranks(fusetui: Run) -> None:
    found = fusetui("ranks", "--json", existing(LARGEST)).json
    assert {rank["path"].rpartition("#")[2] for rank in found["ranks"]} == {
        "144",
        "145",
    }
    assert found["collectives"]
