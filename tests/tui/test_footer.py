"""The last line names the keys that matter on a page, also on a narrow screen."""

from __future__ import annotations

import pytest
from tests.tui.prepared import after, do, drawn, explained, opened

from fusetui.trace import Trace
from fusetui.tui.screen_layout import ShownHint, _find_action_at
from fusetui.tui.state.state import Size


@pytest.mark.parametrize(
    ("page", "texts"),
    [
        ("timeline", ["w/s/a/d view", "Space fold", "i info", "/ search"]),
        ("tree", ["Space open", "Enter go to longest", "i info", "/ search"]),
        (
            "kernels",
            ["Enter go to longest", "Space drill in", "t group by", "/ filter"],
        ),
        ("modules", ["Space open", "Enter go to longest call", "i info"]),
        ("why", ["Enter show the evidence", "i info", "e next gap"]),
    ],
)
def test_the_footer_names_what_matters_at_80_columns(
    mlp: Trace, page: str, texts: list[str]
) -> None:
    state = after(explained(opened(mlp, size=Size(80, 24))), *do(page))
    footer = drawn(state).splitlines()[-1]
    assert [text for text in texts if text not in footer] == []


@pytest.mark.parametrize(
    ("x", "name"), [(0, "zoom-in"), (2, "zoom-out"), (4, "pan-left"), (9, "pan-right")]
)
def test_each_key_of_a_hint_can_be_clicked(x: int, name: str) -> None:
    names = "zoom-in/zoom-out/pan-left/pan-right"
    assert _find_action_at(ShownHint(f"{names} view", "w/s/a/d view"), x) == name
