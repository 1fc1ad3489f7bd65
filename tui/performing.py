"""The one place where effects are carried out: threads, the clipboard, the end of the app."""

from __future__ import annotations

from threading import Event

from textual.message import Message
from textual.worker import get_current_worker

from fusetui.analysis.questions.query import Pattern
from fusetui.tui import heap
from fusetui.tui.args_prefetch import Ahead
from fusetui.tui.ending import Ending
from fusetui.tui.helper_client import Beside
from fusetui.tui.layout.view import Side
from fusetui.tui.loading import Loading, Pair, compare, load
from fusetui.tui.ranking import rank
from fusetui.tui.searching import Helped, look, match_lanes
from fusetui.tui.state.effects import (
    Compare,
    CopyText,
    Effect,
    Interrupt,
    MatchLanes,
    Quit,
    Read,
    ReadRanks,
    Refuse,
    Search,
    StopReading,
    Summarize,
    Suspend,
)
from fusetui.tui.state.state import State
from fusetui.tui.summaries import summarize

LARGE = 100_000
"""Slices of a trace: what is asked about fewer is known before another process has read them."""


class Performing:
    """Each kind of work has one thread; new work of a kind replaces the old."""

    def __init__(self, app: Ending, alone: bool, captured_by: tuple[str, ...] = ()) -> None:
        """`alone`: no other process helps."""
        self._app, self._alone = app, alone
        self._captured_by = captured_by  # see opening.with_captures
        self._stop = Event()
        self._ahead = Ahead()

    def perform(self, effect: Effect) -> None:
        match effect:
            case Read(paths):
                self._read(paths)
            case StopReading():
                self._stop.set()
            case Compare(a, b, paths):
                self._compare((a, b), paths)
            case Summarize(wanted):
                self._summarize(wanted)
            case ReadRanks(paths):
                self._rank(paths)
            case Search(side, text, path):
                self._search(side, text, path)
            case MatchLanes(side, pattern):
                self._match_lanes(side, pattern)
            case _:
                self._ask_terminal(effect)

    def foresee(self, before: State, state: State) -> None:
        """Prepares for the next key, beside this thread."""
        moved = state.session is not before.session
        if moved and state.sides and state.view.selected >= 0 and not self._alone:
            self._ahead.look(state.side, state.view)

    def _ask_terminal(self, effect: CopyText | Refuse | Quit | Interrupt | Suspend) -> None:
        app = self._app
        match effect:
            case CopyText(text):
                app.copy_to_clipboard(text)
            case Refuse(sentence):
                app.refuse(sentence)
            case Quit():
                app.exit(0)
            case Interrupt():
                app.interrupt()
            case Suspend():
                app.action_suspend_process()

    def _read(self, paths: tuple[str, ...]) -> None:
        stop = self._stop = Event()

        def work() -> None:
            worker = get_current_worker()
            post, cancelled, captures = (
                self._settle,
                lambda: worker.is_cancelled,
                self._captured_by,
            )
            if self._alone:
                load(paths, post, cancelled, stop.is_set, captured_by=captures)
                return
            with Beside(captures) as beside:
                heap.thaw()
                load(paths, post, cancelled, stop.is_set, beside, captured_by=captures)

        self._app.run_worker(work, group="load", thread=True, exclusive=True)

    def _settle(self, message: Message) -> None:
        """Posts what stays for as long as the trace is open, or how far it is."""
        if not self._alone and not isinstance(message, Loading):
            heap.settle()
        self._app.post_message(message)

    def _compare(self, sides: Pair, paths: tuple[str, ...]) -> None:
        is_small = sum(len(side.trace) for side in sides) < 2 * LARGE

        def work() -> None:
            worker = get_current_worker()
            post, cancelled = self._settle, lambda: worker.is_cancelled
            if self._alone or is_small:
                compare(sides, paths, post, cancelled)
                return
            with Beside(self._captured_by) as beside:
                compare(sides, paths, post, cancelled, beside)

        self._app.run_worker(work, group="diff", thread=True, exclusive=True)

    def _rank(self, paths: tuple[str, ...]) -> None:
        def work() -> None:
            worker = get_current_worker()
            rank(paths, self._app.post_message, lambda: worker.is_cancelled)

        self._app.run_worker(work, group="ranks", thread=True, exclusive=True)

    def _search(self, side: Side, text: str, path: str) -> None:
        alone = self._alone or len(side.trace) < LARGE
        helped = None if alone else Helped(path, lambda: Beside(self._captured_by))

        def work() -> None:
            worker = get_current_worker()
            look(side, text, self._app.post_message, lambda: worker.is_cancelled, helped)

        self._app.run_worker(work, group="search", thread=True, exclusive=True)

    def _match_lanes(self, side: Side, pattern: Pattern) -> None:
        def work() -> None:
            match_lanes(side, pattern, self._app.post_message)

        self._app.run_worker(work, group="lanes", thread=True, exclusive=True)

    def _summarize(self, wanted: tuple[tuple[int, str], ...]) -> None:
        def work() -> None:
            worker = get_current_worker()
            summarize(wanted, self._app.post_message, lambda: worker.is_cancelled)

        self._app.run_worker(work, group="choose", thread=True, exclusive=True)
