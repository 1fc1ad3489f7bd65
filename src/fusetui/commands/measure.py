"""`capture`: from the options of the command line to a run folder, and on to the app."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fusetui.capture import command
from fusetui.capture.options import Options
from fusetui.commands.errors import DONE, NO

SECONDS = 1.0  # of timing for each variant
SECONDS_OF_A_POINT = 0.3  # the same in a sweep, which has many


def seconds_for(wanted: float | None, sweep: Sequence[str]) -> float:
    """How long to time a variant when nobody says."""
    if wanted is not None:
        return wanted
    return SECONDS_OF_A_POINT if sweep else SECONDS


def capture(
    workload: str, options: Options, out: Path | None, sweep: Sequence[str], open_after: bool
) -> int:
    """Exit code 1 when a guess was wrong. Raises CaptureError."""
    outcome = command.run_capture(workload, options, out=out, sweep=sweep)
    code = DONE if outcome.right else NO
    if not open_after:
        return code
    from fusetui.commands.browse import browse

    return max(code, browse([str(outcome.folder)], ascii_only=False, mouse=True))
