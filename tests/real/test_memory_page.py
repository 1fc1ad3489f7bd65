"""The page of memory, of a real trace with memory events."""

from __future__ import annotations

from tests.real.traces import real
from tests.tui.conftest import matches_screen
from tests.tui.pages.test_memory_events import (
    Matches,
    cursor_has_the_totals,
    memory_page,
)

NAME = "h100_transformer_step"


def test_the_cursor_has_the_totals_of_a_real_trace() -> None:
    cursor_has_the_totals(real(NAME))


def test_memory_page_of_a_real_trace_looks_as_kept(matches_screen: Matches) -> None:
    matches_screen("pages/memory-events-real-80x24", memory_page(real(NAME)))
