"""`hang`: why a job hangs, from the dumps of torch's flight recorder."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fusetui.analysis.hang.answer import why_it_hangs
from fusetui.analysis.hang.model import HangAnswer
from fusetui.commands.errors import (
    CANNOT_TELL,
    DONE,
    NO,
    CommandError,
)
from fusetui.commands.sources import dumps_in
from fusetui.report.output import Bar, emit, emit_json, width
from fusetui.trace.flight.columns import FlightDumps
from fusetui.trace.flight.reading import read_dumps

if TYPE_CHECKING:
    from fusetui.analysis.hang.in_trace import InTrace

CODES_OF_VERDICTS = {
    "none": DONE,
    "missing": NO,
    "mismatch": NO,
    "deadlock": NO,
    "unmatched": NO,
    "undecided": CANNOT_TELL,
}


def run_hang(args: Namespace) -> int:
    """Why a job hangs. Raises CommandError where there is no readable dump, and
    CannotReadError for a trace that cannot be read."""
    paths = dump_files(args.paths)
    return tell(paths, top=args.top, as_json=args.json, trace=args.trace)


def tell(
    paths: Sequence[str], *, top: int, as_json: bool = False, trace: str | None = None
) -> int:
    """Prints the answer of these dumps; `top` bounds the rows of its table, and `trace`
    is the path of a trace of the same job. Returns the exit code. Raises CommandError
    where no dump can be read, and CannotReadError."""
    from fusetui.report.hang import hang_document, hang_text

    dumps = _dumps(paths)
    answer = why_it_hangs(dumps)
    traced = None if trace is None else _in_trace(answer, dumps, trace)
    if as_json:
        emit_json(hang_document(answer, traced))
    else:
        emit(hang_text(answer, width(), top, traced))
    return CODES_OF_VERDICTS[answer.verdict]


def _in_trace(answer: HangAnswer, dumps: FlightDumps, path: str) -> InTrace | None:
    """Where the trace has the collective at which the dumps stop."""
    from fusetui.analysis.hang.in_trace import in_trace
    from fusetui.commands.loading import load

    return in_trace(answer, dumps, load(path).trace, path)


def _dumps(paths: Sequence[str]) -> FlightDumps:
    """These dumps; says that they are read. Raises CommandError if none can be."""
    with Bar(f"reading {len(paths)} dumps", sys.stderr) as bar:
        dumps = read_dumps(paths, bar.update)
    if not dumps.ranks:
        first = dumps.unread[0].reason
        raise CommandError(f"No readable dump. {first}")
    return dumps


def dump_files(names: Sequence[str]) -> list[str]:
    """The files that are given, and the dumps in the folders that are. Raises
    CommandError for what does not exist, and for a folder without a dump."""
    paths: list[str] = []
    for name in names:
        if os.path.isdir(name):
            dumps = dumps_in(name)
            if not dumps:
                raise CommandError(f"{name} is a folder without flight-recorder dumps.")
            paths += dumps
        elif os.path.isfile(name):
            paths.append(name)
        else:
            raise CommandError(f"{name} cannot be opened: no such file.")
    return paths
