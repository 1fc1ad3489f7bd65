"""The answers to calls: of each the head, and what there may be much of, of which as much is given
as a budget allows, and a cursor for the rest. What is wrong is an Error with one plain sentence.

A cursor holds all that is known about it: where to go on, and a hash of the question. It is good
for the same question, as long as the files of its traces have not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from threading import Lock, Timer
from typing import Any

import msgspec
import orjson
from msgspec.structs import asdict, replace

from fusetui.analysis.why.selection import Selection
from fusetui.commands.agents.opened import Folders, Opener, OpenTrace
from fusetui.commands.agents.tools import FEW, LEAST, LISTS, ROWS_OF, TOOLS, taken
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import secret_notices
from fusetui.commands.tables import rows_asked
from fusetui.tables.drawn import seen_first
from fusetui.tables.public import Table
from fusetui.tables.sources import TableRequest, made
from fusetui.tables.table import ColumnTable
from fusetui.text.patterns import late
from fusetui.text.printable import printable
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.report import Stop, never

CHARACTERS = 4  # of JSON that are estimated as one token
CURSOR = late(r"([0-9]{1,15})-([0-9a-f]{12})")
WIDEST = 40  # characters of a cursor and of the number of tokens


class PagedItems(msgspec.Struct, frozen=True, eq=False):
    """What an answer has some of: their key, their number, and those from the n-th on."""

    key: str
    total: int
    rest: Callable[[int], Iterable[object]]


def paged(
    head: Mapping[str, object], items: PagedItems, most: int, cursor: str | None, question: object
) -> dict[str, Any]:
    """The head, and as many items as `most` tokens hold. Raises CommandError if that is not even
    one, or if the cursor is not one of this question."""
    digest = blake2b(repr(question).encode(), digest_size=6).hexdigest()
    begin = 0
    if cursor is not None:
        place = CURSOR.fullmatch(cursor)
        if place is None or place[2] != digest or not 0 < int(place[1]) < items.total:
            raise CommandError(
                "This cursor is not one of this question, or the trace has changed since: repeat "
                "the arguments that it came with, or ask without a cursor."
            )
        begin = int(place[1])
    answer: dict[str, Any] = {**safe(head), items.key: [], "total": items.total}
    answer |= {"cursor": None, "tokens": 0}
    room = most * CHARACTERS - len(text_of(answer)) - WIDEST
    taken = answer[items.key]
    for item in items.rest(begin) if begin < items.total else ():
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
    """As JSON has it, with texts in which nothing is left that a terminal interprets or hides."""
    found = msgspec.to_builtins(value)
    if isinstance(found, str):
        return printable(found)
    if isinstance(found, dict):
        return {safe(key): safe(one) for key, one in found.items()}
    return [safe(one) for one in found] if isinstance(found, list | tuple) else found


def text_of(value: object) -> str:
    """Compact JSON."""
    return orjson.dumps(value).decode()


MOST_ROWS, PATIENCE = 100_000, 30.0  # of a query in SQL; in seconds
Answer = tuple[dict[str, object], PagedItems]


class Answerer:
    """Answers calls, one after the other."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._opener = Opener(Folders(folders))
        self._lock = Lock()

    def call(
        self, name: str, arguments: Mapping[str, object], stop: Stop = never
    ) -> dict[str, Any]:
        """The answer as JSON has it. Raises Error, also once `stop` says so."""
        if name not in TOOLS:
            raise CommandError(f"There is no tool {name}, only {', '.join(TOOLS)}.")
        try:
            asked: Any = msgspec.convert(dict(arguments), taken(name), strict=False)
        except msgspec.ValidationError as error:
            raise CommandError(f"{name}: {error}.") from None
        try:
            with self._lock:
                head, items, states = self._answer(name, asked, stop)
        except TraceError as error:
            raise CommandError(self._opener.told(str(error))) from None
        question = name, replace(asked, cursor=None, max_tokens=LEAST), states, items.total
        return paged(head, items, asked.max_tokens, asked.cursor, question)

    def _answer(self, name: str, asked: Any, stop: Stop) -> tuple[*Answer, object]:
        """With the states of the files that it is about."""
        files = [getattr(asked, key) for key in ("trace", "a", "b") if hasattr(asked, key)]
        files += getattr(asked, "others", None) or ()
        traces = [self._opener.open(file, stop) for file in files]
        states = [(one.name, one.state) for one in traces]
        key = name, *states, getattr(asked, "step", None)
        if "columns" in TOOLS[name].takes:
            head, items = self._table(getattr(asked, "table", name), traces[0], asked)
        elif name == "sql":
            table = self._opener.answers.get((*key, asked.query), lambda: _sql(asked, traces))
            head, items = _rows(traces[0], name, table)
            head["notes"] = [*dict.fromkeys(note for one in traces for note in one.notes)]
        elif traces:
            make = WITH_TRACES[name]
            head, items = self._opener.answers.get(key, lambda: make(asked, *traces))
        elif name == "decode":
            from fusetui.gpu.kernel_names import decoded

            head, items = {}, _all("names", [*map(decoded, asked.names)])
        else:
            files, notes = self._opener.folders.listed()
            head, items = {"notes": notes}, _all("traces", files)
        return head, items, states

    def _table(self, name: str, opened: OpenTrace, asked: Any) -> Answer:
        by, step = getattr(asked, "by", "name"), getattr(asked, "step", None)
        options = TableRequest(by=by, part=Selection(step=step))
        key = name, by, step, opened.state
        whole = self._opener.answers.get(key, lambda: made(name, opened.trace, options))
        return _rows(opened, name, _chosen(whole, asked))


