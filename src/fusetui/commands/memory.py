"""`memory`: what holds GPU memory, from snapshots of torch.cuda or the memory events of
a trace."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from fusetui import Error
from fusetui.analysis.memory.answer import AT, MemoryAnswer, NoMomentError, memory
from fusetui.analysis.questions.note import note_of
from fusetui.commands.answers import shown
from fusetui.commands.errors import DONE, UNUSABLE, CommandError, say
from fusetui.commands.loading import LoadedTrace, describe_secrets, load
from fusetui.commands.sources import is_shipped
from fusetui.commands.tables import check_table_options, chosen, put
from fusetui.report.output import Bar, emit, emit_json, width
from fusetui.tables.public import Table, table_of, with_files
from fusetui.tables.sources import FILE, columns_of
from fusetui.text.figures import parse_time
from fusetui.text.patterns import lazy_pattern
from fusetui.trace import TraceError
from fusetui.trace.read.foreign import HEAD
from fusetui.trace.read.source import glimpse
from fusetui.trace.scrub.detect import find_secret_names
from fusetui.trace.snapshot.columns import Snapshot
from fusetui.trace.snapshot.reading import read_snapshot

if TYPE_CHECKING:
    from fusetui.report.memory import TracedMemoryDocument

MICROSECONDS = lazy_pattern(r"[0-9]{1,18}")
ENDINGS = (
    ".pickle",
    ".pickle.gz",
    ".pickle.zst",
    ".pkl",
    ".pkl.gz",
    ".pkl.zst",
)
"""Of the names of snapshots."""


def run_memory(args: Namespace) -> int:
    """Print who holds the memory of a GPU, from a snapshot, two snapshots, a folder of
    them, or a trace. Returns the exit code. Raises CommandError for a wrong request,
    and TraceError for an unreadable file."""
    if os.path.isdir(args.snapshot):
        return _print_folder_peaks(args)
    if is_trace(args.snapshot, args.snapshot):
        return _print_trace_memory(args)
    from fusetui.report.memory import format_memory, make_memory_document

    answer = _answer_snapshot(args.snapshot, args.at)
    if args.b is not None:
        _print_comparison(args, answer, _answer_snapshot(args.b, args.at))
    elif args.json:
        emit_json(make_memory_document(answer))
    else:
        emit(format_memory(answer, args.by, args.top, width()))
    return DONE


def _print_trace_memory(args: Namespace) -> int:
    """Print who holds memory by the memory events of a trace, and return the exit code.
    Raises CommandError, also if a second file is given, and TraceError."""
    from fusetui.report.memory import format_traced_memory

    if args.b is not None:
        raise CommandError(
            f"{args.snapshot} is a trace: only snapshots can be compared."
        )
    document, loaded = _read_trace_memory(args.snapshot, args)

    def text(columns: int) -> str:
        return format_traced_memory(document, args.top, columns)

    return shown(args, loaded, lambda: document, text)


def _print_comparison(args: Namespace, a: MemoryAnswer, b: MemoryAnswer) -> None:
    """Print how the memory of two snapshots differs, as JSON or as text."""
    from fusetui.analysis.memory.answer import compare_snapshots
    from fusetui.report.memory import format_comparison

    both = compare_snapshots(a, b, args.by)
    if args.json:
        emit_json(both)
    else:
        emit(format_comparison(both, args.top, width()))


def show(args: Namespace) -> int:
    """Print or write who holds the memory of one or several files as one table, and
    return the exit code. A file that cannot be read is reported and left out, unless it
    is the only one. Raises Error."""
    check_table_options(args)
    paths = _find_snapshots(args)
    tables: list[tuple[str, Table]] = []
    notes: list[str] = []
    code = DONE
    for path in paths:
        try:
            rows = _read_rows(path, args)
        except Error as error:
            if len(paths) == 1:
                raise
            say(str(error))
            code = UNUSABLE
            continue
        table = table_of("memory", columns_of("memory"), rows.rows)
        tables.append((path, table))
        code = max(code, rows.code)
        if rows.note:
            notes.append(rows.note)
    if not tables:
        raise CommandError(f"{args.snapshot} has no snapshot that can be analyzed.")
    whole = with_files(tables, FILE) if len(paths) > 1 else table
    put(chosen(whole, args), args, notes)
    return code


class _Rows(NamedTuple):
    """The rows of a file, its note, and the exit code of reading it."""

    rows: list[dict[str, Any]]
    note: str
    code: int


def _read_rows(path: str, args: Namespace) -> _Rows:
    """Return the rows of the memory table for one file. A snapshot is grouped by
    `args.by`, a trace always by op. Raises Error."""
    from fusetui.report.memory import rows_of

    if is_trace(path, path):
        document, loaded = _read_trace_memory(path, args)
        rows = [row for device in document.devices for row in rows_of(device, "op")]
        return _Rows(rows=rows, note=note_of(loaded.trace), code=loaded.code)
    devices = _answer_snapshot(path, args.at).devices
    rows = [row for device in devices for row in rows_of(device, args.by)]
    return _Rows(rows=rows, note="", code=DONE)


def is_trace(name: str, place: str) -> bool:
    """Return whether a file is a trace, because it begins as JSON does or because it
    ships with fusetui. `place` is the path at which it is read. A file that does not
    exist is none."""
    return is_shipped(name) or glimpse(place, HEAD).lstrip()[:1] in (b"{", b"[")


def _read_trace_memory(
    path: str, args: Namespace
) -> tuple[TracedMemoryDocument, LoadedTrace]:
    """Return who holds memory by the events of a trace, and the loaded trace. Raises
    CommandError if there are no memory events or no such moment, and TraceError."""
    from fusetui.analysis.memory.of_trace import report_memory_of_trace, trace_start_us
    from fusetui.report.memory import TracedMemoryDocument
    from fusetui.report.memory_words import explain_no_events

    if args.by != "code":
        raise CommandError(f"{path} is a trace, which groups memory by op: omit --by.")
    loaded = load(path)
    trace = loaded.trace
    try:
        wanted_moment = moment(args.at, trace_start_us(trace))
        devices = report_memory_of_trace(trace, wanted_moment)
    except NoMomentError as missing:
        raise CommandError(f"{path}: {missing}") from None
    if not devices:
        raise CommandError(
            f"{path} has {explain_no_events(trace)}. A memory snapshot has more detail (see docs/memory.md)."
        )
    return TracedMemoryDocument(trace.report.file, args.at, devices), loaded


def _print_folder_peaks(args: Namespace) -> int:
    """Print the peaks of memory of all snapshots in a folder. Snapshots that cannot be
    read are reported at the end, and make the exit code UNUSABLE."""
    from fusetui.analysis.memory.answer import rank_devices
    from fusetui.report.memory import MemoryRanksDocument, NoSnapshot, format_ranks

    unread: list[NoSnapshot] = []

    def answers() -> Iterator[MemoryAnswer]:
        for path in _find_snapshots(args):
            try:
                yield _answer_snapshot(path, "peak")
            except TraceError as error:
                unread.append(NoSnapshot(path, str(error)))

    ranks = rank_devices(answers())
    if args.json:
        emit_json(MemoryRanksDocument(ranks, tuple(unread)))
    elif ranks:
        emit(format_ranks(ranks, args.top, width()))
    say(*(snapshot.reason for snapshot in unread))
    return UNUSABLE if unread else DONE


def _find_snapshots(args: Namespace) -> list[str]:
    """Return the paths of the files that are asked about: one, two to compare, or all
    snapshots in a folder. Raises CommandError if a folder has none, or is to be
    compared."""
    if not os.path.isdir(args.snapshot):
        return [args.snapshot] if args.b is None else [args.snapshot, args.b]
    if args.b is not None:
        raise CommandError(
            f"{args.snapshot} is a folder: to compare, pass two snapshots."
        )
    try:
        names = sorted(os.listdir(args.snapshot))
    except OSError as error:
        raise CommandError(
            f"{args.snapshot} cannot be listed: {error.strerror}."
        ) from None
    paths = [
        os.path.join(args.snapshot, name) for name in names if name.endswith(ENDINGS)
    ]
    if not paths:
        raise CommandError(
            f"{args.snapshot} is a folder without snapshots (.pickle, .pkl)."
        )
    return paths


def _answer_snapshot(path: str, at: str) -> MemoryAnswer:
    """Return who holds memory by a snapshot, at a moment such as "peak". Warns on
    stderr of secrets in it. Raises CommandError if there is no such moment, and
    TraceError."""
    with Bar(f"reading {path}", sys.stderr) as bar:
        snapshot = read_snapshot(path, bar.update)
    secrets = find_secret_names(snapshot.settings, _collect_texts(snapshot))
    if secrets:
        say(
            f"{describe_secrets(path, secrets)}. Check it before you share the snapshot."
        )
    try:
        return memory(snapshot, moment(at, first_event_time(snapshot)))
    except NoMomentError as missing:
        raise CommandError(f"{path}: {missing}") from None


def first_event_time(snapshot: Snapshot) -> int:
    """Return the Unix time of the first event of any device, in us; -1 if there is
    none."""
    begins_us = [int(events.time_us[0]) for events in snapshot.events if len(events)]
    return min(begins_us, default=-1)


def _collect_texts(snapshot: Snapshot) -> Iterator[str]:
    """Yield each text of a snapshot that may contain a secret, beside its settings.
    That includes the files and functions of stacks."""
    yield from snapshot.strings
    of_code = {text for frame in snapshot.stacks.frames for text in frame[:2]}
    yield from sorted(of_code)


def moment(text: str, first_us: int) -> str | int:
    """Return the moment that --at asks for: a name of AT as it is, or a Unix time in
    us.

    Digits alone are taken as Unix time, as in --json. A time with a unit, such as
    "12.5ms", counts from `first_us`, the first event. Raises CommandError for anything
    else.
    """
    if text in AT:
        return text
    if MICROSECONDS.fullmatch(text):
        return int(text)
    ns = parse_time(text)
    if ns is None:
        raise CommandError(
            f"--at takes {', '.join(AT)} or a time with a unit, such as 12.5ms, not {text}."
        )
    return first_us + ns // 1000
