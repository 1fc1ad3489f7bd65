"""The answers to calls: of each the head, and what there may be much of, before it is cut into
pages. Each function takes what opens traces, and the arguments; it raises Error with one plain
sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock, Timer
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from fusetui.analysis.questions.query_text import WrongQuery
from fusetui.analysis.why.selection import Selection
from fusetui.commands.agents.opened import Folders, Opener, OpenTrace
from fusetui.commands.agents.pages import PagedItems, paged
from fusetui.commands.agents.tools import FEW, LEAST, LISTS, ROWS_OF, TOOLS, taken
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import secret_notices
from fusetui.tables.drawn import seen_first
from fusetui.tables.sources import Asked, made
from fusetui.tables.table import ColumnTable
from fusetui.trace.model.errors import TraceError
from fusetui.trace.model.report import Stop, never

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
        """The answer as JSON has it. Raises Error with one plain sentence, also once `stop` has
        ended the reading."""
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
            table = self._opener.answer((*key, asked.query), lambda: _sql(asked, traces))
            head, items = _rows(traces[0], name, table)
            head["notes"] = [*dict.fromkeys(note for one in traces for note in one.notes)]
        elif traces:
            make = WITH_TRACES[name]
            head, items = self._opener.answer(key, lambda: make(asked, *traces))
        elif name == "decode":
            head, items = _decode(asked.names)
        else:
            files, notes = self._opener.folders.listed()
            head, items = {"notes": notes}, _all("traces", files)
        return head, items, states

    def _table(self, name: str, opened: OpenTrace, asked: Any) -> Answer:
        by, step = getattr(asked, "by", "name"), getattr(asked, "step", None)
        options = Asked(by=by, part=Selection(step=step))
        key = name, by, step, opened.state
        whole = self._opener.answer(key, lambda: made(name, opened.trace, options))
        return _rows(opened, name, _chosen(whole, asked))


def _rows(opened: OpenTrace, name: str, table: ColumnTable) -> Answer:
    def rest(begin: int) -> Any:
        return (list(row.values()) for row in table.take(slice(begin, None)))

    head = {**_of(opened), "table": name, "columns": table.names}
    return head, PagedItems("rows", len(table), rest)


def _chosen(table: Any, asked: Any) -> ColumnTable:
    """As the options of the command line of the same names."""
    try:
        table = table.where(asked.where) if asked.where else table
    except WrongQuery as error:
        raise CommandError(f"where: {error}.") from None
    table = table.sort(asked.sort) if asked.sort else table
    table = table.top(asked.top) if asked.top else table
    if not asked.columns:
        table = seen_first(table)
    elif asked.columns != "*":
        table = table.select(dict.fromkeys(map(str.strip, asked.columns.split(","))))
    found: ColumnTable = table
    return found


def _all(key: str, items: Sequence[object]) -> PagedItems:
    return PagedItems(key, len(items), lambda begin: items[begin:])


def _of(opened: OpenTrace) -> dict[str, object]:
    return {"trace": opened.name, "notes": opened.notes}


def _open(_: Any, opened: OpenTrace) -> Answer:
    """As `summary --json`, without its long lists."""
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


def _decode(names: Sequence[str]) -> Answer:
    """As `decode --json`."""
    from fusetui.commands.about import decoded

    return {}, _all("names", [*map(decoded, names)])


WITH_TRACES: dict[str, Callable[..., Answer]] = {"open": _open, "why": _why, "diff": _diff}
