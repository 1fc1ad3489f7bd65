"""The diff of two traces: what changed, why, and whether it is real.

found = diff(open_trace("eager.json.gz"), open_trace("compiled.json.gz"))
print(to_text(found, width=118))
"""

from fusetui.trace.diff.compare import diff
from fusetui.trace.diff.model import (
    Accounting,
    Answer,
    Diff,
    Kind,
    Row,
    Side,
    StepChange,
    Verdict,
    by_effect,
)
from fusetui.trace.diff.text import to_markdown, to_text
from fusetui.trace.diff.windows import NoStepsError

__all__ = [
    "Accounting",
    "Answer",
    "Diff",
    "Kind",
    "NoStepsError",
    "Row",
    "Side",
    "StepChange",
    "Verdict",
    "by_effect",
    "diff",
    "fitted",
    "lines",
    "marks",
    "model",
    "text",
    "to_markdown",
    "to_text",
]
