"""The app driven by keys alone, and what a person then sees."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from textual.pilot import Pilot
from textual.strip import Strip

from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.pages.page import Page
from fusetui.tui.state.state import State

SMALL, LARGE = (100, 30), (200, 50)


@asynccontextmanager
async def opened(
    paths: Sequence[str], size: tuple[int, int] = SMALL, tour: bool = False
) -> AsyncIterator[tuple[FusetuiApp, Pilot[int]]]:
    """The app with these traces read and compared."""
    app = FusetuiApp(AppOptions(tuple(paths), tour=tour))
    async with app.run_test(size=size) as pilot:
        for _ in range(2):
            await settled(app, pilot)
        yield app, pilot


async def settled(app: FusetuiApp, pilot: Pilot[int]) -> None:
    """Until no thread works any more."""
    await app.workers.wait_for_complete()
    await pilot.pause()


def named(page: Page, state: State) -> str:
    """What names the row of a table that `y` copies; "" where it copies nothing."""
    return page.copied(state).partition("\n")[2].partition("\t")[0]


def screen(app: FusetuiApp) -> str:
    """What a person sees, without colors."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


def selected(app: FusetuiApp) -> str:
    """The name of the slice that is selected on the first side."""
    session = app.state.session
    return session.sides[0].trace.name_of(session.views[0].selected)


def strips(app: FusetuiApp) -> list[Strip]:
    """What a person sees, with colors."""
    return app.screen._compositor.render_strips()
