"""The keys of keys.toml are those that work, and a wrong line is named."""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.cases import Cases
from tests.snapshots import trained
from tests.tui.driving import screen
from tests.tui.explainable import training
from tests.tui.prepared import after, do, drawn, explained, line, opened, remembered

from fusetui.text.toml import WrongFileError
from fusetui.trace import Trace
from fusetui.tui import screen_layout
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.keymap import (
    LISTS,
    MODAL,
    OF_MANY,
    parse_keymap,
    read_user_keymap,
)
from fusetui.tui.pages.page import Page
from fusetui.tui.registry import ACTIONS, PAGES, action_for, help_sections
from fusetui.tui.state import search
from fusetui.tui.state.action import format_hint, key_text, parse_key_name, with_keys
from fusetui.tui.state.state import Help, Size, State
from fusetui.tui.state.tour import STEPS

Make = Callable[..., Trace]


def keymap(text: str) -> dict[str, tuple[str, ...]]:
    return dict(parse_keymap(text, "keys.toml", ACTIONS))


def test_keys_are_written_as_the_help_writes_them() -> None:
    found = keymap('zoom-in = "+"\npan-left = ["Alt+←", "h"]\ncopy = []\nhelp = "F1"')
    assert found == {
        "zoom-in": ("plus",),
        "pan-left": ("alt+left", "h"),
        "copy": (),
        "help": ("f1",),
    }


def test_every_key_of_ours_can_be_written() -> None:
    keys = {key for action in ACTIONS for key in action.keys}
    with Cases() as cases:
        for key in sorted(keys | set(string.ascii_letters)):
            with cases.case(key):
                assert parse_key_name(key_text(key)) == key


@pytest.mark.parametrize(
    ("text", "name"), [("@", "at"), ("\\", "backslash"), ("_", "underscore")]
)
def test_characters_that_textual_gives_a_name_of_its_own(text: str, name: str) -> None:
    assert parse_key_name(text) == name
    assert key_text(name) == text


@given(st.text(max_size=12))
def test_any_text_is_a_key_or_none(text: str) -> None:
    name = parse_key_name(text)
    assert name is None or name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            'copy = "y"\nzoom_in = "w"',
            "keys.toml, line 2: there is no action zoom_in; zoom-in is",
        ),
        ('\n\ncopy = "yy"', 'keys.toml, line 3: "yy" is not a key'),
        ("copy = 3", "keys.toml, line 1: a key is a text"),
        (
            'copy = "y"\nhelp = "/"',
            "keys.toml, line 2: / is already the key of filter-rows",
        ),
        (
            "copy = y",
            "keys.toml is not valid TOML: Invalid value (at line 1, column 8)",
        ),
        ('[keys]\ncopy = "y"', "keys.toml, line 1: there is no action keys"),
    ],
)
def test_wrong_keys_file_is_reported_with_its_line(text: str, sentence: str) -> None:
    with pytest.raises(WrongFileError) as error:
        keymap(text)
    assert str(error.value).startswith(sentence)


def test_a_swap_is_no_clash() -> None:
    assert keymap('zoom-in = "s"\nzoom-out = "w"') == {
        "zoom-in": ("s",),
        "zoom-out": ("w",),
    }


def test_keys_file_of_the_user_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys.toml"
    monkeypatch.setenv("FUSETUI_KEYS", str(file))
    with pytest.raises(WrongFileError, match="does not exist"):
        read_user_keymap(ACTIONS)
    file.write_text('copy = "c"')
    assert read_user_keymap(ACTIONS) == {"copy": ("c",)}


