"""The two screens of the app: the page, and the overlay over it. Both only draw."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.screen import ModalScreen, Screen
from textual.suggester import SuggestFromList
from textual.widgets import Input

from fusetui.tui.drawing.canvas import Canvas
from fusetui.tui.drawing.schemes import Scheme
from fusetui.tui.state.commands import EXAMPLES, VERBS
from fusetui.tui.state.state import Prompt, Size

COMPLETION = SuggestFromList([f"{verb} " for verb in VERBS if len(verb) > 1])
PLACEHOLDERS = {
    Prompt.SEARCH: "family:gemm dur>50us   Enter: the first, Esc closes",
    Prompt.COMMAND: "  ".join((*EXAMPLES, "Esc closes")),
}


class PromptInput(Input):
    """Shown while the state asks for a text. Enter submits it; Tab completes a command."""

    def __init__(self) -> None:
        super().__init__()
        self.cursor_blink = False  # nothing is sent while nobody types

    def ask(self, prompt: Prompt) -> None:
        """Empties the line and focuses it."""
        self.placeholder = PLACEHOLDERS[prompt]
        self.suggester = COMPLETION if prompt is Prompt.COMMAND else None
        self.display, self.value = True, ""
        self.focus()

    def close(self) -> None:
        self.display = False

    def on_key(self, event: events.Key) -> None:
        if event.key == "tab":
            event.stop()
            self.action_end()
            self.action_cursor_right()


class PageScreen(Screen[None], inherit_bindings=False):
    """One canvas for everything, and an input line that appears over its last line."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.canvas, self.input = Canvas(scheme), PromptInput()

    def compose(self) -> ComposeResult:
        yield self.canvas
        yield self.input


class OverlayScreen(ModalScreen[None], inherit_bindings=False):
    """A canvas over the page."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__()
        self.canvas = Canvas(scheme, scheme.surface)
        self._size_of_box = Size()

    def compose(self) -> ComposeResult:
        yield self.canvas

    def resize(self, size: Size) -> None:
        """The box of the overlay, including its border."""
        if size != self._size_of_box:
            self._size_of_box = size
            self.canvas.styles.width, self.canvas.styles.height = size.width, size.height
