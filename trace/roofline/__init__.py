"""What the op that launched a kernel computed, and how efficiently the kernel did it.

`work_of` returns the figures, `remarks` anything unusual, `describe` one line for users. A figure
is None if anything that it depends on is unknown.
"""

from __future__ import annotations

from fusetui.trace.roofline.bounds import on_plain_cores
from fusetui.trace.roofline.describe import describe, remarks
from fusetui.trace.roofline.model import Work
from fusetui.trace.roofline.row import work_of

__all__ = [
    "Work",
    "attainable",
    "describe",
    "inputs",
    "many",
    "matmul",
    "model",
    "on_plain_cores",
    "peaks",
    "pointwise",
    "remarks",
    "row",
    "work_of",
]
