"""Reads traces of torch.profiler into columns, and answers questions about them.

    trace = open_trace("trace.json.gz")
    summary(trace).gpu_busy_ns

Free of torch and textual; useful as a library.
"""

from fusetui.analysis.questions.summary import Summary, summary
from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace, Track
from fusetui.trace.model.errors import CannotRead, NotATrace, TraceError

__all__ = [
    "CannotRead",
    "NotATrace",
    "Summary",
    "Trace",
    "TraceError",
    "Track",
    "open_trace",
    "summary",
]
