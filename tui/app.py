"""The app: holds the state, passes keys to the registry, and draws the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from textual import events
from textual.app import ComposeResult, SystemCommand
from textual.filter import LineFilter
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.suggester import SuggestFromList
from textual.widgets import Input

from fusetui.own_memory import YOUNG_OF_APP, look_less_often
from fusetui.signals import ended_by_signals
from fusetui.text.printable import printable
from fusetui.tui import registry, screen_layout
from fusetui.tui.drawing.canvas import Canvas, Moused
from fusetui.tui.drawing.schemes import Scheme, choose_scheme
from fusetui.tui.drawing.segments import ASCII_DOOR, DOOR
from fusetui.tui.ending import Ending
from fusetui.tui.keymap import Keymap, read_user_keymap
from fusetui.tui.loading import TracesLoaded
from fusetui.tui.pages import kernels, overlays
from fusetui.tui.palette import ID as PALETTE_ID
from fusetui.tui.palette import Palette
from fusetui.tui.performing import Answered, Performing
from fusetui.tui.state import commands, hang, memory, moving, reading, search
from fusetui.tui.state.action import (
    Action,
    Run,
    action_applies,
    format_all_keys,
    key_text,
    perform,
    with_keys,
)
from fusetui.tui.state.commands import EXAMPLES, VERBS
from fusetui.tui.state.offers import Offer, find_job, make_offers
from fusetui.tui.state.replays import list_changes
from fusetui.tui.state.screen import overlay_size
from fusetui.tui.state.state import Outcome, Prompt, Size, State, told
from fusetui.tui.typed_keys import keys_of
from fusetui.tui.view_store import keep, restore_view

if TYPE_CHECKING:
    from fusetui.tui.line_history import LineHistory

SYSTEMS_OF_16_COLORS = ("standard", "windows")  # color systems of Rich
TEXTS = ("search", "command")  # actions after which a text is typed
EARLY_ENTER = "ctrl+j"  # what Enter is while the terminal is not yet the app's
MAX_KEYS_SHOWN = 5  # of those that wait for a list
PALETTE = "palette"  # the action that opens it
CLOSING_KEYS = ("enter", "escape")  # those that end a text
FOCUS_KEYS = ("tab", "shift+tab")  # Textual's, without effect where nothing is focused
NOT_PASTED = "you can paste text only into the input line of {command} or {search}"
Typed = events.Key | events.Paste


class AppOptions(msgspec.Struct, frozen=True):
    """What the app opens, and how it draws."""

    paths: tuple[str, ...]
    # how many of the paths are opened at once; 0: the user chooses first
    opened: int = 2
    ascii_only: bool = False
    light: bool = False  # for a light background
    keymap: Keymap = {}
    tour: bool = False  # with the guided tour
    offers: Sequence[Offer] = ()  # what may be chosen from; (): the paths
    alone: bool = True  # everything is worked out in this process
    # captures of the graphs that the traces replay; (): found
    captured_by: Sequence[str] = ()
    compile_log: str = ""  # of the traces; "": what lies beside each
    typed: str = ""  # before the app began
    memory: Sequence[str] = ()  # snapshots, alone or beside the traces
    dumps: Sequence[str] = ()  # of the flight recorder, alone or beside the traces
    # what makes the history of typed lines; None: it is of this run alone
    history: Callable[[], LineHistory] | None = None


class FusetuiApp(Ending):
    """Everything on the screen is drawn from `state`; only `do` replaces it."""

    TITLE = "fusetui"
    CSS_PATH = "app.tcss"
    AUTO_FOCUS = None

    def __init__(self, options: AppOptions) -> None:
        """Create the app with its first state, its page and its color scheme. Nothing
        is read or drawn before the app is mounted."""
        super().__init__()
        self._options = options
        self.animation_level = "none"
        has_16_colors = self.console.color_system in SYSTEMS_OF_16_COLORS
        self._scheme = choose_scheme(options.light, has_16_colors)
        self.register_theme(self._scheme.theme)
        self.theme = self._scheme.theme.name
        job = find_job(options.paths)
        offers = options.offers or make_offers(options.paths, bool(job.paths))
        self.state = State(
            offers=tuple(offers),
            job=job,
            must_choose=not options.opened,
            ascii_only=options.ascii_only,
            light=options.light,
            captured_by=tuple(options.captured_by),
            compile_log=options.compile_log,
            keymap=options.keymap,
            tour=0 if options.tour else None,
            colorless=self.no_color or has_16_colors,
        )
        self._page = PageScreen(self._scheme)
        self._overlay: OverlayScreen | None = None
        self._performing = Performing(
            self, options.alone, tuple(options.captured_by), options.compile_log
        )
        self._early: list[Typed] = [*keys_of(options.typed)]
        self._for_list: list[events.Key] = []  # that wait for the list of the page
        self._is_line_closing = False
        self._lines: LineHistory | None = None

    def get_default_screen(self) -> Screen[Any]:
        """Return the screen with the page, which Textual shows first."""
        return self._page

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters that Textual applies to every drawn line. They keep
        control characters, and with `ascii_only` all others outside ASCII, from the
        terminal."""
        filters: list[LineFilter] = [DOOR]
        if self.state.ascii_only:
            filters.append(ASCII_DOOR)
        return [*filters, *super().get_line_filters()]

    def on_mount(self) -> None:
        """Start to read what the options name: traces, memory snapshots, or
        flight-recorder dumps. If they name nothing, show the list of traces to choose
        from."""
        # After Ctrl+z nothing that was drawn before is left on the terminal.
        self.app_resume_signal.subscribe(self, lambda _: self.screen.refresh())
        self.do(partial(replace, size=Size(*self.size)))
        first_paths = self._options.paths[: self._options.opened]
        snapshots = self._options.memory
        dumps = self._options.dumps
        if first_paths:
            self.do(partial(reading.read, paths=first_paths))
        elif not snapshots and not dumps:
            self.do(reading.choose)
        if snapshots:
            self.do(partial(memory.read, paths=snapshots, alone=not first_paths))
        if dumps:
            is_alone = not (first_paths or snapshots)
            self.do(partial(hang.read, paths=dumps, alone=is_alone))

    # Every change

    def do(self, run: Run) -> None:
        """Apply a change to the state, draw the result, and start the effect that the
        change asks for.

        `run` gets the state and returns the next one, or a pair of that and an effect,
        such as reading a file. This is the only place that replaces the state.
        """
        outcome: Outcome = run(self.state)
        state, effect = outcome if isinstance(outcome, tuple) else (outcome, None)
        before = self.state
        self.state = registry.settle_state(before, state)
        if self.state is not before:
            self._draw_changes(before)
            self._performing.foresee(before, self.state)
        if effect is not None:
            self._performing.perform(effect)
        if self._early and not is_starting(self.state):
            self.call_later(self._press_waiting_keys)
        if self._for_list and not registry.is_list_awaited(self.state):
            self._take_up_list_keys(before)

    def _draw_changes(self, before: State) -> None:
        """Show the current state, where `before` was shown until now.

        If only the overlay changed, the page below is left alone: Textual would redraw
        all of it.
        """
        state = self.state
        had_overlay_too = before.overlay is not None and state.overlay is not None
        if not (had_overlay_too and _shows_same_page(before, state)):
            self._page.canvas.show(screen_layout.stack(screen_layout.panes(state)))
        if state.overlay is not None:
            self._cover()
        elif self._overlay is not None:
            self._overlay.dismiss()
            self._overlay = None
        if state.prompt is not before.prompt:
            self._ask(state.prompt)

    def _ask(self, prompt: Prompt | None) -> None:
        """Show the input line for the text that the state asks for, on the screen in
        front; hide it for None. A prompt for a single letter has no input line."""
        self._is_line_closing = False
        front_screen = self._overlay or self._page
        if prompt is None or prompt.is_letter:
            for screen in {self._page, front_screen}:
                screen.input.display = False
                screen.set_focus(None)
            return
        changes = list_changes(self.state.side.trace) if self.state.sides else []
        front_screen.input.ask(prompt, self.state.typed, changes, self._history())
        front_screen.set_focus(front_screen.input)

    def _history(self) -> LineHistory:
        """Return the history of typed lines. It is read when the first input line is
        opened."""
        if self._lines is None:
            self._lines = (self._options.history or _make_unsaved_history)()
        return self._lines

    def keep_lines(self) -> str:
        """Write the history of typed lines to its file, if any line was opened. Return
        "", or a sentence that says why it failed."""
        return "" if self._lines is None else self._lines.keep()

    def _cover(self) -> None:
        """Show the overlay of the state over the page, in its size, with its keys on
        the last line."""
        if self._overlay is None:
            self._overlay = OverlayScreen(self._scheme)
            self.push_screen(self._overlay)
        canvas = self._overlay.canvas
        size = overlay_size(self.state)
        canvas.styles.width = size.width
        canvas.styles.height = size.height
        canvas.show(screen_layout.stack(screen_layout.overlay_panes(self.state)))
        self._overlay.hints.show(screen_layout.make_overlay_hint(self.state))

    # Input

    async def on_event(self, event: events.Event) -> None:
        """Receive every event first, and handle keys and pasted texts in order.

        Each key of a burst thereby sees the change that the key before it made. A key
        that cannot be handled yet waits.
        """
        if not isinstance(event, events.Key | events.Paste) or event.is_forwarded:
            await super().on_event(event)
        elif self._waits(event):
            self._early.append(event)
        else:
            await self._press_waiting_keys()
            await self._press(event)

    def _waits(self, event: Typed) -> bool:
        """Return whether a key or pasted text has to wait.

        It waits while a typed line is being closed. Before the first trace is shown, it
        also waits in three cases: an earlier key opens a line for it, it has no action,
        or its action needs a trace.
        """
        if self._is_palette_open():
            return False
        if isinstance(event, events.Paste):
            return self._must_hold_keys()
        if registry.always(event.key, self.state):
            return False
        if self._is_line_closing:
            return True
        if not is_starting(self.state):
            return False
        if any(self._opens_line(earlier) for earlier in self._early):
            return True
        action = registry.action_for(event.key, self.state)
        return action is None or bool(action.needs(self.state))

    def _opens_line(self, event: Typed) -> bool:
        """Return whether a key opens a line for text, such as that of a search."""
        if not isinstance(event, events.Key):
            return False
        action = registry.action_for(event.key, self.state)
        return action is not None and action.name in TEXTS

    async def _press_waiting_keys(self) -> None:
        """Press the keys that waited, in their order, until one has to wait again."""
        while self._early and not self._must_hold_keys():
            await self._press(self._early.pop(0))

    def _take_up_list_keys(self, before: State) -> None:
        """Press the keys that waited for the list of the page, which is there now.
        `before` is the state without it. The keys are dropped if another page came to
        the front, or anything over it."""
        kept_keys = self._for_list
        self._for_list = []
        is_same_page = self.state.page == before.page
        is_covered = self.state.overlay is not None or self.state.prompt is not None
        if not is_same_page or is_covered:
            return
        self.do(partial(replace, hint=""))
        self._early[:0] = kept_keys  # before keys that are pressed from now on
        self.call_later(self._press_waiting_keys)

    def _keep_for_list(self, event: events.Key) -> None:
        """Keep a key until the list of the page is there, and say so."""
        self._for_list.append(event)
        keys = " ".join(_format_key(kept) for kept in self._for_list[-MAX_KEYS_SHOWN:])
        self.do(partial(told, sentence=f"the list is being computed; then: {keys}"))

    def _must_hold_keys(self) -> bool:
        """Return whether keys have to wait: for the first trace, or until a typed line
        was carried out."""
        return is_starting(self.state) or self._is_line_closing

    async def _press(self, event: Typed) -> None:
        """Handle a key or a pasted text. A key that the app does not use goes on to
        Textual."""
        if isinstance(event, events.Paste):
            await self._paste(event)
            return
        # before the terminal is in raw mode, Enter arrives as a line feed
        is_enter = event.key == EARLY_ENTER
        if is_enter and registry.action_for(EARLY_ENTER, self.state) is None:
            event = events.Key("enter", "\r")
        if not self._pressed(event):
            await super().on_event(event)

    async def _paste(self, event: events.Paste) -> None:
        """Insert a pasted text into the input line that is open. Without one, say that
        it cannot be pasted here: its characters must not act as keys."""
        prompt = self.state.prompt
        asks_text = prompt is not None and not prompt.is_letter
        if asks_text or self._is_palette_open():
            await super().on_event(event)
        else:
            self.do(lambda state: told(state, with_keys(NOT_PASTED, state)))

    def _is_palette_open(self) -> bool:
        """Return whether the command palette is in front."""
        return self.screen not in (self._page, self._overlay)

    def _pressed(self, event: events.Key) -> bool:
        """Run the action of a key, and return whether the key is used up.

        A key without an action is used up by a message that says so. A key for an input
        line, or one of Textual's own, returns false.
        """
        action = registry.always(event.key, self.state)
        if action is None:
            if self._is_palette_open():
                return False
            if self.state.prompt is not None:
                return self._answered(self.state.prompt, event)
            action = registry.action_for(event.key, self.state)
        if action is not None and registry.waits_for_list(action, self.state):
            self._keep_for_list(event)
            return True
        if action is not None:
            self._for_list = []  # what was asked for last counts
            self.act(action)
        elif event.key in self.active_bindings and event.key not in FOCUS_KEYS:
            return False
        else:
            self.do(partial(registry.unused, event.key, _format_key(event)))
        return True

    def _answered(self, prompt: Prompt, event: events.Key) -> bool:
        """Return whether an open prompt uses up the key before its input line sees it.

        A prompt for a letter takes any key. Enter and Escape close a line: keys after
        them wait until the line has all keys before them.
        """
        if prompt.is_letter:
            self.do(partial(moving.answered, character=event.character or ""))
            return True
        if event.key not in CLOSING_KEYS:
            return False
        if not isinstance(self.focused, PromptInput):  # nothing would come of the key
            self.on_prompt_input_left()
            return True
        self._is_line_closing = True
        return False

    def act(self, action: Action) -> None:
        """Run an action on the state, such as the action of a key or of an entry in the
        palette."""
        self.do(partial(perform, action))

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Handle Enter in the input line: keep the line in the history, then search for
        it, obey it as a command, or close the filter."""
        if self.state.prompt is not None:
            self._history().add(self.state.prompt, message.value)
        if self.state.is_searching:
            self.do(partial(search.searched, text=message.value))
        elif self.state.prompt is Prompt.COMMAND:
            self.do(partial(commands.obeyed, line=message.value))
        elif self.state.prompt in (Prompt.FILTER, Prompt.ROWS):
            self.do(partial(replace, prompt=None))

    def on_prompt_input_left(self) -> None:
        """Handle Escape in the input line: close it, and drop the filter or the hits
        that it made."""
        if self.state.prompt is Prompt.FILTER:
            self.do(partial(overlays.narrowed, words=""))
        elif self.state.prompt is Prompt.ROWS:
            self.do(partial(kernels.filter_by_words, words=""))
        if self.state.prompt is not None:
            self.do(partial(replace, prompt=None, hint="", found=None))

    def on_input_changed(self, message: Input.Changed) -> None:
        """Search or filter again while the user types, each time the text of the input
        line changes."""
        if self.state.is_searching:
            self.do(partial(search.typed, text=message.value))
        elif self.state.prompt is Prompt.FILTER:
            self.do(partial(overlays.narrowed, words=message.value))
        elif self.state.prompt is Prompt.ROWS:
            self.do(partial(kernels.filter_by_words, words=message.value))

    def on_moused(self, message: Moused) -> None:
        """Handle a click, drag or turn of the wheel on the page."""
        self.do(partial(screen_layout.moused, y=message.y, done=message.done))

    def on_resize(self, event: events.Resize) -> None:
        """Take over the new size of the terminal and draw again."""
        size = Size(*event.size)
        if size != self.state.size:
            self.do(partial(replace, size=size))

    def action_command_palette(self) -> None:
        """Open the command palette, unless it is open already, also below another
        screen."""
        is_open = any(isinstance(screen, Palette) for screen in self.screen_stack)
        if not is_open:
            self.push_screen(Palette(id=PALETTE_ID))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the actions that apply now, with their keys, as entries of the command
        palette."""
        for action in registry.ACTIONS:
            is_palette = action.name == PALETTE
            if action_applies(action, self.state) and not is_palette:
                keys = format_all_keys(action, self.state, " ")
                key_and_help = f"{keys}   {action.help}".strip()
                yield SystemCommand(
                    action.title, key_and_help, partial(self.act, action)
                )

    # Threads

    def on_answered(self, message: Answered) -> None:
        """Apply what a background thread has found: traces that were read, or another
        change of the state."""
        if isinstance(message.answer, TracesLoaded):
            self._loaded(message.answer)
        else:
            self.do(message.answer)

    def _loaded(self, loaded: TracesLoaded) -> None:
        """Show traces that a thread has read, with the view that was saved for them and
        notices about them.

        Traces that are no longer wanted, because others are being read, are dropped.
        """
        state = self.state
        is_wanted = loaded.paths is state.wanted and state.reading is not None
        if not is_wanted:
            return
        notices = list(loaded.notices)
        # part of what was asked for does not replace traces that are open
        is_shown = loaded.is_whole or (loaded.sides and not state.sides)
        if is_shown:
            if loaded.paths != state.paths:
                # the view of the trace that makes room for this one is saved
                why_not_saved = keep(state)
                if why_not_saved:
                    notices.append(why_not_saved)
            self.do(partial(registry.arrived, sides=loaded.sides))
            self.do(partial(restore_view, kept=loaded.kept))
            self.do(partial(replace, kept_as=loaded.kept_as))
        missing = loaded.paths[len(loaded.sides) :]
        self.do(partial(reading.finished, missing=missing))
        if notices:
            sentence = "   ".join(printable(notice) for notice in notices)
            self.do(partial(told, sentence=sentence))


