"""Draws the source of a slice: lines of code in the colors of their parts."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

from fusetui.text.cutting import clip
from fusetui.text.printable import printable
from fusetui.tui.drawing.picture import Rows
from fusetui.tui.drawing.schemes import Styled, glyphs_for
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


def source_rows(shown: SourceShown, ascii_only: bool, keys: str) -> Rows:
    """The rows of the overlay; `keys`: what its heading says of keys."""
    glyphs = glyphs_for(ascii_only)
    heading = f" {printable(shown.title)}   {keys}"

    def row(index: int, width: int) -> list[Styled]:
        return line_parts(shown.lines[index], width, glyphs.selected, glyphs.ellipsis)

    identity = (shown, ascii_only, keys)
    return Rows(identity, len(shown.lines), lambda width: heading, row)


def line_parts(line: ShownLine, width: int, mark: str, ellipsis: str) -> list[Styled]:
    """A line with its number, cut to a width."""
    if line.look != "code":
        text = clip(printable(line.text), width, ellipsis)
        return [(text, LOOKS[line.look])]
    number = (
        f"{line.number:>{NUMBER_CELLS}} " if line.number else " " * (NUMBER_CELLS + 1)
    )
    before = f"{number}{mark if line.is_marked else ' '} "
    text = clip(printable(line.text), max(1, width - len(before)), ellipsis)
    parts: list[Styled] = [(before, "title" if line.is_marked else "faint")]
    return [*parts, *highlighted(text, line.language)]


@lru_cache(maxsize=4_000)
def highlighted(text: str, language: Language) -> tuple[Styled, ...]:
    """A line of code in pieces, each with the token of its color. A line is colored by
    itself, so that a screen needs no more than its own lines."""
    if not language or len(text) > MAX_LINE_CHARS:
        return ((text, "plain"),)
    pieces: list[Styled] = []
    for kind, piece in lexer_of(language).get_tokens(text):
        shown = piece.rstrip("\n")
        if shown:
            pieces.append((shown, token_of(kind)))
    leading = len(text) - len(text.lstrip())
    if leading and not pieces[:1]:
        return ((text, "plain"),)
    return tuple(pieces)


@cache
def lexer_of(language: Language) -> Any:
    """The lexer of a language, which keeps blanks at both ends."""
    if language == "cpp":
        from pygments.lexers.c_cpp import CppLexer  # only once code is shown

        return CppLexer(stripnl=False, stripall=False, ensurenl=False)
    from pygments.lexers.python import PythonLexer

    return PythonLexer(stripnl=False, stripall=False, ensurenl=False)


@lru_cache(maxsize=256)
def token_of(kind: Any) -> str:
    """The token of a scheme for a kind of Pygments (`Token.Literal.String.Single`)."""
    name = str(kind).removeprefix("Token.")
    for beginning, token in TOKENS:
        if name.startswith(beginning):
            return token
    return "plain"
