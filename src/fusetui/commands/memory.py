"""`memory`: who holds the memory of a GPU, by snapshots of torch.cuda."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Iterator

from fusetui import Error
from fusetui.analysis.memory.answer import AT, MemoryAnswer, NoMoment, memory
from fusetui.commands.errors import DONE, UNUSABLE, CommandError, say
from fusetui.commands.tables import chosen, form_of, put
from fusetui.report.output import emit, emit_json, width
from fusetui.tables.columns import FILE, columns_of
from fusetui.tables.public import Table, table_of, with_files
from fusetui.text.figures import parse_time
from fusetui.text.patterns import late
from fusetui.trace import TraceError
from fusetui.trace.snapshot import Snapshot, read_snapshot

MICROSECONDS = late(r"[0-9]{1,18}")
ENDINGS = tuple(f"{form}{packed}" for form in (".pickle", ".pkl") for packed in ("", ".gz", ".zst"))


def run_memory(args: Namespace) -> int:
    """Raises CommandError for what was asked in a wrong way, TraceError for what is no snapshot."""
    if os.path.isdir(args.snapshot):
        return _folder(args)
    from fusetui.report.memory import memory_document, memory_text

    found = _answered(args.snapshot, args.at)
    if args.b is not None:
        return _both(found, _answered(args.b, args.at), args)
    if args.json:
        emit_json(memory_document(found))
    else:
        emit(memory_text(found, args.by, args.top, width()))
    return DONE


def show(args: Namespace) -> int:
    """Who holds it as a table; raises as `run_memory`, and Error for what cannot be written."""
    from fusetui.report.memory import rows_of

    form_of(args)
    paths, tables, code = _paths(args), list[tuple[str, Table]](), DONE
    for path in paths:
        try:
            found = _answered(path, args.at)
        except Error as error:
            if len(paths) == 1:
                raise
            say(str(error))
            code = UNUSABLE
            continue
        rows = [row for device in found.devices for row in rows_of(device, args.by)]
        tables.append((path, table_of("memory", columns_of("memory"), rows)))
    if not tables:
        raise CommandError(f"{args.snapshot} holds no snapshot that can be told about.")
    put(chosen(with_files(tables, FILE) if len(paths) > 1 else tables[0][1], args), args, ())
    return code


def _folder(args: Namespace) -> int:
    """The peaks of the snapshots in a folder; those that cannot be read are said at the end."""
    from fusetui.analysis.memory.versus import ranked
    from fusetui.report.memory import LeftOut, MemoryRanksDocument, ranks_text

    left: list[LeftOut] = []

    def answers() -> Iterator[MemoryAnswer]:
        for path in _paths(args):
            try:
                yield _answered(path, "peak")
            except TraceError as error:
                left.append(LeftOut(path, str(error)))

    found = ranked(answers())
    if args.json:
        emit_json(MemoryRanksDocument(found, tuple(left)))
    elif found:
        emit(ranks_text(found, args.top, width()))
    for one in left:
        say(one.reason)
    return UNUSABLE if left else DONE


def _both(a: MemoryAnswer, b: MemoryAnswer, args: Namespace) -> int:
    from fusetui.analysis.memory.versus import versus
    from fusetui.report.memory import versus_text

    found = versus(a, b, args.by)
    if args.json:
        emit_json(found)
    else:
        emit(versus_text(found, args.top, width()))
    return DONE


def _paths(args: Namespace) -> list[str]:
    """The files asked about. Raises CommandError for a folder without any, or beside another."""
    if not os.path.isdir(args.snapshot):
        return [args.snapshot, *([] if args.b is None else [args.b])]
    if args.b is not None:
        raise CommandError(f"{args.snapshot} is a folder: give two snapshots to compare them.")
    try:
        names = sorted(os.listdir(args.snapshot))
    except OSError as error:
        raise CommandError(f"{args.snapshot} cannot be listed: {error.strerror}.") from None
    paths = [os.path.join(args.snapshot, name) for name in names if name.endswith(ENDINGS)]
    if not paths:
        raise CommandError(f"{args.snapshot} is a folder without snapshots (.pickle, .pkl).")
    return paths


def _answered(path: str, at: str) -> MemoryAnswer:
    snapshot = read_snapshot(path)
    try:
        return memory(snapshot, _moment(at, snapshot))
    except NoMoment as missing:
        raise CommandError(f"{path}: {missing}") from None


def _moment(text: str, snapshot: Snapshot) -> str | int:
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
    firsts = [int(one.time_us[0]) for one in snapshot.events if len(one)]
    return min(firsts, default=-1) + ns // 1000
