"""The keys of keys.toml are those that work, and a wrong line is named."""

from __future__ import annotations

import string
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.tui.driving import screen
from tests.tui.prepared import after, do, drawn, opened

from fusetui.trace import Trace
from fusetui.tui.app import FusetuiApp, Options
from fusetui.tui.keymap import KeymapError, parsed, user_keymap
from fusetui.tui.keys import key_name, key_text
from fusetui.tui.registry import ACTIONS, PAGES, action_for, hint_text
from fusetui.tui.state import search
from fusetui.tui.state.overlays import Help
from fusetui.tui.state.state import Size, State


def keymap(text: str) -> dict[str, tuple[str, ...]]:
    return dict(parsed(text, "keys.toml", ACTIONS))


def test_keys_are_written_as_the_help_writes_them() -> None:
    found = keymap('zoom-in = "+"\npan-left = ["Alt+←", "h"]\ncopy = []\nhelp = "F1"')
    assert found == {
        "zoom-in": ("plus",),
        "pan-left": ("alt+left", "h"),
        "copy": (),
        "help": ("f1",),
    }


@pytest.mark.parametrize(
    "key", sorted({key for action in ACTIONS for key in action.keys} | set(string.ascii_letters))
)
def test_every_key_of_ours_can_be_written(key: str) -> None:
    assert key_name(key_text(key)) == key


@given(st.text(max_size=12))
def test_any_text_is_a_key_or_none(text: str) -> None:
    name = key_name(text)
    assert name is None or name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('copy = "y"\nzoom_in = "w"', "keys.toml, line 2: there is no action zoom_in; zoom-in is"),
        ('\n\ncopy = "yy"', 'keys.toml, line 3: "yy" is no key'),
        ("copy = 3", "keys.toml, line 1: a key is a text"),
        ('copy = "y"\nhelp = "/"', "keys.toml, line 2: / is already the key of search"),
        ("copy = y", "keys.toml is not valid TOML: Invalid value (at line 1, column 8)"),
        ('[keys]\ncopy = "y"', "keys.toml, line 1: there is no action keys"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(KeymapError) as error:
        keymap(text)
    assert str(error.value).startswith(sentence)


def test_a_swap_is_no_clash() -> None:
    assert keymap('zoom-in = "s"\nzoom-out = "w"') == {"zoom-in": ("s",), "zoom-out": ("w",)}


def test_the_file_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "keys.toml"
    monkeypatch.setenv("FUSETUI_KEYS", str(file))
    with pytest.raises(KeymapError, match="does not exist"):
        user_keymap(ACTIONS)
    file.write_text('copy = "c"')
    assert user_keymap(ACTIONS) == {"copy": ("c",)}


def test_no_file_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSETUI_KEYS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_keymap(ACTIONS) == {}


def remapped(mlp: Trace, text: str, height: int = 30) -> State:
    return replace(opened(mlp, size=Size(100, height)), keymap=keymap(text))


def test_the_chosen_key_works_and_the_old_one_does_not(mlp: Trace) -> None:
    state = remapped(mlp, 'zoom-in = "Z"')
    found = action_for("Z", state)
    assert found is not None
    assert found.name == "zoom-in"
    assert action_for("w", state) is None


def test_hints_and_help_show_the_chosen_keys(mlp: Trace) -> None:
    state = remapped(mlp, 'zoom-in = "Z"\npan-left = []\npan-right = []', 60)
    hints = drawn(state).split("\n")[-1]
    assert "Z/s zoom" in hints
    assert "pan" not in hints
    assert state.sides
    help_page = after(state, *do("help"))
    assert isinstance(help_page.overlay, Help)
    assert any("  Z    " in line for _, lines in help_page.overlay.sections for line in lines)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_hint_names_actions(page: object) -> None:
    hints = getattr(page, "hints", ())
    assert all(hint_text(hint, State()) for hint in hints)


async def test_the_palette_shows_keys(path: str) -> None:
    app = FusetuiApp(Options((path,), keymap={"copy": ("Y",)}))
    async with app.run_test(size=(100, 30)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("ctrl+p", *"copy")
        await pilot.pause(0.3)
        assert "Y   full name" in screen(app)


def test_sentences_name_the_keys_of_the_user(mlp: Trace) -> None:
    state = replace(opened(mlp), keymap={"next-hit": ("F3",), "hits": ()})
    found = after(state, partial(search.searched, text="gelu"))
    assert "gelu   F3 next   N previous" in drawn(found)
    assert "list" not in drawn(found).splitlines()[-1]
