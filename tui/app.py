"""The app: holds the session and passes messages between the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.filter import LineFilter
from textual.screen import Screen
from textual.widgets import Input

from fusetui.trace.questions.search import find
from fusetui.trace.text.cutting import joined
from fusetui.trace.text.figures import count
from fusetui.trace.text.printable import printable
from fusetui.tui.command_box import CommandBox
from fusetui.tui.commanding import Commanding
from fusetui.tui.commands import COMMANDS, HINTS, STOP_HINT, commands_of
from fusetui.tui.copying import Copies, what_was_copied
from fusetui.tui.details import Said, all_details
from fusetui.tui.diff_page import DiffPage, ShowPair
from fusetui.tui.headings import heading
from fusetui.tui.letter_prompt import LetterPrompt
from fusetui.tui.list_pages import KernelsPage, Show, TreePage
from fusetui.tui.opening import Opening, Options
from fusetui.tui.pane import Pane
from fusetui.tui.ranging import Ranging
from fusetui.tui.screens import Page, key_lines
from fusetui.tui.segments import DOOR
from fusetui.tui.session import Hits, Session
from fusetui.tui.signals import ended_by_signals
from fusetui.tui.timeline import Timeline
from fusetui.tui.timeline_page import TimelinePage

__all__ = ["FusetuiApp", "Options", "run"]


class SearchBox(Input):
    """One line at the bottom; Escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.close_search", "Close", show=False)
    ]


