"""The page that CONTRIBUTING shows is a page."""

from __future__ import annotations

import re
from typing import Any

from tests.places import ROOT
from tests.tui.prepared import SIZE, after, line, opened

from fusetui.trace import Trace
from fusetui.tui.pages.page import ListPage
from fusetui.tui.state.state import TIMELINE

BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def shown_page() -> ListPage:
    found = BLOCK.search((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert found is not None
    names: dict[str, Any] = {}
    exec(compile(found[1], "CONTRIBUTING.md", "exec"), names)
    page: ListPage = names["StepsPage"]()
    return page


def test_the_page_of_the_documentation(mlp: Trace) -> None:
    page, state = shown_page(), opened(mlp)
    pane = page.show(state, SIZE)[-1]
    assert "ProfilerStep#4" in line(pane.picture, 2, SIZE)
    (key,) = page.actions
    assert after(state, key.run).list_of(page.name).cursor == 0
    there = after(state, lambda now: page.chosen(now, 1))
    assert there.page == TIMELINE
    assert there.view.begin > state.view.begin
