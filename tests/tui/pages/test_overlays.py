"""What lies over a page: the words in the help, and how texts scroll."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.tui.prepared import after, at, do, laid_over, opened

from fusetui.trace import Trace
from fusetui.tui.pages.overlays import WORDS_ELSEWHERE, WORDS_HERE, narrowed
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
    last_word = read_screen_words()[-1]
    assert f"{last_word.word}: {last_word.meaning}"[:40] in laid_over(state)


def test_words_on_the_screen_are_found_in_the_help(mlp: Trace) -> None:
    state = narrowed(after(opened(mlp), *do("help")), "queued next")
    assert "queued: an idle reason" in laid_over(state)


@pytest.mark.parametrize("word", ["row can be opened", "selected slice", "time of"])
def test_words_in_the_help_are_plain_with_ascii(mlp: Trace, word: str) -> None:
    state: State = replace(opened(mlp, size=Size(200, 50)), ascii_only=True)
    assert laid_over(narrowed(after(state, *do("help")), word)).isascii()


def test_the_help_has_the_words_of_the_page_before_other_keys(mlp: Trace) -> None:
    state = after(opened(mlp, mlp, size=Size(100, 600)), *do("diff", "help"))
    lines = [line.strip(" >") for line in laid_over(state).splitlines()]
    titles = ["In the diff", WORDS_HERE, "Everywhere", WORDS_ELSEWHERE]
    places = [lines.index(title) for title in titles]
    assert places == sorted(places)
    own_words = lines[places[1] : places[2]]
    assert any(line.startswith("region: ") for line in own_words)
    assert not any(line.startswith("segment: ") for line in own_words)


def test_the_help_says_how_to_start_the_tour(mlp: Trace) -> None:
    state = after(opened(mlp, size=Size(80, 24)), *do("help"))
    first_lines = laid_over(state).partition("In the timeline")[0]
    assert "run fusetui tutor" in " ".join(first_lines.split())


def test_a_word_that_nothing_has_gives_a_sentence(mlp: Trace) -> None:
    state = narrowed(after(opened(mlp), *do("help")), "zyzzyva")
    assert "no key and no word matches" in laid_over(state)


def test_the_heading_of_a_text_keeps_the_key_that_closes_it(mlp: Trace) -> None:
    state = after(opened(mlp, size=Size(80, 24)), at("ampere"), *do("details"))
    heading = laid_over(state).splitlines()[0]
    assert "Esc closes" in heading


def test_a_key_goes_from_part_to_part_of_the_help(mlp: Trace) -> None:
    state = after(opened(mlp, size=Size(100, 30)), *do("help"))
    titles = []
    for _ in range(20):
        state = after(state, *do("source-part"))
        titles.append(laid_over(state).splitlines()[1].strip(" >"))
    assert titles[0] == "In the timeline"
    assert WORDS_HERE in titles
    assert WORDS_ELSEWHERE in titles
    assert titles.count("In the timeline") > 1  # the first follows the last


@pytest.mark.parametrize("name", ["ampere", "cudaLaunchKernel", "linear"])
def test_everything_about_a_slice_is_wrapped_to_a_narrow_screen(
    mlp: Trace, name: str
) -> None:
    """Of no line anything is cut at the right edge."""
    wide = after(opened(mlp, size=Size(400, 900)), at(name), *do("details"))
    narrow = replace(wide, size=Size(60, 900))
    facts = laid_over(wide).partition("short name")[2] or laid_over(wide)
    words_of_narrow = laid_over(narrow).split()
    below_heading = facts.splitlines()[1:]
    assert below_heading
    for line in below_heading:
        assert not [word for word in line.split() if word not in words_of_narrow]


def test_a_long_line_about_a_slice_goes_on_below_it(
    trace_of: Callable[..., Trace],
) -> None:
    args = {"note": " ".join(["word"] * 40)}
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1}
    trace = trace_of([{**op, "ts": 0, "dur": 5, "args": args}])
    state = after(opened(trace, size=Size(60, 40)), at("mm"), *do("details"))
    lines = laid_over(state).splitlines()
    of_arg = [line for line in lines if line.strip(" >").startswith(("note:", "word"))]
    assert " ".join(of_arg).count("word") == 40
    assert len(of_arg) > 3


def test_a_kernel_without_a_short_name_has_no_line_for_it(
    trace_of: Callable[..., Trace],
) -> None:
    kernel = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 0, "dur": 5}
    trace = trace_of([{**kernel, "name": "cutlass_cudnn_train::Kernel"}])
    state = after(opened(trace, size=Size(100, 60)), at("cutlass"), *do("details"))
    assert "short name" not in laid_over(state)
    assert "cudnn: a library of kernels" in laid_over(state)
