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
    """Print why a job hangs, from flight-recorder dumps, and return the exit code of
    the verdict. Raises CommandError if no dump can be read, and CannotReadError for an
    unreadable trace."""
    paths = dump_files(args.paths)
    return tell(paths, top=args.top, as_json=args.json, trace=args.trace)


def tell(
    paths: Sequence[str], *, top: int, as_json: bool = False, trace: str | None = None
) -> int:
    """Print why a job hangs, by the flight-recorder dumps in `paths`, and return the
    exit code of the verdict.

    `top` bounds the rows of the table, and `trace` is the path of a trace of the same
    job. Raises CommandError if no dump can be read, and CannotReadError for the trace.
    """
    from fusetui.report.hang import format_hang, make_hang_document

    dumps = _read_dumps(paths)
    answer = why_it_hangs(dumps)
    traced = None if trace is None else _find_in_trace(answer, dumps, trace)
    if as_json:
        emit_json(make_hang_document(answer, traced))
    else:
        emit(format_hang(answer, width(), top, traced))
    return CODES_OF_VERDICTS[answer.verdict]


def _find_in_trace(answer: HangAnswer, dumps: FlightDumps, path: str) -> InTrace | None:
    """Return where a trace of the job has the collective at which the dumps stop, or
    why it does not show it. None if no rank waits. Raises CannotReadError for the
    trace."""
    from fusetui.analysis.hang.in_trace import find_hang_in_trace
    from fusetui.commands.loading import load

    return find_hang_in_trace(answer, dumps, load(path).trace, path)


def _read_dumps(paths: Sequence[str]) -> FlightDumps:
    """Return the flight-recorder dumps in these files, with a progress bar on stderr.
    Raises CommandError if none can be read."""
    with Bar(f"reading {len(paths)} dumps", sys.stderr) as bar:
        dumps = read_dumps(paths, bar.update)
    if not dumps.ranks:
        first = dumps.unread[0].reason
        raise CommandError(f"No dump could be read. {first}")
    return dumps


def dump_files(names: Sequence[str]) -> list[str]:
    """Return the paths of dumps that `names` stand for: files as they are, folders with
    all dumps in them. Raises CommandError for a file that does not exist, or a folder
    without dumps."""
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
