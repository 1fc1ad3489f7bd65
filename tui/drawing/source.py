"""Draws the source of a slice: lines of code in the colors of their parts."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from fusetui.text.cutting import clip
from fusetui.text.printable import printable
from fusetui.tui.drawing.picture import Rows
from fusetui.tui.drawing.schemes import Styled, choose_glyphs
from fusetui.tui.layout.text_layout import Language, ShownLine, SourceShown

NUMBER_CELLS = 5  # of a line of code
MAX_LINE_CHARS = 1_000  # of a line of code, that are colored
LOOKS = {"heading": "title", "plain": "plain", "faint": "faint", "code": "plain"}
TOKENS = (
    ("Comment", "faint"),
    ("Keyword", "code.keyword"),
    ("Literal.String", "code.string"),
    ("Literal.Number", "code.number"),
    ("Name.Function", "code.function"),
    ("Name.Class", "code.function"),
    ("Name.Builtin", "code.keyword"),
    ("Name.Decorator", "code.function"),
)
"""The token of a scheme for each kind of Pygments, the first that fits."""


def make_source_rows(shown: SourceShown, ascii_only: bool, keys: str) -> Rows:
    """Return the lines of a slice's source as the rows of an overlay, each formatted
    when it becomes visible. `keys` is the text about keys in the heading."""
    glyphs = choose_glyphs(ascii_only)
    heading = f" {printable(shown.title)}   {keys}"

    def row(index: int, width: int) -> list[Styled]:
        return format_source_line(
            shown.lines[index], width, glyphs.selected, glyphs.ellipsis
        )

    identity = (shown, ascii_only, keys)
    return Rows(
        identity, len(shown.lines), lambda width: heading, row, are_counted=False
    )


def format_source_line(
    line: ShownLine, width: int, mark: str, ellipsis: str
) -> list[Styled]:
    """Return a line of source as texts with their styles, cut to `width` cells. Lines
    of code have their number, a mark if they are important, and colors by syntax."""
    if line.look != "code":
        shown_text = clip(printable(line.text), width, ellipsis)
        return [(shown_text, LOOKS[line.look])]
    number = (
        f"{line.number:>{NUMBER_CELLS}} " if line.number else " " * (NUMBER_CELLS + 1)
    )
    line_start = f"{number}{mark if line.is_marked else ' '} "
    shown_text = clip(printable(line.text), max(1, width - len(line_start)), ellipsis)
    parts: list[Styled] = [(line_start, "title" if line.is_marked else "faint")]
    return [*parts, *highlight_code(shown_text, line.language)]


@lru_cache(maxsize=4_000)
def highlight_code(text: str, language: Language) -> tuple[Styled, ...]:
    """Return a line of code as pieces, each with the style for its syntax.

    Lines are highlighted one by one, so that only visible ones cost time. Text in no
    language, and lines longer than MAX_LINE_CHARS, stay plain.
    """
    if not language or len(text) > MAX_LINE_CHARS:
        return ((text, "plain"),)
    pieces: list[Styled] = []
    for kind, piece in make_lexer(language).get_tokens(text):
        shown = piece.rstrip("\n")
        if shown:
            pieces.append((shown, choose_code_style(kind)))
    leading = len(text) - len(text.lstrip())
    # the lexer returns nothing for a line of blanks
    if leading and not pieces[:1]:
        return ((text, "plain"),)
    return tuple(pieces)


@cache
def make_lexer(language: Language) -> Any:
    """Return the Pygments lexer for a language. It keeps blanks and empty lines,
    because they are part of the layout. Pygments is imported only when code is shown.
    """
    if language == "cpp":
        from pygments.lexers.c_cpp import CppLexer  # only once code is shown

        return CppLexer(stripnl=False, stripall=False, ensurenl=False)
    from pygments.lexers.python import PythonLexer

    return PythonLexer(stripnl=False, stripall=False, ensurenl=False)


@lru_cache(maxsize=256)
def choose_code_style(kind: Any) -> str:
    """Return the name of the style for a Pygments token type, such as
    `Token.Literal.String.Single`; "plain" if none fits."""
    type_name = str(kind).removeprefix("Token.")
    for beginning, token in TOKENS:
        if type_name.startswith(beginning):
            return token
    return "plain"
