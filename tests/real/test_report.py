"""The report of a large real trace."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import fusetui
from tests.cli.test_report import Run, stays_below_a_megabyte
from tests.real.traces import real


def test_report_of_a_large_trace_stays_below_a_megabyte(
    fusetui: Run, tmp_path: Path
) -> None:
    stays_below_a_megabyte(fusetui, tmp_path, real("nccl_collectives"))