def _make_unsaved_history() -> LineHistory:
    """Return a history of typed lines for this run alone, which is not saved."""
    from fusetui.tui.line_history import LineHistory  # rarely needed

    return LineHistory(None)


def _make_saved_history() -> LineHistory:
    """Return the history of typed lines with those of earlier runs."""
    from fusetui.tui.line_history import open_saved_history  # rarely needed

    return open_saved_history()


def is_starting(state: State) -> bool:
    """Return whether the first trace is being read and nothing of it can be shown yet."""
    return state.reading is not None and not state.is_open and state.overlay is None


def _format_key(event: events.Key) -> str:
    """Return how a person writes a key: its printable character, else its name."""
    character = event.character or ""
    if len(character) == 1 and character.isprintable() and not character.isspace():
        return character
    return key_text(event.key)


def _shows_same_page(before: State, state: State) -> bool:
    """Return whether the page below an overlay looks the same in both states. It does
    if the open files and the size of the terminal are unchanged."""
    return (
        before.sides == state.sides
        and before.memory is state.memory
        and before.hang is state.hang
        and before.size == state.size
    )


def run(
    paths: Sequence[str],
    *,
    mouse: bool = True,
    say: Callable[[str], object] | None = None,
    **options: Any,
) -> int:
    """Run the app on these traces until the user quits, and return the exit code.

    `options` are the fields of AppOptions. `say` is called with a sentence for whatever
    could not be saved at the end. Raise TraceError if a trace cannot be read,
    WrongFileError for a wrong file of keys, and the exception of a bug in the app.
    """
    keymap = read_user_keymap(registry.ACTIONS)
    look_less_often(YOUNG_OF_APP)
    app = FusetuiApp(
        AppOptions(
            tuple(paths),
            keymap=keymap,
            alone=False,
            history=_make_saved_history,
            **options,
        )
    )
    with ended_by_signals(app):
        app.run(mouse=mouse)
    for not_kept in (keep(app.state), app.keep_lines()):
        if not_kept and say is not None:
            say(not_kept)
    return app.outcome()


