"""The app: holds the state, passes keys to the registry, and draws the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from textual import events
from textual.app import SystemCommand
from textual.filter import LineFilter
from textual.screen import Screen
from textual.widgets import Input, OptionList

from fusetui.signals import ended_by_signals
from fusetui.text.printable import printable
from fusetui.tui import performing, registry, screen_layout
from fusetui.tui.drawing.canvas import Dragged, Pointed, Wheeled
from fusetui.tui.drawing.schemes import scheme_for
from fusetui.tui.drawing.segments import ASCII_DOOR, DOOR
from fusetui.tui.early import Early, as_pressed, is_starting
from fusetui.tui.ending import Ending
from fusetui.tui.keymap import Keymap, user_keymap
from fusetui.tui.layout.ranks import job_of_paths
from fusetui.tui.loading import TracesLoaded
from fusetui.tui.pages.page import Drag, Turn
from fusetui.tui.performing import Answered, Performing
from fusetui.tui.screens import OverlayScreen, PageScreen
from fusetui.tui.state import commands, moving, reading, search
from fusetui.tui.state.action import Action, Run, applies, key_text, keys_of, perform
from fusetui.tui.state.screen import overlay_size
from fusetui.tui.state.state import (
    Offer,
    Outcome,
    Prompt,
    Size,
    State,
    offers_of,
    offers_of_job,
    told,
)
from fusetui.tui.view_store import keep, restored

PAGING = ("pageup", "pagedown")
FEW_COLORS = ("standard", "windows")
"""Color systems of Rich with 16 colors."""


class AppOptions(msgspec.Struct, frozen=True):
    """What the app opens, and how it draws."""

    paths: tuple[str, ...]
    opened: int = 2  # how many of the paths are opened at once; 0: the user chooses first
    ascii_only: bool = False
    light: bool = False  # for a light background
    keymap: Keymap = {}
    tour: bool = False  # with the guided tour
    offers: Sequence[Offer] = ()  # what may be chosen from; (): the paths
    alone: bool = True  # everything is worked out in this process
    captured_by: Sequence[str] = ()  # captures of the graphs that the traces replay; (): found
    typed: str = ""  # before the app began


class FusetuiApp(Ending):
    """Everything on the screen is drawn from `state`; only `do` replaces it."""

    TITLE = "fusetui"
    CSS_PATH = "app.tcss"
    AUTO_FOCUS = None

    def __init__(self, options: AppOptions) -> None:
        super().__init__()
        self.animation_level = "none"
        few = self.console.color_system in FEW_COLORS
        self._scheme = scheme_for(options.light, few)
        self.register_theme(self._scheme.theme)
        self.theme = self._scheme.theme.name
        job = job_of_paths(options.paths)
        named = offers_of_job(job.paths) if job.paths else offers_of(options.paths)
        self.state = State(
            offers=tuple(options.offers) or named,
            job=job,
            must_choose=not options.opened,
            ascii_only=options.ascii_only,
            keymap=options.keymap,
            tour=0 if options.tour else None,
            colorless=self.no_color or few,
        )
        self._opened_first = options.paths[: options.opened]
        self._page = PageScreen(self._scheme)
        self._overlay: OverlayScreen | None = None
        self._performing = Performing(self, options.alone, tuple(options.captured_by))
        self._early = Early(options.typed)

    def get_default_screen(self) -> Screen[Any]:
        return self._page

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Filters every line of every widget on its way to the terminal."""
        ascii_only = [ASCII_DOOR] if self.state.ascii_only else []
        return [DOOR, *ascii_only, *super().get_line_filters()]

    def on_mount(self) -> None:
        self.app_resume_signal.subscribe(self, self._repaint)
        self._resized(self.size.width, self.size.height)
        first = self._opened_first
        self.do(partial(reading.read, paths=first) if first else reading.choose)

    # Every change

    def do(self, run: Run) -> None:
        """Draws the next state, then carries out its effect."""
        outcome: Outcome = run(self.state)
        state, effect = outcome if isinstance(outcome, tuple) else (outcome, None)
        before, self.state = self.state, registry.settled(self.state, state)
        if self.state is not before:
            self._draw(before)
            self._performing.foresee(before, self.state)
        if effect is not None:
            self._performing.perform(effect)
        if self._early and not is_starting(self.state):
            self.call_later(self._catch_up)

    def _draw(self, before: State) -> None:
        state = self.state
        if not _is_covered(before, state):
            self._page.canvas.show(screen_layout.stack(screen_layout.panes(state)))
        if state.prompt is not before.prompt:
            self._ask(state.prompt)
        if state.overlay is not None:
            self._cover()
        elif self._overlay is not None:
            self._overlay.dismiss()
            self._overlay = None

    def _ask(self, prompt: Prompt | None) -> None:
        """Shows or hides the input line."""
        if prompt is None or prompt.is_letter:
            self._page.input.close()
            self._page.set_focus(None)
        else:
            self._page.input.ask(prompt)
            self._page.set_focus(self._page.input)

    def _cover(self) -> None:
        if self._overlay is None:
            self._overlay = OverlayScreen(self._scheme)
            self.push_screen(self._overlay)
        self._overlay.resize(overlay_size(self.state))
        self._overlay.canvas.show(screen_layout.stack(screen_layout.overlay_panes(self.state)))

    # Input

    async def on_event(self, event: events.Event) -> None:
        """Keys arrive here first, so that each key of a burst sees the change made by the one
        before."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            if not self._early.take(event, self.state):
                await self._catch_up()
                await self._press(event)
        else:
            await super().on_event(event)

    async def _catch_up(self) -> None:
        """Presses the keys that waited for the trace, before any other."""
        if not is_starting(self.state):
            for event in self._early.all():
                await self._press(event)

    async def _press(self, event: events.Key) -> None:
        event = as_pressed(event, self.state)
        if not self._pressed(event):
            await super().on_event(event)

    def _pressed(self, event: events.Key) -> bool:
        """Does the registry take the key; else it is typed into a line, or Textual's."""
        action, state = registry.always(event.key, self.state), self.state
        if action is None:
            if self.screen not in (self._page, self._overlay):
                # The palette is open; a list that was given no room yet, Textual cannot page.
                lists = self.screen.query(OptionList)
                return event.key in PAGING and not all(
                    one.scrollable_content_region for one in lists
                )
            if state.prompt is not None:
                return self._answered(state.prompt, event)
            action = registry.action_for(event.key, state)
        if action is None:
            return False
        self.act(action)
        return True

    def _answered(self, prompt: Prompt, event: events.Key) -> bool:
        if prompt.is_letter:
            self.do(partial(moving.answered, character=event.character or ""))
        elif event.key == "escape":
            self.do(partial(replace, prompt=None, hint="", found=None))
        else:
            return False
        return True

    def act(self, action: Action) -> None:
        """Runs an action of the registry, from a key or from the palette."""
        self.do(partial(perform, action))

    def on_input_submitted(self, message: Input.Submitted) -> None:
        if self.state.prompt is Prompt.SEARCH:
            self.do(partial(search.searched, text=message.value))
        elif self.state.prompt is Prompt.COMMAND:
            self.do(partial(commands.obeyed, line=message.value))

    def on_input_changed(self, message: Input.Changed) -> None:
        if self.state.prompt is Prompt.SEARCH:
            self.do(partial(search.typed, text=message.value))

    def on_pointed(self, message: Pointed) -> None:
        self.do(partial(screen_layout.pointed, x=message.x, y=message.y))

    def on_wheeled(self, message: Wheeled) -> None:
        turn = Turn(message.x, message.lines, message.shifted)
        self.do(partial(screen_layout.wheeled, y=message.y, turn=turn))

    def on_dragged(self, message: Dragged) -> None:
        drag = Drag(message.x, message.to, message.ended)
        self.do(partial(screen_layout.dragged, y=message.y, drag=drag))

    def on_resize(self, event: events.Resize) -> None:
        self._resized(event.size.width, event.size.height)

    def _resized(self, width: int, height: int) -> None:
        if (size := Size(width, height)) != self.state.size:
            self.do(partial(replace, size=size))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette lists the actions of the registry that apply now."""
        for action in registry.ACTIONS:
            if not applies(action, self.state):
                continue
            texts = (key_text(key, self.state.ascii_only) for key in keys_of(action, self.state))
            keys = " ".join(texts)
            about = f"{keys}   {action.help}" if keys else action.help
            yield SystemCommand(action.title, about, partial(self.act, action))

    # Threads

    def on_answered(self, message: Answered) -> None:
        if isinstance(message.answer, TracesLoaded):
            self._loaded(message.answer)
        else:
            self.do(message.answer)

    def _loaded(self, found: TracesLoaded) -> None:
        state = self.state
        if found.paths is not state.wanted or state.reading is None:
            return  # another trace is being read by now
        said = ""
        if found.is_whole or (found.sides and not state.sides):
            # What is kept is that of the trace that makes room for this one.
            said = keep(state) if found.paths != state.paths else ""
            self.do(partial(registry.arrived, sides=found.sides))
            self.do(partial(restored, kept=found.kept))
            self.do(partial(replace, kept_as=found.kept_as))
        self.do(partial(reading.finished, missing=found.paths[len(found.sides) :]))
        if notices := [*found.notices, *filter(None, [said])]:
            self.do(partial(told, sentence="   ".join(map(printable, notices))))

    def _repaint(self, _: object) -> None:
        """After Ctrl+z nothing that was drawn before is left on the terminal."""
        self.screen.refresh()


def _is_covered(before: State, state: State) -> bool:
    """Whether only the overlay changed: Textual would redraw the whole page for any part of it."""
    covered = before.overlay is not None and state.overlay is not None
    return covered and before.sides == state.sides and before.size == state.size


def run(
    paths: Sequence[str],
    *,
    mouse: bool = True,
    say: Callable[[str], object] = bool,
    **options: Any,
) -> int:
    """Open these traces, with the fields of Options; returns the exit code. `say` is called with a
    sentence about what could not be kept.

    Raises TraceError when a trace cannot be read, KeymapError when the user's keys cannot, and the
    exception of a bug in the app.
    """
    keymap = user_keymap(registry.ACTIONS)
    performing.be_patient()
    app = FusetuiApp(AppOptions(tuple(paths), keymap=keymap, alone=False, **options))
    with ended_by_signals(app):
        app.run(mouse=mouse)
    if said := keep(app.state):
        say(said)
    return app.outcome()
