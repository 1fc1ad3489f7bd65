"""Somebody stops the reading of a trace: what was read by then is a trace, and says
what it lacks.

Cells are small here, so that a few thousand events are a large file.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.trace.large import EVENTS, TEXT, same_start

from fusetui.commands.loading import notices
from fusetui.trace import NotATraceError, Trace, open_trace
from fusetui.trace.cache import entry_for
from fusetui.trace.formats import text_of
from fusetui.trace.model.errors import NothingReadError

pytestmark = pytest.mark.usefixtures("small_extents")


SLOW_STEPS = 60  # more than all cells together: the slow reading has begun


class Person:
    """Stops once a share of the bytes was read."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._had_enough = False

    def progress(self, done: int, total: int) -> None:
        self._had_enough = self._had_enough or done >= self._share * total

    def stop(self) -> bool:
        return self._had_enough


def stopped(path: Path, share: float = 0.5) -> Trace:
    person = Person(share)
    return open_trace(str(path), person.progress, stop=person.stop)


@pytest.fixture
def whole(tmp_path: Path) -> Trace:
    path = tmp_path / "whole.json"
    path.write_bytes(TEXT)
    return open_trace(str(path))


def test_stopped_plain_file_gives_an_exact_prefix(
    write: Callable[[bytes], Path], whole: Trace
) -> None:
    trace = stopped(write(TEXT))
    part = trace.report.prefix
    assert part is not None
    assert (part.total, part.exact) == (len(TEXT), True)
    assert 0.4 * len(TEXT) < part.read < 0.7 * len(TEXT)
    assert not trace.report.complete
    assert trace.report.cut is None
    assert not trace.report.skipped
    same_start(trace, whole)


def test_args_of_the_slices_kept_after_a_stop_are_their_own(
    write: Callable[[bytes], Path],
) -> None:
    trace = stopped(write(TEXT))
    last = len(trace) - 1
    assert trace.args_of(last) == EVENTS[int(trace.order[last])]["args"]


def test_stopped_packed_file_gives_a_prefix_of_estimated_size(
    tmp_path: Path, whole: Trace
) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(TEXT, 1))
    trace = stopped(path, 0.4)
    part = trace.report.prefix
    assert part is not None
    assert not part.exact
    assert part.total == pytest.approx(len(TEXT), rel=0.2)
    assert trace.report.cut is None
    same_start(trace, whole)


def damaged() -> bytes:
    """Every hundredth event lacks a quote, so no extent decodes at once."""
    lines = TEXT.split(b"\n")[:3000]
    return b"\n".join(
        line.replace(b'"name"', b'"name', 1) if n % 100 == 50 else line
        for n, line in enumerate(lines)
    )


def test_stopped_damaged_file_gives_the_events_before(
    write: Callable[[bytes], Path],
) -> None:
    path = write(damaged())
    seen: list[int] = []
    trace = open_trace(
        str(path),
        lambda done, _: seen.append(done),
        stop=lambda: len(seen) > SLOW_STEPS,
    )
    assert trace.report.prefix is not None
    assert 0 < trace.report.events < len(EVENTS)
    assert len(trace) + len(trace.report.skipped) == trace.report.events
    same_start(trace, open_trace(str(path)))


def test_a_file_that_is_nearly_read_when_stopped_is_read_to_its_end(
    write: Callable[[bytes], Path],
) -> None:
    trace = stopped(write(TEXT), 1.0)
    assert trace.report.prefix is None
    assert len(trace) == len(EVENTS)
    assert trace.keys == {"after": 1}


def test_stopped_before_anything_was_read(write: Callable[[bytes], Path]) -> None:
    with pytest.raises(NothingReadError):
        open_trace(str(write(TEXT)), stop=lambda: True)


def test_a_file_that_is_no_trace_says_so_unless_it_was_stopped(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("no JSON at all")
    with pytest.raises(NotATraceError):
        open_trace(str(path))
    with pytest.raises(NothingReadError):
        open_trace(str(path), stop=lambda: True)


def test_a_part_is_not_kept_in_the_cache(
    write: Callable[[bytes], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusetui.trace.cache.entry.MIN_DOCUMENT_BYTES", 0)
    path = write(TEXT)
    stopped(path)
    entry = entry_for(str(path))
    assert entry is not None
    assert entry.trace(text_of) is None


def test_stopped_trace_says_which_part_it_is(write: Callable[[bytes], Path]) -> None:
    trace = stopped(write(TEXT))
    said = list(notices(trace.report))
    assert len(said) == 1
    assert f"only {trace.report.prefix} were read" in said[0]