COMPLETION = [f"{verb} " for verb in VERBS if len(verb) > 1]
PLACEHOLDERS = {
    Prompt.SEARCH: "kind:gemm dur>50us   Enter go to first   Esc close",
    Prompt.COMMAND: "  ".join((*EXAMPLES, "Esc closes")),
    Prompt.FILTER: "words to find: zoom   Enter keep   Esc all keys",
    Prompt.ROWS: "words to find: gemm   Enter keep   Esc all rows",
}


class PromptInput(Input):
    """Shown while the state asks for a text. Enter submits it, Escape leaves it; Tab
    completes a command, Up and Down go through what was typed before."""

    class Left(Message):
        """Escape was pressed in the line."""

    def __init__(self) -> None:
        """Create the input line, which is hidden until a prompt is shown."""
        # a command that stands there is gone on with
        super().__init__(select_on_focus=False)
        self.cursor_blink = False  # nothing is sent while nobody types
        self._prompt = Prompt.COMMAND
        self._history: LineHistory | None = None
        self._earlier: tuple[str, ...] | None = None  # None: not asked for yet
        self._steps_back = 0  # which of the earlier lines is shown; 0: what is typed
        self._draft = ""

    def ask(
        self, prompt: Prompt, text: str, changes: Sequence[str], history: LineHistory
    ) -> None:
        """Show the input line for a prompt and give it the focus.

        `text` stands in the line of a command at first. `changes` are completions
        beside the names of commands. `history` has the lines that were typed before.
        """
        self._prompt = prompt
        self._history = history
        self._earlier = None
        self._steps_back = 0
        self.placeholder = PLACEHOLDERS[prompt]
        self.display = True
        if prompt is Prompt.COMMAND:
            self.suggester = SuggestFromList([*COMPLETION, *changes])
            self.value = text
        else:
            self.suggester = None
            self.value = ""
        self.cursor_position = len(self.value)
        self.focus()

    def on_key(self, event: events.Key) -> None:
        """Handle the keys of the line: Escape leaves it, Tab takes the suggested
        command, Up and Down show earlier lines."""
        if event.key == "escape":
            event.stop()
            self.post_message(self.Left())
        elif event.key == "tab":
            event.stop()
            self.action_end()
            self.action_cursor_right()
        elif event.key in ("up", "down"):
            event.stop()
            self._step(1 if event.key == "up" else -1)

    def _step(self, back: int) -> None:
        """Show the line typed before (`back` is 1) or after (-1) the one that is shown.
        After the last one comes the user's unfinished text."""
        if self._earlier is None:
            history = self._history
            self._earlier = () if history is None else history.lines(self._prompt)
        steps_back = self._steps_back + back
        if not 0 <= steps_back <= len(self._earlier):
            return
        if self._steps_back == 0:
            self._draft = self.value
        self._steps_back = steps_back
        self.value = self._earlier[-steps_back] if steps_back else self._draft
        self.cursor_position = len(self.value)


class PageScreen(Screen[None], inherit_bindings=False):
    """One canvas for everything, and an input line that appears over its last line."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.canvas = Canvas(scheme)
        self.input = PromptInput()

    def compose(self) -> ComposeResult:
        """Yield the canvas of the page and the input line over its last line."""
        yield self.canvas
        yield self.input


class HintLine(Canvas):
    """The last line below what lies over the page; the mouse does nothing on it."""

    def on_moused(self, message: Moused) -> None:
        """Stop mouse events here, so that the page below does not receive them."""
        message.stop()


class OverlayScreen(ModalScreen[None], inherit_bindings=False):
    """A canvas over the page, a sentence on the last line of the screen, and an input
    line over that."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.canvas = Canvas(scheme, scheme.surface)
        self.hints = HintLine(scheme)
        self.input = PromptInput()

    def compose(self) -> ComposeResult:
        """Yield the canvas of the overlay, the last line of the screen, and the input
        line."""
        yield self.canvas
        yield self.hints
        yield self.input
