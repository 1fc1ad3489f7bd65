"""The kind of inputs that are a terminal which goes away while fusetui runs in it."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import NamedTuple

from fuzz.campaign import Kind
from fuzz.checks import check
from fuzz.document import document
from tests.terminal import Terminal

MOMENTS = tuple(n / 10 for n in range(31))  # seconds after the start at which it goes
SECONDS = 15.0  # until every process has ended: the app has three, what it began ten
KEYS = (
    "j",
    "+",
    "2",
    "5",
    "?",
    "/",
    "a",
    "\x1b",
    ":",
    "e",
    "i",
    "\x10",
    "\x1b[6~",
    "q",
)
IGNORES = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"
LARGE = 30_000  # events of a trace that takes a while
CODES = (0, 2, 129)


class Leaving(NamedTuple):
    words: tuple[str, ...]  # of the command line; {trace} and {folder} are put in
    keys: str  # that are pressed at once
    after: float  # seconds
    asks: bool  # it asks the terminal for its color, which nobody answers
    anew: bool  # in a new process, which imports everything first
    controlling: bool
    ignores: bool  # SIGHUP, as under nohup
    large: bool


def leaving(seed: int, number: int) -> Leaving:
    """Always the same for the same numbers; 31 in a row go through all moments."""
    rnd = Random(f"terminal {seed}/{number}")
    words = (
        *[("open", "{trace}")] * 5,
        *(
            ("open", "{trace}", "{trace}"),
            ("open", "{folder}"),
            ("open", "lesson:mlp-eager"),
        ),
        *(("tutor",), ("open",), ("why", "{trace}"), ("summary", "-")),
    )
    anew = rnd.random() < 0.3
    return Leaving(
        rnd.choice(words),
        "".join(rnd.choice(KEYS) for _ in range(rnd.choice((0, 0, 3, 10)))),
        MOMENTS[number % len(MOMENTS)],
        rnd.random() < 0.7,
        anew,
        anew or rnd.random() < 0.7,
        not anew and rnd.random() < 0.2,
        rnd.random() < 0.3,
    )


def examine_leaving(tried: Leaving, seconds: float = SECONDS) -> str:
    """How it ended."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        path.write_text(_text(tried))
        words = [word.format(trace=path, folder=folder) for word in tried.words]
        own = {
            "FUSETUI_THEME": "auto" if tried.asks else "dark",
            "FUSETUI_CACHE": "off",
        }
        with Terminal(
            words,
            environment={**own, "COLORTERM": "truecolor"},
            controlling=tried.controlling,
            change=IGNORES if tried.ignores else "",
            anew=tried.anew,
        ) as shown:
            _wait(shown, tried)
            shown.hang_up()
            os.close(shown.slave)
            shown.slave = -1
            pid = shown.process.pid
            try:
                ended = _until(lambda: shown.process.poll() is not None, seconds)
                check(ended, "a process that lives on", _state(pid))
                alive = _until(lambda: not session(pid), seconds)
                check(alive, "a helper that lives on", session(pid))
            finally:
                for left in session(pid):
                    with suppress(OSError):
                        os.kill(left, signal.SIGKILL)
            code = shown.process.wait()
            check(code in CODES or code == -signal.SIGHUP, "exit code", code)
            return f"ended with {code}"


def _text(tried: Leaving) -> str:
    if not tried.large:
        return document(Random(tried.after)).text()
    event = '{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":%d,"dur":1}'
    return f"[{','.join(event % (2 * n) for n in range(LARGE))}]"


def _wait(shown: Terminal, tried: Leaving) -> None:
    """Until it goes: what is written is read, so that it is not the terminal that
    waits."""
    _until(lambda: not tried.controlling or _has_terminal(shown.process.pid), SECONDS)
    until = time.monotonic() + tried.after
    shown.press(tried.keys)
    while time.monotonic() < until:
        shown._read()


def _until(holds: Callable[[], bool], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def session(number: int) -> list[int]:
    """The processes of a session that still run; Linux only."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            state, _, _, of, *_ = (
                (place / "stat").read_text().rpartition(")")[2].split()
            )
            if int(of) == number and state != "Z":
                found.append(int(place.name))
    return found


def _has_terminal(number: int) -> bool:
    stat = (Path("/proc") / str(number) / "stat").read_text()
    return stat.rpartition(")")[2].split()[4] != "0"


def _state(number: int) -> str:
    """What the system knows of a process that hangs: its state, signals, and where it
    waits."""
    with suppress(OSError):
        status = (Path("/proc") / str(number) / "status").read_text()
        waits = (Path("/proc") / str(number) / "wchan").read_text()
        wanted = ("State", "Threads", "SigPnd", "SigIgn", "SigCgt")
        lines = [line for line in status.splitlines() if line.startswith(wanted)]
        return f"{' '.join(lines)} waits in {waits}"
    return ""


def attempt(seed: int, number: int) -> str:
    return examine_leaving(leaving(seed, number))


def save(seed: int, number: int, _what: str, place: Path) -> Path:
    path = place.with_name(f"{place.name}.txt")
    path.write_text(f"{leaving(seed, number)}\n")
    return path


KIND = Kind("terminal", attempt, save, batch=31)
