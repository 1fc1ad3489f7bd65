"""Quotes words of a command line so that a shell reads them back."""

from __future__ import annotations

import os
import shlex

from fusetui.text.printable import is_printable

ESCAPED_IN_QUOTES = {"\\": "\\\\", "'": "\\'"}


def shell_word(word: str) -> str:
    """A word that a shell reads as exactly this text.

    What a terminal would interpret or hide is written as `$'\\x1b'`, which bash, zsh
    and ksh read as those bytes.
    """
    if is_printable(word):
        return shlex.quote(word)
    escaped = "".join(map(_escape_in_quotes, word))
    return f"$'{escaped}'"


def shell_path(path: str) -> str:
    """Quote a path as one word, which a shell reads back exactly. One that begins with
    `-` gets `./` before it, so that it is not an option."""
    return shell_word(f"./{path}" if path.startswith("-") else path)


def _escape_in_quotes(character: str) -> str:
    """Return a character as it is written between `$'` and `'`."""
    if is_printable(character):
        return ESCAPED_IN_QUOTES.get(character, character)
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))
