"""Builds the answers to tool calls: a heading, as many rows as the budget allows, and a
cursor for the rest. What is wrong is an Error with one plain sentence.

A cursor holds all that is known about it: where to go on, and a hash of the question.
It is good for the same question, as long as the files of its traces have not changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from threading import BoundedSemaphore
from typing import Any, NamedTuple

import msgspec
import orjson
from msgspec.structs import replace

from fusetui import Error
from fusetui.analysis.why.selection import Selection
from fusetui.commands.agents.opened import Folders, KeptTrace, Opener, holding
from fusetui.commands.agents.questions import (
    WITH_FILES,
    WITH_TRACES,
    Answer,
    PagedItems,
    answer_without_traces,
    drop_duplicates,
)
from fusetui.commands.agents.tools import LEAST, TOOLS, taken
from fusetui.commands.errors import CommandError
from fusetui.commands.tables import select_rows
from fusetui.tables.drawn import first_columns
from fusetui.tables.files import import_optional
from fusetui.tables.public import Table
from fusetui.tables.sources import TableRequest, trace_table
from fusetui.tables.sql import table_of_all
from fusetui.tables.sql_process import ask_elsewhere
from fusetui.tables.table import ColumnTable
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.report import Stop, never

CHARACTERS = 4
"""Of JSON: so many are estimated as one token."""

MAX_CURSOR_CHARACTERS = 40
"""Of a cursor and of the number of tokens together."""

CURSOR = lazy_pattern(r"([0-9]{1,15})-([0-9a-f]{12})")
"""The number of the next item, and the hash of the question."""

MIN_INT, MAX_INT = -(2**63), 2**64 - 1
"""The integers that the encoder of JSON takes."""


def fit_items(
    head: Mapping[str, object],
    items: PagedItems,
    max_tokens: int,
    cursor: str | None,
    question: object,
) -> dict[str, Any]:
    """Return one page of an answer: `head`, and as many items as fit in `max_tokens` (a
    token is estimated as 4 characters of JSON).

    The first page has no `cursor`. If items remain, the key "cursor" of the page has
    the cursor of the next one, else None. A cursor is valid for the same `question`
    only. Raises CommandError for another cursor, or if not even one item fits.
    """
    digest = blake2b(repr(question).encode(), digest_size=6).hexdigest()
    first_index = 0 if cursor is None else _parse_cursor(cursor, digest, items.count)
    fitted_items: list[Any] = []
    answer: dict[str, Any] = {
        **safe(head),
        items.key: fitted_items,
        "total": items.total,
        "cursor": None,
        "tokens": 0,
    }
    characters_left = (
        max_tokens * CHARACTERS - len(encode_json(answer)) - MAX_CURSOR_CHARACTERS
    )
    if first_index < items.count:
        for item in items.rest(first_index):
            value = safe(item)
            characters_left -= len(encode_json(value)) + 1
            if characters_left < 0:
                answer["cursor"] = f"{first_index + len(fitted_items)}-{digest}"
                break
            fitted_items.append(value)
    if (
        characters_left < 0 and not fitted_items
    ):  # not even one item, or a head without items
        needed_tokens = max_tokens - characters_left // CHARACTERS
        raise CommandError(
            f"The answer does not fit in {max_tokens:,} tokens: set max_tokens to at "
            f"least {needed_tokens:,}, or ask for fewer columns of a table."
        )
    answer["tokens"] = -(-len(encode_json(answer)) // CHARACTERS)  # rounded up
    return answer


def _parse_cursor(cursor: str, digest: str, count: int) -> int:
    """Return the index of the item at which a cursor continues, between 1 and `count -
    1`. Raises CommandError if the cursor is malformed or belongs to a question with
    another digest."""
    parts = CURSOR.fullmatch(cursor)
    if parts is not None:
        number = int(parts[1])
        if parts[2] == digest and 0 < number < count:
            return number
    raise CommandError(
        "This cursor belongs to another query, or the trace has changed: repeat the "
        "original arguments, or omit the cursor."
    )


def safe(value: Any) -> Any:
    """Return a value as JSON can hold it. Control and invisible characters in texts are
    escaped, because a terminal would interpret or hide them. Integers outside MIN_INT
    to MAX_INT become texts."""
    plain = msgspec.to_builtins(value)
    if isinstance(plain, str):
        return printable(plain)
    if isinstance(plain, dict):
        return {safe(key): safe(inner) for key, inner in plain.items()}
    if isinstance(plain, list | tuple):
        return [safe(inner) for inner in plain]
    if isinstance(plain, int) and not MIN_INT <= plain <= MAX_INT:
        return str(plain)
    return plain


def encode_json(value: object) -> str:
    """Return a value as compact JSON."""
    return orjson.dumps(value).decode()


MAX_QUERY_ROWS = 100_000
MAX_QUERY_SECONDS = 30.0
"""Of a query in SQL, as MAX_QUERY_ROWS."""

QUERIES_AT_ONCE = 2
"""In SQL, each of which may take several cores."""

READINGS_AT_ONCE = 8
"""Calls that read or examine traces."""

WITHOUT_TRACES = ("decode", "traces")
TRACE_ARGUMENTS = ("trace", "a", "b")
"""The arguments of a call that name a trace which stays open."""

NO_TEXT = re.compile("[\ud800-\udfff\ufdd0]")
"""A surrogate without its partner, or what stands for one that came by JSON (see
input.py)."""


class _Answered(NamedTuple):
    """An answer, and the states of the files that it is about."""

    answer: Answer
    states: object


class Answerer:
    """Answers calls from any thread, some at once, so that a long one does not keep
    others from their answers, even after nobody waits for it any more."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._opener = Opener(Folders(folders))
        self._readings = BoundedSemaphore(READINGS_AT_ONCE)
        self._queries = BoundedSemaphore(QUERIES_AT_ONCE)

    def call(
        self, name: str, arguments: Mapping[str, object], stop: Stop = never
    ) -> dict[str, Any]:
        """Return the answer of the tool `name` as JSON can hold it, one page of it.
        Raises Error with a sentence for the client, also once `stop` returns True."""
        checked_arguments = _check_arguments(name, arguments)
        try:
            answered = self._answered(name, checked_arguments, stop)
        except Error as error:
            raise CommandError(self._opener.told(str(error))) from None
        answer = answered.answer
        question = (
            name,
            _drop_cursor(checked_arguments),
            answered.states,
            answer.items.total,
        )
        return fit_items(
            answer.head,
            answer.items,
            checked_arguments.max_tokens,
            checked_arguments.cursor,
            question,
        )

    def _answered(self, name: str, asked: Any, stop: Stop) -> _Answered:
        """Return the answer to a call with checked arguments. It runs at most
        READINGS_AT_ONCE at a time, except for tools that read no trace. Raises Error.
        """
        if name in WITHOUT_TRACES:
            answer = answer_without_traces(name, asked, self._opener)
            return _Answered(answer=answer, states=())
        if name == "sql":
            return self._answer_query(asked, stop)
        with holding(self._readings, stop):
            if name in WITH_FILES:
                return self._answer_about_files(name, asked, stop)
            return self._answer_about_traces(name, asked, stop)

    def _answer_about_files(self, name: str, asked: Any, stop: Stop) -> _Answered:
        """Return the answer of a tool that reads other files than traces, or many
        traces. It is kept for the next pages, as long as the files do not change."""
        states = self._opener.states_of(asked)

        def make() -> Answer:
            return WITH_FILES[name](asked, self._opener, stop)

        key = (name, states, repr(_drop_cursor(asked)))
        answer = self._opener.answers.get(key, make, stop)
        return _Answered(answer=answer, states=states)

    def _answer_about_traces(self, name: str, asked: Any, stop: Stop) -> _Answered:
        """Return the answer of a tool about one trace or two, which stay open. It is
        kept for the next pages, as long as the files do not change."""
        traces = [
            self._opener.open(getattr(asked, argument), stop)
            for argument in TRACE_ARGUMENTS
            if hasattr(asked, argument)
        ]
        states = tuple((trace.name, trace.state) for trace in traces)
        if "columns" in TOOLS[name].takes:
            table_name = getattr(asked, "table", name)
            answer = self._table(table_name, traces[0], asked, stop)
            return _Answered(answer=answer, states=states)

        def make() -> Answer:
            return WITH_TRACES[name](asked, *traces)

        key = (name, states, repr(_drop_cursor(asked)))
        answer = self._opener.answers.get(key, make, stop)
        return _Answered(answer=answer, states=states)

    def _table(self, name: str, opened: KeptTrace, asked: Any, stop: Stop) -> Answer:
        """Return the rows and columns that were asked for of a table of one trace. The
        whole table is kept for later calls with other rows or columns."""
        by = getattr(asked, "by", "name")
        step = getattr(asked, "step", None)

        def make() -> Table:
            options = TableRequest(by=by, part=Selection(step=step))
            return trace_table(name, opened.trace, options)

        key = (name, by, step, opened.state)
        whole = self._opener.answers.get(key, make, stop)
        rows = select_rows(whole, asked, "where")
        return _answer_rows([opened], name, _select_columns(rows, asked), asked.top)

    def _answer_query(self, asked: Any, stop: Stop) -> _Answered:
        """Return the rows of a query in SQL over one or several traces. A kept result
        is used again for the same query on unchanged files. Raises Error."""
        with holding(self._readings, stop):
            names = (asked.trace, *(asked.others or ()))
            traces = [self._opener.open(name, stop) for name in names]
            states = tuple((trace.name, trace.state) for trace in traces)
            key = ("sql", states, asked.query)
            table = self._opener.answers.kept(key)
        if table is None:
            table = self._run_query(asked.query, traces, stop)
            self._opener.answers.get(key, lambda: table)
        return _Answered(answer=_answer_rows(traces, "sql", table), states=states)

    def _run_query(self, query: str, traces: Sequence[KeptTrace], stop: Stop) -> Table:
        """Run a query in another process, so that other calls are answered meanwhile;
        only its tables are made here. Raises Error, also if it has over MAX_QUERY_ROWS
        rows or takes over MAX_QUERY_SECONDS."""
        import_optional("duckdb", "SQL", "sql")
        named_traces = [(trace.name, trace.trace) for trace in traces]

        def make(name: str) -> Table:
            with holding(self._readings, stop):
                return table_of_all(named_traces, name)

        query = query.strip().rstrip(";")
        with holding(self._queries, stop):
            table = ask_elsewhere(
                f"SELECT * FROM (\n{query}\n) LIMIT {MAX_QUERY_ROWS + 1}",
                make,
                of_several=len(traces) > 1,
                limit_s=MAX_QUERY_SECONDS,
                stop=stop,
            )
        if len(table) > MAX_QUERY_ROWS:
            raise CommandError(
                f"The query has more than {MAX_QUERY_ROWS:,} rows: aggregate them, or set a LIMIT."
            )
        return table


