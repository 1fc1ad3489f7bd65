"""Where tests find files: the project, and real traces if there are any."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRACES = Path(os.environ.get("FUSETUI_TRACES", ROOT.parent / "shared" / "traces"))
"""A folder of real traces, which are not part of the project; tests skip where it is
missing."""
FRESH = TRACES.parent / "fresh"
"""Likewise, traces that nothing was adjusted to."""
