"""Answers as tables: `--format`, `--output`, `--columns`, `--sort`, `--top`, `--where`,
and several traces at once; `sql` runs SQL queries from the command line, a pipe or a
prompt."""

from __future__ import annotations

import json
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from fusetui import Error
from fusetui.analysis.questions.query_text import WrongQueryError
from fusetui.analysis.why.selection import Selection
from fusetui.command_line.arguments import ROWS
from fusetui.commands.answers import parse_peaks, say_why_no_lines
from fusetui.commands.errors import DONE, CommandError, say
from fusetui.commands.loading import load
from fusetui.commands.why import parse_selection
from fusetui.report.output import emit, notes_of, width, wrap_notes
from fusetui.report.streams import write
from fusetui.signals import SignalInterrupt
from fusetui.tables.drawn import first_columns, table_text
from fusetui.tables.files import TEXTS, format_from_name, import_optional, save
from fusetui.tables.public import Table, table_of, with_files
from fusetui.tables.sources import FILE, TABLES, TableRequest, trace_table
from fusetui.tables.sql import SqlTables
from fusetui.tables.table import ColumnSpec
from fusetui.text.figures import plural
from fusetui.text.printable import json_lines, printable
from fusetui.text.tables import UncutWidth
from fusetui.trace.model.columns import Trace
from fusetui.trace.new_file import check_new, new_file

TABLE = "table"


def show(args: Namespace) -> int:
    """Print or write the answer of a command as one table, and return the exit code.
    With several traces, a column tells the file of each row. Raises Error, also if the
    file cannot be written."""
    check_table_options(args)
    given_arguments = vars(args)
    table_request = TableRequest(
        by=given_arguments.get("by", "name"),
        peaks=parse_peaks(given_arguments.get("peak", ())),
        expand=given_arguments.get("expand", False),
        file=given_arguments.get("file"),
        part=parse_selection(args) if "step_by" in given_arguments else Selection(),
    )
    tables: list[tuple[str, Table]] = []
    notes: list[str] = []
    code = DONE
    for path in (args.trace, *args.others):
        trace, code_of_trace = load(
            path, args.captured_by, given_arguments.get("compile_log", "")
        )
        table = trace_table(args.command, trace, table_request)
        tables.append((trace.report.file, table))
        code = max(code, code_of_trace)
        if args.command == "lines":
            say_why_no_lines(trace, args, len(table) > 0)
        notes += notes_of(trace)
    joined_table = with_files(tables, FILE) if len(tables) > 1 else table
    put(chosen(joined_table, args), args, list(dict.fromkeys(notes)))
    return code


def put(table: Table, args: Namespace, notes: Sequence[str]) -> None:
    """Print a table, or write it to the file of --output. Notes of its traces are
    printed below a table for people, and go to stderr for any other format or a file.
    Raises as `show`."""
    form = choose_format(args)
    notes = (*table.left_out, *notes)
    if form == TABLE and not args.output:
        emit("\n".join([_format_table(table, args, width()), *wrap_notes(notes)]))
        return
    rows = table.top(args.top) if args.top else table
    if not args.output:  # not for people
        for part in TEXTS[form](rows):
            write(part)
    else:
        if form == TABLE:
            with new_file(args.output) as file:
                file.write(f"{_format_table(rows, args, UncutWidth(0))}\n".encode())
        else:
            save(rows, args.output, form)
        emit(f"{printable(args.output)}: {plural(len(rows), 'row')}.")
    say(*notes)


def answer_rows(args: Namespace) -> int:
    """Print all rows of `steps` or `slices`, as a table or with --json as one document.
    Returns the exit code. Raises as `show`, and CommandError for --json with options of
    tables."""
    if not args.json:
        return show(args)
    if args.others:
        raise CommandError("--json takes one trace: use --format json for several.")
    if any((args.format, args.output, args.columns, args.where, args.sort)):
        raise CommandError(
            "Use --format json for a table: --json prints the whole answer."
        )
    trace, code = load(args.trace, args.captured_by)
    write_document(args.command, trace_table(args.command, trace), trace)
    return code


run_steps = run_slices = answer_rows


