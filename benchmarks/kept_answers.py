"""The answers that a benchmark got for each trace, kept in a folder, so that a run that
was stopped goes on with the trace where it stopped."""

from __future__ import annotations

import hashlib
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from benchmarks.pages import digest
from tests.analysis.diff.planting import Answer

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ("src/fusetui", "tests/analysis/diff")
"""Folders of what the answers depend on, beside the trace and the benchmark: the
program, and what plants."""
LOOP = ROOT / "benchmarks" / "planted_table.py"
"""What these benchmarks share."""
SOURCES = (".py", ".c", ".json", ".txt")

PAGE_COLUMNS = 116
"""Of the text of a page."""

Results = defaultdict[tuple[str, str], list[Answer]]
"""By what was planted and by place."""


class Kept(msgspec.Struct):
    """A file of the folder."""

    made_by: str
    answers: list[
        tuple[str, str, bool, str]
    ]  # what was planted, its place, is it right, what is said


@dataclass
class Coverage:
    """Names of traces, by whether they are part of a table."""

    measured: list[str] = field(default_factory=list)
    without_answers: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, trace: str, results: Results | None) -> None:
        """Note that a trace is part of the table or not. `results` are its answers;
        None if it was not measured."""
        if results is None:
            self.left_out.append(trace)
        elif results:
            self.measured.append(trace)
        else:
            self.without_answers.append(trace)

    def sentences(self) -> str:
        """Return a paragraph for below the table: which traces were measured, which had
        nothing to plant into, and which were left out."""
        found = [f"Measured: {_list_traces(self.measured)}."]
        if self.without_answers:
            found.append(
                f"No change could be planted in: {_list_traces(self.without_answers)}."
            )

        if self.left_out:
            found.append(f"Not measured: {_list_traces(self.left_out)}.")

        return textwrap.fill(
            " ".join(found),
            PAGE_COLUMNS,
            break_long_words=False,
            break_on_hyphens=False,
        )


@dataclass(frozen=True)
class KeptAnswers:
    """A folder with one file for each trace. `made_by` is what the answers depend on
    beside the trace; answers that something else made are not read."""

    folder: Path
    made_by: str

    def read(self, trace: Path) -> Results | None:
        """Return the kept answers of a trace, or None if it has not been measured by
        the same program."""
        try:
            kept = msgspec.json.decode(self._file(trace).read_bytes(), type=Kept)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

        if kept.made_by != self._describe_origin(trace):
            return None

        results: Results = defaultdict(list)
        for planted, place, right, said in kept.answers:
            results[planted, place].append(Answer(right, said))

        return results

    def write(self, trace: Path, results: Results) -> None:
        """Keep the answers of a trace. The file is replaced as a whole, so an
        interrupted run leaves no half of it."""
        answers = [
            (planted, place, answer.right, answer.said)
            for (planted, place), found in results.items()
            for answer in found
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._file(trace).with_suffix(".unfinished")
        unfinished.write_bytes(
            msgspec.json.encode(Kept(self._describe_origin(trace), answers))
        )
        unfinished.replace(self._file(trace))

    def _file(self, trace: Path) -> Path:
        return self.folder / f"{trace.name}.answers.json"

    def _describe_origin(self, trace: Path) -> str:
        """Return what the answers of a trace depend on: the program and the content of
        the trace."""
        return f"{self.made_by} of {hashlib.sha256(trace.read_bytes()).hexdigest()}"


def open_kept_answers(
    folder: str | None, script: str, **settings: int
) -> KeptAnswers | None:
    """Return the kept answers of a benchmark, or None without a folder. `script` is the
    `__file__` of the benchmark, and each benchmark has its own folder inside."""
    if folder is None:
        return None
    path = Path(script)
    sources = [one.read_text(encoding="utf-8") for one in (path, LOOP)]
    of_script = digest("".join(sources))
    made_by = f"{path.name} {of_script} {settings} with {_hash_program()}"
    return KeptAnswers(folder=Path(folder, path.stem), made_by=made_by)


def _hash_program() -> str:
    """Return a digest that changes with every source of the program and of what plants,
    and not with tests."""
    found = hashlib.sha256()
    for folder in PROGRAM:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in SOURCES and not path.name.startswith("test_"):
                found.update(path.relative_to(ROOT).as_posix().encode())
                found.update(path.read_bytes())
    return found.hexdigest()


def report_wrong(trace: Path, results: Results) -> None:
    """Write on stderr what is wrong with the answers about a trace; right ones are not
    mentioned."""
    for (planted, place), answers in results.items():
        for answer in answers:
            if not answer.right:
                sys.stderr.write(f"{trace.name}: {planted}, {place}: {answer.said}\n")


def add_results(
    results: Results, more: Mapping[tuple[str, str], Iterable[Answer]]
) -> None:
    """Add answers to `results`, under the same keys."""
    for key, answers in more.items():
        results[key] += answers


def _list_traces(traces: list[str]) -> str:
    """Return the names of traces in a sentence, sorted and without their endings;
    "none" without any."""
    names = [name.removesuffix(".gz").removesuffix(".json") for name in sorted(traces)]
    return ", ".join(names) or "none"
