"""The kind of inputs that try the app: traces, a size, and what a person does with the
keys."""

from __future__ import annotations

import asyncio
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from fuzz import words
from fuzz.campaign import Kind
from fuzz.case import case
from fuzz.checks import check
from fuzz.examine import Limited
from fuzz.limits import limited
from fuzz.shrink import shrunk, shrunk_bytes
from fuzz.sizes import sized
from fuzz.trial import alone
from tests.tui.driving import screen
from textual.app import SuspendNotSupported
from textual.errors import NoWidget
from textual.events import MouseScrollDown, MouseScrollUp
from textual.pilot import OutOfBounds, Pilot
from textual.worker import WorkerError

from fusetui.text.printable import printable_lines
from fusetui.trace import TraceError
from fusetui.tui.app import AppOptions, FusetuiApp
from fusetui.tui.registry import ACTIONS

Step = tuple[str, ...]
"""What is done, and with what: a key, a text typed after a key, a click, a wheel, a new
size."""

STEPS = 40
MOMENT = 0.001  # seconds between two keys
SIZES = ((80, 24), (100, 30), (40, 10), (200, 50), (20, 5), (1, 1), (300, 80))
LEAVING = ("q", "ctrl+c")
KEYS = tuple(key for action in ACTIONS for key in action.keys if key not in LEAVING)
OTHER_KEYS = (
    "tab",
    "backspace",
    "b",
    "e",
    "A",
    "delete",
    "f5",
    "é",
    "ctrl+d",
    "ctrl+a",
)
PALETTE_KEYS = ("ctrl+p", "enter", "escape", "down", "pagedown", "w", "h", "y")
LONGEST_BURST = 5  # keys of the palette that are pressed without waiting in between

TEXTS = (
    "a",
    "aten",
    "Mm",
    "",
    "\x00",
    "[red]",
    "(",
    "*",
    "ProfilerStep",
    "é",
    "\u202e",
    "gemm",
)
TIMES = (
    "0ns",
    "-1ns",
    "12.5ms",
    "999999s",
    "5 us",
    "1e3",
    "1.5",
    "999999999999999999s",
)
LINES = (
    *(
        "step 1",
        "step 0",
        "step 99",
        "step x",
        "mark a",
        "mark 1",
        "open",
        "diff",
        "nothing",
        "",
        "q x",
    ),
    *(
        "open nowhere.json",
        "diff {other}",
        "open {other}",
        "open /",
        "diff {trace}",
        "\x1b]0;P\x07",
    ),
)


class AppCase(NamedTuple):
    traces: tuple[bytes, ...]  # one or two; a third one only `:open` leads to
    size: tuple[int, int]
    steps: tuple[Step, ...]


def app_case(seed: int, number: int) -> AppCase:
    rnd = Random(f"app {seed}/{number}")
    traces = tuple(
        case(seed, 3 * number + n).data for n in range(rnd.choice((1, 1, 2)))
    )
    steps = tuple(_step(rnd) for _ in range(STEPS - 1))
    last: Step = ("key", rnd.choice(LEAVING)) if rnd.random() < 0.3 else _step(rnd)
    return AppCase(traces, rnd.choice(SIZES), (*steps, last))


def _step(rnd: Random) -> Step:
    share = rnd.random()
    if share < 0.75:
        return "key", rnd.choice(KEYS)
    if share < 0.79:
        return "key", rnd.choice(OTHER_KEYS)
    if share < 0.8:
        return (
            "burst",
            "ctrl+p",
            *rnd.choices(PALETTE_KEYS, k=rnd.randint(1, LONGEST_BURST)),
        )
    if share < 0.86:
        return "type", "slash", rnd.choice((*TEXTS, *words.NAMES))
    if share < 0.91:
        line = f"goto {rnd.choice(TIMES)}" if rnd.random() < 0.4 else rnd.choice(LINES)
        return "type", "colon", line
    if share < 0.96:
        kind = rnd.choice(("click", "down", "up"))
        return kind, str(rnd.randint(0, 120)), str(rnd.randint(0, 50))
    return "resize", *map(str, rnd.choice(SIZES))


