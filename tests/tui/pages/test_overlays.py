"""What lies over a page: the words in the help, and how texts scroll."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from tests.tui.prepared import after, at, do, laid_over, opened

from fusetui.trace import Trace
from fusetui.tui.pages.overlays import narrowed
from fusetui.tui.state.state import OVERLAY, Size, State
from fusetui.tui.state.words import read_screen_words


@pytest.mark.parametrize("size", [Size(60, 18), Size(80, 24)], ids=str)
@pytest.mark.parametrize("overlay", ["help", "details"])
def test_the_first_page_down_scrolls_a_text(
    mlp: Trace, overlay: str, size: Size
) -> None:
    state = after(opened(mlp, size=size), at("ampere"), *do(overlay))
    first_line = laid_over(state).splitlines()[1]
    below = after(state, *do("rows-down"))
    assert below.list_of(OVERLAY).top > 0
    assert first_line not in laid_over(below)
    assert after(below, *do("rows-up")).list_of(OVERLAY).top == 0


def test_paging_down_ends_at_the_last_line(mlp: Trace) -> None:
    state = after(opened(mlp), *do("help"), *do(*["rows-down"] * 99))
    word, meaning = read_screen_words()[-1]
    assert f"{word}: {meaning}"[:40] in laid_over(state)


def test_words_on_the_screen_are_found_in_the_help(mlp: Trace) -> None:
    state = narrowed(after(opened(mlp), *do("help")), "queued next")
    assert "queued: an idle reason" in laid_over(state)


def test_words_in_the_help_are_plain_with_ascii(mlp: Trace) -> None:
    state: State = replace(opened(mlp, size=Size(200, 50)), ascii_only=True)
    assert laid_over(narrowed(after(state, *do("help")), "folded")).isascii()


def test_the_heading_of_a_text_keeps_the_key_that_closes_it(mlp: Trace) -> None:
    state = after(opened(mlp, size=Size(80, 24)), at("ampere"), *do("details"))
    heading = laid_over(state).splitlines()[0]
    assert "Esc closes" in heading
