"""The two screens of the app: the page, and the overlay over it. Both only draw."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import ModalScreen, Screen

from fusetui.tui.drawing.canvas import Canvas
from fusetui.tui.drawing.schemes import Scheme
from fusetui.tui.prompts import PromptInput
from fusetui.tui.state.state import Size


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
