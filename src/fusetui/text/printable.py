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
    """Tell whether a terminal shows every character of a text and interprets none.

    Control characters, lone surrogates, line ends, and characters without width or that
    change the direction of writing make it false.
    """
    if not text.isprintable():
        return False
    return text.isascii() or re.search(HIDDEN, text) is None


def printable(text: str) -> str:
    r"""Escape everything in a text that a terminal would interpret or hide.

    >>> printable("\x1b[31mred"), printable("naïve")
    ('\\x1b[31mred', 'naïve')
    """
    if is_printable(text):
        return text
    return "".join(map(_escape_character, text))


def _escape_character(char: str) -> str:
    r"""Return a character as it is, or as an escape such as `\x1b`."""
    if is_printable(char):
        return char
    return char.encode("unicode_escape").decode()


def printable_lines(text: str) -> str:
    """Escape what a terminal would interpret or hide in each line of a text; line ends
    are kept."""
    return "\n".join(printable(line) for line in text.split("\n"))


def json_lines(text: str) -> str:
    r"""Escape in a JSON document what a terminal would interpret or hide, as JSON does:
    `\u009b`.

    The result decodes to the same document, if there are no such characters but `\n`
    outside of its strings: no tabs and no carriage returns, as orjson writes it.

    Args:
        text: A JSON document. It must have escaped characters below 32 in its strings
            already, as valid JSON has.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    lines = []
    for line in text.split("\n"):
        # Most lines need no escapes, and are faster to check than to escape.
        is_safe = is_printable(line)
        lines.append(line if is_safe else "".join(map(_escape_in_json, line)))
    return "\n".join(lines)


def markdown(text: str) -> str:
    r"""Escape a text so that Markdown shows it as it is.

    It makes no mark-up, table cells, HTML or mentions of users.

    >>> markdown("a*b | <c> & d")
    'a\\*b \\| \\<c\\> &amp; d'
    """
    escaped = ""
    for char in printable(text):
        escaped += f"\\{char}" if char in MARKDOWN_SYNTAX else char
    # A blank without width behind @ keeps GitHub from mentioning a user.
    return escaped.replace("&", "&amp;").replace("@", f"@{ZERO_WIDTH_SPACE}")


def markdown_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = ()
) -> list[str]:
    """Return the lines of a Markdown table.

    >>> markdown_table(["name", "count"], [["gemm", "3"]], left=[0])
    ['| name | count |', '| --- | ---: |', '| gemm | 3 |']

    Args:
        titles: The titles of the columns, already Markdown.
        rows: The cells of each row, already Markdown.
        left: The numbers of the columns that are aligned left, as texts are.
    """
    ruler = []
    for column in range(len(titles)):
        ruler.append("---" if column in left else "---:")
    lines = []
    for cells in (titles, ruler, *rows):
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def without_credentials(text: str) -> str:
    """Remove users, passwords and queries from the URLs in a text. Queries may hold
    signatures.

    >>> without_credentials("https://me:secret@host/a.json?sig=x cannot be read.")
    'https://host/a.json?... cannot be read.'
    """
    if "://" not in text:
        return text
    without_users = re.sub(URL_USER, "", text)
    return re.sub(URL_QUERY, r"\1...", without_users)


def _escape_in_json(char: str) -> str:
    r"""Return a character as JSON escapes it, if a terminal would not show it.

    Characters beyond 16 bits become a pair of surrogates: `\udb40\udd00`.
    """
    if is_printable(char):
        return char
    digits = char.encode("utf-16-be", "surrogatepass").hex()
    escapes = [f"\\u{digits[start : start + 4]}" for start in range(0, len(digits), 4)]
    return "".join(escapes)
