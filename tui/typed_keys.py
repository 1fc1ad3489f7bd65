"""The keys that the terminal sent before the app started to read."""

from __future__ import annotations

from textual.events import Key

from fusetui.text.patterns import lazy_pattern
from fusetui.tui.state.action import parse_key_name

KEYS = lazy_pattern(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|(?s:.)")
"""A control sequence (ECMA-48, section 5.4), a cursor key of a terminal in application
mode (SS3), or a character."""
CONTROLS = {chr(number): f"ctrl+{chr(number + 96)}" for number in range(1, 27)} | {
    "\x08": "backspace",
    "\t": "tab",
    "\r": "enter",
    "\x1b": "escape",
    "\x7f": "backspace",
}
"""Characters that are sent by a key which writes none."""
CURSOR = {
    "A": "up",
    "B": "down",
    "C": "right",
    "D": "left",
    "F": "end",
    "H": "home",
    "Z": "shift+tab",
}
"""By the last character of the sequence (xterm's ctlseqs, PC-style function keys)."""
NUMBERED = {
    "1": "home",
    "2": "insert",
    "3": "delete",
    "4": "end",
    "5": "pageup",
    "6": "pagedown",
}
"""By the number in a sequence that ends in a tilde."""
SHIFTED = {"1;2A", "1;2B", "1;2C", "1;2D", "1;2F", "1;2H"}


def keys_of(text: str) -> list[Key]:
    """The keys of a text, as Textual would give them. Leaves out function keys, the
    mouse, and modifiers other than Shift of cursor keys.

    >>> [key.key for key in keys_of("3j?\\x1b[A\\x1b[1;2C\\r")]
    ['3', 'j', 'question_mark', 'up', 'shift+right', 'enter']
    """
    keys: list[Key] = []
    for written in KEYS.findall(text):
        if len(written) == 1:
            name, character = CONTROLS.get(written) or parse_key_name(written), written
        else:
            name, character = _name_sequence(written[2:]), None
        if name:
            keys.append(Key(name, character))
    return keys


def _name_sequence(parameters: str) -> str | None:
    """Return Textual's name of a key, from what follows the start of its control
    sequence (CSI or SS3); None for other sequences."""
    last = parameters[-1]
    if last == "~":
        return NUMBERED.get(parameters[:-1])
    if parameters in SHIFTED:
        return f"shift+{CURSOR[last]}"
    return CURSOR.get(parameters)