def write_document(name: str, table: Table, trace: Trace) -> None:
    """Print a JSON document with all rows of a table under the key `name`. It is
    written row by row, because slices may be millions.

        {"base_ns": "170...", "slices": [{...}, ...]}
    """
    head = {"base_ns": str(trace.begin_ns)}
    notes = notes_of(trace)
    if notes:
        head["note"] = " ".join(notes)
    # Python's encoder, as a name of a file may hold a lone surrogate
    without_brace = json_lines(json.dumps(head)).removesuffix("}")
    write(f'{without_brace}, "{name}": ')
    for part in TEXTS["json"](table):
        write(part)
    write("}\n")


def check_table_options(args: Namespace) -> None:
    """Raise CommandError or Error if the options for a table are wrong, before anything
    is read."""
    choose_format(args)


def choose_format(args: Namespace) -> str:
    """Return the format of the table: the one of --format, or that of the file name of
    --output, else "table". Raises CommandError for options that contradict each other,
    and Error for an unknown or existing file."""
    if args.output == "":
        raise CommandError("--output needs the name of a new file.")
    form: str
    if args.format:
        form = args.format
    else:
        form = format_from_name(args.output) if args.output else TABLE
    if getattr(args, "json", False):
        raise CommandError(
            "Use --format json for a table: --json prints the whole answer."
        )
    if form == "parquet" and not args.output:
        raise CommandError(
            "Parquet cannot be printed: write it to a file with --output."
        )
    if args.output:
        check_new(args.output)
    return form


def chosen(table: Table, args: Namespace) -> Table:
    """Return the rows and columns of a table that --where, --sort and --columns select.
    --where and --sort may use columns that are not shown. Raises CommandError."""
    table = select_rows(table, args, "--where")
    if not args.columns:
        return table
    return table.select(name.strip() for name in args.columns.split(","))


def select_rows(table: Table, asked: Any, option: str) -> Table:
    """Return the rows that `asked.where` selects, in the order of `asked.sort`. Raises
    CommandError, with the name of the option, if the query is wrong."""
    try:
        table = table.where(asked.where) if asked.where else table
    except WrongQueryError as error:
        raise CommandError(f"{option}: {error}.") from None
    return table.sort(asked.sort) if asked.sort else table


def _format_table(table: Table, args: Namespace, wide: int) -> str:
    """Return a table as text for people, `wide` cells wide. --top limits its rows on
    the terminal; a file gets all of them."""
    shown = table if args.columns else first_columns(table)
    if args.output:
        max_rows = 0  # all
    else:
        max_rows = ROWS if args.top is None else args.top
    return table_text(shown, max_rows, wide)


PROMPT = "sql> "
PROMPT_WITHIN = "...> "
"""Before the second line of a query, and each after it."""

KEYWORDS = (
    "select",
    "from",
    "where",
    "group",
    "by",
    "order",
    "having",
    "limit",
    "join",
    "using",
    "desc",
    "asc",
    "and",
    "or",
    "not",
    "null",
    "count",
    "sum",
    "avg",
    "min",
    "max",
    "case",
)
"""Words of SQL that Tab completes."""

TABLE_NEXT = re.compile(r"\b(?:from|join)\s+\w*$", re.IGNORECASE)
HELP = """\
A query ends with ; or an empty line.
.tables         the tables
.columns TABLE  the columns of one
.quit           ends, as Ctrl+D does"""
DESCRIBED = tuple(
    ColumnSpec(name, "text", "") for name in ("column", "type", "meaning")
)


def run_sql(args: Namespace) -> int:
    """Answer one query in SQL, or with a terminal those that a person types, and return
    the exit code. Raises CommandError, WrongSqlError, MissingPackageError, and Error if
    the output cannot be written."""
    names, query = split_arguments((args.trace, *args.others))
    has_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    at_prompt = not query and has_terminal
    check_table_options(args)
    import_optional("duckdb", "SQL", "sql")
    if not query and "-" in names:
        raise CommandError(
            "Standard input is the trace: pass the query as an argument."
        )
    if at_prompt and args.output:
        raise CommandError("--output needs a query.")
    loaded = [load(name, args.captured_by) for name in names]
    notes = notes_of(*(one.trace for one in loaded))

    def answer(text: str) -> None:
        table = database.ask(text)
        args.columns = table.names  # all, in their order
        put(table, args, notes)

    with SqlTables([(one.trace.report.file, one.trace) for one in loaded]) as database:
        if at_prompt:
            _run_prompt(database, answer)
        else:
            answer(query or sys.stdin.read())
    return max(one.code for one in loaded)