def _rows(opened: OpenTrace, name: str, table: ColumnTable) -> Answer:
    def rest(begin: int) -> Any:
        return (list(row.values()) for row in table.take(slice(begin, None)))

    head = {**_of(opened), "table": name, "columns": table.names}
    return head, PagedItems("rows", len(table), rest)


def _chosen(table: Table, asked: Any) -> ColumnTable:
    """As the options of the command line of the same names."""
    table = rows_asked(table, asked, "where")
    table = table.top(asked.top) if asked.top else table
    if asked.columns == "*":
        return table
    names = asked.columns and map(str.strip, asked.columns.split(","))
    return table.select(names) if names else seen_first(table)


def _all(key: str, items: Sequence[object]) -> PagedItems:
    return PagedItems(key, len(items), lambda begin: items[begin:])


def _of(opened: OpenTrace) -> dict[str, object]:
    return {"trace": opened.name, "notes": opened.notes}


def _open(_: Any, opened: OpenTrace) -> Answer:
    from fusetui.analysis.questions.summary import summary

    found = summary(opened.trace)
    figures = {name: value for name, value in asdict(found).items() if name not in LISTS}
    notes = [*opened.notes, *secret_notices(opened.trace)]
    return {**_of(opened), "notes": notes, "figures": figures}, _all("steps", found.steps)


def _why(asked: Any, opened: OpenTrace) -> Answer:
    from fusetui.analysis.replay.worth import with_worth
    from fusetui.analysis.why.answer import why
    from fusetui.report.why_answer import answer

    found = with_worth(opened.trace, why(opened.trace, Selection(step=asked.step)))
    head: dict[str, object] = {
        **_of(opened),
        "answer": answer(found),
        "about": found.about,
        "devices": found.devices,
        "threads": () if found.devices else found.cpu,
        "ceiling": found.ceiling,
        **{key: getattr(found, key) for key in ("worth_of", "worth_before_ns", "residual_share")},
        "cannot_tell": found.cannot_tell,
    }
    claims = [
        {ROWS_OF.get(key, key): value for key, value in msgspec.to_builtins(one).items()}
        for one in found.findings
    ]
    return head, _all("findings", claims)


def _diff(_: Any, a: OpenTrace, b: OpenTrace) -> Answer:
    """The largest change first; dispatch, which is no part of the sum, last."""
    from fusetui.analysis.diff.compare import diff
    from fusetui.report.diff import judgment

    found = diff(a.trace, b.trace)
    many = ("a", "b", "a_rows", "b_rows")
    rows = [replace(one, **{key: getattr(one, key)[:FEW] for key in many}) for one in found.rows]
    rows.sort(key=lambda row: (not row.counts, -abs(row.change_ns)))
    same = ("verdict", "step", "story", "accounting", "by_work")
    head: dict[str, object] = {
        **{"a": a.name, "b": b.name, "answer": judgment(found)},
        **{name: getattr(found, name) for name in same},
        "notes": [*dict.fromkeys((*found.notes, *a.notes, *b.notes))],
    }
    return head, _all("rows", rows)


def _sql(asked: Any, traces: Sequence[OpenTrace]) -> ColumnTable:
    """The rows of a query, as many and for as long as a server can afford."""
    from fusetui.tables.sql import SqlTables

    query = asked.query.strip().rstrip(";")
    with SqlTables([(one.name, one.trace) for one in traces]) as database:
        timer = Timer(PATIENCE, database.interrupt)
        timer.start()
        try:
            table = database.ask(f"SELECT * FROM (\n{query}\n) LIMIT {MOST_ROWS + 1}")
        finally:
            timer.cancel()
    if len(table) > MOST_ROWS:
        raise CommandError(f"The query has more than {MOST_ROWS:,} rows: add up, or set a LIMIT.")
    return table


WITH_TRACES: dict[str, Callable[..., Answer]] = {"open": _open, "why": _why, "diff": _diff}
