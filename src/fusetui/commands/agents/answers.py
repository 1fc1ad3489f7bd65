"""The answers to calls: of each the head, and what there may be much of, of which as
much is given as a budget allows, and a cursor for the rest. What is wrong is an Error
with one plain sentence.

A cursor holds all that is known about it: where to go on, and a hash of the question.
It is good for the same question, as long as the files of its traces have not changed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from threading import BoundedSemaphore
from typing import Any

import msgspec
import orjson
from msgspec.structs import replace

from fusetui import Error
from fusetui.analysis.why.selection import Selection
from fusetui.commands.agents.opened import Folders, Opener, OpenTrace, holding
from fusetui.commands.agents.questions import (
    WITH_FILES,
    WITH_TRACES,
    Answer,
    PagedItems,
    answer_without_traces,
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
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.model.report import Stop, never

CHARACTERS = 4  # of JSON that are estimated as one token
CURSOR = late(r"([0-9]{1,15})-([0-9a-f]{12})")
LEAST_INT, BEYOND_INTS = -(2**63), 2**64  # those that the encoder of JSON takes
WIDEST = 40  # characters of a cursor and of the number of tokens


def paged(
    head: Mapping[str, object],
    items: PagedItems,
    most: int,
    cursor: str | None,
    question: object,
) -> dict[str, Any]:
    """The head, and as many items as `most` tokens hold. Raises CommandError if that is
    not even one, or if the cursor is not one of this question."""
    digest = blake2b(repr(question).encode(), digest_size=6).hexdigest()
    begin = 0
    if cursor is not None:
        place = CURSOR.fullmatch(cursor)
        if place is None or place[2] != digest or not 0 < int(place[1]) < items.count:
            raise CommandError(
                "This cursor is not one of this question, or the trace has changed since: repeat "
                "the arguments that it came with, or ask without a cursor."
            )
        begin = int(place[1])
    answer: dict[str, Any] = {**safe(head), items.key: [], "total": items.total}
    answer |= {"cursor": None, "tokens": 0}
    room = most * CHARACTERS - len(text_of(answer)) - WIDEST
    taken = answer[items.key]
    for item in items.rest(begin) if begin < items.count else ():
        one = safe(item)
        room -= len(text_of(one)) + 1
        if room < 0:
            answer["cursor"] = f"{begin + len(taken)}-{digest}"
            break
        taken.append(one)
    if room < 0 and not taken:  # not even one item, or a head without items
        raise CommandError(
            f"This does not fit in {most:,} tokens: ask with max_tokens of at least "
            f"{most - room // CHARACTERS:,}, or of a table for fewer columns."
        )
    answer["tokens"] = -(-len(text_of(answer)) // CHARACTERS)
    return answer


def safe(value: Any) -> Any:
    """As JSON has it, with texts in which nothing is left that a terminal interprets or
    hides; larger integers are texts."""
    found = msgspec.to_builtins(value)
    if isinstance(found, str):
        return printable(found)
    if isinstance(found, dict):
        return {safe(key): safe(one) for key, one in found.items()}
    if isinstance(found, int) and not LEAST_INT <= found < BEYOND_INTS:
        return str(found)
    return [safe(one) for one in found] if isinstance(found, list | tuple) else found


def text_of(value: object) -> str:
    """Compact JSON."""
    return orjson.dumps(value).decode()


MOST_ROWS, PATIENCE = 100_000, 30.0  # of a query in SQL; in seconds
QUERIES_AT_ONCE = 2  # in SQL, each of which may take several cores
READINGS_AT_ONCE = 8  # calls that read or examine traces
WITHOUT_TRACES = ("decode", "traces")
NO_TEXT = re.compile("[\ud800-\udfff\ufdd0]")
"""A surrogate without its partner, or what stands for one that came by JSON (see
input.py)."""


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
        if not is_text(name) or not is_text(arguments):
            raise CommandError(
                "The arguments hold a lone surrogate, which is no Unicode text: send characters "
                "as themselves, or as pairs of surrogates."
            )
        if name not in TOOLS:
            raise CommandError(f"There is no tool {name}, only {', '.join(TOOLS)}.")
        try:
            asked: Any = msgspec.convert(dict(arguments), taken(name), strict=False)
        except msgspec.ValidationError as error:
            raise CommandError(f"{name}: {error}.") from None
        try:
            if name == "sql":
                head, items, states = self._sql(asked, stop)
            elif name in WITHOUT_TRACES:
                head, items = answer_without_traces(name, asked, self._opener)
                states = ()
            else:
                with holding(self._readings, stop):
                    head, items, states = self._answer(name, asked, stop)
        except Error as error:
            raise CommandError(self._opener.told(str(error))) from None
        question = (
            name,
            replace(asked, cursor=None, max_tokens=LEAST),
            states,
            items.total,
        )
        return paged(head, items, asked.max_tokens, asked.cursor, question)

    def _answer(self, name: str, asked: Any, stop: Stop) -> tuple[*Answer, object]:
        """With the states of the files that it is about."""
        question = replace(asked, cursor=None, max_tokens=LEAST)
        if name in WITH_FILES:
            of_files = self._opener.states_of(asked)
            key: tuple[object, ...] = (name, of_files, repr(question))
            answer = self._opener.answers.get(
                key, lambda: WITH_FILES[name](asked, self._opener, stop), stop
            )
            return *answer, of_files
        files = [
            getattr(asked, one) for one in ("trace", "a", "b") if hasattr(asked, one)
        ]
        traces = [self._opener.open(file, stop) for file in files]
        states = tuple((one.name, one.state) for one in traces)
        if "columns" in TOOLS[name].takes:
            answer = self._table(getattr(asked, "table", name), traces[0], asked, stop)
        else:
            key = (name, states, repr(question))
            answer = self._opener.answers.get(
                key, lambda: WITH_TRACES[name](asked, *traces), stop
            )
        return *answer, states

    def _table(self, name: str, opened: OpenTrace, asked: Any, stop: Stop) -> Answer:
        by, step = getattr(asked, "by", "name"), getattr(asked, "step", None)
        options = TableRequest(by=by, part=Selection(step=step))
        key = name, by, step, opened.state
        whole = self._opener.answers.get(
            key, lambda: trace_table(name, opened.trace, options), stop
        )
        rows = rows_asked(whole, asked, "where")
        return _rows([opened], name, _columns_asked(rows, asked), asked.top)

    def _sql(self, asked: Any, stop: Stop) -> tuple[*Answer, object]:
        """The rows of a query, as many and for as long as a server can afford. The
        query runs elsewhere, so that others are answered meanwhile; only tables are
        made here."""
        with holding(self._readings, stop):
            names = (asked.trace, *(asked.others or ()))
            traces = [self._opener.open(name, stop) for name in names]
            states = tuple((one.name, one.state) for one in traces)
            key = "sql", states, asked.query
            table = self._opener.answers.kept(key)
        if table is None:
            named = [(one.name, one.trace) for one in traces]

            def make(name: str) -> Table:
                with holding(self._readings, stop):
                    return table_of_all(named, name)

            needed("duckdb", "SQL", "sql")
            query = asked.query.strip().rstrip(";")
            with holding(self._queries, stop):
                table = ask_elsewhere(
                    f"SELECT * FROM (\n{query}\n) LIMIT {MOST_ROWS + 1}",
                    make,
                    of_several=len(named) > 1,
                    limit_s=PATIENCE,
                    stop=stop,
                )
            if len(table) > MOST_ROWS:
                raise CommandError(
                    f"The query has more than {MOST_ROWS:,} rows: add up, or set a LIMIT."
                )
            self._opener.answers.get(key, lambda: table)
        return *_rows(traces, "sql", table), states


def is_text(value: object) -> bool:
    """Whether all texts in it can be written as UTF-8."""
    if isinstance(value, str):
        return NO_TEXT.search(value) is None
    if isinstance(value, Mapping):
        return all(is_text(key) and is_text(one) for key, one in value.items())
    return all(map(is_text, value)) if isinstance(value, list | tuple) else True


def _rows(
    traces: Sequence[OpenTrace], name: str, table: ColumnTable, top: int | None = None
) -> Answer:
    """The first `top` rows, with what no row of the table has among the notes."""
    shown = table.top(top) if top else table

    def rest(begin: int) -> Any:
        return (list(row.values()) for row in shown.take(slice(begin, None)))

    notes = (*table.left_out, *(note for one in traces for note in one.notes))
    head: dict[str, object] = {
        "trace": traces[0].name,
        "notes": [*dict.fromkeys(notes)],
    }
    head |= {"table": name, "columns": table.names}
    return head, PagedItems("rows", len(table), rest, asked=top)


def _columns_asked(table: Table, asked: Any) -> ColumnTable:
    """As the option of the command line of the same name."""
    if asked.columns == "*":
        return table
    names = asked.columns and map(str.strip, asked.columns.split(","))
    return table.select(names) if names else first_columns(table)
