"""Small sizes for the reader, so that small documents have many chunks, windows and
helpers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest

SMALL = {
    "read.reading.EXTENT": 1000,
    "read.reading.LARGE": 2000,
    "read.source.LARGE": 2000,
    "read.chunks.MARGIN": 100,
    "read.document.WINDOW": 1 << 12,
    "read.mend.WINDOW": 300,
    "read.mend.AFTER_DAMAGE": 64,
    "read.unpack.PIECE": 100,
    "read.unpack.FIRST": 64,
    "read.unpack.MOST": 300,
    "cache.entry.SMALLEST": 0,
}
TINY = {
    **SMALL,
    "read.reading.EXTENT": 200,
    "read.source.LARGE": 0,
    "read.chunks.MARGIN": 20,
    "read.chunks.FARTHEST": 1 << 10,
    "read.body.WINDOW": 7,
    "read.mend.WINDOW": 64,
    "read.mend.AFTER_DAMAGE": 32,
    "model.intervals.MIN_COMBINED_TRACKS": 0,
}
SIZES: dict[str, dict[str, Any]] = {
    "usual": {"read.workers.core_count": lambda: 1},
    "small": {**SMALL, "read.workers.core_count": lambda: 1},
    "tiny": {**TINY, "read.workers.core_count": lambda: 1},
    "team": {
        **SMALL,
        "read.workers.FEWEST": 0,
        "read.workers.core_count": lambda: 2,
    },
}
"""By the name that a report has: `team` decodes in two threads, the others in one."""


@contextmanager
def sized(name: str) -> Iterator[None]:
    """Within the block the reader has these sizes, and no cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSETUI_CACHE", "off")
        for place, size in SIZES[name].items():
            module, _, constant = place.rpartition(".")
            patch.setattr(import_module(f"fusetui.trace.{module}"), constant, size)
        yield
