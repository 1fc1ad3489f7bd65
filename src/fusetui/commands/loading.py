"""Opens a trace with a progress bar, and reports the parts that could not be read."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from fusetui.analysis.questions.launches import wants_capture
from fusetui.command_line.arguments import BY_ANNOTATIONS
from fusetui.commands.errors import DONE, UNUSABLE, CommandError, say
from fusetui.commands.sources import is_shipped, one_trace, traces
from fusetui.report.output import Bar
from fusetui.text.figures import several
from fusetui.text.printable import printable
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.report import Report
from fusetui.trace.read.chunks import CUT_SHORT
from fusetui.trace.scrub.detect import secrets_of


class LoadedTrace(NamedTuple):
    """A trace and the exit code for reading it: UNUSABLE if the figures are in
    doubt."""

    trace: Trace
    code: int


def load(
    name: str,
    captured_by: Sequence[str] | None = None,
    compile_log: str = "",
) -> LoadedTrace:
    """Read a trace, and report on stderr what is missing from it. Raises TraceError or
    CommandError.

    `captured_by` names captures to join with its CUDA graph replays. If it is empty,
    captures beside the trace are used; if None, nothing is joined. `compile_log` is the
    path of a log of torch.compile; "" means one beside the trace.
    """
    trace = with_compile_log(_read_trace(name, one_trace(name)), compile_log)
    report = trace.report
    if captured_by is not None:
        trace = _join_captures(trace, captured_by)
    doubtful = report.cut or report.changed or report.too_damaged >= 0
    return LoadedTrace(trace, UNUSABLE if doubtful else DONE)


def reject_two_forms(args: Namespace, other: str) -> None:
    """Raise CommandError if both --json and the option `other` are given, because an
    answer has one form."""
    if args.json and getattr(args, other):
        raise CommandError(f"Use either --json or --{other}, not both.")


def _read_trace(name: str, path: str) -> Trace:
    """Return the trace at `path`, with a progress bar and notices of what is missing on
    stderr. A trace that ships with fusetui keeps its `name`, such as lesson:gemm.
    Raises TraceError."""
    with Bar(f"reading {name}", sys.stderr) as bar:
        trace = called(open_trace(path, bar.update), name if is_shipped(name) else "")
    say(*notices(trace.report))
    return trace


def called(trace: Trace, name: str) -> Trace:
    """Return the trace with `name` shown in place of the path of its file. An empty
    name keeps the path."""
    if not name:
        return trace
    return replace(trace, report=replace(trace.report, named=name))


def with_compile_log(trace: Trace, path: str) -> Trace:
    """Return the trace with the compile log at `path`, which is read when it is first
    needed. An empty path leaves the trace as it is. Raises TraceError if there is no
    log."""
    if not path:
        return trace
    from fusetui.analysis.compiled.finding import attach_log  # rarely needed

    return attach_log(trace, path)


def _join_captures(trace: Trace, captured_by: Sequence[str]) -> Trace:
    """Return the trace with the captures of its CUDA graph replays, and say what was
    joined or why not. Without named captures, a trace that needs none is returned as it
    is."""
    paths = captures_named(captured_by)
    if not paths and not wants_capture(trace):
        return trace
    from fusetui.analysis.graphs.opening import join_sentences, with_captures

    trace, joins = with_captures(trace, paths, lambda path: _read_trace(path, path))
    if paths and not any(join.of_replays for join in joins):
        are_annotations = all(path.startswith(BY_ANNOTATIONS) for path in paths)
        option = "--annotations" if are_annotations else "--captured-by"
        say(f"{trace.report.file} replays no graph: {option} has no effect.")
    say(*join_sentences(joins))
    return trace


def captures_named(captured_by: Sequence[str]) -> list[str]:
    """Return the files of captures that the user names; a folder stands for all its
    traces. Names that begin with BY_ANNOTATIONS are no files and stay as they are."""
    paths: list[str] = []
    for name in captured_by:
        if name.startswith(BY_ANNOTATIONS):
            paths.append(name)
        else:
            paths += traces(name)
    return paths


def notices(report: Report) -> Iterator[str]:
    """Yield a sentence for each way in which the file of a trace is incomplete; none if
    it is whole."""
    file = report.file
    if report.changed:
        yield f"{file} changed while it was read, so figures may mix two versions."
    unreadable = report.unreadable
    skipped = report.skipped
    ends_early = _ends_early(report)
    # The last event that could not be read is the one in which the file ends. A list
    # may seem to be closed by a bracket of it.
    ends_in_event = ends_early and bool(skipped) and skipped[-1].reason == CUT_SHORT
    if ends_early:
        yield _describe_early_end(report, skipped[-1].byte if ends_in_event else None)
    if ends_in_event:  # it is reported already
        skipped = skipped[:-1]
        unreadable -= 1
    if skipped:
        first = skipped[0]
        yield (
            f"{file}: {unreadable} of {report.events} events could not be read; the first is at "
            f"byte {first.byte} ({first.reason})."
        )
    if report.damaged_keys and not ends_early:
        yield f"{file}: some keys outside the events could not be read."
    yield from describe_remarks(file, report)


def _ends_early(report: Report) -> bool:
    """Return whether the text that was read ends before the document does. That is so
    for damaged, cut or partly read files."""
    is_stopped = bool(report.prefix or report.cut or report.too_damaged >= 0)
    return is_stopped or not report.complete


def _describe_early_end(report: Report, byte: int | None) -> str:
    """Return a sentence about where the reading of a document ended, and why. `byte` is
    where an event begins that the end cuts; None if it cuts none."""
    file = report.file
    read = report.events - report.unreadable
    readable = f"{read} event{'' if read == 1 else 's'} could be read"
    if report.prefix:
        return f"{file}: {report.missing}."
    if report.cut:
        return (
            f"{file}: {report.cut}, so it cannot be verified; the unpacked part is "
            "shown."
        )
    if report.too_damaged >= 0:
        return f"{file} is too damaged to be read beyond byte {report.too_damaged}: {readable}."
    where = "" if byte is None else f" in the event at byte {byte}"
    return f"{file} ends early{where}: {readable}."


def describe_remarks(file: str, report: Report) -> Iterator[str]:
    """Yield a sentence about rows of the file that have no place in a trace, then each
    remark of the reader. None if there is neither."""
    if report.left_out:
        rows = [
            f"{count:,} of {printable(table)}"
            for table, count in report.left_out.items()
        ]
        yield f"{file}: rows that cannot be part of a trace: {several(rows, 6)}."
    for remark in report.remarks:
        yield f"{file}: {printable(remark)}"


def secret_notices(trace: Trace) -> Iterator[str]:
    """Yield a warning if the trace contains what looks like a secret, such as a token.
    It says where, but never contains the value."""
    secrets = secrets_of(trace)
    if secrets:
        warning = describe_secrets(trace.report.file, secrets)
        yield f"{warning}. Before you share the trace, remove the secret with fusetui scrub."


def describe_secrets(file: str, secrets: Sequence[str]) -> str:
    """Return the beginning of a warning, without the full stop: which secrets `file`
    may contain. At most four are named."""
    return f"{file} may contain a secret ({printable(several(secrets, 4))})"
