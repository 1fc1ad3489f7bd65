"""The lanes on small and large screens, with colors and without."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.tui.mixed import mixed
from tests.tui.prepared import after, explained, line, opened

from fusetui.trace import Trace
from fusetui.tui.drawing.timeline import TimelinePicture
from fusetui.tui.registry import page_of
from fusetui.tui.state.screen import page_size
from fusetui.tui.state.state import Size, State

Make = Callable[..., Trace]
Matches = Callable[[str, str], None]
SIZES = (Size(60, 18), Size(80, 24), Size(120, 35), Size(200, 50))
MODES = {"color": {}, "colorless": {"colorless": True}, "ascii": {"ascii_only": True}}


def lanes(state: State) -> str:
    """The timeline, without what stands above and below it."""
    size = page_size(state)
    pane = page_of(state).show(state, size)[0]
    assert isinstance(pane.picture, TimelinePicture)
    picture, height = pane.picture, pane.height
    return "\n".join(line(picture, y, Size(size.width, height)) for y in range(height))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_lanes_look_as_kept_in_every_mode(
    trace_of: Make, size: Size, mode: str, matches_screen: Matches
) -> None:
    state = after(opened(trace_of(mixed()), size=size), explained)
    state = replace(state, **MODES[mode])
    matches_screen(f"lanes-{size.width}x{size.height}-{mode}", lanes(state))


@pytest.mark.parametrize("mode", ["colorless", "ascii"])
def test_busy_is_seen_without_colors(trace_of: Make, mode: str) -> None:
    """No cell of a stream that is busy for half of its time is blank."""
    state = after(opened(trace_of(mixed()), size=SIZES[1]), explained)
    shown = lanes(replace(state, **MODES[mode])).splitlines()
    (stream,) = [line for line in shown if "stream 7" in line]
    assert "ppp" in stream
