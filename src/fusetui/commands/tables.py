"""Answers as tables: `--format`, `--output`, `--columns`, `--sort`, `--top`, `--where`, and several
traces at once."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence

from fusetui.analysis.questions.note import note_of
from fusetui.analysis.questions.query_text import WrongQuery
from fusetui.analysis.why.selection import Selection
from fusetui.arguments import ROWS
from fusetui.commands.answers import given_peaks, say_why_no_lines
from fusetui.commands.errors import DONE, CommandError, say
from fusetui.commands.loading import load
from fusetui.commands.why import selection_of
from fusetui.report.output import emit, width, wrapped
from fusetui.report.streams import write
from fusetui.tables.drawn import listed, seen_first
from fusetui.tables.files import TEXTS, format_of, save
from fusetui.tables.public import Table, with_files
from fusetui.tables.sources import FILE, Asked, made
from fusetui.text.figures import plural
from fusetui.text.printable import printable
from fusetui.text.tables import Unseen
from fusetui.trace.new_file import check_new, new_file

TABLE = "table"


def show(args: Namespace) -> int:
    """The answer of a command as a table. Raises Error, also for what cannot be written."""
    form_of(args)
    tables, codes, notes = [], [DONE], dict[str, None]()
    for path in (args.trace, *args.others):
        trace, code = load(path, args.captured_by)
        tables.append((trace.report.file, made(args.command, trace, _asked(args))))
        codes.append(code)
        if args.command == "lines":
            say_why_no_lines(trace, args, len(tables[-1][1]) > 0)
        notes |= dict.fromkeys(filter(None, (note_of(trace), *trace.notes)))
    table = chosen(with_files(tables, FILE) if len(tables) > 1 else tables[0][1], args)
    put(table, args, [*notes])
    return max(codes)


def put(table: Table, args: Namespace, notes: Sequence[str]) -> None:
    """Prints a table, or writes it to a file, with the notes of its traces. Raises as `show`."""
    form = form_of(args)
    if form == TABLE and not args.output:
        emit("\n".join([_text(table, args, width()), *wrapped(notes)]))
        return
    _write(table, args, form)
    for note in notes:
        say(note)


run_slices = run_steps = show


def form_of(args: Namespace) -> str:
    """The one that was asked for, or that of the name of a new file. Raises CommandError, and Error
    where that name tells none or there is a file."""
    if args.output == "":
        raise CommandError("--output is followed by the name of a new file.")
    form: str = args.format or (format_of(args.output) if args.output else TABLE)
    if getattr(args, "json", False):
        raise CommandError("Use --format json for a table: --json prints the whole answer.")
    if form == "parquet" and not args.output:
        raise CommandError("Parquet is not printed: name a file with --output.")
    if args.output:
        check_new(args.output)
    return form


def _asked(args: Namespace) -> Asked:
    given = vars(args)
    return Asked(
        by=given.get("by", "name"),
        peaks=given_peaks(given.get("peak", ())),
        expand=given.get("expand", False),
        file=given.get("file"),
        part=selection_of(args) if "step_by" in given else Selection(),
    )


def chosen(table: Table, args: Namespace) -> Table:
    """The rows and columns that were asked for; `--where` and `--sort` may name other columns."""
    try:
        table = table.where(args.where) if args.where else table
    except WrongQuery as error:
        raise CommandError(f"--where: {error}.") from None
    table = table.sort(args.sort) if args.sort else table
    return table.select(map(str.strip, args.columns.split(","))) if args.columns else table


def _write(table: Table, args: Namespace, form: str) -> None:
    """Prints what is not for people, or writes a file."""
    table = table.top(args.top) if args.top else table
    if not args.output:
        for part in TEXTS[form](table):
            write(part)
        return
    if form == TABLE:
        with new_file(args.output) as place:
            place.write_text(f"{_text(table, args, Unseen(0))}\n", encoding="utf-8")
    else:
        save(table, args.output, form)
    emit(f"{printable(args.output)}: {plural(len(table), 'row')}.")


def _text(table: Table, args: Namespace, wide: int) -> str:
    most = ROWS if args.top is None else args.top
    shown = table if args.columns else seen_first(table)
    return listed(shown, 0 if args.output else most, wide)
