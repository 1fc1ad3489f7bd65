"""Small real traces of any format are converted."""

from __future__ import annotations

from pathlib import Path

from tests.real.traces import PFTRACES, TRACES, each_of, listed
from tests.trace.test_convert import test_converted_trace_equals_the_original

MAX_BYTES = 1 << 17


def _is_trace(path: Path) -> bool:
    return path.is_file() and (".json" in path.name or ".pftrace" in path.name)


any_trace = each_of(
    [
        path
        for folder in (PFTRACES, TRACES)
        for path in listed(folder, "**/*", below_bytes=MAX_BYTES)
        if _is_trace(path) and path.name != "truth.json"
    ]
)
