"""Reads traces of torch.profiler into columns: `open_trace("trace.json.gz")`.

Free of torch and textual; useful as a library.
"""

from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.errors import CannotReadError, NotATraceError, TraceError

__all__ = [
    "CannotReadError",
    "NotATraceError",
    "Trace",
    "TraceError",
    "Track",
    "open_trace",
]
