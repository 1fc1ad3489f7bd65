"""Escapes external text that a terminal or Markdown would interpret or hide.

URLs are shown without passwords and signatures.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = (
    "["
    "\u034f"  # combining grapheme joiner
    "\u115f\u1160\u3164\uffa0"  # Hangul fillers
    "\u17b4\u17b5"  # Khmer inherent vowels
    "\u180b-\u180f"  # Mongolian variation selectors
    "\ufe00-\ufe0f\U000e0100-\U000e01ef"  # variation selectors
    "]"
)
"""Letters and marks without a glyph: Default_Ignorable_Code_Point (Unicode, section
5.21), as far as `str.isprintable` accepts them."""

MARKDOWN_SYNTAX = "\\`*_{}[]<>#|~"
ZERO_WIDTH_SPACE = "\u200b"

URL_USER = r"(?<=://)[^/\s]*@"
URL_QUERY = r"(?i)(https?://[^\s?#]{1,4096}\?)[^\s]+"


def is_printable(text: str) -> bool:
    """Whether a terminal shows every character of the text and interprets none.

    `str.isprintable` is false for controls (C0, DEL, C1), lone surrogates, line
    separators, and format characters that change the writing direction or have no
    width.
    """
    if not text.isprintable():
        return False
    return text.isascii() or re.search(HIDDEN, text) is None


def printable(text: str) -> str:
    """The text with everything that a terminal would interpret or hide escaped, as
    `\\x1b`."""
    if is_printable(text):
        return text
    return "".join(
        char if is_printable(char) else char.encode("unicode_escape").decode()
        for char in text
    )


def printable_lines(text: str) -> str:
    """Like `printable`, but keeps line ends."""
    return "\n".join(printable(line) for line in text.split("\n"))


def json_lines(text: str) -> str:
    """A JSON document in which the same characters are escaped as in JSON: `\\u001b`.

    It decodes to the same document: outside strings, JSON contains none of them except
    line ends. The document must have escaped characters below 32 already, as any JSON
    has.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not is_printable(line):
            lines[number] = "".join(map(_json_escaped, line))
    return "\n".join(lines)


def markdown(text: str) -> str:
    """The text, shown by Markdown as it is: no mark-up, table cells, HTML or
    mentions."""
    escaped = "".join(
        f"\\{char}" if char in MARKDOWN_SYNTAX else char for char in printable(text)
    )
    return escaped.replace("&", "&amp;").replace("@", "@" + ZERO_WIDTH_SPACE)


def markdown_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()
) -> list[str]:
    """The lines of a table; the cells are already Markdown. `left`: the numbers of the
    columns that hold text; the others are aligned right."""
    ruler = ["---" if column in left else "---:" for column in range(len(titles))]
    return [f"| {' | '.join(row)} |" for row in (titles, ruler, *rows)]


def without_credentials(text: str) -> str:
    """The text, in its URLs neither users and passwords nor queries, which may hold
    signatures.

    >>> without_credentials("https://me:secret@host/a.json?sig=x cannot be read.")
    'https://host/a.json?... cannot be read.'
    """
    if "://" not in text:
        return text
    without_users = re.sub(URL_USER, "", text)
    return re.sub(URL_QUERY, r"\1...", without_users)


def _json_escaped(char: str) -> str:
    """JSON writes characters beyond 16 bits as a pair of surrogates."""
    if is_printable(char):
        return char
    digits = char.encode("utf-16-be", "surrogatepass").hex()
    if len(digits) == 4:
        return f"\\u{digits}"
    return f"\\u{digits[:4]}\\u{digits[4:]}"
