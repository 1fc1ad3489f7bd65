"""Programs that run, in the app: the list of them, and why one was not recorded."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from msgspec.structs import replace
from tests.tui.prepared import after, opened

from fusetui.attach.processes import process
from fusetui.trace import Trace
from fusetui.trace.model.report import never
from fusetui.tui import saving
from fusetui.tui.state.state import Chooser, Record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the door is Linux's")


def test_programs_are_listed_open_doors_first(mlp: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    this = process(os.getpid())
    assert this is not None
    found = [replace(this, folder=None, pid=1), replace(this, folder="", pid=2, rank="3")]
    monkeypatch.setattr(saving, "with_torch", lambda: found)
    posted: list[Any] = []
    saving.record(Record(), posted.append, never)
    overlay = after(opened(mlp), posted[0]).overlay
    assert isinstance(overlay, Chooser)
    assert [one.pid for one in overlay.programs] == [2, 1]
    assert overlay.summaries[0].startswith("rank 3   door open")
    assert overlay.summaries[1].startswith("door closed")
    found.clear()
    saving.record(Record(), posted.append, never)
    assert "fusetui run" in after(opened(mlp), posted[1]).hint


def test_why_a_program_was_not_recorded(mlp: Trace) -> None:
    posted: list[Any] = []
    saving.record(Record(os.getpid()), posted.append, never)
    assert "is closed. Start it with fusetui run" in after(opened(mlp), posted[0]).hint
