"""Plants changes into how traces launch their work, and says what the diff finds, as a
Markdown table.

    python -P benchmarks/diff_launches.py a.json.gz b.json.gz [--work FOLDER] [--into
    docs/diff.md]

The work stays as it is, so that no row of work is right: a step as a CUDA graph, ops
under other names, streams that take turns. `tests/analysis/diff/rewrites.py` has the
changes, and two of work that are easily told twice.

With --work, the answers of each trace are kept in a folder, and a run that was stopped
goes on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.kept_answers import Coverage, Results, add_to, kept_answers, say_wrong
from benchmarks.pages import put
from tests.analysis.diff.planting import PLACES, Subject, judge
from tests.analysis.diff.rewrites import REWRITES


def main() -> int:
    options = _options()
    kept = kept_answers(options.work, __file__)
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
        put(Path(options.into), "launches", text, __file__)
    return (
        0 if all(answer.right for found in results.values() for answer in found) else 1
    )


def _answers_of(path: Path, options: argparse.Namespace) -> Results:
    found: Results = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        _try(path, Path(folder, "planted.json"), found)
    return found


def _try(path: Path, into: Path, results: Results) -> None:
    subject = Subject.read(path)
    if subject is None:
        sys.stderr.write(f"{path.name}: no kernel has a launch in the file\n")
        return
    for name, rewrite in REWRITES.items():
        for place in PLACES:
            planted = rewrite(subject, place, 0)
            if planted is None:
                continue
            answer = judge(subject, planted, into)
            results[name, place].append(answer)
            if not answer.right:
                sys.stderr.write(f"{path.name}: {name}, {place}: {answer.said}\n")


def table(results: Results) -> str:
    lines = [f"| planted | {' | '.join(PLACES)} |", "|---|" + "---:|" * len(PLACES)]
    for name in REWRITES:
        cells = []
        for place in PLACES:
            found = results.get((name, place), [])
            right = sum(answer.right for answer in found)
            cells.append(f"{right} of {len(found)}" if found else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("traces", nargs="+", metavar="TRACE")
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
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
