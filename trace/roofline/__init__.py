"""What the op that launched a kernel computed, and how well the kernel did it.

`work_of` gives the figures, `remarks` what is odd, `describe` one line for people. A figure is None
when anything it needs is unknown.
"""

from __future__ import annotations

from fusetui.trace.roofline.describe import describe, remarks
from fusetui.trace.roofline.model import Work
from fusetui.trace.roofline.row import work_of

__all__ = [
    "Work",
    "attainable",
    "describe",
    "inputs",
    "many",
    "model",
    "peaks",
    "remarks",
    "row",
    "work_of",
]
