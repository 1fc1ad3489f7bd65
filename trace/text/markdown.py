"""Text from outside in Markdown: it shows, and means nothing to whoever renders it."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.trace.text.printable import printable


def markdown(text: str) -> str:
    """No mark-up, no cell of a table, no HTML, and nobody is mentioned by it."""
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~" else c for c in printable(text))
    return escaped.replace("&", "&amp;").replace("@", "@\u200b")


def markdown_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()
) -> list[str]:
    """Its lines; the cells are Markdown already. `left`: the columns that are text."""
    ruler = ["---" if n in left else "---:" for n in range(len(titles))]
    return [f"| {' | '.join(row)} |" for row in (titles, ruler, *rows)]
