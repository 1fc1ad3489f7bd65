"""The names of keys as they are written for people."""

from __future__ import annotations

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


def key_text(key: str) -> str:
    """A key as it is written for people: `]`, `Shift+←`, `Ctrl+r`."""
    *modifiers, last = key.split("+")
    return "+".join([*(m.capitalize() for m in modifiers), SYMBOLS.get(last, last)])