def examine_app(tried: AppCase, limited: Limited = nullcontext) -> str:
    """What became of it: `refused`, or `taken`. Raises what the app raised."""
    with (
        warnings.catch_warnings(action="error"),
        tempfile.TemporaryDirectory() as folder,
        sized("usual"),
        without_waiting(),
    ):
        paths = [Path(folder) / f"{letter}.json" for letter in "ab"]
        for path, data in zip(paths, (tried.traces * 2)[:2], strict=True):
            path.write_bytes(data)
        app = FusetuiApp(AppOptions(tuple(map(str, paths[: len(tried.traces)]))))
        asyncio.run(_driven(app, tried, paths, limited))
        try:
            code = app.outcome()
        except TraceError as error:
            check(str(error), "refused without a word")
            return "refused"
        check(code in (0, 130), "exit code", code)
        return "taken"


@contextmanager
def without_waiting() -> Iterator[None]:
    """Keys follow one another at once: Textual's pilot waits until the processor is
    idle."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("textual.app", "textual.pilot"):
            patch.setattr(f"{module}.wait_for_idle", _a_moment)
        yield


async def _a_moment(_least: float = 0) -> None:
    await asyncio.sleep(MOMENT)


async def _driven(
    app: FusetuiApp, tried: AppCase, paths: Sequence[Path], limited: Limited
) -> None:
    async with app.run_test(size=tried.size) as pilot:
        with limited("opening"):
            for _ in range(2):
                await _settled(app, pilot)
        for step in tried.steps:
            if app.return_value is not None or app._failure:
                break
            with (
                limited(" ".join(step)),
                suppress(OutOfBounds, NoWidget, SuspendNotSupported),
            ):
                await _do(app, pilot, step, paths)
        with limited("the screen"):
            text = screen(app)
            check(text == printable_lines(text), "a screen that a terminal obeys")


async def _settled(app: FusetuiApp, pilot: Pilot[int]) -> None:
    """Until no thread works any more, whatever became of what it did."""
    with suppress(WorkerError):
        await app.workers.wait_for_complete()
    await pilot.pause()


async def _do(
    app: FusetuiApp, pilot: Pilot[int], step: Step, paths: Sequence[Path]
) -> None:
    match step:
        case "key", key:
            await pilot.press(key)
        case "burst", *keys:
            await pilot.press(*keys)
        case "type", key, text:
            await pilot.press(key)
            for char in text.format(trace=paths[0], other=paths[1]):
                await pilot.press(char)
            await pilot.press("enter")
        case "click", x, y:
            await pilot.click(offset=(int(x), int(y)))
        case ("down" | "up") as way, x, y:
            event = MouseScrollDown if way == "down" else MouseScrollUp
            await pilot._post_mouse_events([event], offset=(int(x), int(y)))
        case "resize", width, height:
            await pilot.resize_terminal(int(width), int(height))
    await pilot.pause()


def attempt(seed: int, number: int) -> str:
    return examine_app(app_case(seed, number), limited)


def save(seed: int, number: int, what: str, place: Path) -> Path:
    tried = app_case(seed, number)

    def fails(fewer: AppCase) -> bool:
        return alone(partial(examine_app, fewer, limited)).what == what

    steps = shrunk(tried.steps, lambda some: fails(tried._replace(steps=tuple(some))))
    tried = tried._replace(steps=tuple(steps))
    for number, data in enumerate(tried.traces):
        with_trace = partial(_with_trace, tried, number)
        tried = with_trace(shrunk_bytes(data, partial(_also, fails, with_trace)))
    path = place.with_name(f"{place.name}.json")
    path.write_text(as_text(tried))
    return path


def _with_trace(tried: AppCase, number: int, data: bytes) -> AppCase:
    return tried._replace(
        traces=(*tried.traces[:number], data, *tried.traces[number + 1 :])
    )


def _also(
    fails: Callable[[AppCase], bool], changed: Callable[[bytes], AppCase], data: bytes
) -> bool:
    return fails(changed(data))


def as_text(tried: AppCase) -> str:
    """As a file of its own; the bytes of the traces as Latin-1."""
    traces = [data.decode("latin-1") for data in tried.traces]
    return json.dumps(
        {"size": tried.size, "steps": tried.steps, "traces": traces}, indent=1
    )


def from_text(text: str) -> AppCase:
    found = json.loads(text)
    traces = tuple(data.encode("latin-1") for data in found["traces"])
    return AppCase(traces, tuple(found["size"]), tuple(map(tuple, found["steps"])))


KIND = Kind("app", attempt, save, batch=25)
