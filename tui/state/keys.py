"""The names of keys as they are written for people."""

from __future__ import annotations

import re
import unicodedata

SYMBOLS = {
    "plus": "+",
    "equals_sign": "=",
    "minus": "-",
    "full_stop": ".",
    "comma": ",",
    "colon": ":",
    "apostrophe": "'",
    "right_square_bracket": "]",
    "left_square_bracket": "[",
    "question_mark": "?",
    "slash": "/",
    "asterisk": "*",
    "number_sign": "#",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "escape": "Esc",
    "enter": "Enter",
    "space": "Space",
    "tab": "Tab",
    "pagedown": "PgDn",
    "pageup": "PgUp",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "home": "Home",
    "end": "End",
}

WORDS = {name: name.capitalize() for name in ("left", "right", "up", "down")}
"""Instead of arrows, where there is only ASCII."""


FUNCTION = re.compile(r"f([1-9]|1[0-9]|2[0-4])")


def key_text(key: str, ascii_only: bool = False) -> str:
    """A key as it is written for people: `]`, `Shift+←` or `Shift+Left`, `Ctrl+r`."""
    *modifiers, last = key.split("+")
    last = last.upper() if FUNCTION.fullmatch(last) else last
    text = (WORDS if ascii_only else {}).get(last) or SYMBOLS.get(last, last)
    return "+".join([*(m.capitalize() for m in modifiers), text])


NAMED = {text.lower(): name for name, text in SYMBOLS.items()} | {name: name for name in SYMBOLS}
MODIFIERS = ("ctrl", "alt", "shift")


def key_name(text: str) -> str | None:
    """Textual's name of a key that a person wrote as `key_text` does; None for what is no key."""
    before, plus, last = text.rpartition("+") if len(text) > 1 else ("", "", text)
    if plus and not last:  # the key + itself
        before, last = before.removesuffix("+"), "+"
    modifiers = [word.lower() for word in before.split("+") if word]
    if not set(modifiers) <= set(MODIFIERS):
        return None
    name = _name(last)
    return None if name is None else "+".join([*modifiers, name])


def _name(text: str) -> str | None:
    if text.lower() in NAMED:
        return NAMED[text.lower()]
    if FUNCTION.fullmatch(text.lower()):
        return text.lower()
    if len(text) != 1 or not text.isprintable():
        return None
    if text.isalnum():
        return text
    return unicodedata.name(text, "").lower().replace(" ", "_").replace("-", "_") or None
