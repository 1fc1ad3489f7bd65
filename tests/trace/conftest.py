"""Fixtures shared by the tests of reading large files."""

from __future__ import annotations

import sys

import pytest

from fusetui.trace.read import damaged, workers


@pytest.fixture
def small_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treats a file of some hundred kB like one of some hundred MB; one thread reads
    it."""
    monkeypatch.setattr(workers, "core_count", lambda: 1)
    monkeypatch.setattr(damaged, "MAX_HURRIED_GAP_BYTES", 1 << 15)
    for name, value in (
        ("EXTENT_BYTES", 1 << 14),
        ("FIRST_PREVIEW_BYTES", 1 << 16),
        ("MIN_BYTES_FOR_PREVIEWS", 0),
        ("MIN_SLOW_BYTES_REPORTED", 0),
    ):
        monkeypatch.setattr(sys.modules["fusetui.trace.read.reading"], name, value)
