"""The progress lines."""

import io
import re
import time

import pytest
from tests.hostile import WORST, obeyed

from fusetui.capture import errors as progress
from fusetui.capture.errors import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_file_gets_one_plain_line_per_phase() -> None:
    stream = io.StringIO()
    with Progress(stream).phase("compiling mlp"):
        pass
    assert re.fullmatch(r"compiling mlp \.\.\. \d\.\d s\n", stream.getvalue())


def test_a_terminal_sees_the_time_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_REDRAW_SECONDS", 0.01)
    stream = Terminal()
    with Progress(stream).phase("compiling mlp"):
        time.sleep(0.1)
    assert "\rcompiling mlp ... 0 s " in stream.getvalue()


def test_a_name_is_shown_and_not_obeyed() -> None:
    stream = io.StringIO()
    Progress(stream).say(WORST)
    with Progress(stream).phase(WORST):
        pass
    assert obeyed(stream.getvalue()) == set()
    assert stream.getvalue().count("\n") == 2


class Full(Terminal):
    def write(self, _: str) -> int:
        raise OSError(28, "No space left on device")


def test_progress_to_a_closed_stream_stops_nothing() -> None:
    with Progress(Full()).phase("compiling mlp"):
        ran = True
    assert ran


def test_a_phase_that_fails_ends_its_line() -> None:
    stream = io.StringIO()
    with pytest.raises(ValueError, match="no"), Progress(stream).phase("compiling mlp"):
        raise ValueError("no")
    assert stream.getvalue() == "compiling mlp ... stopped\n"
