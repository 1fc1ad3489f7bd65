"""`fusetui capture`: runs, sweeps and the report on them. Importing this does not need torch."""

from __future__ import annotations

import shlex
from pathlib import Path

from fusetui.text.printable import printable

from .measure import measure
from .options import Options
from .record import Outcome
from .sweep import run_sweep
from .table import closing_table, guesses
from .telling import Progress, show


def capture(workload: str, options: Options, out: Path | None = None) -> Outcome:
    """Runs the variants of a workload, at every point if there is a sweep.

    `workload` is a name, or the user's own `file.py:build` or `module:build`. Progress goes to
    stderr, tables and the command that opens the result to stdout. Raises CaptureError, leaving
    nothing behind, if an option is wrong or no variant could be measured.
    """
    if options.sweep:
        return run_sweep(workload, options, out)
    record, folder = measure(workload, options, out=out, progress=Progress())
    opened = printable(shlex.quote(str(folder)))
    open_it = [f"\nOpen it with: fusetui open {opened}"]
    compare = [f"Compare them with: fusetui diff {opened}"] if options.compare else []
    show("\n".join([closing_table(record), *guesses(record), *open_it, *compare]))
    return Outcome(folder, record.guessed_right, tuple(v.name for v in record.failed))
