"""`memory`: who holds the memory of a GPU, by a snapshot of torch.cuda."""

from __future__ import annotations

import re
from argparse import Namespace

from fusetui.analysis.memory.answer import AT, MemoryAnswer, NoMoment, memory
from fusetui.commands.errors import DONE, CommandError
from fusetui.commands.tables import chosen, form_of, put
from fusetui.report.output import emit, emit_json, width
from fusetui.tables.columns import columns_of
from fusetui.tables.public import table_of
from fusetui.text.figures import parse_time
from fusetui.trace.snapshot import Snapshot, read_snapshot

MICROSECONDS = re.compile(r"[0-9]{1,18}")


def run_memory(args: Namespace) -> int:
    """Raises CommandError for what was asked in a wrong way, TraceError for what is no snapshot."""
    from fusetui.report.memory import memory_text

    found = _answered(args)
    if args.json:
        emit_json(found)
    else:
        emit(memory_text(found, args.by, args.top, width()))
    return DONE


def show(args: Namespace) -> int:
    """Who holds it as a table; raises as `run_memory`, and Error for what cannot be written."""
    from fusetui.report.memory import rows_of

    form_of(args)
    rows = [row for device in _answered(args).devices for row in rows_of(device, args.by)]
    put(chosen(table_of("memory", columns_of("memory"), rows), args), args, ())
    return DONE


def _answered(args: Namespace) -> MemoryAnswer:
    snapshot = read_snapshot(args.snapshot)
    try:
        return memory(snapshot, _moment(args.at, snapshot))
    except NoMoment as missing:
        raise CommandError(str(missing)) from None


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
