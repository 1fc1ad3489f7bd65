"""Compares what two checkouts print: every command that reads a trace, as text and as
JSON, for every trace of some folders.

    python -P benchmarks/outputs.py collect OUT TRACES... [--tree CHECKOUT]
    python -P benchmarks/outputs.py compare OUT OUT [--lines 4]

`collect` writes one file for each command line into the folder OUT: its exit code, and
what it printed. CHECKOUT is another checkout with a .venv of its own; without it this
one is asked. TRACES are files, or folders whose traces, exports, snapshots and folders
of ranks are all taken, in the order of their names. One process answers all questions
about one trace, each without the cache. Answers that OUT has already are kept. It ends
with exit code 1 if a process failed.

`compare` names the files that differ, with the first lines that do, and ends with exit
code 1 if there is one, or if there are no files at all.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import orjson

ROOT = Path(__file__).resolve().parents[1]

TRACE_ENDINGS = (
    ".json",
    ".json.gz",
    ".json.zst",
    ".pftrace",
    ".pftrace.gz",
    ".sqlite",
    ".sqlite.gz",
    ".pickle",
    ".zip",
)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("summary",),
    ("kernels",),
    ("kernels", "--by", "shape"),
    ("ops",),
    ("ops", "--by", "shape"),
    ("modules",),
    ("lines",),
    ("launches",),
    ("steps",),
    ("slices",),
    ("serving",),
    ("gaps",),
    ("why",),
    ("why", "--all"),
    ("memory",),
    ("path",),
    ("whatif", "op:/./ x0.5"),
    ("whatif", "kernel:/./ x0.5"),
    ("whatif", "loader"),
    ("whatif", "graph"),
    ("stacks",),
)
"""The commands about one trace, with their options."""
WITHOUT_JSON = ("stacks",)

ANSWERING_PROGRAM = """
import io, json, os, sys, contextlib
from fusetui.cli import main
questions = json.load(sys.stdin)
answers = []
for arguments in questions:
    out_bytes = io.BytesIO()
    out = io.TextIOWrapper(out_bytes, encoding="utf-8", write_through=True)
    err = io.StringIO()
    sys.argv = ["fusetui", *arguments]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main()
        except SystemExit as ended:
            code = ended.code
    answers.append([code, out_bytes.getvalue().decode("utf-8", "replace"), err.getvalue()])
sys.__stdout__.write(json.dumps(answers))
"""
"""What a checkout runs: command lines on stdin, and on stdout their answers, each an
exit code and what was printed on stdout and on stderr."""
CHANGED_LINE = re.compile(r"[+-](?![+-]{2} )")
MAX_SECONDS = 600
"""For all command lines about one trace."""


@dataclass(frozen=True)
class CommandLines:
    """Those about one trace, or one pair; their answers go into files that begin with
    `name`."""

    name: str
    command_lines: list[list[str]]


def find_traces(places: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each trace file and of each folder of ranks. The
    name can be used in that of a file."""
    for place in places:
        if place.is_file():
            yield place.name, place
            continue
        for path in sorted(place.rglob("*")):
            name = str(path.relative_to(place)).replace("/", "__")
            if _is_job(path) or _is_trace(path):
                yield f"{place.name}__{name}", path


def _is_job(path: Path) -> bool:
    return path.is_dir() and len(list(path.glob("rank*"))) > 1


def _is_trace(path: Path) -> bool:
    return path.name.endswith(TRACE_ENDINGS) and path.name != "truth.json"


def questions(places: Sequence[Path]) -> Iterator[CommandLines]:
    """Yield all command lines: about each trace, about each folder of ranks, and the
    diff of each trace with the next one."""
    traces = list(find_traces(places))
    for name, path in traces:
        if path.is_dir():
            yield CommandLines(name, _list_forms(("ranks", str(path))))
            continue
        command_lines = []
        for command, *options in COMMANDS:
            command_lines += _list_forms((command, str(path), *options))
        yield CommandLines(name, command_lines)

    files = [(name, path) for name, path in traces if path.is_file()]
    for (a_name, a), (b_name, b) in pairwise(files):
        yield CommandLines(f"{a_name}--{b_name}", _list_forms(("diff", str(a), str(b))))


