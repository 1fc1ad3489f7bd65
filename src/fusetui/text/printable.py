"""External text is data: what a terminal or Markdown would interpret or hide is
escaped.

URLs are shown without passwords and signatures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
"""Letters and marks without a glyph: Default_Ignorable_Code_Point (Unicode, section
5.21), as far as `str.isprintable` accepts them."""

USER = r"(?<=://)[^/\s]*@"
QUERY = r"(?i)(https?://[^\s?#]{1,4096}\?)[^\s]+"


def is_printable(text: str) -> bool:
    """Whether a terminal shows every character of the text and interprets none.

    `str.isprintable` is false for controls (C0, DEL, C1), lone surrogates, line
    separators, and format characters that change the writing direction or have no
    width.
    """
    return text.isprintable() and (text.isascii() or re.search(HIDDEN, text) is None)


def printable(text: str) -> str:
    """The text with everything that a terminal would interpret or hide escaped, as
    `\\x1b`."""
    if is_printable(text):
        return text
    return "".join(
        c if is_printable(c) else c.encode("unicode_escape").decode() for c in text
    )


def printable_lines(text: str) -> str:
    """Like `printable`, but keeps line ends."""
    return "\n".join(map(printable, text.split("\n")))


def json_lines(text: str) -> str:
    """A JSON document in which the same characters are escaped as in JSON: `\\u001b`.

    It decodes to the same document: outside strings, JSON contains none of them except
    line ends. Characters below 32 are escaped in any JSON.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(
        line if is_printable(line) else "".join(map(_json_escaped, line))
        for line in lines
    )


def markdown(text: str) -> str:
    """Escapes the text: no mark-up, table cells, HTML or mentions."""
    escaped = "".join(f"\\{c}" if c in "\\`*_{}[]<>#|~" else c for c in printable(text))
    return escaped.replace("&", "&amp;").replace("@", "@\u200b")


def markdown_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()
) -> list[str]:
    """The lines of a table; the cells are already Markdown. `left`: the columns that
    hold text."""
    ruler = ["---" if n in left else "---:" for n in range(len(titles))]
    return [f"| {' | '.join(row)} |" for row in (titles, ruler, *rows)]


def without_credentials(text: str) -> str:
    """The text, in its URLs neither users and passwords nor queries, which may hold
    signatures.

    >>> without_credentials("https://me:secret@host/a.json?sig=x cannot be read.")
    'https://host/a.json?... cannot be read.'
    """
    if "://" not in text:
        return text
    return re.sub(QUERY, r"\1...", re.sub(USER, "", text))


def _json_escaped(char: str) -> str:
    """JSON writes characters beyond 16 bits as a pair of surrogates."""
    if is_printable(char):
        return char
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
