"""The part of the app that opens traces: a bar, lanes as soon as some are read, Escape to stop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Event

from textual import work
from textual.worker import get_current_worker

from fusetui.trace.text.printable import printable
from fusetui.tui.carry import carried
from fusetui.tui.chooser import Choice, Chooser
from fusetui.tui.diff_page import DiffPage
from fusetui.tui.glyphs import ASCII, UNICODE, Glyphs
from fusetui.tui.headings import reading_line
from fusetui.tui.list_pages import KernelsPage, TreePage
from fusetui.tui.loading import Compared, Counted, Failed, Loaded, Loading, Previewed, compare, load
from fusetui.tui.part import Part
from fusetui.tui.session import Session, start
from fusetui.tui.timeline_page import TimelinePage, lanes_height
from fusetui.tui.view import Side


@dataclass(frozen=True, slots=True)
class Options:
    """What the app opens, and how it draws."""

    paths: tuple[str, ...]
    opened: int = 2  # how many of the paths are opened at once; 0: the person chooses first
    ascii_only: bool = False

    @property
    def glyphs(self) -> Glyphs:
        return ASCII if self.ascii_only else UNICODE


class Opening(Part):
    """Everything from a path to pages that show it. The pages are mounted with the first lanes."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._options = options
        self._session = Session()
        self._mode = "timeline"
        self._paths: tuple[str, ...] = ()  # what is open
        self._wanted: tuple[str, ...] = ()  # what is read
        self._stop = Event()
        self._at: Loading | None = None  # how far reading came; None: nothing is read
        self._previewed = False  # the session is a part of what is read

    # What the rest of the app does

    def show_sides(self) -> None:
        """All pages show the sides of the session."""
        raise NotImplementedError

    def show_heading(self) -> None:
        """The head says what is open."""
        raise NotImplementedError

    def show_hints(self) -> None:
        """The keys of the page in front."""
        raise NotImplementedError

    # Reading

    @property
    def is_reading(self) -> bool:
        return self._at is not None

    def read(self, paths: Sequence[str]) -> None:
        """Open these instead of what is open."""
        self._wanted, self._stop, self._previewed = tuple(paths), Event(), False
        self.on_loading(Loading(self._wanted[0], 0, 0))
        self.show_hints()
        self._load(self._wanted, self._stop)

    def action_stop(self) -> None:
        """Read no further, and keep what was read."""
        if self._at is not None:
            self._stop.set()
            self.on_loading(self._at)

    def on_loading(self, message: Loading) -> None:
        """Draw the bar."""
        self._at = message
        width = self.size.width - 2
        if self._stop.is_set():
            self._say("head", "stopping; what was read is kept")
            return
        glyphs, shown = self._options.glyphs, self._previewed
        line = reading_line(message.path, message.done, message.total, width, glyphs, shown)
        self._say("head", line)

    async def on_previewed(self, message: Previewed) -> None:
        if message.paths is self._wanted and self._at is not None:
            await self._put(message.sides)
            self._previewed = True
            self.on_loading(self._at)
            self.show_hints()

    async def on_loaded(self, message: Loaded) -> None:
        if message.paths is not self._wanted:
            return  # another trace is read by now
        self._at = None
        whole = len(message.sides) == len(message.paths)
        if whole or (message.sides and not self._session.sides):
            await self._put(message.sides)
        self._back_to_what_is_open()
        if self._session.sides and not whole:
            missing = " and ".join(message.paths[len(message.sides) :])
            self._say("hints", f"not read: {printable(missing)}")

    def on_unpacked(self) -> None:
        """Describe once more what is selected."""
        for page in (*self.query(TimelinePage), *self.query(KernelsPage)):
            page.describe_again()

    def on_counted(self, message: Counted) -> None:
        """Show the counters of what is open."""
        now = self._session.counted(message.trace, message.curves)
        if now is not self._session:
            self._session = now
            self.query_one(TimelinePage).show_counters(now.sides)

    def on_failed(self, message: Failed) -> None:
        """What is open stays open."""
        if message.paths is not self._wanted:
            return
        if not self._session.sides:
            self.refuse(message.sentence)
            return
        self._at = None
        self._back_to_what_is_open()
        self._say("hints", printable(message.sentence))

    def on_compared(self, message: Compared) -> None:
        """The rows are there: align both sides at the steps that were compared."""
        if not message.is_of(self._session.sides):
            return  # the sides were swapped, or others opened, meanwhile
        self._session = self._session.realigned(message.result)
        self.show_sides()
        self.query_one(DiffPage).fill(message.result)

    # Choosing

    def action_choose(self) -> None:
        """Another of the traces that were named: alone, or beside the one that is open."""
        if self._session.sides or not self.is_reading:
            self.push_screen(Chooser(self._options.paths), self._chosen)

    def _chosen(self, choice: Choice | None) -> None:
        if choice is not None:
            self.read((*self._paths[:1], choice.path) if choice.beside else (choice.path,))
        elif not self._session.sides:
            self.exit(0)

    # Showing

    async def _put(self, sides: tuple[Side, ...]) -> None:
        """Show these: in the places of those that were a part of them, or on pages of their own."""
        self._paths = self._wanted[: len(sides)]
        if self._previewed:
            self._session = now = carried(self._session, sides)
            self.query_one(TimelinePage).follow(now)
            self.query_one(TreePage).follow(sides[0])
            self.query_one(KernelsPage).follow(sides[0])
            return
        lines = lanes_height(self.size.height - len(sides) - 1, len(sides))
        self._session = now = start(sides, lines)
        glyphs, body = self._options.glyphs, self.query_one("#body")
        await body.remove_children()
        timelines = TimelinePage(now.sides, now.views, glyphs)
        await body.mount(timelines, TreePage(glyphs), KernelsPage(glyphs))
        if self.has_diff:
            await body.mount(DiffPage(now.sides, now.views, glyphs))
            self.compare()
        self.action_show("diff" if self.has_diff else "timeline")

    def _back_to_what_is_open(self) -> None:
        """Nothing is read any more; when nothing is open either, there is nothing to do here."""
        if self._session.sides:
            self.show_heading()
            self.show_hints()
        elif self._options.opened:
            self.exit(0)
        else:
            self.action_choose()

    @property
    def has_diff(self) -> bool:
        """Are there two sides, and both whole: a part would differ in what was not read."""
        sides = self._session.sides
        return len(sides) == 2 and not any(side.trace.report.prefix for side in sides)

    # Threads

    @work(thread=True, exclusive=True, group="load", exit_on_error=True)
    def _load(self, paths: tuple[str, ...], stop: Event) -> None:
        worker = get_current_worker()
        load(paths, self.post_message, lambda: worker.is_cancelled, stop.is_set)

    def compare(self) -> None:
        a, b = self._session.sides
        self._compare(a, b)

    @work(thread=True, exclusive=True, group="diff", exit_on_error=True)
    def _compare(self, a: Side, b: Side) -> None:
        compare(a, b, self.post_message)