def _list_forms(command_line: tuple[str, ...]) -> list[list[str]]:
    """Return a command line for text, and one for JSON if the command has it."""
    text = list(command_line)
    if command_line[0] in WITHOUT_JSON:
        return [text]
    return [text, [*text, "--json"]]


def collect(out: Path, places: Sequence[Path], tree: Path, jobs: int) -> int:
    """Write all answers that `out` does not hold yet, with `jobs` processes at a time,
    and return how many processes failed."""
    out.mkdir(parents=True, exist_ok=True)

    groups = list(questions(places))
    failures = 0
    with ThreadPoolExecutor(jobs) as pool:
        succeeded = pool.map(lambda group: _write_answers(out, group, tree), groups)
        for number, (group, has_answers) in enumerate(
            zip(groups, succeeded, strict=True), start=1
        ):
            failures += not has_answers
            failure = "" if has_answers else " FAILED"
            print(f"{number} of {len(groups)}: {group.name}{failure}", flush=True)

    return failures


def _write_answers(out: Path, group: CommandLines, tree: Path) -> bool:
    """Write the answers of a group by a process of its own, unless they are there
    already. Returns False if the process failed, after its error was written."""
    done_marker = out / f"{group.name}.done"
    if done_marker.exists():
        return True

    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "FUSETUI_CACHE": "off",
            "COLUMNS": "120",
            "HOME": home,
        }
        try:
            process = subprocess.run(
                [str(tree / ".venv/bin/python"), "-P", "-c", ANSWERING_PROGRAM],
                input=orjson.dumps(group.command_lines),
                capture_output=True,
                env=environment,
                timeout=MAX_SECONDS,
                check=False,
            )
            failure = process.stderr.decode() if process.returncode else ""
        except subprocess.TimeoutExpired:
            failure = f"took longer than {MAX_SECONDS} s"

    if failure:
        (out / f"{group.name}.txt").write_text(failure)
        return False

    answers = orjson.loads(process.stdout)
    for command_line, (code, stdout, stderr) in zip(
        group.command_lines, answers, strict=True
    ):
        answer = out / f"{group.name}--{_name_question(command_line)}.txt"
        answer.write_text(f"exit {code}\n{stderr}\n{stdout}")

    done_marker.touch()
    return True


def _name_question(command_line: Sequence[str]) -> str:
    """Return the command line as part of a file's name, without the paths of traces."""
    words = [word for word in command_line if "/" not in word or ":" in word]
    return "_".join(words).replace("/", ".")


def compare(before: Path, after: Path, lines: int) -> int:
    """Print the files that differ, with up to `lines` changed lines of each, and return
    their number."""
    names = sorted(
        {path.name for folder in (before, after) for path in folder.glob("*.txt")}
    )
    differing = 0
    for name in names:
        text_before = _lines_of(before / name)
        text_after = _lines_of(after / name)
        if text_before == text_after:
            continue
        differing += 1
        print(f"differs: {name}")
        diff = difflib.unified_diff(text_before, text_after, lineterm="", n=0)
        changed = (line for line in diff if CHANGED_LINE.match(line))
        for line in islice(changed, lines):
            print(f"    {line[:200]}")

    print(f"{len(names)} files, {differing} differ")
    return differing


def _lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def main() -> int:
    """Collect answers or compare them, as the command line says. Returns 1 if a process
    failed, if answers differ, or if there are none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect")
    collecting.add_argument("out", type=Path)
    collecting.add_argument("traces", type=Path, nargs="+")
    collecting.add_argument("--tree", type=Path, default=ROOT)
    collecting.add_argument("--jobs", type=int, default=2)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--lines", type=int, default=4)

    args = parser.parse_args()
    if args.command == "collect":
        failures = collect(args.out, args.traces, args.tree, args.jobs)
        return 1 if failures else 0

    if not any(args.before.glob("*.txt")):
        print(f"{args.before} holds no answers: see collect.")
        return 1

    return 1 if compare(args.before, args.after, args.lines) else 0


if __name__ == "__main__":
    sys.exit(main())
