"""The app: holds the session and passes messages between the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import Screen
from textual.widgets import Input
from textual.worker import get_current_worker

from fusetui.trace.format import count, joined, printable
from fusetui.trace.search import find
from fusetui.tui.chooser import Choice, Chooser
from fusetui.tui.command_box import CommandBox
from fusetui.tui.commanding import Commanding
from fusetui.tui.commands import COMMANDS, HINTS, commands_of
from fusetui.tui.copying import Copies, what_was_copied
from fusetui.tui.details import Said, all_details
from fusetui.tui.diff_page import DiffPage, ShowPair
from fusetui.tui.glyphs import ASCII, UNICODE, Glyphs
from fusetui.tui.headings import heading
from fusetui.tui.letter_prompt import LetterPrompt
from fusetui.tui.list_pages import KernelsPage, Show, TreePage
from fusetui.tui.loading import Compared, Failed, Loaded, Loading, compare, load
from fusetui.tui.pane import Pane
from fusetui.tui.ranging import Ranging
from fusetui.tui.screens import Page, key_lines
from fusetui.tui.session import Hits, Session, start
from fusetui.tui.timeline import Timeline
from fusetui.tui.timeline_page import TimelinePage

BAR = 30  # cells of the progress bar


class SearchBox(Input):
    """One line at the bottom; Escape closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "app.close_search", "Close", show=False)
    ]


@dataclass(frozen=True, slots=True)
class Options:
    """What the app opens, and how it draws."""

    paths: tuple[str, ...]
    opened: int = 2  # how many of the paths are opened at once; 0: the person chooses first
    ascii_only: bool = False

    @property
    def glyphs(self) -> Glyphs:
        return ASCII if self.ascii_only else UNICODE


class FusetuiApp(Commanding, Ranging):
    """Four pages over one session: timeline, op tree, kernels, diff."""

    TITLE = "fusetui"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(",".join(c.keys), c.action, c.title, show=False, id=c.id)
        for c in commands_of("app")
    ]

    def __init__(self, options: Options) -> None:
        super().__init__()
        self.animation_level = "none"
        self._options = options
        self._session = Session()
        self._mode = "timeline"
        self._paths = options.paths[: options.opened]
        self._opened: tuple[str, ...] = ()

    def compose(self) -> ComposeResult:
        yield Pane(name="head")
        yield Container(id="body")
        yield Pane(name="hints")
        yield SearchBox(placeholder="search names", id="search")
        yield CommandBox()
        yield LetterPrompt()

    # Loading

    def on_mount(self) -> None:
        for line in (SearchBox, CommandBox, LetterPrompt):
            self.query_one(line).display = False
        self.app_resume_signal.subscribe(self, self._repaint)
        if self._paths:
            self._read()
        else:
            self.action_choose()

    def _read(self) -> None:
        self._say("head", f"reading {printable(' and '.join(self._paths))}")
        self._load()

    @work(thread=True, exclusive=True, group="load", exit_on_error=True)
    def _load(self) -> None:
        worker = get_current_worker()
        load(self._paths, self.post_message, lambda: worker.is_cancelled)

    @work(thread=True, exclusive=True, group="diff", exit_on_error=True)
    def _compare(self) -> None:
        a, b = self._session.sides
        compare(a, b, self.post_message)

    def on_loading(self, message: Loading) -> None:
        full = BAR * message.done // max(1, message.total)
        bar = self._options.glyphs.full * full + "." * (BAR - full)
        self._say("head", f"reading {printable(message.path)}  {bar}  {message.total / 1e6:.0f} MB")

    def on_failed(self, message: Failed) -> None:
        """What is open stays open; with nothing open there is nothing to show."""
        if not self._session.sides:
            self.exit(2, message=message.sentence)
            return
        self._paths = self._opened
        self._headline()
        self._say("hints", printable(message.sentence))

    def _open_paths(self, paths: Sequence[str]) -> None:
        self._paths = tuple(paths)
        self._read()

    def action_choose(self) -> None:
        """Another of the traces that were named: alone, or beside the one that is open."""
        if self._session.sides or not self._paths:
            self.push_screen(Chooser(self._options.paths), self._chosen)

    def _chosen(self, choice: Choice | None) -> None:
        if choice is not None:
            self._paths = (*self._paths[:1], choice.path) if choice.beside else (choice.path,)
            self._read()
        elif not self._session.sides:
            self.exit(0)

    async def on_loaded(self, message: Loaded) -> None:
        self._session, self._opened = start(message.sides), self._paths
        now = self._session
        glyphs, body = self._options.glyphs, self.query_one("#body")
        await body.remove_children()
        timelines = TimelinePage(now.sides, now.views, glyphs)
        await body.mount(timelines, TreePage(glyphs), KernelsPage(glyphs))
        self._headline()
        if len(now.sides) == 2:
            await body.mount(DiffPage(now.sides, now.views, glyphs))
            self._compare()
        self.action_show("diff" if len(now.sides) == 2 else "timeline")

    def on_compared(self, message: Compared) -> None:
        """The rows are there: align both sides at the steps that were compared."""
        self._session = self._session.realigned(message.result)
        self._show_sides()
        self.query_one(DiffPage).fill(message.result)

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
        self._change(self._session.cleared())
        self._hint()

    def _change(self, session: Session, index: int | None = None) -> None:
        self._session = session
        if session.sides:
            active = self._active if index is None else index
            self.query_one(TimelinePage).show(session, active)

    # Pages

    def action_show(self, mode: str) -> None:
        if not self._session.sides:
            return
        if mode == "diff" and len(self._session.sides) < 2:
            self._say("hints", "a diff needs two traces: fusetui open A B")
            return
        index, self._mode = self._active, mode
        for page in self.query("#body > *"):
            page.display = page.id == mode
        self._open(mode, index)
        self._hint()

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
        hits = Hits(message.value, index, find(side.trace, message.value))
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
        if self._session.sides:
            self._headline()
            self._hint()

    def action_swap(self) -> None:
        """A becomes B, and B becomes A."""
        if len(self._session.sides) == 2:
            self._session = self._session.swapped()
            self._show_sides()
            self._compare()
            self._headline()

    def _show_sides(self) -> None:
        self.query_one(TimelinePage).show_sides(self._session.sides, self._session.views)
        self.query_one(DiffPage).show_sides(self._session.sides, self._session.views)

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

    def _headline(self) -> None:
        sides = self._session.sides
        marks = ("A ", "B ") if len(sides) == 2 else ("",) * len(sides)
        lines = [
            Said(f" {mark}{heading(side, self.size.width - 4)}", "title")
            for mark, side in zip(marks, sides, strict=True)
        ]
        self.query_one("#head").styles.height = len(lines)
        self.query_one("#head", Pane).say(lines)

    def _hint(self) -> None:
        """The keys of the page that is in front."""
        self._say("hints", joined(HINTS[self._mode], self.size.width - 2, "  "))

    def _repaint(self, _: object) -> None:
        """After Ctrl+z the terminal shows nothing of what was drawn before."""
        self.screen.refresh()

    def _say(self, pane: str, text: str) -> None:
        self.query_one(f"#{pane}", Pane).say([Said(" " + text)])


def run(
    paths: Sequence[str], *, opened: int = 2, ascii_only: bool = False, mouse: bool = True
) -> int:
    """Open the first `opened` of these traces (0: the person chooses); returns the exit code.

    It is 2 when a trace cannot be read.
    """
    app = FusetuiApp(Options(tuple(paths), opened, ascii_only))
    result = app.run(mouse=mouse)
    return result if result is not None else 0
