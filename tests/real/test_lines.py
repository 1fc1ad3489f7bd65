"""The lines of a program that was recorded."""

from __future__ import annotations

from tests.real.traces import PFTRACES, existing
from tests.trace.program.test_lines import agree_with_events


def test_lines_of_a_recorded_program_add_up() -> None:
    """Line 21 is that of the module, and of the frame around it."""
    path = existing(PFTRACES / "cpu_full.json.gz")
    agree_with_events(path, script="cpurun.py", but="cpurun.py:21")
