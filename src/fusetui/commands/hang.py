"""`hang`: why a job hangs, by the dumps of torch's flight recorder."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence

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
from fusetui.trace.flight.reading import read_dumps

CODES_OF_VERDICTS = {
    "none": DONE,
    "missing": NO,
    "mismatch": NO,
    "deadlock": NO,
    "unmatched": NO,
    "undecided": CANNOT_TELL,
}


def run_hang(args: Namespace) -> int:
    """Why a job hangs. Raises CommandError where there is no readable dump."""
    return tell(dump_files(args.paths), top=args.top, as_json=args.json)


def tell(paths: Sequence[str], *, top: int, as_json: bool = False) -> int:
    """Prints the answer of these dumps; `top` bounds the rows of its table. Returns the
    exit code. Raises CommandError where none can be read."""
    from fusetui.report.hang import hang_document, hang_text

    answer = _answered(paths)
    if as_json:
        emit_json(hang_document(answer))
    else:
        emit(hang_text(answer, width(), top))
    return CODES_OF_VERDICTS[answer.verdict]


def _answered(paths: Sequence[str]) -> HangAnswer:
    """The answer of these dumps; says which of them cannot be read. Raises CommandError
    if none can."""
    with Bar(f"reading {len(paths)} dumps", sys.stderr) as bar:
        dumps = read_dumps(paths, bar.update)
    if not dumps.ranks:
        first = dumps.unread[0].reason
        raise CommandError(f"No readable dump. {first}")
    return why_it_hangs(dumps)


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
