"""External text in Markdown: it is shown literally, whatever renders it."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.text.printable import printable


def markdown(text: str) -> str:
    """Escapes the text: no mark-up, table cells, HTML or mentions."""
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~" else c for c in printable(text))
    return escaped.replace("&", "&amp;").replace("@", "@\u200b")


def markdown_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()
) -> list[str]:
    """The lines of a table; the cells are already Markdown. `left`: the columns that hold text."""
    ruler = ["---" if n in left else "---:" for n in range(len(titles))]
    return [f"| {' | '.join(row)} |" for row in (titles, ruler, *rows)]
