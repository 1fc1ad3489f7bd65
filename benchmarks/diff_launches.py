"""Plants changes into how traces launch their work, and says what the diff finds, as a
Markdown table.

    python -P benchmarks/diff_launches.py a.json.gz b.json.gz [--targets 2] [--work
                                          FOLDER] [--into docs/diff.md]

The work stays as it is, so that no row of work is right: a step as a CUDA graph, ops
under other names, streams that take turns. `tests/analysis/diff/rewrites.py` has the
changes, and two of work that are easily told twice.

With --work, the answers of each trace are kept in a folder, and a run that was stopped
goes on.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.planted_table import PlantedTable, Trial
from tests.analysis.diff.rewrites import REWRITES


def tries(trial: Trial) -> None:
    """Try each change of how a trace launches its work, if the trace can be used for
    that."""
    subject = trial.subject()
    if subject is not None:
        trial.plant(subject, REWRITES)


TABLE = PlantedTable(
    script=__file__,
    about=__doc__ or "",
    name="launches",
    rows=tuple(REWRITES),
    tries=tries,
)


if __name__ == "__main__":
    sys.exit(TABLE.main())
