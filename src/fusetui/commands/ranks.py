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
from fusetui.commands.loading import reject_two_forms
from fusetui.commands.sources import ENDINGS, ENDINGS_TEXT, find_traces_of_job
from fusetui.commands.tables import check_table_options, chosen, put
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
    """Print which rank of a job waits for which, as text, JSON or CSV. Returns the exit
    code. Raises CommandError or TraceError for a wrong request."""
    reject_two_forms(args, "csv")
    if args.what_if:
        return _print_whatif(args)
    paths, _, answer = _explain_files(args)
    from fusetui.report.ranks import format_csv, ranks_document, ranks_text

    if args.json:
        emit_json(ranks_document(answer))
    elif args.csv:
        emit(format_csv(answer))
    else:
        emit(ranks_text(answer, width(), args.top))
    return _report_doubts(paths, answer)


def show(args: Namespace) -> int:
    """Print or write the ranks as a table, as --format and --out say, and return the
    exit code. Raises CommandError if the options do not fit a table, and Error if
    nothing can be read or written."""
    check_table_options(args)
    if args.csv:
        raise CommandError(
            "Use --format csv for a table: --csv prints the whole answer."
        )
    if args.what_if:
        raise CommandError("ranks --what-if prints an answer, not a table.")
    paths, _, answer = _explain_files(args)
    put(chosen(ranks_table(answer), args), args, answer.notes)
    say(*(left_out_file.reason for left_out_file in answer.left_out))
    return _report_doubts(paths, answer)


def _print_whatif(args: Namespace) -> int:
    """Print what changes would gain for the whole job, and return the exit code. Raises
    WrongChangeError for an unknown change, and CommandError."""
    if args.csv:
        raise CommandError("ranks --what-if prints text or JSON, not CSV.")
    paths, explained, answer = _explain_files(args)
    from fusetui.analysis.ranks.whatif import estimate_changes
    from fusetui.report.whatif import format_job_whatif

    worth = estimate_changes(explained.facts, args.what_if, cached=not args.no_cache)
    if args.json:
        emit_json(worth)
    else:
        emit(format_job_whatif(worth, width(), args.top))
    return CANNOT_TELL if worth.why_not else _report_doubts(paths, answer)


def _explain_files(args: Namespace) -> _ExplainedFiles:
    """Read the traces of the ranks, here or on the cluster of --on, and explain them.
    Raises CommandError if no file is a trace of a rank."""
    paths = files(args.paths)
    from fusetui.analysis.ranks.answer import explained
    from fusetui.analysis.ranks.executors import executor_at, summarize

    with Bar(f"reading {len(paths)} ranks", sys.stderr) as bar:
        executor_context = nullcontext() if args.on is None else executor_at(args.on)
        with executor_context as executor:
            summaries = summarize(
                paths, executor, cached=not args.no_cache, progress=bar.update
            )
    explained_job = explained(summaries)
    answer = without_passwords(explained_job.answer)
    if not answer.ranks and not args.json:
        raise CommandError(_explain_no_ranks(answer))
    return _ExplainedFiles(paths=paths, explained=explained_job, answer=answer)


def _explain_no_ranks(answer: JobAnswer) -> str:
    """Return why no file is a trace of a rank: the reason for the first file, and how
    many others there are. At least one file was left out."""
    first, *others = answer.left_out
    reason = first.reason.rstrip(".")
    if not others:
        return f"{reason}."
    return f"{reason}; none of {plural(len(others), 'other file')} is a rank either."


def _report_doubts(paths: Sequence[str], answer: JobAnswer) -> int:
    """Say on stderr what is in doubt about an answer, and return the exit code. It is
    UNUSABLE for files left out or damaged, and CANNOT_TELL without common collectives.
    """
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
            "It is unclear which rank waits for which, because these ranks have no collective in common."
        )
        return CANNOT_TELL
    return DONE


def without_passwords(answer: JobAnswer) -> JobAnswer:
    """Return the answer with the passwords removed from all URLs of its files."""
    ranks = [replace(row, path=without_credentials(row.path)) for row in answer.ranks]
    left_out = [
        replace(
            left_out_file,
            path=without_credentials(left_out_file.path),
            reason=without_credentials(left_out_file.reason),
        )
        for left_out_file in answer.left_out
    ]
    return replace(answer, ranks=tuple(ranks), left_out=tuple(left_out))


def files(names: Sequence[str]) -> list[str]:
    """Return the traces that paths, folders, globs and URLs stand for, each once. An
    export of Nsight Systems has one for each process. Raises CommandError if a name
    matches nothing."""
    paths: list[str] = []
    for name in names:
        for path in _expand_name(name):
            paths += [path] if is_remote(path) else processes_in(path)
    if "-" in paths:
        raise CommandError("ranks reads files, folders and URLs, not standard input.")
    return list(dict.fromkeys(paths))


def _expand_name(name: str) -> list[str]:
    """Return the files or URLs that one name stands for, at least one. A name with
    wildcards is a glob, unless such a file exists. Raises CommandError."""
    is_pattern = glob.has_magic(name) and not glob.glob(glob.escape(name))
    if is_remote(name):
        from fusetui.trace.read.remote import expand_pattern  # only for URLs

        paths = expand_pattern(name)
        if paths != [name]:
            paths = [path for path in paths if path.endswith(ENDINGS)]
    elif is_pattern:
        paths = sorted(glob.glob(name, recursive=True))
    else:
        paths = find_traces_of_job(name)
    if not paths:
        raise CommandError(f"{name} matches no trace {ENDINGS_TEXT}.")
    return paths
