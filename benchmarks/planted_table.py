"""What the benchmarks of planted changes share: they try each trace, or read what was
kept of it, and print a table of how many answers are right."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.kept_answers import (
    Coverage,
    Results,
    add_results,
    open_kept_answers,
    report_wrong,
)
from benchmarks.pages import put
from tests.analysis.diff.planting import PLACES, Answer, Planted, Subject, judge
from tests.analysis.diff.plants import Plant


@dataclass
class Trial:
    """One trace that changes are planted into. `into` is a file for the changed trace,
    in a folder that is removed afterwards; `targets` how many kernels are tried for
    each change."""

    path: Path
    into: Path
    targets: int
    results: Results

    def subject(self) -> Subject | None:
        """Return the trace that changes are planted into. None if no kernel has a
        launch in the file, which is reported."""
        found = Subject.read(self.path)
        if found is None:
            self._say("no kernel has a launch in the file")
        return found

    def plant(self, subject: Subject, changes: dict[str, Plant]) -> None:
        """Try each change at each place and each target, and add the answers of the
        diff. A change that cannot be made there is passed over."""
        for name, change in changes.items():
            for place in PLACES:
                for number in range(self.targets):
                    planted: Planted | None = change(subject, place, number)
                    if planted is not None:
                        answer = judge(subject, planted, self.into)
                        self.add(name, place, answer, f"{number}")

    def add(self, name: str, place: str, answer: Answer, which: str = "") -> None:
        """Count an answer. If it is wrong, say what is wrong with it, and at `which` of
        the kernels or blocks."""
        self.results[name, place].append(answer)
        if not answer.right:
            where = ", ".join(filter(None, (name, place, which)))
            self._say(f"{where}: {answer.said}")

    def _say(self, text: str) -> None:
        sys.stderr.write(f"{self.path.name}: {text}\n")


@dataclass(frozen=True)
class PlantedTable:
    """A benchmark: `script` is its `__file__`, `about` its `__doc__`, `name` that of its
    table in a page, `rows` what it plants, and `tries` does so with one trace."""

    script: str
    about: str
    name: str
    rows: tuple[str, ...]
    tries: Callable[[Trial], None]

    def main(self, words: Sequence[str] | None = None) -> int:
        """Measure the traces whose answers are not kept, and print the table. Returns 1
        if any answer is wrong, else 0."""
        options = self._options(words)
        kept = open_kept_answers(options.work, self.script, targets=options.targets)

        results: Results = defaultdict(list)
        coverage = Coverage()
        for path in map(Path, options.traces):
            of_trace = kept.read(path) if kept else None
            if of_trace is not None:
                report_wrong(path, of_trace)
            elif not options.kept_only:
                of_trace = self._measure_trace(path, options.targets)
                if kept:
                    kept.write(path, of_trace)
            coverage.add(path.name, of_trace)
            add_results(results, of_trace or {})

        text = f"{self.table(results)}\n{coverage.sentences()}\n"
        sys.stdout.write(text)

        if options.into:
            put(Path(options.into), self.name, text, self.script)

        every = [answer for found in results.values() for answer in found]
        return 0 if all(answer.right for answer in every) else 1

    def _measure_trace(self, path: Path, targets: int) -> Results:
        """Return the answers for one trace, from changes that are planted into it now."""
        found: Results = defaultdict(list)
        with tempfile.TemporaryDirectory() as folder:
            self.tries(Trial(path, Path(folder, "planted.json"), targets, found))
        return found

    def table(self, results: Results) -> str:
        """Return the table in Markdown, with a row for each change and a column for
        each place."""
        lines = [f"| planted | {' | '.join(PLACES)} |", "|---|" + "---:|" * len(PLACES)]
        for name in self.rows:
            cells = []
            for place in PLACES:
                found = results.get((name, place), [])
                right = sum(answer.right for answer in found)
                cells.append(f"{right} of {len(found)}" if found else "")
            lines.append(f"| {name} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def _options(self, words: Sequence[str] | None) -> argparse.Namespace:
        parser = argparse.ArgumentParser(description=self.about.partition("\n")[0])
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
