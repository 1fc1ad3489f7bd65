"""Plants changes into traces and says what the diff finds, as a Markdown table.

    python -P benchmarks/diff_planted.py a.json.gz b.json.gz [--targets 2] [--work
                                         FOLDER] [--into docs/diff.md]

Each change is planted alone: into one step, into all steps, and into all steps at the
kernel that lies deepest in the program. Right is a diff that has the row of this change
with its figure, and no other row. `tests/analysis/diff/plants.py` has the changes.

With --work, the answers of each trace are kept in a folder, and a run that was stopped
goes on.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.planted_table import PlantedTable, Trial
from tests.analysis.diff.blocks import doubled, in_all_steps, without
from tests.analysis.diff.planting import (
    DECODE,
    ENCODE,
    PLACES,
    Subject,
    judge,
    judge_block,
)
from tests.analysis.diff.plants import PLANTS
from tests.analysis.diff.runs import RUN, one_of_run, with_run
from tests.analysis.diff.vendors import as_amd, judge_vendors

BLOCKS = {"a layer removed": (without, -1), "a layer doubled": (doubled, 1)}
ONE_OF_RUN = f"one of {RUN} equal kernels dropped"
CONVERTED = "converted to the kernels of AMD's libraries"
ALL_STEPS = PLACES[1]


def tries(trial: Trial) -> None:
    """Try each change of a trace: repeated layers, planted changes, a run of equal
    kernels, and kernels of another vendor."""
    _try_layers(trial)
    subject = trial.subject()
    if subject is not None:
        trial.plant(subject, PLANTS)
        _try_run(trial, subject)
        _try_conversion(trial, subject)


def _try_run(trial: Trial, subject: Subject) -> None:
    """Put a run of equal kernels into the trace, and drop one of them: the first, one
    in the middle, and the last."""
    events, with_it = with_run(subject), trial.into.with_name("run.json")
    if events is None:
        return

    with_it.write_bytes(ENCODE.encode({**subject.document, "traceEvents": events}))

    longer = Subject.read(with_it)
    for nth in (0, RUN // 2, RUN - 1):
        planted = one_of_run(longer, nth) if longer is not None else None
        if longer is not None and planted is not None:
            answer = judge(longer, planted, trial.into)
            trial.add(ONE_OF_RUN, ALL_STEPS, answer, f"{nth}")


def _try_conversion(trial: Trial, subject: Subject) -> None:
    """Compare the trace with itself after its kernels have got the names of AMD's
    libraries."""
    events = as_amd(subject)
    if events is not None:
        answer = judge_vendors(subject, events, trial.into)
        trial.add(CONVERTED, ALL_STEPS, answer)


def _try_layers(trial: Trial) -> None:
    """Remove or double one block of layers that repeats: the first, one in the middle,
    and the last but one. Nothing is tried if no block repeats."""
    raw = trial.path.read_bytes()
    is_packed = trial.path.suffix == ".gz"
    document = DECODE.decode(gzip.decompress(raw) if is_packed else raw)
    document = {"traceEvents": document} if isinstance(document, list) else document

    found = in_all_steps(document["traceEvents"])
    if not found:
        return

    for name, (change, sign) in BLOCKS.items():
        for nth in sorted({0, found[0].times // 2, found[0].times - 2}):
            cut = change(document["traceEvents"], found, nth)
            if cut is not None:
                answer = judge_block(trial.path, document, cut, sign, trial.into)
                trial.add(name, ALL_STEPS, answer, f"{nth}")


TABLE = PlantedTable(
    script=__file__,
    about=__doc__ or "",
    name="planted",
    rows=(*PLANTS, *BLOCKS, ONE_OF_RUN, CONVERTED),
    tries=tries,
)


if __name__ == "__main__":
    sys.exit(TABLE.main())
