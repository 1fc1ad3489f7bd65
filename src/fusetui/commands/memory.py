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
from fusetui.commands.loading import LoadedTrace, load, secret_sentence
from fusetui.commands.sources import is_shipped
from fusetui.commands.tables import check_form, chosen, put
from fusetui.report.output import Bar, emit, emit_json, width
from fusetui.tables.public import Table, table_of, with_files
from fusetui.tables.sources import FILE, columns_of
from fusetui.text.figures import parse_time
from fusetui.text.patterns import lazy_pattern
from fusetui.trace import TraceError
from fusetui.trace.read.foreign import HEAD
from fusetui.trace.read.source import glimpse
from fusetui.trace.scrub.detect import secrets_in
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
    """Who holds the memory of a GPU. Raises CommandError for what was asked in a wrong
    way, TraceError for what is no snapshot."""
    if os.path.isdir(args.snapshot):
        return _folder(args)
    if is_trace(args.snapshot, args.snapshot):
        return _trace(args)
    from fusetui.report.memory import memory_document, memory_text

    answer = _answered(args.snapshot, args.at)
    if args.b is not None:
        _print_both(args, answer, _answered(args.b, args.at))
    elif args.json:
        emit_json(memory_document(answer))
    else:
        emit(memory_text(answer, args.by, args.top, width()))
    return DONE


def _trace(args: Namespace) -> int:
    """The answer about a trace. Raises CommandError and TraceError."""
    from fusetui.report.memory import traced_text

    if args.b is not None:
        raise CommandError(
            f"{args.snapshot} is a trace: only snapshots can be compared."
        )
    document, loaded = _traced(args.snapshot, args)

    def text(columns: int) -> str:
        return traced_text(document, args.top, columns)

    return shown(args, loaded, lambda: document, text)


def _print_both(args: Namespace, a: MemoryAnswer, b: MemoryAnswer) -> None:
    from fusetui.analysis.memory.answer import versus
    from fusetui.report.memory import versus_text

    both = versus(a, b, args.by)
    if args.json:
        emit_json(both)
    else:
        emit(versus_text(both, args.top, width()))


def show(args: Namespace) -> int:
    """Who holds it as a table; raises as `run_memory`, and Error for what cannot be
    written."""
    check_form(args)
    paths = _paths(args)
    tables: list[tuple[str, Table]] = []
    notes: list[str] = []
    code = DONE
    for path in paths:
        try:
            rows = _rows(path, args)
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


def _rows(path: str, args: Namespace) -> _Rows:
    """Raises Error."""
    from fusetui.report.memory import rows_of

    if is_trace(path, path):
        document, loaded = _traced(path, args)
        rows = [row for device in document.devices for row in rows_of(device, "op")]
        return _Rows(rows=rows, note=note_of(loaded.trace), code=loaded.code)
    devices = _answered(path, args.at).devices
    rows = [row for device in devices for row in rows_of(device, args.by)]
    return _Rows(rows=rows, note="", code=DONE)


def is_trace(name: str, place: str) -> bool:
    """Whether a file is JSON at the place where it is read, or ships with fusetui; what
    is no file at all is not."""
    return is_shipped(name) or glimpse(place, HEAD).lstrip()[:1] in (b"{", b"[")


def _traced(path: str, args: Namespace) -> tuple[TracedMemoryDocument, LoadedTrace]:
    """What a trace says of memory. Raises CommandError and TraceError."""
    from fusetui.analysis.memory.of_trace import memory_of_trace, start_us
    from fusetui.report.memory import TracedMemoryDocument
    from fusetui.report.memory_words import no_events

    if args.by != "code":
        raise CommandError(f"{path} is a trace, which groups memory by op: omit --by.")
    loaded = load(path)
    trace = loaded.trace
    try:
        at = moment(args.at, start_us(trace))
        devices = memory_of_trace(trace, at)
    except NoMomentError as missing:
        raise CommandError(f"{path}: {missing}") from None
    if not devices:
        raise CommandError(
            f"{path} has {no_events(trace)}. A memory snapshot has more detail: see "
            "docs/memory.md."
        )
    return TracedMemoryDocument(trace.report.file, args.at, devices), loaded


def _folder(args: Namespace) -> int:
    """The peaks of the snapshots in a folder; those that cannot be read are said at the
    end."""
    from fusetui.analysis.memory.answer import ranked
    from fusetui.report.memory import MemoryRanksDocument, NoSnapshot, ranks_text

    unread: list[NoSnapshot] = []

    def answers() -> Iterator[MemoryAnswer]:
        for path in _paths(args):
            try:
                yield _answered(path, "peak")
            except TraceError as error:
                unread.append(NoSnapshot(path, str(error)))

    ranks = ranked(answers())
    if args.json:
        emit_json(MemoryRanksDocument(ranks, tuple(unread)))
    elif ranks:
        emit(ranks_text(ranks, args.top, width()))
    say(*(snapshot.reason for snapshot in unread))
    return UNUSABLE if unread else DONE


def _paths(args: Namespace) -> list[str]:
    """The files asked about. Raises CommandError for a folder without any, or beside
    another."""
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


def _answered(path: str, at: str) -> MemoryAnswer:
    """The answer about a snapshot at a moment; warns of secrets in it. Raises
    CommandError and TraceError."""
    with Bar(f"reading {path}", sys.stderr) as bar:
        snapshot = read_snapshot(path, bar.update)
    secrets = secrets_in(snapshot.settings, _texts_of(snapshot))
    if secrets:
        say(
            f"{secret_sentence(path, secrets)}. Check it before you share the snapshot."
        )
    try:
        return memory(snapshot, moment(at, first_event_us(snapshot)))
    except NoMomentError as missing:
        raise CommandError(f"{path}: {missing}") from None


def first_event_us(snapshot: Snapshot) -> int:
    """The Unix time of the first event of any device in us; -1 if there is none."""
    begins_us = [int(events.time_us[0]) for events in snapshot.events if len(events)]
    return min(begins_us, default=-1)


def _texts_of(snapshot: Snapshot) -> Iterator[str]:
    """All that may hold a secret beside the settings, each text once."""
    yield from snapshot.strings
    of_code = {text for frame in snapshot.stacks.frames for text in frame[:2]}
    yield from sorted(of_code)


def moment(text: str, first_us: int) -> str | int:
    """A name of AT; or the Unix time in us of a time as in --json, or of one with its
    unit, which counts from the first event. Raises CommandError."""
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
