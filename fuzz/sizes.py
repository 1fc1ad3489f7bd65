"""Small sizes for the reader, so that small documents have many chunks, windows and
helpers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest

SMALL = {
    "read.reading.EXTENT_BYTES": 1000,
    "read.reading.LARGE": 2000,
    "read.source.LARGE": 2000,
    "read.chunks.MARGIN_BYTES": 100,
    "read.document.MAX_WINDOW_BYTES": 1 << 12,
    "read.damaged.WINDOW_BYTES": 300,
    "read.damaged.WINDOW_BYTES_AFTER_DAMAGE": 64,
    "read.unpack.MAX_INPUT_BYTES": 100,
    "read.unpack.FIRST_INPUT_BYTES": 64,
    "read.unpack.MAX_OUTPUT_BYTES": 300,
    "cache.entry.MIN_DOCUMENT_BYTES": 0,
}
TINY = {
    **SMALL,
    "read.reading.EXTENT_BYTES": 200,
    "read.source.LARGE": 0,
    "read.chunks.MARGIN_BYTES": 20,
    "read.chunks.MAX_CHUNK_BYTES": 1 << 10,
    "read.body.WINDOW_BYTES": 7,
    "read.damaged.WINDOW_BYTES": 64,
    "read.damaged.WINDOW_BYTES_AFTER_DAMAGE": 32,
    "model.intervals.MIN_COMBINED_TRACKS": 0,
}
SIZES: dict[str, dict[str, Any]] = {
    "usual": {"read.workers.core_count": lambda: 1},
    "small": {**SMALL, "read.workers.core_count": lambda: 1},
    "tiny": {**TINY, "read.workers.core_count": lambda: 1},
    "team": {
        **SMALL,
        "read.workers.MIN_BYTES_FOR_THREADS": 0,
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
