"""The real program in a terminal: what gets to it, and how it is given back."""

from __future__ import annotations

import inspect
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hostile import FILE_NAME, PAYLOADS, WORST, not_ours, write_trace
from tests.starting import end
from tests.terminal import ESCAPE, Terminal, plain
from textual.drivers.linux_driver import LinuxDriver

from fusetui.tui.ending import RESTORE
from fusetui.tui.registry import ACTIONS
from fusetui.tui.state.action import key_text
from fusetui.tui.state.moving import SECTION

IGNORES = """
import signal, textual.drivers._writer_thread as writer
signal.signal(signal.SIGHUP, signal.SIG_IGN)
writer.MAX_QUEUED_WRITES = 1  # more than that are written by whatever happens
"""
READY = "j/k to select a slice"
ANSWERED = "idle reasons:"  # all that is worked out after loading is on the screen
Visit = tuple[str, str]
"""Keys, and a text that the page shows then."""

LOOKING: list[Visit] = [
    ("j", "launched 1 GPU event"),
    ("J", ".py:1   800 us"),
    ("i", "everything about this slice"),
    (ESCAPE, "? help"),
    ("vv", "i all figures of the range"),
    ("i", "everything about this range"),
    (ESCAPE, "i all figures of the range"),
    ("y", "copied"),
    ("/", "Words match names, kinds"),
    ("PWN\r", "PWN   n next"),
    ("n", "2 of"),
    (":", "goto 9ms"),
    ("PWN\r", "PWN is not a command"),
    (":", "goto 9ms"),
    ("open PWN\r", "PWN does not exist"),
    (":", "goto 9ms"),
    ("step 1\r", "step #1 of 1: ProfilerStep#"),
    ("2", "count op"),
    ("jjj", ">"),
    ("3", "longest instance"),
    ("jjj", "launched 20 us earlier"),
    ("?", "help   Esc closes"),
    (ESCAPE, "longest instance"),
    ("\x10", "Search for commands"),
    ("PWN", "PWN"),
    (ESCAPE, "longest instance"),
]
KEYS = [
    *["\x1b[6~"] * 4,  # PageDown, to the counters
    *(
        text
        for action in ACTIONS
        if action.section == SECTION
        for key in action.keys
        if len(text := key_text(key)) == 1
    ),
]
COMPARING: list[Visit] = [
    ("jj", ">"),
    ("y", "copied"),
    ("\r", "? help"),
    ("4", "x swap"),
    ("x", r"removed \x1b]0;PWN\x07b"),
    ("jj", ">"),
]


INTERRUPT = "\x03"
Shown = Callable[..., Terminal]

FAILS_AT_A_KEY = f"""
from fusetui.tui import app
def fail(*_, **__): raise ValueError("planted " + {WORST!a})
app.perform = fail
"""
FAILS_IN_A_THREAD = f"""
from fusetui.tui import loading
def fail(*_, **__): raise ValueError("planted " + {WORST!a})
loading.load = fail
"""
WORKS_FOR_EVER = """
import time
from fusetui import signals
from fusetui.tui import loading
signals.GRACE_SECONDS = 0.2
loading.load = lambda *_, **__: time.sleep(600)
"""
HANGS = """
import time
from fusetui import signals
from fusetui.tui import app
signals.GRACE_SECONDS = 0.2
app.perform = lambda *_: time.sleep(600)
"""
READS_FOR_EVER = """
import time
from fusetui.tui import loading
def load(paths, post, cancelled, stopped, helper):
    while not cancelled(): time.sleep(0.01)
    open({tidy!r}, "w").close()
loading.load = load
"""


@pytest.fixture(autouse=True, scope="module")
def forking() -> Iterator[None]:
    """Leaves no child process behind."""
    yield
    end()


def visit(terminal: Terminal, visits: list[Visit]) -> None:
    for keys, text in visits:
        terminal.press(keys)
        terminal.wait_for(text)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / FILE_NAME
    folder.mkdir()
    return write_trace(folder / f"{FILE_NAME}.json")


