"""The command palette under keys that arrive faster than it is drawn."""

from __future__ import annotations

import asyncio

import pytest
from tests.tui.driving import opened
from textual.events import Key
from textual.screen import Screen

from fusetui.tui.app import FusetuiApp
from fusetui.tui.palette import Palette
from fusetui.tui.state.action import Action


def pressed_at_once(app: FusetuiApp, *keys: str) -> None:
    """Sends keys as a terminal does that delivers them together."""
    assert app._driver is not None
    for key in keys:
        event = Key(key, key if len(key) == 1 else None)
        event.set_sender(app)
        app._driver.send_message(event)


@pytest.mark.parametrize("pause_ms", [0, 10, 40, 70])
@pytest.mark.parametrize("last", ["enter", "escape"])
async def test_two_quick_enters_leave_a_working_app(
    path: str, pause_ms: int, last: str
) -> None:
    async with opened([path]) as (app, pilot):
        pressed_at_once(app, "ctrl+p")
        await asyncio.sleep(pause_ms / 1000)
        pressed_at_once(app, "enter", "enter", last, last)
        await pilot.pause(0.2)
        await pilot.press("escape", "escape", "3")
        assert app.is_running
        assert app.state.page == "kernels"


@pytest.mark.parametrize("attempt", range(5))
async def test_two_quick_enters_run_a_command_once(
    path: str, monkeypatch: pytest.MonkeyPatch, attempt: int
) -> None:
    async with opened([path]) as (app, pilot):
        performed: list[str] = []

        def counted(action: Action) -> None:
            performed.append(action.name)

        await pilot.press("ctrl+p")
        monkeypatch.setattr(app, "act", counted)
        await pilot.press(*"kernels", "down")
        pressed_at_once(app, "enter", "enter", "enter")
        await pilot.pause(0.2)
        assert len(performed) == 1


async def test_a_palette_under_an_overlay_is_not_opened_again(path: str) -> None:
    async with opened([path]) as (app, pilot):
        await pilot.press("ctrl+p")
        await app.push_screen(Screen())
        app.action_command_palette()
        await pilot.pause()
        palettes = [one for one in app.screen_stack if isinstance(one, Palette)]
        assert len(palettes) == 1


def test_a_palette_without_a_list_yet_is_not_paged() -> None:
    assert Palette().check_action("command_list", ("page_down",)) is False
