"""Other ways to the same trace: from a pipe, from the cache, in parts, stopped,
scrubbed."""

from __future__ import annotations

import io
import sys
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from random import Random

import msgspec
import numpy as np
import pytest
from fuzz.checks import check, check_trace
from fuzz.oracle import expected
from fuzz.packing import unpacked

from fusetui.analysis.questions.summary import summary
from fusetui.trace import Trace, open_trace
from fusetui.trace.model.errors import NothingReadError, TraceError
from fusetui.trace.read.events import PHASES_OF_PAIRS

COLUMNS = (
    *("start", "dur", "name", "cat", "role", "track", "parent", "end_row", "depth"),
    *("correlation", "external_id", "launch", "op", "order"),
)
# figures that are those of a file, not of its events
FILE = ("file", "bytes", "skipped")


def check_same(one: Trace, other: Trace, what: str) -> None:
    for column in COLUMNS:
        check(
            (getattr(one, column) == getattr(other, column)).all(), f"{what}: {column}"
        )
    for record in ("names", "categories", "tracks", "keys"):
        check(getattr(one, record) == getattr(other, record), f"{what}: {record}")
    check(_counts(one) == _counts(other), f"{what}: figures")


def _counts(trace: Trace) -> dict[str, object]:
    figures = msgspec.structs.asdict(summary(trace))
    return {key: value for key, value in figures.items() if key not in FILE}


def from_a_pipe(trace: Trace, path: Path, rnd: Random) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
        check_same(trace, open_trace("-"), "standard input")


def from_the_cache(trace: Trace, path: Path, rnd: Random) -> None:
    """Stored when it is read first, and loaded when it is read again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FUSETUI_CACHE", str(path.parent / "cache"))
        for _ in range(2):
            again = open_trace(str(path))
            check_same(trace, again, "cache")
            for row in range(min(len(trace), 5)):
                check(again.args_of(row) == trace.args_of(row), "cache: args")


def in_parts(trace: Trace, path: Path, rnd: Random) -> None:
    """Previews of ever more of it, then the whole."""
    seen: list[Trace] = []
    with pytest.MonkeyPatch.context() as patch:
        _look_early(patch)
        whole = open_trace(str(path), preview=seen.append, cached=False)
    check_same(trace, whole, "parts")
    for part in seen:
        _check_part(part, trace)


def stopped(trace: Trace, path: Path, rnd: Random) -> None:
    """What was read by then is a trace, and says that it is a part."""
    left = [rnd.choice((0, 1, 2, 3, 5, 8))]

    def stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    with pytest.MonkeyPatch.context() as patch:
        _look_early(patch)
        try:
            part = open_trace(str(path), stop=stop, cached=False)
        except NothingReadError:
            return
    if part.report.prefix is None:
        check_same(trace, part, "not stopped")
    else:
        _check_part(part, trace)


def scrubbed(trace: Trace, path: Path, rnd: Random) -> None:
    """What is private taken out changes no figure."""
    if find_spec("fusetui.trace.scrub") is None:
        return
    out = path.with_name("out.json")
    try:
        import_module("fusetui.trace.scrub.document").scrub_file(str(path), str(out))
    except TraceError as error:
        check(str(error).endswith("."), "no sentence", error)
        return
    again = open_trace(str(out), cached=False)
    data = unpacked(path.read_bytes())
    if data is None or expected(data) is None:
        # where damage ends is guessed, and without the damaged text guessed better
        return
    check(_events(trace) == _events(again), "scrubbed: events")


def _events(trace: Trace) -> list[tuple[int, ...]]:
    """In the order of the file: times, and the events that are linked; pid and tid may
    change."""
    rows = np.argsort(trace.order)
    place = np.append(np.argsort(rows), -1)  # -1 stays -1
    columns = (trace.start, trace.dur, place[trace.launch], place[trace.op])
    return [tuple(row) for row in np.stack(columns)[:, rows].T.tolist()]


def _look_early(patch: pytest.MonkeyPatch) -> None:
    reading = import_module("fusetui.trace.read.reading")
    for constant, size in (
        ("FIRST_PREVIEW_BYTES", 100),
        ("PREVIEW_GROWTH", 2),
        ("MIN_BYTES_FOR_PREVIEWS", 0),
        ("MIN_SLOW_BYTES_REPORTED", 0),
    ):
        patch.setattr(reading, constant, size)


def _check_part(part: Trace, whole: Trace) -> None:
    check_trace(part)
    check(part.report.prefix is not None, "a part that does not say so")
    check(not part.report.complete, "a part that is called complete")
    summary(part)
    if whole.report.phases.keys() & PHASES_OF_PAIRS:
        return  # an end that is read later may end another begin
    slices = zip(
        part.order.tolist(), part.start.tolist(), part.dur.tolist(), strict=True
    )
    known = zip(
        whole.order.tolist(), whole.start.tolist(), whole.dur.tolist(), strict=True
    )
    more = Counter(slices) - Counter(known)
    check(not more, "a part holds what the whole does not", more)


WAYS = (from_a_pipe, from_the_cache, in_parts, stopped, scrubbed)
