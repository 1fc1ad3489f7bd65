"""The user's own key bindings, from keys.toml in the user's config folder.

    zoom-in = "Z"
    pan-left = ["h", "Left"]
    copy = []

A line names an action and its keys, written as the help writes them.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from fusetui.text.printable import printable
from fusetui.text.toml import WrongFileError, table_in, text_of
from fusetui.tui.state.action import EVERYWHERE, Action, key_name, key_text

PLACE = "FUSETUI_KEYS"  # names another file, or is `off`
FILE = "keys.toml"
MODAL = {"Over the page", "In the summary", "In the tour"}
LISTS = {
    f"In the {one}"
    for one in ("trees", "op tree", "modules", "kernels", "ranks", "diff")
}
"""Sections of the help whose keys act where those of lists do."""
OF_MANY = {"In the lists", "In the trees"}  # those whose keys act on several pages
# by the name of an action: its keys, as Textual names them
Keymap = Mapping[str, tuple[str, ...]]


class _WrongKeyError(Exception):
    """Why a line of the file cannot be used: a sentence without its full stop.

    `written` is the value that is wrong, as the file has it; "" for the whole line.
    """

    def __init__(self, sentence: str, written: str = "") -> None:
        super().__init__(sentence)
        self.written = written


def user_keymap(actions: Sequence[Action]) -> Keymap:
    """The keys of this user; none where there is no file. Raises WrongFileError."""
    place = os.environ.get(PLACE, "")
    if place == "off":
        return {}
    from platformdirs import user_config_path

    path = Path(place) if place else user_config_path("fusetui") / FILE
    try:
        return parsed(text_of(path), str(path), actions)
    except FileNotFoundError:
        if place:
            raise WrongFileError(f"{path} does not exist: {PLACE} names it.") from None
        return {}


def parsed(text: str, path: str, actions: Sequence[Action]) -> Keymap:
    """The keys in the text of a file. Raises WrongFileError, which names the line."""
    action_of_name = {action.name: action for action in actions}
    keymap: dict[str, tuple[str, ...]] = {}
    for name, value in table_in(text, path).items():
        try:
            if name not in action_of_name:
                raise _WrongKeyError(_unknown(name, action_of_name))
            keys = value if isinstance(value, list) else [value]
            keymap[name] = tuple(_key(key) for key in keys)
        except _WrongKeyError as wrong:
            line = _line(text, name, wrong.written)
            raise WrongFileError(f"{path}, line {line}: {wrong}.") from None
    for name in keymap:
        clash = _clash(action_of_name[name], keymap, actions)
        if clash:
            raise WrongFileError(f"{path}, line {_line(text, name)}: {clash}.")
    return keymap


def _unknown(name: str, named: Iterable[str]) -> str:
    """That there is no such action, and the name that is nearest to it."""
    near = difflib.get_close_matches(name, named, 1)
    hint = f"{near[0]} is the nearest" if near else "docs/reference.md lists all"
    return f"there is no action {printable(name)}; {hint}"


def _key(text: object) -> str:
    """Textual's name of a key that a person wrote. Raises _WrongKeyError."""
    if not isinstance(text, str):
        raise _WrongKeyError('a key is a text such as "w" or "Ctrl+r"')
    name = key_name(text)
    if name:
        return name
    sentence = f'"{printable(text)}" is no key: "w", "Esc", "Ctrl+r" and "F5" are'
    raise _WrongKeyError(sentence, written=f'"{text}"')


def _clash(action: Action, keymap: Keymap, actions: Sequence[Action]) -> str:
    """A sentence about a key of another action that is there at the same time; "" for
    none, or where both have the key anyway."""
    for other in actions:
        if other is action or not _meet(other.section, action.section):
            continue
        keys_of_other = keymap.get(other.name, other.keys)
        both = set(keymap[action.name]) & set(keys_of_other)
        if both and not both <= set(action.keys):
            return f"{key_text(min(both))} is already the key of {other.name}"
    return ""


def _meet(one: str, other: str) -> bool:
    """Whether keys of two sections of the help act on the same page; in an overlay and
    in the answer, keys have another meaning by design."""
    if one == other:
        return True
    pair = {one, other}
    if EVERYWHERE in pair:
        return not pair & MODAL
    return pair <= {"In the lists", *LISTS} and not pair.isdisjoint(OF_MANY)


def _line(text: str, name: str, value: str = "") -> int:
    """The line that names an action, or below it the first with a value of it, from 1;
    line 1 where none does."""
    assignment = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    lines = text.splitlines()
    first = 1
    for number, line in enumerate(lines, start=1):
        if assignment.match(line.lstrip("[")):
            first = number
            break
    for number, line in enumerate(lines[first - 1 :], start=first):
        if value in line:
            return number
    return first