def test_hostile_text_is_escaped_on_every_page(hostile: Path) -> None:
    with Terminal(["open", hostile], columns=200, lines=60) as terminal:
        terminal.wait_for(READY)
        visit(terminal, [*LOOKING, ("1", "w/s zoom")])
        for at in range(0, len(KEYS), 4):
            terminal.press("".join(KEYS[at : at + 4]))
            terminal.rest()
        assert "counters" in terminal.text
        terminal.press(INTERRUPT)
        assert terminal.wait() == 130
    assert not_ours(terminal.output) == set()


def test_hostile_text_is_escaped_in_a_diff(hostile: Path) -> None:
    other = write_trace(
        hostile.with_name("b.json"), [f"{text}b" for text in PAYLOADS.values()]
    )
    with Terminal(["open", hostile, other], columns=200, lines=60) as terminal:
        terminal.wait_for("x swap")
        visit(terminal, COMPARING)
        terminal.press("q")
        assert terminal.wait() == 0
    assert not_ours(terminal.output) == set()


def test_hostile_file_names_are_escaped_in_lists_and_errors(hostile: Path) -> None:
    """In the list to choose from; and of what cannot be opened, on the last line."""
    broken = hostile.with_name(f"{FILE_NAME}.2.json")
    broken.write_text("{")
    with Terminal(["open", hostile.parent], columns=200) as terminal:
        terminal.wait_for("84 slices")
        terminal.press(ESCAPE)
        assert terminal.wait() == 0
    assert not_ours(terminal.output) == set()
    with Terminal(["open", broken]) as terminal:
        assert terminal.wait() == 2
    assert "ends early" in terminal.text or "no trace" in terminal.text
    assert not_ours(terminal.output) == set()


@pytest.fixture
def shown(path: str) -> Callable[..., Terminal]:
    """The app with a small trace; `change` is Python that runs before it."""

    def start(**settings: Any) -> Terminal:
        return Terminal(["open", path], **settings)

    return start


def is_given_back(terminal: Terminal) -> bool:
    """Is the terminal as it was before: cooked, with its own screen and cursor."""
    last = terminal.output.rpartition(b"\x1b[?1049h")[2]
    return terminal.attributes == terminal.before and b"\x1b[?1049l\x1b[?25h" in last


def typed(terminal: Terminal, *keys: str) -> bytes:
    """What these keys send to the terminal, once each of them has been drawn."""
    terminal.wait_for(ANSWERED)
    before = len(terminal.output)
    for key in keys[:-1]:
        terminal.press(key)
        terminal.rest()
    terminal.press(keys[-1])
    terminal.wait_for("ProfilerStep")
    return terminal.output[before:]


def test_a_key_that_changes_no_cell_sends_nothing(shown: Shown) -> None:
    with shown(columns=200, lines=50) as one, shown(columns=200, lines=50) as other:
        alone = typed(one, "j")
        assert typed(other, "s", "g", "0", "j") == alone
        assert len(alone) < 4000


