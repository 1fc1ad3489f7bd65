"""A capture for which there is no room on the disk: one sentence, and nothing is left
of it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.room import room_for

from fusetui.capture.command import capture
from fusetui.capture.errors import CaptureError
from fusetui.capture.options import Options

pytest.importorskip("torch", reason="capture runs torch")
pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("fast_timing")]

SAYS = re.compile(
    r"No point of the sweep was captured\.|(Nothing was captured: .*: )?"
    r"(The profiler (could|did) not write (its|the whole) trace.*|Cannot write .*: File too large\.)"
)


@pytest.mark.parametrize(
    "way",
    [{}, {"scrub": True}, {"compare": True, "steps": 6}, {"sweep": ("batch=2,3",)}],
    ids=lambda way: next(iter(way), "plain"),
)
def test_capture_without_disk_space_is_one_sentence_and_leaves_nothing(
    code: Path, tmp_path: Path, way: dict[str, Any]
) -> None:
    options = Options(
        **{"device": "cpu", "steps": 2, "seconds": 1e-9, "shapes": [], **way}
    )
    for room in (1, 1000):
        with room_for(room), pytest.raises(CaptureError) as raised:
            capture(f"{code}:build", options, tmp_path / "run")
        assert SAYS.fullmatch(str(raised.value)), str(raised.value)
        assert not list(tmp_path.glob("*run*"))