class SqlArguments(NamedTuple):
    """The names of traces, and the query; "" for none."""

    names: list[str]
    query: str


def split_arguments(arguments: Sequence[str]) -> SqlArguments:
    """Return the names of traces and the query among the arguments of `sql`. The last
    one is the query if there are several, it has white space, and no file has that
    name."""
    *before, last = arguments
    has_space = re.search(r"\s", last) is not None
    if before and has_space and not os.path.exists(last):
        return SqlArguments(names=before, query=last)
    return SqlArguments(names=[*arguments], query="")


def _run_prompt(database: SqlTables, answer: Callable[[str], None]) -> None:
    """Answer queries and commands that a person types, until the end of input. Errors
    are reported and the prompt goes on. Nothing typed is saved."""
    _set_up_completion(
        {name: [spec.name for spec in database.columns(name)] for name in TABLES}
    )
    emit(HELP)
    for text in _read_queries():
        try:
            if text.startswith("."):
                _run_prompt_command(text.split(), database)
            else:
                answer(text)
        except SignalInterrupt:
            raise
        except KeyboardInterrupt:
            say("Interrupted.")
        except Error as error:
            say(str(error))


def _read_queries() -> Iterator[str]:
    """Yield each query that is typed, and each command that begins with a dot. A query
    ends with `;` or an empty line. Ctrl+C drops the lines of an unfinished query."""
    lines: list[str] = []
    while True:
        try:
            line = input(PROMPT_WITHIN if lines else PROMPT).strip()
        except EOFError:
            emit("")
            return
        except SignalInterrupt:
            raise
        except KeyboardInterrupt:  # what was begun is dropped
            lines = []
            emit("")
            continue
        if not lines and line.startswith("."):
            if line in (".quit", ".exit"):
                return
            yield line
            continue
        if line:
            lines.append(line)
        is_complete = not line or line.endswith(";")
        if lines and is_complete:
            yield "\n".join(lines)
            lines = []


def _run_prompt_command(words: Sequence[str], database: SqlTables) -> None:
    """Run a command of the prompt, such as `.columns kernels`; an unknown one prints
    the help. Raises CommandError if no table is named."""
    command, *arguments = words
    if command == ".tables":
        emit("\n".join(TABLES))
    elif command == ".columns":
        table = arguments[0].lower() if arguments else ""
        if table not in TABLES:
            raise CommandError(f".columns needs a table: {', '.join(TABLES)}.")
        rows = [
            {"column": spec.name, "type": spec.kind, "meaning": spec.meaning}
            for spec in database.columns(table)
        ]
        emit(table_text(table_of("columns", DESCRIBED, rows), 0, width()))
    else:
        emit(HELP)


def _set_up_completion(columns: Mapping[str, Sequence[str]]) -> None:
    """Make Tab complete words at the prompt, if Python has readline. `columns` has the
    columns of each table."""
    # some builds of Python have no readline
    with suppress(ImportError):
        import readline

        def complete(text: str, state: int) -> str | None:
            words = completions(
                text, readline.get_line_buffer(), readline.get_endidx(), columns
            )
            return words[state] if state < len(words) else None

        readline.set_completer(complete)
        readline.set_completer_delims(" \t\n,()=<>!;+-*/'\"")
        is_libedit = "libedit" in (readline.__doc__ or "")
        readline.parse_and_bind(
            "bind ^I rl_complete" if is_libedit else "tab: complete"
        )


def completions(
    text: str, line: str, end: int, columns: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the words that the word `text`, which ends at `end` of the line, may
    become, sorted. They are tables after FROM or JOIN, else also keywords and columns.
    If the line names tables, only their columns count."""
    if line.lstrip().startswith("."):
        words = {".tables", ".columns", ".quit", *columns}
    elif TABLE_NEXT.search(line[:end]):
        words = {*columns}
    else:
        words = {*columns, *KEYWORDS}
        tables_named = [
            name for name in columns if re.search(rf"\b{name}\b", line, re.IGNORECASE)
        ]
        for name in tables_named or columns:
            words.update(columns[name])
    return sorted(word for word in words if word.startswith(text.lower()))
