"""`memory`: who holds the memory of a GPU, by snapshots of torch.cuda, or by what a
trace says."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from fusetui import Error
from fusetui.analysis.memory.answer import AT, MemoryAnswer, NoMomentError, memory
from fusetui.analysis.questions.note import note_of
from fusetui.commands.answers import shown
from fusetui.commands.errors import DONE, UNUSABLE, CommandError, say
from fusetui.commands.loading import LoadedTrace, load, secret_sentence
from fusetui.commands.sources import is_shipped
from fusetui.commands.tables import chosen, form_of, put
from fusetui.report.output import Bar, emit, emit_json, width
from fusetui.tables.public import Table, table_of, with_files
from fusetui.tables.sources import FILE, columns_of
from fusetui.text.figures import parse_time
from fusetui.text.patterns import late
from fusetui.trace import TraceError
from fusetui.trace.read.foreign import HEAD
from fusetui.trace.read.source import glimpse
from fusetui.trace.scrub.detect import secrets_in
from fusetui.trace.snapshot.columns import Snapshot
from fusetui.trace.snapshot.reading import read_snapshot

if TYPE_CHECKING:
    from fusetui.report.memory import TracedMemoryDocument

MICROSECONDS = late(r"[0-9]{1,18}")
ENDINGS = tuple(
    f"{form}{packed}" for form in (".pickle", ".pkl") for packed in ("", ".gz", ".zst")
)


def run_memory(args: Namespace) -> int:
    """Raises CommandError for what was asked in a wrong way, TraceError for what is no
    snapshot."""
    if os.path.isdir(args.snapshot):
        return _folder(args)
    from fusetui.report.memory import memory_document, memory_text, traced_text

    if is_trace(args.snapshot, args.snapshot):
        if args.b is not None:
            raise CommandError(
                f"{args.snapshot} is a trace: only snapshots are compared."
            )
        told, loaded = _traced(args.snapshot, args)
        return shown(
            args, loaded, lambda: told, lambda most: traced_text(told, args.top, most)
        )
    found = _answered(args.snapshot, args.at)
    if args.b is not None:
        from fusetui.analysis.memory.answer import versus
        from fusetui.report.memory import versus_text

        both = versus(found, _answered(args.b, args.at), args.by)
        if args.json:
            emit_json(both)
        else:
            emit(versus_text(both, args.top, width()))
    elif args.json:
        emit_json(memory_document(found))
    else:
        emit(memory_text(found, args.by, args.top, width()))
    return DONE


def show(args: Namespace) -> int:
    """Who holds it as a table; raises as `run_memory`, and Error for what cannot be
    written."""
    form_of(args)
    paths, tables, codes, notes = (
        _paths(args),
        list[tuple[str, Table]](),
        [DONE],
        list[str](),
    )
    for path in paths:
        try:
            rows, noted, code = _rows(path, args)
        except Error as error:
            if len(paths) == 1:
                raise
            say(str(error))
            codes.append(UNUSABLE)
            continue
        tables.append((path, table_of("memory", columns_of("memory"), rows)))
        codes.append(code)
        notes += filter(None, [noted])
    if not tables:
        raise CommandError(f"{args.snapshot} holds no snapshot that can be told about.")
    put(
        chosen(with_files(tables, FILE) if len(paths) > 1 else tables[0][1], args),
        args,
        notes,
    )
    return max(codes)


def _rows(path: str, args: Namespace) -> tuple[list[dict[str, Any]], str, int]:
    """The rows of a file, its note, and the exit code of reading it."""
    from fusetui.report.memory import rows_of

    if not is_trace(path, path):
        devices = _answered(path, args.at).devices
        return [row for device in devices for row in rows_of(device, args.by)], "", DONE
    found, (trace, code) = _traced(path, args)
    return (
        [row for one in found.devices for row in rows_of(one, "op")],
        note_of(trace),
        code,
    )


def is_trace(name: str, place: str) -> bool:
    """Whether a file is JSON at the place where it is read, or ships with fusetui; what
    is no file at all is not."""
    return is_shipped(name) or glimpse(place, HEAD).lstrip()[:1] in (b"{", b"[")


def _traced(path: str, args: Namespace) -> tuple[TracedMemoryDocument, LoadedTrace]:
    from fusetui.analysis.memory.of_trace import memory_of_trace, start_us
    from fusetui.report.memory import TracedMemoryDocument
    from fusetui.report.memory_words import no_events

    if args.by != "code":
        raise CommandError(
            f"{path} is a trace, which tells the op that allocated: leave --by out."
        )
    trace, _ = loaded = load(path)
    try:
        at = moment(args.at, start_us(trace))
        devices = memory_of_trace(trace, at)
    except NoMomentError as missing:
        raise CommandError(f"{path}: {missing}") from None
    if not devices:
        raise CommandError(
            f"{path} has {no_events(trace)}. A snapshot tells more: docs/memory.md."
        )
    return TracedMemoryDocument(trace.report.file, args.at, devices), loaded


def _folder(args: Namespace) -> int:
    """The peaks of the snapshots in a folder; those that cannot be read are said at the
    end."""
    from fusetui.analysis.memory.answer import ranked
    from fusetui.report.memory import MemoryRanksDocument, NoSnapshot, ranks_text

    left: list[NoSnapshot] = []

    def answers() -> Iterator[MemoryAnswer]:
        for path in _paths(args):
            try:
                yield _answered(path, "peak")
            except TraceError as error:
                left.append(NoSnapshot(path, str(error)))

    found = ranked(answers())
    if args.json:
        emit_json(MemoryRanksDocument(found, tuple(left)))
    elif found:
        emit(ranks_text(found, args.top, width()))
    say(*(one.reason for one in left))
    return UNUSABLE if left else DONE


def _paths(args: Namespace) -> list[str]:
    """The files asked about. Raises CommandError for a folder without any, or beside
    another."""
    if not os.path.isdir(args.snapshot):
        return [args.snapshot, *([] if args.b is None else [args.b])]
    if args.b is not None:
        raise CommandError(
            f"{args.snapshot} is a folder: give two snapshots to compare them."
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
    with Bar(f"reading {path}", sys.stderr) as bar:
        snapshot = read_snapshot(path, bar.update)
    if secrets := secrets_in(snapshot.settings, _texts_of(snapshot)):
        say(
            f"{secret_sentence(path, secrets)}: remember that before you share the snapshot."
        )
    firsts = [int(one.time_us[0]) for one in snapshot.events if len(one)]
    try:
        return memory(snapshot, moment(at, min(firsts, default=-1)))
    except NoMomentError as missing:
        raise CommandError(f"{path}: {missing}") from None


def _texts_of(snapshot: Snapshot) -> Iterator[str]:
    """All that may hold a secret beside the settings, each text once."""
    yield from snapshot.strings
    of_code = {text for frame in snapshot.stacks.frames for text in frame[:2]}
    yield from sorted(of_code)


def moment(text: str, first_us: int) -> str | int:
    """A name, or Unix time in us of a time as in --json, or after the first event."""
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
