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

import argparse
import gzip
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.kept_answers import Coverage, Results, add_to, kept_answers, say_wrong
from benchmarks.pages import put
from tests.analysis.diff.blocks import doubled, in_all_steps, without
from tests.analysis.diff.planting import (
    DECODE,
    ENCODE,
    PLACES,
    Planted,
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


def main() -> int:
    options = _options()
    kept = kept_answers(options.work, __file__, targets=options.targets)
    results: Results = defaultdict(list)
    coverage = Coverage()
    for path in map(Path, options.traces):
        of_trace = kept.read(path) if kept else None
        if of_trace is not None:
            say_wrong(path, of_trace)
        elif not options.kept_only:
            of_trace = _answers_of(path, options)
            if kept:
                kept.write(path, of_trace)
        coverage.add(path.name, of_trace)
        add_to(results, of_trace or {})
    text = f"{table(results)}\n{coverage.sentences()}\n"
    sys.stdout.write(text)
    if options.into:
        put(Path(options.into), "planted", text, __file__)
    return (
        0 if all(answer.right for found in results.values() for answer in found) else 1
    )


def _answers_of(path: Path, options: argparse.Namespace) -> Results:
    found: Results = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        _try(path, Path(folder, "planted.json"), options.targets, found)
    return found


def _try(path: Path, into: Path, targets: int, results: Results) -> None:
    _try_layers(path, into, results)
    subject = Subject.read(path)
    if subject is None:
        sys.stderr.write(f"{path.name}: no kernel has a launch in the file\n")
        return
    for name, plant in PLANTS.items():
        for place in PLACES:
            for number in range(targets):
                planted: Planted | None = plant(subject, place, number)
                if planted is None:
                    continue
                answer = judge(subject, planted, into)
                results[name, place].append(answer)
                if not answer.right:
                    said = f"{path.name}: {name}, {place}, {number}: {answer.said}\n"
                    sys.stderr.write(said)
    _try_run(subject, into, results)
    _try_conversion(subject, into, results)


def _try_run(subject: Subject, into: Path, results: Results) -> None:
    """Of a run that is put into the trace: its first kernel, one in the middle, and the
    last."""
    events, with_it = with_run(subject), into.with_name("run.json")
    if events is None:
        return
    with_it.write_bytes(ENCODE.encode({**subject.document, "traceEvents": events}))
    longer = Subject.read(with_it)
    for nth in (0, RUN // 2, RUN - 1):
        planted = one_of_run(longer, nth) if longer is not None else None
        if longer is not None and planted is not None:
            answer = judge(longer, planted, into)
            results[ONE_OF_RUN, PLACES[1]].append(answer)
            if not answer.right:
                sys.stderr.write(
                    f"{subject.path.name}: {ONE_OF_RUN}, {nth}: {answer.said}\n"
                )


def _try_conversion(subject: Subject, into: Path, results: Results) -> None:
    events = as_amd(subject)
    if events is not None:
        answer = judge_vendors(subject, events, into)
        results[CONVERTED, PLACES[1]].append(answer)
        if not answer.right:
            sys.stderr.write(f"{subject.path.name}: {CONVERTED}: {answer.said}\n")


def _try_layers(path: Path, into: Path, results: Results) -> None:
    """The first block that repeats, one in the middle, and the last but one."""
    raw = path.read_bytes()
    document = DECODE.decode(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    document = {"traceEvents": document} if isinstance(document, list) else document
    found = in_all_steps(document["traceEvents"])
    if not found:
        return
    for name, (change, sign) in BLOCKS.items():
        for nth in sorted({0, found[0].times // 2, found[0].times - 2}):
            cut = change(document["traceEvents"], found, nth)
            if cut is not None:
                answer = judge_block(path, document, cut, sign, into)
                results[name, PLACES[1]].append(answer)
                if not answer.right:
                    sys.stderr.write(f"{path.name}: {name} {nth}: {answer.said}\n")


def table(results: Results) -> str:
    lines = [f"| planted | {' | '.join(PLACES)} |", "|---|" + "---:|" * len(PLACES)]
    for name in (*PLANTS, *BLOCKS, ONE_OF_RUN, CONVERTED):
        cells = []
        for place in PLACES:
            found = results.get((name, place), [])
            right = sum(answer.right for answer in found)
            cells.append(f"{right} of {len(found)}" if found else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _options(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
    parser.add_argument(
        "--targets", type=int, default=1, help="kernels tried for each change"
    )
    parser.add_argument(
        "--work", metavar="FOLDER", help="keeps what is measured; goes on there"
    )
    parser.add_argument(
        "--kept-only",
        action="store_true",
        help="the table of what --work keeps; measures nothing",
    )
    parser.add_argument(
        "--into", metavar="FILE", help="a page with a place for the table"
    )
    return parser.parse_args(words)


if __name__ == "__main__":
    sys.exit(main())