def test_no_color_draws_grays_alone(shown: Shown) -> None:
    with shown(environment={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for(READY)
        visit(
            terminal,
            [
                ("jj", "launched"),
                ("2", "count op"),
                ("3", "longest instance"),
                ("?", "help   Esc"),
            ],
        )
        terminal.press(INTERRUPT)
        assert terminal.wait() == 130
    assert not re.search(r"\x1b\[[0-9;]*38;2;(?!(\d+);\1;\1)", terminal.output.decode())


def test_control_c_quits(shown: Shown) -> None:
    with shown(anew=True) as terminal:
        terminal.wait_for(READY)
        visit(terminal, [("/", "Words match names, kinds")])
        terminal.press(INTERRUPT)
        assert terminal.wait() == 130
        assert is_given_back(terminal)


def test_page_down_before_the_palette_has_a_size_leaves_a_working_app(
    shown: Shown,
) -> None:
    """The keys arrive together, while the app starts; the last one moves the list of
    the palette."""
    open_help_and_search, open_palette, page_down = "?:/", "\x10", "\x1b[6~"
    with shown(anew=True, environment={"FUSETUI_THEME": "auto"}) as terminal:
        terminal.press(open_help_and_search + open_palette + page_down)
        terminal.wait_for("Search for commands")
        terminal.rest()
        terminal.press(INTERRUPT)
        assert terminal.wait() == 130


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_signal_ends_the_app(shown: Shown, name: str) -> None:
    number = signal.Signals[name]
    with shown() as terminal:
        terminal.wait_for(READY)
        terminal.process.send_signal(number)
        assert terminal.wait() == 128 + number
        assert is_given_back(terminal)


def test_a_signal_while_reading_stops_the_helpers_and_the_app(
    shown: Shown, tmp_path: Path
) -> None:
    """As a thread that is told to end may: its helpers are stopped on the way."""
    with shown(change=READS_FOR_EVER.format(tidy=str(tmp_path / "tidy"))) as terminal:
        terminal.wait_for("reading")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
        assert is_given_back(terminal)
    assert (tmp_path / "tidy").exists()


def test_control_c_waits_for_no_thread(shown: Shown) -> None:
    with shown(change=WORKS_FOR_EVER) as terminal:
        terminal.wait_for("reading")
        terminal.press(INTERRUPT)
        assert terminal.wait() == 130
        assert is_given_back(terminal)


def test_a_signal_ends_an_app_that_hangs(shown: Shown) -> None:
    with shown(change=HANGS) as terminal:
        terminal.wait_for(READY)
        terminal.press("?")
        time.sleep(0.2)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 128 + signal.SIGTERM
        assert is_given_back(terminal)


@pytest.mark.parametrize("controlling", [True, False])
def test_app_ends_when_its_terminal_is_gone(shown: Shown, controlling: bool) -> None:
    with shown(controlling=controlling) as terminal:
        terminal.wait_for(READY)
        terminal.hang_up()
        assert terminal.wait() == 128 + signal.SIGHUP


def test_app_ends_when_its_terminal_is_gone_under_nohup(shown: Shown) -> None:
    """As under nohup. Nothing takes what the app writes to restore the terminal."""
    with shown(change=IGNORES) as terminal:
        terminal.wait_for(READY)
        terminal.hang_up()
        assert terminal.wait() == 128 + signal.SIGHUP


@pytest.mark.parametrize("change", [FAILS_AT_A_KEY, FAILS_IN_A_THREAD])
def test_internal_error_restores_the_terminal_and_names_its_report(
    shown: Shown, tmp_path: Path, change: str
) -> None:
    """The terminal is given back first; then comes one sentence."""
    state = {"XDG_STATE_HOME": str(tmp_path)}
    with shown(change=change, environment=state, columns=400) as terminal:
        if change == FAILS_AT_A_KEY:
            terminal.wait_for(READY)
            terminal.press("?")
        assert terminal.wait() == 70
        assert is_given_back(terminal)
    (report,) = (tmp_path / "fusetui" / "log").iterdir()
    said = plain(terminal.output.rpartition(b"\x1b[?1049l")[2])
    assert said.startswith("fusetui failed")
    assert said.endswith(f"the traceback is in {report}.\r\n")
    assert "planted" in report.read_text()
    assert not_ours(terminal.output) == set()


def test_the_app_needs_the_terminal_that_it_draws_on(
    shown: Shown, tmp_path: Path
) -> None:
    """Which is that of standard error."""
    with (tmp_path / "errors").open("w+") as errors, shown(errors=errors) as terminal:
        assert terminal.wait() == 2
        assert "needs a terminal" in (tmp_path / "errors").read_text()


def test_restore_sequences_for_a_hung_app_are_those_textuals_driver_writes() -> None:
    """What is written by an app that hangs, against what the driver writes."""
    driver = inspect.getsource(LinuxDriver)
    for sequence in RESTORE.decode().split("\x1b")[1:]:
        assert f'x1b{sequence}"' in driver