def _check_arguments(name: str, arguments: Mapping[str, object]) -> Any:
    """Return the arguments of the tool `name` as a record of the type of its arguments.
    Raises CommandError for an unknown tool, wrong arguments, or text that is not valid
    Unicode."""
    if not is_valid_unicode(name) or not is_valid_unicode(arguments):
        raise CommandError(
            "The arguments contain a lone surrogate, which is not valid Unicode: "
            "send plain characters or surrogate pairs."
        )
    if name not in TOOLS:
        raise CommandError(f"There is no tool {name}, only {', '.join(TOOLS)}.")
    try:
        return msgspec.convert(dict(arguments), taken(name), strict=False)
    except msgspec.ValidationError as error:
        raise CommandError(f"{name}: {error}.") from None


def _drop_cursor(asked: Any) -> Any:
    """Return the arguments without what tells pages apart. They are equal for all pages
    of one answer, so they identify the question."""
    return replace(asked, cursor=None, max_tokens=LEAST)


def is_valid_unicode(value: object) -> bool:
    """Return whether all texts in a value, also nested ones, can be written as UTF-8.
    Keys of mappings count too; values that are no text are fine."""
    if isinstance(value, str):
        return NO_TEXT.search(value) is None
    if isinstance(value, Mapping):
        return all(
            is_valid_unicode(key) and is_valid_unicode(inner)
            for key, inner in value.items()
        )
    if isinstance(value, list | tuple):
        return all(is_valid_unicode(inner) for inner in value)
    return True


def _answer_rows(
    traces: Sequence[KeptTrace], name: str, table: ColumnTable, top: int | None = None
) -> Answer:
    """Return an answer with the first `top` rows of a table (None: all). Notes say what
    no row has, and what a user of the figures of each trace must know."""
    shown = table.top(top) if top else table

    def rest(begin: int) -> Iterator[list[Any]]:
        return (list(row.values()) for row in shown.take(slice(begin, None)))

    notes = [*table.left_out]
    for trace in traces:
        notes += trace.notes
    head: dict[str, object] = {
        "trace": traces[0].name,
        "notes": drop_duplicates(notes),
        "table": name,
        "columns": table.names,
    }
    items = PagedItems(key="rows", total=len(table), rest=rest, asked=top)
    return Answer(head=head, items=items)


def _select_columns(table: Table, asked: Any) -> ColumnTable:
    """Return the columns that `asked.columns` names, divided by commas. `*` selects
    all, and an empty value the first ones, as for --columns on the command line."""
    if asked.columns == "*":
        return table
    if not asked.columns:
        return first_columns(table)
    return table.select(name.strip() for name in asked.columns.split(","))
