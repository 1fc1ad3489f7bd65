"""Texts of people and of files that are no names of slices reach the screen harmless
too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec.structs import replace
from tests.hostile import FILE_NAME, WORST, obeyed
from tests.tui.prepared import after, at, do, drawn, laid_over, opened

from fusetui.text.toml import WrongFileError
from fusetui.trace import Trace
from fusetui.tui import registry
from fusetui.tui.keymap import parse_keymap
from fusetui.tui.state import commands, reading
from fusetui.tui.state.offers import Offer
from fusetui.tui.state.session import Bookmark
from fusetui.tui.view_store import KeptView, restore_view


def test_hostile_notes_of_marks_are_escaped(mlp: Trace) -> None:
    """Typed, or read from a file of ours that somebody changed."""
    state = opened(mlp)
    typed = after(state, partial(commands.obeyed, line=f"mark a {WORST}"))
    kept = KeptView(marks={"a": Bookmark(mlp.begin_ns, mlp.end_ns, note=WORST)})
    read = restore_view(state, kept)
    for marked in (typed, read):
        assert "PWN" in marked.session.bookmarks["a"].note
        for shown in (marked, after(marked, *do("to-mark"))):
            assert obeyed(drawn(shown)) == set()
            assert obeyed(shown.hint) == set()


def test_hostile_raw_events_are_escaped(trace_of: Callable[..., Trace]) -> None:
    """In keys, values and nested objects."""
    inner = {WORST: [WORST, {WORST: WORST}]}
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": f"op{WORST}",
        "pid": 1,
        "tid": 1,
        "ts": 0,
        "dur": 9,
    }
    state = after(opened(trace_of([{**event, "args": inner, WORST: inner}])), at("op"))
    text = laid_over(after(state, *do("details", "raw")))
    assert "PWN" in text
    assert obeyed(text) == set()


def test_names_of_runs_to_choose_from(mlp: Trace) -> None:
    offers = (Offer(f"{FILE_NAME}/", ("a",), f"run: {FILE_NAME}"),)
    text = laid_over(after(replace(opened(mlp), offers=offers), reading.choose))
    assert "PWN" in text
    assert obeyed(text) == set()


@pytest.mark.parametrize(
    "line", ['"{}" = "w"', 'zoom-in = "{}"', 'zoom-in = ["w", "{}"]']
)
def test_hostile_keys_files_are_escaped_in_messages(line: str) -> None:
    name = "".join(f"\\u{ord(char):04x}" for char in WORST if char < "\ud800")
    with pytest.raises(WrongFileError) as error:
        parse_keymap(line.format(name), "keys.toml", registry.ACTIONS)
    assert "PWN" in str(error.value)
    assert obeyed(str(error.value)) == set()
