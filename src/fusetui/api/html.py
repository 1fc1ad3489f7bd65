"""An open trace as HTML, for notebooks: the account and the first rows of three tables."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from fusetui.analysis.why.selection import accounted
from fusetui.report.why_answer import account_lines
from fusetui.tables.html import table_html
from fusetui.tables.table import ColumnTable
from fusetui.text.printable import printable_lines
from fusetui.trace.model.columns import Trace

WIDTH = 100
ROWS = 5


def trace_html(title: str, trace: Trace, told: Iterable[str], tables: Iterable[ColumnTable]) -> str:
    """Without scripts; whatever a name holds is text."""
    found = accounted(trace)
    account = "\n".join(account_lines(found, WIDTH)) if found.devices else ""
    parts = [_text(line) for line in (title, account, *told) if line]
    return "".join([*parts, *(table_html(table, ROWS) for table in tables if len(table))])


def _text(lines: str) -> str:
    return f"<pre>{escape(printable_lines(lines))}</pre>"
