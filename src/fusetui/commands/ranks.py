"""`ranks`: compares many traces of one job, and shows which rank waits for which."""

from __future__ import annotations

import glob
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from fusetui.analysis.ranks.model import JobAnswer
from fusetui.commands.errors import CANNOT_TELL, DONE, UNUSABLE, CommandError, say
from fusetui.commands.loading import one_form
from fusetui.commands.sources import ENDINGS, ENDINGS_TEXT, of_one_job
from fusetui.commands.tables import check_form, chosen, put
from fusetui.report.output import Bar, emit, emit_json, width
from fusetui.tables.sources import ranks_table
from fusetui.text.figures import plural
from fusetui.text.printable import without_credentials
from fusetui.trace.formats import processes_in
from fusetui.trace.read.source import is_remote

if TYPE_CHECKING:
    from fusetui.analysis.ranks.answer import Explained


class _ExplainedFiles(NamedTuple):
    """The files that were asked about, and what they tell; the answer is without
    passwords."""

    paths: Sequence[str]
    explained: Explained
    answer: JobAnswer


def run_ranks(args: Namespace) -> int:
    """Who waits for whom in a job. Raises CommandError and TraceError for what was
    asked in a wrong way."""
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
    """Prints or writes the ranks as a table, as `--format` and `--out` say; returns the
    exit code. Raises CommandError where the options do not fit a table, or the traces
    are no job, and Error for what cannot be written."""
    check_form(args)
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
    paths, explained, answer = _explained(args)
    from fusetui.analysis.ranks.whatif import job_whatif
    from fusetui.report.whatif import job_whatif_text

    worth = job_whatif(explained.facts, args.what_if, cached=not args.no_cache)
    if args.json:
        emit_json(worth)
    else:
        emit(job_whatif_text(worth, width(), args.top))
    return CANNOT_TELL if worth.why_not else _code(paths, answer)


def _explained(args: Namespace) -> _ExplainedFiles:
    """Reads the files, here or on a cluster. Raises CommandError where none of them is
    a rank."""
    paths = files(args.paths)
    from fusetui.analysis.ranks.answer import explained
    from fusetui.analysis.ranks.executors import executor_at, summarize

    with Bar(f"reading {len(paths)} ranks", sys.stderr) as bar:
        place = nullcontext() if args.on is None else executor_at(args.on)
        with place as executor:
            summaries = summarize(
                paths, executor, cached=not args.no_cache, progress=bar.update
            )
    found = explained(summaries)
    answer = without_passwords(found.answer)
    if not answer.ranks and not args.json:
        raise CommandError(_why_no_ranks(answer))
    return _ExplainedFiles(paths=paths, explained=found, answer=answer)


def _why_no_ranks(answer: JobAnswer) -> str:
    """The reason of the first file that is left out, and how many others are."""
    first, *others = answer.left_out
    reason = first.reason.rstrip(".")
    if not others:
        return f"{reason}."
    return f"{reason}; none of {plural(len(others), 'other file')} is a rank either."


def _code(paths: Sequence[str], answer: JobAnswer) -> int:
    """Says what is in doubt about an answer; returns the exit code."""
    left_out = len(paths) - answer.given
    damaged = sum(bool(row.damage) for row in answer.ranks)
    of_all = f"of {len(paths)} {'traces' if len(paths) > 1 else 'trace'}"
    if left_out:
        say(f"{left_out} {of_all} could not be used.")
    if damaged:
        say(f"Figures of {damaged} {of_all} may be wrong.")
    if left_out or damaged:
        return UNUSABLE
    if not answer.collectives:
        say(
            "Inconclusive which rank waits for which: these ranks have no collective "
            "in common."
        )
        return CANNOT_TELL
    return DONE


def without_passwords(answer: JobAnswer) -> JobAnswer:
    """The answer without the passwords of URLs."""
    ranks = [replace(row, path=without_credentials(row.path)) for row in answer.ranks]
    left_out = [
        replace(
            left,
            path=without_credentials(left.path),
            reason=without_credentials(left.reason),
        )
        for left in answer.left_out
    ]
    return replace(answer, ranks=tuple(ranks), left_out=tuple(left_out))


def files(names: Sequence[str]) -> list[str]:
    """The traces behind paths, folders, globs and URLs, each once; of an export of
    Nsight Systems, one for each process. Raises CommandError."""
    paths: list[str] = []
    for name in names:
        for path in _behind(name):
            paths += [path] if is_remote(path) else processes_in(path)
    if "-" in paths:
        raise CommandError("ranks reads files, folders and URLs, not standard input.")
    return list(dict.fromkeys(paths))


def _behind(name: str) -> list[str]:
    """The files or URLs behind one name, at least one. Raises CommandError."""
    is_pattern = glob.has_magic(name) and not glob.glob(glob.escape(name))
    if is_remote(name):
        from fusetui.trace.read.remote import matching  # only for URLs

        paths = matching(name)
        if paths != [name]:
            paths = [path for path in paths if path.endswith(ENDINGS)]
    elif is_pattern:
        paths = sorted(glob.glob(name, recursive=True))
    else:
        paths = of_one_job(name)
    if not paths:
        raise CommandError(f"{name} matches no trace {ENDINGS_TEXT}.")
    return paths
