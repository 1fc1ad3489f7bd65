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
from fusetui.text.toml import WrongFileError, read_text, table_in
from fusetui.tui.state.action import EVERYWHERE, Action, key_text, parse_key_name

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


def read_user_keymap(actions: Sequence[Action]) -> Keymap:
    """Return the keys that the user chose in keys.toml, by the names of actions; empty
    without a file. Raise WrongFileError for a wrong file, or one that the environment
    names and that is missing."""
    named_place = os.environ.get(PLACE, "")
    if named_place == "off":
        return {}
    from platformdirs import user_config_path

    path = Path(named_place) if named_place else user_config_path("fusetui") / FILE
    try:
        return parse_keymap(read_text(path), str(path), actions)
    except FileNotFoundError:
        if named_place:
            raise WrongFileError(
                f"{path} does not exist, but {PLACE} names it."
            ) from None
        return {}


def parse_keymap(text: str, path: str, actions: Sequence[Action]) -> Keymap:
    """Return the keys in the text of a key file, by the names of actions. `path` is
    only for messages. Raise WrongFileError, which names the line, for an unknown
    action, a wrong key, or a key that is taken."""
    action_of_name = {action.name: action for action in actions}
    keymap: dict[str, tuple[str, ...]] = {}
    for name, value in table_in(text, path).items():
        try:
            if name not in action_of_name:
                raise _WrongKeyError(_explain_unknown_action(name, action_of_name))
            keys = value if isinstance(value, list) else [value]
            keymap[name] = tuple(_parse_key(key) for key in keys)
        except _WrongKeyError as wrong:
            line = _find_line(text, name, wrong.written)
            raise WrongFileError(f"{path}, line {line}: {wrong}.") from None
    for name in keymap:
        clash = _find_clash(action_of_name[name], keymap, actions)
        if clash:
            raise WrongFileError(f"{path}, line {_find_line(text, name)}: {clash}.")
    return keymap


def _explain_unknown_action(name: str, named: Iterable[str]) -> str:
    """Return a message that says there is no such action, with the most similar name."""
    near = difflib.get_close_matches(name, named, 1)
    hint = f"{near[0]} is the nearest" if near else "docs/reference.md lists all"
    return f"there is no action {printable(name)}; {hint}"


def _parse_key(text: object) -> str:
    """Return Textual's name of a key that the user wrote. Raise _WrongKeyError if it is
    no key."""
    if not isinstance(text, str):
        raise _WrongKeyError('a key is a text such as "w" or "Ctrl+r"')
    name = parse_key_name(text)
    if name:
        return name
    sentence = f'"{printable(text)}" is not a key; "w", "Esc", "Ctrl+r" and "F5" are'
    raise _WrongKeyError(sentence, written=f'"{text}"')


def _find_clash(action: Action, keymap: Keymap, actions: Sequence[Action]) -> str:
    """Return a message if a key of `action` is also the key of an action that applies
    at the same time, else "". Keys that both have by default are no clash."""
    for other in actions:
        if other is action or not _sections_meet(other.section, action.section):
            continue
        keys_of_other = keymap.get(other.name, other.keys)
        common_keys = set(keymap[action.name]) & set(keys_of_other)
        if common_keys and not common_keys <= set(action.keys):
            return f"{key_text(min(common_keys))} is already the key of {other.name}"
    return ""


def _sections_meet(one: str, other: str) -> bool:
    """Return whether the keys of two sections of the help act on the same page. In an
    overlay, the tour and the answer, keys have another meaning on purpose."""
    if one == other:
        return True
    pair = {one, other}
    if EVERYWHERE in pair:
        return not pair & MODAL
    return pair <= {"In the lists", *LISTS} and not pair.isdisjoint(OF_MANY)


def _find_line(text: str, name: str, value: str = "") -> int:
    """Return the number of the line in a key file that names an action, or of the first
    line from there on with `value`. Lines count from 1; an action that is not found
    gives 1."""
    assignment = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    lines = text.splitlines()
    action_line = 1
    for number, line in enumerate(lines, start=1):
        if assignment.match(line.lstrip("[")):
            action_line = number
            break
    for number, line in enumerate(lines[action_line - 1 :], start=action_line):
        if value in line:
            return number
    return action_line