class FusetuiApp(Opening, Commanding, Ranging):
    """Four pages over one session: timeline, op tree, kernels, diff."""

    TITLE = "fusetui"
    CSS_PATH = "app.tcss"
    AUTO_FOCUS = None  # else the hidden search box takes the keys until there are lanes
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(c.keys), c.action, c.title, show=False, priority=c.always, id=c.id)
        for c in commands_of("app")
    ]

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.animation_level = "none"

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What every line of every widget goes through on its way to the terminal."""
        return [DOOR, *super().get_line_filters()]

    def compose(self) -> ComposeResult:
        yield Pane(name="head")
        yield Container(id="body")
        yield Pane(name="hints")
        yield SearchBox(placeholder="search names", id="search")
        yield CommandBox()
        yield LetterPrompt()

    def on_mount(self) -> None:
        for line in (SearchBox, CommandBox, LetterPrompt):
            self.query_one(line).display = False
        self.app_resume_signal.subscribe(self, self._repaint)
        paths = self._options.paths[: self._options.opened]
        if paths:
            self.read(paths)
        else:
            self.action_choose()

    # Movements

    def on_timeline_moved(self, message: Timeline.Moved) -> None:
        name = message.timeline.id or ""
        index = int(name.rsplit("-", 1)[-1])
        if name.startswith("diff-"):  # its lanes are others: only the window counts
            self._change(self._session.windowed(index, message.view), index)
            self.query_one(DiffPage).show_windows(self._session.views)
        else:
            self._change(self._session.moved(index, message.view), index)

    def action_link(self) -> None:
        """Two traces move together, or each on its own."""
        if len(self._session.sides) == 2:
            together = not self._session.together
            self._session = replace(self._session, together=together)
            how = "together" if together else "each on its own"
            self._say("hints", f"the traces move {how}")

    def action_undo(self) -> None:
        self._change(self._session.undo())

    def action_redo(self) -> None:
        self._change(self._session.redo())

    def action_clear(self) -> None:
        """Escape: first it stops what goes on."""
        if self.is_reading:
            self.action_stop()
            return
        self._change(self._session.cleared())
        self.show_hints()

    def _change(self, session: Session, index: int | None = None) -> None:
        self._session = session
        if session.sides:
            active = self._active if index is None else index
            self.query_one(TimelinePage).show(session, active)

    # Pages

    def action_show(self, mode: str) -> None:
        if not self._session.sides:
            return
        if mode == "diff" and not self.has_diff:
            self._say("hints", "a diff needs two traces that are read to the end: fusetui open A B")
            return
        index, self._mode = self._active, mode
        for page in self.query("#body > *"):
            page.display = page.id == mode
        self._open(mode, index)
        self.show_hints()

    def _open(self, mode: str, index: int) -> None:
        now = self._session
        if mode == "timeline":
            self.query_one(TimelinePage).open(now, index)
        elif mode == "tree":
            self.query_one(TreePage).open(now.sides[index], index, now.views[index].selected)
        elif mode == "kernels":
            self.query_one(KernelsPage).open(now.sides[index], index)
        else:
            self.query_one(DiffPage).open(now.views)

    def on_show(self, message: Show) -> None:
        """A row chosen in a list: the first of its kind in the timeline, the others by n and N."""
        self._show_hit(message.hits.step(1))

    def on_show_pair(self, message: ShowPair) -> None:
        """A row of the diff: both sides' work, marked in both timelines."""
        self._change(self._session.paired(message.pair), 0)
        self.action_show("timeline")

    # Search

    def action_search(self) -> None:
        if self._session.sides:
            box = self.query_one(SearchBox)
            box.display, box.value = True, ""
            box.focus()

    def action_close_search(self) -> None:
        self.query_one(SearchBox).display = False
        self.action_show(self._mode)

    def on_input_submitted(self, message: Input.Submitted) -> None:
        index = self._active
        side, view = self._session.sides[index], self._session.views[index]
        hits = Hits(message.value, index, find(side.trace, message.value), searched=True)
        self.action_close_search()
        if not len(hits.rows):
            self._say("hints", f"no name contains {printable(message.value)}")
            return
        self._show_hit(hits.nearest(side.trace, view.begin + side.origin))

    def action_hit(self, by: int) -> None:
        if self._session.hits is not None:
            self._show_hit(self._session.hits.step(by))

    def _show_hit(self, hits: Hits) -> None:
        if not len(hits.rows):
            return
        self._bring(self._session.hit(hits), hits.side)
        place = f"{count(hits.at + 1)} of {count(len(hits.rows))}"
        self._say("hints", f"{place}: {printable(hits.what)}   n next  N previous")

    # The rest

    def on_resize(self) -> None:
        if self._session.sides and not self.is_reading:
            self.show_heading()
        self.show_hints()

    def action_swap(self) -> None:
        """A becomes B, and B becomes A."""
        if len(self._session.sides) == 2:
            self._session = self._session.swapped()
            self.show_sides()
            if self.has_diff:
                self.compare()
            self.show_heading()

    def show_sides(self) -> None:
        self.query_one(TimelinePage).show_sides(self._session.sides, self._session.views)
        for page in self.query(DiffPage):
            page.show_sides(self._session.sides, self._session.views)

    def action_details(self) -> None:
        if not self._session.sides:
            return
        if page := self._range_page():
            self.push_screen(page)
            return
        index = self._active
        side, row = self._session.sides[index], self._session.views[index].selected
        if row >= 0:
            width = self.size.width * 9 // 10 - 4
            lines = all_details(side.trace, row, width, self._options.glyphs)
            self.push_screen(Page("everything about this slice; Esc closes", lines))

    def action_copy(self) -> None:
        """What the cursor is on, for the clipboard of the terminal (OSC 52)."""
        if self._session.sides:
            page = self.query_one(f"#{self._mode}")
            text = page.copied() if isinstance(page, Copies) else ""
            if text:
                self.copy_to_clipboard(text)
            self._say("hints", what_was_copied(text))

    def action_help(self) -> None:
        self.push_screen(Page("keys; Esc closes", key_lines()))

    def action_close(self) -> None:
        self.exit(0)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The palette holds what the registry holds."""
        for command in COMMANDS:
            yield SystemCommand(command.title, command.help, self._caller(command.action))

    def _caller(self, action: str) -> Any:
        async def call() -> None:
            on_timeline = bool(self._session.sides) and self._mode == "timeline"
            page = self.query_one(TimelinePage) if on_timeline else None
            await self.run_action(action, page.timelines[page.active] if page else self)

        return call

    def show_heading(self) -> None:
        sides = self._session.sides
        marks = ("A ", "B ") if len(sides) == 2 else ("",) * len(sides)
        lines = [
            Said(f" {mark}{heading(side, self.size.width - 4)}", "title")
            for mark, side in zip(marks, sides, strict=True)
        ]
        self.query_one("#head").styles.height = len(lines)
        self.query_one("#head", Pane).say(lines)

    def show_hints(self) -> None:
        page = HINTS[self._mode] if self._session.sides else ("q quit",)
        keys = (STOP_HINT, *page) if self.is_reading else page
        self._say("hints", joined(keys, self.size.width - 2, "  "))

    def _repaint(self, _: object) -> None:
        """After Ctrl+z the terminal shows nothing of what was drawn before."""
        self.screen.refresh()

    def _say(self, pane: str, text: str) -> None:
        self.query_one(f"#{pane}", Pane).say([Said(" " + text)])


def run(
    paths: Sequence[str], *, opened: int = 2, ascii_only: bool = False, mouse: bool = True
) -> int:
    """Open the first `opened` of these traces (0: the person chooses); returns the exit code.

    Raises TraceError when a trace cannot be read, and the exception of a bug in the app.
    """
    app = FusetuiApp(Options(tuple(paths), opened, ascii_only))
    with ended_by_signals(app):
        app.run(mouse=mouse)
    return app.outcome()
