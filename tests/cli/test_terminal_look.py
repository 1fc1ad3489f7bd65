"""What the terminal can do: colors, background, characters."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.terminal import Terminal
from tests.tui.mixed import mixed

from fusetui.commands import terminal
from fusetui.commands.terminal import (
    QUESTION,
    background,
    detect_color_system,
    is_light_color,
    needs_ascii,
    parse_colorfgbg,
    prepare,
)

READY = "Summary: Enter"
LIGHT, DARK = "\x1b]11;rgb:ffff/ffff/f0f0\x1b\\", "\x1b]11;rgb:1e1e/1e1e/1e1e\x07"
DEVICE = "\x1b[?62;22c"
ON_WHITE, ON_BLACK = b"48;2;255;255;255", b"48;2;18;18;18"


@pytest.mark.parametrize(
    ("term", "colors"),
    [
        ("alacritty", "truecolor"),
        ("foot", "truecolor"),
        ("foot-extra", "truecolor"),
        ("xterm-ghostty", "truecolor"),
        ("xterm-kitty", "truecolor"),
        ("xterm-direct", "truecolor"),
        ("tmux", "256"),
        ("screen", "256"),
        ("screen.xterm-256color", "256"),
        ("tmux-256color", "256"),
        ("xterm", ""),
        ("linux", ""),
        ("vt100", ""),
        ("", ""),
    ],
)
def test_term_variable_decides_the_number_of_colors(term: str, colors: str) -> None:
    assert detect_color_system({"TERM": term}) == colors


def test_the_terminal_alone_knows_its_size() -> None:
    """Textual would believe variables that a shell exported long ago, or that nobody
    could mean."""
    environment = {"TERM": "tmux", "COLUMNS": "99999999", "LINES": "1"}
    prepare(environment)
    assert environment == {"TERM": "tmux", "TEXTUAL_COLOR_SYSTEM": "256"}


def test_a_color_system_set_by_the_user_holds() -> None:
    said = {"TERM": "tmux", "TEXTUAL_COLOR_SYSTEM": "standard"}
    prepare(said)
    assert said["TEXTUAL_COLOR_SYSTEM"] == "standard"
    assert detect_color_system({"TERM": "tmux", "COLORTERM": "truecolor"}) == ""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"LANG": "en_US.UTF-8"}, False),
        ({"LANG": "de_DE.utf8@euro"}, False),
        ({"LANG": "C"}, True),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, True),  # the second by Python itself
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, True),
        ({"LANG": "C", "LC_ALL": "C.UTF-8"}, False),
        ({"LC_ALL": "POSIX"}, True),
        ({"LANG": "de_DE.ISO-8859-1"}, True),
    ],
)
def test_locale_decides_whether_ascii_is_needed(
    environment: dict[str, str], expected: bool
) -> None:
    assert needs_ascii(environment, "utf-8") is expected


def test_colors_that_textual_does_not_know_are_ignored() -> None:
    environment = {"TERM": "xterm", "TEXTUAL_COLOR_SYSTEM": "nope"}
    prepare(environment)
    assert environment == {"TERM": "xterm"}


def test_ascii_where_the_stream_has_nothing_else() -> None:
    assert needs_ascii({"LANG": "en_US.UTF-8"}, "ascii")


@pytest.mark.parametrize(
    ("value", "light"),
    [
        ("15;0", False),
        ("0;15", True),
        ("0;default;15", True),
        ("15;8", False),
        ("", None),
        ("9" * 5000, None),
    ],
)
def test_colorfgbg_decides_light_or_dark(value: str, light: bool | None) -> None:
    assert parse_colorfgbg(value) is light


def test_an_option_comes_before_the_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(environment: object) -> bool:
        raise AssertionError("asked")

    monkeypatch.setattr(terminal, "may_ask", fail)
    said = {"COLORFGBG": "0;15"}
    assert background("dark", said) == (False, "")
    assert background("auto", said) == (True, "")
    assert background("auto", {"COLORFGBG": "15;0"}) == (False, "")


@pytest.mark.parametrize(
    ("answer", "light"),
    [(LIGHT, True), (DARK, False), ("\x1b]11;rgb:fff/fff/fff\x07", True), ("", False)],
)
def test_answer_of_the_terminal_decides_light_or_dark(answer: str, light: bool) -> None:
    assert is_light_color(answer.encode()) is light


@pytest.fixture
def trace(write: Callable[[str], Path]) -> Path:
    return write(json.dumps({"traceEvents": mixed()}))


@pytest.mark.parametrize(
    ("answer", "background"),
    [(LIGHT + DEVICE, ON_WHITE), (DARK + DEVICE, ON_BLACK), (DEVICE, ON_BLACK)],
    ids=["light", "dark", "no answer"],
)
def test_the_terminal_is_asked(trace: Path, answer: str, background: bytes) -> None:
    asks = {"FUSETUI_THEME": "auto", "COLORTERM": "truecolor"}
    with Terminal(["open", trace], environment=asks) as shown:
        while QUESTION not in shown.output:
            shown._read()
        shown.press(answer)
        shown.wait_for(READY)
        assert background in shown.output
        shown.press("q")
        assert shown.wait() == 0


def test_keys_typed_while_the_terminal_is_asked_are_not_lost(trace: Path) -> None:
    asks = {"FUSETUI_THEME": "auto", "COLORTERM": "truecolor"}
    with Terminal(["open", trace], environment=asks) as shown:
        while QUESTION not in shown.output:
            shown._read()
        shown.press("3" + LIGHT + "?" + DEVICE)
        shown.wait_for("help   Esc closes")
        shown.press("\x1b")
        shown.wait_for("Enter go to longest")


def test_a_terminal_that_says_nothing(trace: Path) -> None:
    change = "from fusetui.commands import terminal; terminal.ANSWER_SECONDS = 0.05"
    asks = {"FUSETUI_THEME": "auto", "COLORTERM": "truecolor"}
    with Terminal(["open", trace], environment=asks, change=change) as shown:
        shown.wait_for(READY)
        assert ON_BLACK in shown.output


def test_a_signal_that_comes_while_the_terminal_is_asked(trace: Path) -> None:
    """The terminal is gone, so it cannot be restored either; the signal is heard all
    the same."""
    asks = {"FUSETUI_THEME": "auto"}
    change = "from fusetui.tui import app; app.run = lambda *_, **__: 0"
    with Terminal(["open", trace], environment=asks, change=change) as shown:
        while QUESTION not in shown.output:
            shown.rest()
        shown.hang_up()
        assert shown.wait() == 128 + signal.SIGHUP


def test_app_in_a_c_locale_draws_ascii_alone(trace: Path) -> None:
    """On the page, in the help and in the palette."""
    with Terminal(["open", trace], environment={"LC_ALL": "C"}) as shown:
        shown.wait_for(READY)
        for keys, text in (("?", "Esc closes"), ("\x1b", READY), ("\x10", "Search")):
            shown.press(keys)
            shown.wait_for(text)
        assert shown.text.isascii()