def test_no_file_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSETUI_KEYS")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_user_keymap(ACTIONS) == {}


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
    assert any(
        keys == "Z" for _, lines in help_page.overlay.sections for keys, _, _ in lines
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_hint_names_actions(page: object) -> None:
    hints = getattr(page, "hints", "").split("; ")
    assert all(format_hint(hint, State()) for hint in hints)


async def test_the_palette_shows_keys(path: str) -> None:
    app = FusetuiApp(AppOptions((path,), keymap={"copy": ("Y",)}))
    async with app.run_test(size=(100, 30)) as pilot:
        await app.workers.wait_for_complete()
        await pilot.press("ctrl+p", *"copy")
        await pilot.pause(0.3)
        assert "Y   a slice, or a row" in screen(app)


def test_messages_name_the_keys_of_the_user(mlp: Trace) -> None:
    state = replace(opened(mlp), keymap={"next-hit": ("F3",), "hits": ()})
    found = after(state, partial(search.searched, text="gelu"))
    assert "gelu   F3 next   N previous" in drawn(found)
    assert "list" not in drawn(found).splitlines()[-1]


OTHERS = {action.name: ("f5",) for action in ACTIONS}
VERB = "and|closes|goes|leads|leaves|list|move|opens|or|selects|shows|zoom"
KEY = re.compile(
    rf"(?<![\w+])(?:Enter|Esc|Space|Tab|[a-z?,.<>](?=(?:[/ ][a-z,.<>])? (?:{VERB})\b))"
)


def everything(state: State) -> str:
    """The page, and what lies over it."""
    over = screen_layout.stack(screen_layout.overlay_panes(state))
    return drawn(state) + "".join(line(over, y, Size(98, 30)) for y in range(30))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_names_a_key_that_does_nothing(
    trace_of: Make, page: Page, tmp_path: Path
) -> None:
    traces = [trace_of(training())] * (2 if page.name == "diff" else 1)
    state = explained(opened(*traces, size=Size(200, 50)))
    state = remembered(state, trained(tmp_path)) if page.name == "memory" else state
    ours = after(state, *do(page.name))
    assert KEY.search(everything(ours))
    theirs = everything(replace(ours, keymap=OTHERS))
    assert "F5" in theirs
    assert not KEY.findall(theirs)


@pytest.mark.parametrize("tour", range(len(STEPS)))
def test_the_tour_names_the_keys_of_the_user(mlp: Trace, tour: int) -> None:
    shown = everything(
        replace(opened(mlp, size=Size(200, 50)), keymap=OTHERS, tour=tour)
    )
    # that ends a text that is typed
    assert not KEY.findall(shown.replace("press Enter.", ""))


@pytest.mark.parametrize("over", ["help", "details", "hits", "choose"])
def test_nothing_over_a_page_names_a_key_that_does_nothing(
    mlp: Trace, over: str
) -> None:
    found = partial(search.searched, text="gelu")
    state = after(opened(mlp, paths=("a.json", "b.json")), found)
    assert KEY.search(everything(after(state, *do(over))))
    assert not KEY.findall(everything(after(replace(state, keymap=OTHERS), *do(over))))


def test_an_action_without_a_key_is_in_the_palette() -> None:
    state = State(keymap={"zoom-in": ()})
    assert (
        with_keys("Press `{zoom-in}` or `{zoom-out}`", state)
        == "Press `Ctrl+p Zoom in` or `s`"
    )


def test_arrows_are_words_where_there_is_only_ascii(mlp: Trace) -> None:
    """`v` for an arrow would read as the key v."""
    keys = [
        key
        for _, rows in help_sections(replace(opened(mlp), ascii_only=True))
        for key, *_ in rows
    ]
    assert "j  Down" in keys
    assert all(key.isascii() for key in keys)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('\n\nsearch = "w"', "line 3: w is already the key of zoom-in"),
        ('zoom-in = "?"', "line 1: ? is already the key of help"),
        ('turn = "Enter"', "line 1: Enter is already the key of show"),
        ('zoom-in = [\n "i",\n "no key",\n]', 'line 3: "no key" is not a key'),
    ],
)
def test_no_key_is_dead_in_silence(text: str, sentence: str) -> None:
    """Of two actions that are there at the same time, one would never run."""
    with pytest.raises(WrongFileError, match=re.escape(sentence)):
        keymap(text)


def test_a_key_may_mean_other_things_elsewhere() -> None:
    assert keymap('next-gap = "i"\ndetails = "e"\nflame-in = "l"\nflame-right = "j"')


def test_the_keymap_knows_the_sections() -> None:
    assert {action.section for action in ACTIONS} >= MODAL | LISTS | OF_MANY


def test_a_file_may_begin_with_a_mark_of_its_encoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Notepad writes it."""
    file = tmp_path / "keys.toml"
    file.write_text('zoom-in = "Z"', encoding="utf-8-sig")
    monkeypatch.setenv("FUSETUI_KEYS", str(file))
    assert read_user_keymap(ACTIONS) == {"zoom-in": ("Z",)}
