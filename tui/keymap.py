"""The keys that a person chose instead of ours: keys.toml in the user's config folder.

    zoom-in = "i"
    pan-left = ["h", "Left"]
    copy = []

A line names an action and its keys, written as the help writes them.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fusetui.trace.text.printable import printable
from fusetui.tui.state.action import Action
from fusetui.tui.state.keys import key_name, key_text

PLACE = "FUSETUI_KEYS"
"""Names another file, or is `off`."""
FILE = "keys.toml"
Keymap = Mapping[str, tuple[str, ...]]
"""By the name of an action: its keys, as Textual names them."""


class KeymapError(Exception):
    """One plain sentence: which line of the file is wrong, and what would be right."""


def user_keymap(actions: Sequence[Action]) -> Keymap:
    """The keys of this user; none where there is no file. Raises KeymapError."""
    place = os.environ.get(PLACE, "")
    if place == "off":
        return {}
    path = Path(place) if place else _usual_path()
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        if place:
            raise KeymapError(f"{path} does not exist: {PLACE} names it.") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise KeymapError(f"{path} cannot be read: {error}.") from None
    return parsed(text, str(path), actions)


def parsed(text: str, path: str, actions: Sequence[Action]) -> Keymap:
    """The keys in the text of a file. Raises KeymapError, which names the line."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KeymapError(f"{path} is not valid TOML: {error}.") from None
    named = {action.name: action for action in actions}
    found: dict[str, tuple[str, ...]] = {}
    for name, value in table.items():
        try:
            action = _known(name, named)
            found[action] = tuple(_key(key) for key in _texts(value))
        except ValueError as wrong:
            raise KeymapError(f"{path}, line {_line(text, name)}: {wrong}.") from None
    for name in found:
        if clash := _clash(named[name], found, actions):
            raise KeymapError(f"{path}, line {_line(text, name)}: {clash}.")
    return found


def _usual_path() -> Path:
    from platformdirs import user_config_path

    return user_config_path("fusetui") / FILE


def _known(name: str, named: Iterable[str]) -> str:
    if name in named:
        return name
    near = difflib.get_close_matches(name, named, 1)
    hint = f"{near[0]} is the nearest" if near else "docs/reference.md lists all"
    raise ValueError(f"there is no action {printable(name)}; {hint}")


def _texts(value: object) -> Iterable[str]:
    for key in value if isinstance(value, list) else [value]:
        if not isinstance(key, str):
            raise ValueError('a key is a text such as "w" or "Ctrl+r"')
        yield key


def _key(text: str) -> str:
    name = key_name(text)
    if name is None:
        raise ValueError(f'"{printable(text)}" is no key: "w", "Esc", "Ctrl+r" and "F5" are')
    return name


def _clash(action: Action, found: Keymap, actions: Sequence[Action]) -> str:
    """A sentence about a key that another action of the same section has; "" for none."""
    for other in actions:
        if other is action or other.section != action.section:
            continue
        both = set(found[action.name]) & set(found.get(other.name, other.keys))
        if both and not both <= set(action.keys):
            return f"{key_text(min(both))} is already the key of {other.name}"
    return ""


def _line(text: str, name: str) -> int:
    """The line that names an action, from 1."""
    wanted = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    lines = text.splitlines()
    return next((n for n, line in enumerate(lines, 1) if wanted.match(line.lstrip("["))), 1)
