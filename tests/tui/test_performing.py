"""Beside the keys: what is read while nobody presses one, and what the collector passes
over."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue

import pytest
from tests.tui.conftest import mlp_events

from fusetui.own_memory import thaw
from fusetui.trace import Trace
from fusetui.tui import loading
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.layout.moves import (
    select_first,
    select_next_slice,
    select_on_next_line,
)
from fusetui.tui.layout.view import Side, View
from fusetui.tui.performing import Ahead, likely

SECONDS = 30  # a hang ends there


def test_the_neighbors_of_a_slice_are_likely(side: Side, view: View) -> None:
    chosen = select_next_slice(side, select_first(side, view), 1)
    found = list(likely(side, chosen))
    beside = [
        step(side, chosen, by).selected
        for step in (select_next_slice, select_on_next_line)
        for by in (1, -1)
    ]
    assert set(found) == {*beside} - {chosen.selected}
    assert len(set(found)) == len(found) > 1


def test_args_of_likely_next_slices_are_read_ahead(
    side: Side, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: SimpleQueue[int] = SimpleQueue()

    def note(trace: Trace, row: int) -> None:
        read.put(row)

    chosen = select_first(side, view)
    monkeypatch.setattr(Trace, "args_of", note)
    Ahead().look(side, chosen)
    assert [read.get(timeout=SECONDS) for _ in likely(side, chosen)] == [
        *likely(side, chosen)
    ]


@pytest.mark.usefixtures("frozen_again")
async def test_an_open_trace_is_not_looked_at_again(tmp_path: Path) -> None:
    path = tmp_path / "mlp.json"
    path.write_text(json.dumps({"traceEvents": mlp_events()}))
    app = FusetuiApp(AppOptions((str(path),), alone=False))
    before = gc.get_freeze_count()  # Python itself has some, from 3.12 on
    try:
        async with app.run_test() as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            looked_at = {id(found) for found in gc.get_objects()}
            assert id(app.state.side.lanes[0]) not in looked_at
    finally:
        thaw()
    assert gc.get_freeze_count() <= before


@pytest.mark.usefixtures("frozen_again")
async def test_preview_no_longer_shown_is_garbage_collected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A preview that refers to itself, once the whole trace is there."""

    class Preview:
        itself: object

    shown: list[weakref.ref[Preview]] = []

    def load(paths: Sequence[str], post: Callable[[object], None], *_: object) -> None:
        preview = Preview()
        preview.itself = preview
        shown.append(weakref.ref(preview))
        post(lambda state: state)

    monkeypatch.setattr(loading, "load", load)
    app = FusetuiApp(AppOptions(("trace.json",), alone=False))
    try:
        async with app.run_test():
            await app.workers.wait_for_complete()
            assert [one() for one in shown] == [None]
    finally:
        thaw()
