"""Many traces of one job: each rank is summarized where its trace lies, and every answer about who
waits for whom is computed from the summaries alone.

    explained(summarize(paths)).answer
"""

from fusetui.trace.ranks.answer import explained
from fusetui.trace.ranks.executors import summarize

__all__ = [
    "answer",
    "executors",
    "explained",
    "model",
    "naming",
    "records",
    "strip",
    "summarize",
    "summary",
    "telling",
]
