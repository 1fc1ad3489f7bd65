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
    without_duplicates,
)
from fusetui.commands.agents.tools import LEAST, TOOLS, taken
from fusetui.commands.errors import CommandError
from fusetui.commands.tables import rows_asked
from fusetui.tables.drawn import first_columns
from fusetui.tables.files import needed
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


def paged(
    head: Mapping[str, object],
    items: PagedItems,
    max_tokens: int,
    cursor: str | None,
    question: object,
) -> dict[str, Any]:
    """The head, and as many items as `max_tokens` hold. Raises CommandError if that is
    not even one, or if the cursor is not one of this question."""
    digest = blake2b(repr(question).encode(), digest_size=6).hexdigest()
    begin = 0 if cursor is None else _place(cursor, digest, items.count)
    given: list[Any] = []
    answer: dict[str, Any] = {
        **safe(head),
        items.key: given,
        "total": items.total,
        "cursor": None,
        "tokens": 0,
    }
    room = max_tokens * CHARACTERS - len(text_of(answer)) - MAX_CURSOR_CHARACTERS
    if begin < items.count:
        for item in items.rest(begin):
            value = safe(item)
            room -= len(text_of(value)) + 1
            if room < 0:
                answer["cursor"] = f"{begin + len(given)}-{digest}"
                break
            given.append(value)
    if room < 0 and not given:  # not even one item, or a head without items
        needed_tokens = max_tokens - room // CHARACTERS
        raise CommandError(
            f"This does not fit in {max_tokens:,} tokens: ask with max_tokens of at least "
            f"{needed_tokens:,}, or of a table for fewer columns."
        )
    answer["tokens"] = -(-len(text_of(answer)) // CHARACTERS)  # rounded up
    return answer


def _place(cursor: str, digest: str, count: int) -> int:
    """The number of the item at which a cursor goes on, of so many items. Raises
    CommandError if it is not one of the question with this digest."""
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
    """As JSON has it, with texts in which nothing is left that a terminal interprets or
    hides; larger integers are texts."""
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


def text_of(value: object) -> str:
    """Compact JSON."""
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
        """The answer as JSON has it. Raises Error, also once `stop` says so."""
        asked = _checked_arguments(name, arguments)
        try:
            answered = self._answered(name, asked, stop)
        except Error as error:
            raise CommandError(self._opener.told(str(error))) from None
        answer = answered.answer
        question = (name, _without_cursor(asked), answered.states, answer.items.total)
        return paged(
            answer.head, answer.items, asked.max_tokens, asked.cursor, question
        )

    def _answered(self, name: str, asked: Any, stop: Stop) -> _Answered:
        """Raises Error."""
        if name in WITHOUT_TRACES:
            answer = answer_without_traces(name, asked, self._opener)
            return _Answered(answer=answer, states=())
        if name == "sql":
            return self._answer_of_query(asked, stop)
        with holding(self._readings, stop):
            if name in WITH_FILES:
                return self._answer_about_files(name, asked, stop)
            return self._answer_about_traces(name, asked, stop)

    def _answer_about_files(self, name: str, asked: Any, stop: Stop) -> _Answered:
        states = self._opener.states_of(asked)

        def make() -> Answer:
            return WITH_FILES[name](asked, self._opener, stop)

        key = (name, states, repr(_without_cursor(asked)))
        answer = self._opener.answers.get(key, make, stop)
        return _Answered(answer=answer, states=states)

    def _answer_about_traces(self, name: str, asked: Any, stop: Stop) -> _Answered:
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

        key = (name, states, repr(_without_cursor(asked)))
        answer = self._opener.answers.get(key, make, stop)
        return _Answered(answer=answer, states=states)

    def _table(self, name: str, opened: KeptTrace, asked: Any, stop: Stop) -> Answer:
        """Some rows and columns of a table of a trace; the whole table is kept."""
        by = getattr(asked, "by", "name")
        step = getattr(asked, "step", None)

        def make() -> Table:
            options = TableRequest(by=by, part=Selection(step=step))
            return trace_table(name, opened.trace, options)

        key = (name, by, step, opened.state)
        whole = self._opener.answers.get(key, make, stop)
        rows = rows_asked(whole, asked, "where")
        return _rows([opened], name, _columns_asked(rows, asked), asked.top)

    def _answer_of_query(self, asked: Any, stop: Stop) -> _Answered:
        """The rows of a query, as many and for as long as a server can afford. Raises
        Error."""
        with holding(self._readings, stop):
            names = (asked.trace, *(asked.others or ()))
            traces = [self._opener.open(name, stop) for name in names]
            states = tuple((trace.name, trace.state) for trace in traces)
            key = ("sql", states, asked.query)
            table = self._opener.answers.kept(key)
        if table is None:
            table = self._queried(asked.query, traces, stop)
            self._opener.answers.get(key, lambda: table)
        return _Answered(answer=_rows(traces, "sql", table), states=states)

    def _queried(self, query: str, traces: Sequence[KeptTrace], stop: Stop) -> Table:
        """The query runs in another process, so that others are answered meanwhile;
        only tables are made here. Raises Error."""
        needed("duckdb", "SQL", "sql")
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
                f"The query has more than {MAX_QUERY_ROWS:,} rows: add up, or set a LIMIT."
            )
        return table


def _checked_arguments(name: str, arguments: Mapping[str, object]) -> Any:
    """The arguments of a tool as a record of the type that `taken` makes. Raises
    CommandError."""
    if not is_text(name) or not is_text(arguments):
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


def _without_cursor(asked: Any) -> Any:
    """The same arguments for all pages of an answer."""
    return replace(asked, cursor=None, max_tokens=LEAST)


def is_text(value: object) -> bool:
    """Whether all texts in it can be written as UTF-8."""
    if isinstance(value, str):
        return NO_TEXT.search(value) is None
    if isinstance(value, Mapping):
        return all(is_text(key) and is_text(inner) for key, inner in value.items())
    if isinstance(value, list | tuple):
        return all(is_text(inner) for inner in value)
    return True


def _rows(
    traces: Sequence[KeptTrace], name: str, table: ColumnTable, top: int | None = None
) -> Answer:
    """The first `top` rows, with what no row of the table has among the notes."""
    shown = table.top(top) if top else table

    def rest(begin: int) -> Iterator[list[Any]]:
        return (list(row.values()) for row in shown.take(slice(begin, None)))

    notes = [*table.left_out]
    for trace in traces:
        notes += trace.notes
    head: dict[str, object] = {
        "trace": traces[0].name,
        "notes": without_duplicates(notes),
        "table": name,
        "columns": table.names,
    }
    items = PagedItems(key="rows", total=len(table), rest=rest, asked=top)
    return Answer(head=head, items=items)


def _columns_asked(table: Table, asked: Any) -> ColumnTable:
    """As the option of the command line of the same name."""
    if asked.columns == "*":
        return table
    if not asked.columns:
        return first_columns(table)
    return table.select(name.strip() for name in asked.columns.split(","))
