"""What was typed before the app began, as the keys that Textual would have given."""

from __future__ import annotations

import string

import pytest
from tests.cases import Cases
from textual.events import Key
from textual.keys import REPLACED_KEYS, key_to_character

from fusetui.tui.typed_keys import keys_of

SEQUENCES = {
    "\x1b[A": "up",
    "\x1bOB": "down",
    "\x1b[1;2C": "shift+right",
    "\x1b[Z": "shift+tab",
    "\x1b[5~": "pageup",
    "\x1b[1~": "home",
    "\x1b": "escape",
    "\r": "enter",
    "\n": "ctrl+j",
    "\x12": "ctrl+r",
    "\x7f": "backspace",
}


def names(text: str) -> list[str]:
    return [key.key for key in keys_of(text)]


@pytest.mark.parametrize(("written", "name"), SEQUENCES.items(), ids=SEQUENCES.values())
def test_a_key_that_writes_nothing(written: str, name: str) -> None:
    assert names(f"a{written}b") == ["a", name, "b"]


def test_every_printable_character_is_a_key_of_textual() -> None:
    with Cases() as cases:
        for character in string.printable[:95]:
            with cases.case(character):
                (key,) = keys_of(character)
                assert key.character == character
                name = REPLACED_KEYS.get(key.key, key.key)
                assert key_to_character(name) == character


@pytest.mark.parametrize("written", ["\x1b[<0;3;4M", "\x1b[I", "\x1bOP", "\x1b[24~"])
def test_sequences_that_are_no_keys_write_nothing(written: str) -> None:
    assert names(f"a{written}b") == ["a", "b"]


def test_no_typed_text_gives_no_keys() -> None:
    assert keys_of("") == []


def test_keys_are_events_of_textual() -> None:
    assert all(isinstance(key, Key) for key in keys_of("/gelu\r"))
