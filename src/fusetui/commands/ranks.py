"""`ranks`: many traces of one job, and who waits for whom."""

from __future__ import annotations

import glob
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from msgspec.structs import replace

from fusetui.analysis.ranks.model import JobAnswer
from fusetui.commands.errors import CANNOT_TELL, DONE, UNUSABLE, CommandError, say
from fusetui.commands.loading import one_form
from fusetui.commands.sources import ENDINGS, WHAT, of_one_job
from fusetui.commands.tables import chosen, form_of, put
from fusetui.report.output import Bar, emit, emit_json, width
from fusetui.tables.sources import ranks_table
from fusetui.text.figures import plural
from fusetui.text.printable import without_credentials
from fusetui.trace.formats import processes_in
from fusetui.trace.read.remote import is_remote, matching

if TYPE_CHECKING:
    from fusetui.analysis.ranks.answer import Explained


def run_ranks(args: Namespace) -> int:
    """Raises CommandError and TraceError for what was asked in a wrong way."""
    one_form(args, "csv")
    if args.what_if:
        return _what_if(args)
    paths, _, answer = _explained(args)
    from fusetui.report.ranks import ranks_csv, ranks_document, ranks_text

    if args.json:
        emit_json(ranks_document(answer))
    elif args.csv:
        emit(ranks_csv(answer))
    else:
        emit(ranks_text(answer, width(), args.top))
    return _code(paths, answer)


def show(args: Namespace) -> int:
    """The ranks as a table; raises as `run_ranks`, and Error for what cannot be
    written."""
    form_of(args)
    if args.csv:
        raise CommandError(
            "Use --format csv for a table: --csv prints the whole answer."
        )
    if args.what_if:
        raise CommandError("ranks --what-if prints an answer, not a table.")
    paths, _, answer = _explained(args)
    put(chosen(ranks_table(answer), args), args, answer.notes)
    say(*(left.reason for left in answer.left_out))
    return _code(paths, answer)


def _what_if(args: Namespace) -> int:
    """What changes would be worth to the job. Raises WrongChangeError, and as
    `run_ranks`."""
    if args.csv:
        raise CommandError("ranks --what-if prints text or JSON, not CSV.")
    paths, found, answer = _explained(args)
    from fusetui.analysis.ranks.whatif import job_whatif
    from fusetui.report.whatif import job_whatif_text

    worth = job_whatif(found.facts, args.what_if, cached=not args.no_cache)
    if args.json:
        emit_json(worth)
    else:
        emit(job_whatif_text(worth, width(), args.top))
    return CANNOT_TELL if worth.why_not else _code(paths, answer)


def _explained(args: Namespace) -> tuple[Sequence[str], Explained, JobAnswer]:
    """The files, and what they tell; the answer is without passwords. Raises
    CommandError where none of them is a rank."""
    paths = files(args.paths)
    from fusetui.analysis.ranks.answer import explained
    from fusetui.analysis.ranks.executors import executor_at, summarize

    with Bar(f"reading {len(paths)} ranks", sys.stderr) as bar:
        where = nullcontext() if args.on is None else executor_at(args.on)
        with where as executor:
            cached = not args.no_cache
            summaries = summarize(paths, executor, cached=cached, progress=bar.update)
    found = explained(summaries)
    answer = without_passwords(found.answer)
    if not answer.ranks and not args.json:
        reason, *more = (one.reason.rstrip(".") for one in answer.left_out)
        others = (
            f"; nor is any of {plural(len(more), 'other file')} a rank" if more else ""
        )
        raise CommandError(f"{reason}{others}.")
    return paths, found, answer


def _code(paths: Sequence[str], answer: JobAnswer) -> int:
    left_out, doubtful = (
        len(paths) - answer.given,
        sum(bool(row.damage) for row in answer.ranks),
    )
    files = "traces" if len(paths) > 1 else "trace"
    if left_out:
        say(f"{left_out} of {len(paths)} {files} could not be used.")
    if doubtful:
        say(
            f"What {doubtful} of {len(paths)} {files} tell{'s' * (doubtful == 1)} is in doubt."
        )
    if left_out or doubtful:
        return UNUSABLE
    if not answer.collectives:
        say(
            "No collective is common to two of these ranks: who waits for whom cannot be told."
        )
        return CANNOT_TELL
    return DONE


def without_passwords(answer: JobAnswer) -> JobAnswer:
    """The answer without the passwords of URLs."""
    safe = without_credentials
    ranks = tuple(replace(one, path=safe(one.path)) for one in answer.ranks)
    left = (
        replace(one, path=safe(one.path), reason=safe(one.reason))
        for one in answer.left_out
    )
    return replace(answer, ranks=ranks, left_out=tuple(left))


def files(names: Sequence[str]) -> list[str]:
    """The traces behind paths, folders, globs and URLs, each once. Raises
    CommandError."""
    found = list(dict.fromkeys(path for name in names for path in _behind(name)))
    if "-" in found:
        raise CommandError("ranks reads files, folders and URLs, not standard input.")
    return found


def _behind(name: str) -> Iterator[str]:
    if is_remote(name):
        listed = matching(name)
        found = (
            [path for path in listed if path.endswith(ENDINGS)]
            if listed != [name]
            else listed
        )
    elif glob.has_magic(name) and not glob.glob(glob.escape(name)):
        found = sorted(glob.glob(name, recursive=True))
    else:
        found = of_one_job(name)
    if not found:
        raise CommandError(f"{name} matches no trace {WHAT}.")
    for path in found:
        yield from [path] if is_remote(path) else processes_in(path)
