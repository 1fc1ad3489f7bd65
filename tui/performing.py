"""The one place where effects are carried out: threads, the clipboard, the end of the app."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread

from textual.message import Message
from textual.worker import get_current_worker

from fusetui.trace.model.report import Stop
from fusetui.tui.ending import Ending
from fusetui.tui.helper_client import ALONE, Beside
from fusetui.tui.layout.memory import ReadMemory
from fusetui.tui.layout.moves import next_line, next_slice
from fusetui.tui.layout.view import Side, View
from fusetui.tui.loading import TracesLoaded, compare, load, look, match_lanes, rank, summarize
from fusetui.tui.state import reading
from fusetui.tui.state import state as effects
from fusetui.tui.state.action import Run
from fusetui.tui.state.recording import Record
from fusetui.tui.state.state import Effect, State

PAUSE = 0.03  # seconds without a key
YOUNG = 20_000
"""New objects between two looks at them; a frame makes some thousands, most without cycles."""
LARGE = 100_000
"""Slices of a trace: what is asked about fewer is known before another process has read them."""


def likely(side: Side, view: View) -> Iterator[int]:
    """Rows that one key selects from here, the nearest first; none twice."""
    rows = (step(side, view, by).selected for step in (next_slice, next_line) for by in (1, -1))
    return (row for row in dict.fromkeys(rows) if row not in (-1, view.selected))


class Ahead:
    """Reads the args of likely rows in a thread, which ends with the app."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Side, View]] = SimpleQueue()
        self._is_started = False

    def look(self, side: Side, view: View) -> None:
        """From a selected slice; what was asked for before is given up."""
        if not self._is_started:
            self._is_started = True
            Thread(target=self._run, daemon=True).start()
        self._asked.put((side, view))

    def _run(self) -> None:
        """Reads what is asked for last, after a pause."""
        side, view = self._asked.get()
        while True:
            try:
                side, view = self._asked.get(timeout=PAUSE)
                continue
            except Empty:
                pass
            for row in likely(side, view):
                if not self._asked.empty() or not side.trace.elements.text.at_hand:
                    break
                side.trace.args_of(row)
            side, view = self._asked.get()


def be_patient() -> None:
    """Has the collector look less often at what is new: several times in a frame by default."""
    gc.set_threshold(YOUNG)


def thaw() -> None:
    """Collects what is no longer used of all that stayed. Takes a tenth of a second or more."""
    if gc.get_freeze_count():
        gc.unfreeze()
        gc.collect()


class Answered(Message):
    """A thread has found something: how the state changes."""

    def __init__(self, answer: Run | TracesLoaded) -> None:
        super().__init__()
        self.answer = answer


class Performing:
    """Each kind of work has one thread; new work of a kind replaces the old."""

    def __init__(self, app: Ending, alone: bool, captured_by: tuple[str, ...] = ()) -> None:
        """`alone`: no other process helps."""
        self._app, self._alone = app, alone
        self._captured_by = captured_by  # see opening.with_captures
        self._beside = partial(Beside, self._captured_by, alone)
        self._stop, self._ahead = Event(), Ahead()

    def perform(self, effect: Effect) -> None:
        post = self._post
        match effect:
            case effects.Read() | ReadMemory():
                self._read(effect)
            case effects.Compare(a, b, paths):
                self._compare((a, b), paths)
            case effects.Summarize(wanted):
                self._in_thread("choose", lambda stop: summarize(wanted, post, stop))
            case effects.ReadRanks(paths):
                self._in_thread("ranks", lambda stop: rank(paths, post, stop))
            case effects.Search(side, text, path):
                alone = self._alone or len(side.trace) < LARGE
                start = None if alone else self._beside
                self._in_thread("search", lambda stop: look(side, text, post, stop, path, start))
            case effects.SaveTable(shown, path):
                from fusetui.tui.saving import save  # rarely needed

                self._in_thread("save", lambda _: save(shown, path, post))
            case effects.Cut(trace, path, begin, end):
                from fusetui.tui.saving import cut

                times = (f"--from={begin}", f"--to={end}")
                self._in_thread(f"cut {path}", lambda stop: cut(trace, path, times, post, stop))
            case effects.Replay(asked_in, asked):
                from fusetui.tui.replaying import replay  # rarely needed

                kind = "marks" if asked == effects.MARKS else "answer"
                work = partial(replay, asked_in, asked, post, start=self._beside)
                self._in_thread(f"replay {kind}", work)
            case effects.MatchLanes(side, pattern):
                self._in_thread("lanes", lambda _: match_lanes(side, pattern, post))
            case _:
                self._at_once(effect)

    def foresee(self, before: State, state: State) -> None:
        """Prepares for the next key, beside this thread."""
        moved = state.session is not before.session
        if moved and state.sides and state.view.selected >= 0 and not self._alone:
            self._ahead.look(state.side, state.view)

    def _at_once(self, effect: effects.CopyText | Record | effects.Refuse | effects.Order) -> None:
        app = self._app
        match effect:
            case effects.CopyText(text):
                app.copy_to_clipboard(text)
            case Record(pid, beside):
                from fusetui.tui import programs  # rarely needed

                work = programs.record if pid else programs.listed
                self._in_thread("record", lambda stop: work(pid, beside, self._post, stop))
            case effects.Refuse(sentence):
                app.refuse(sentence)
            case effects.Order.STOP_READING:
                self._stop.set()
            case effects.Order.QUIT:
                app.exit(0)
            case effects.Order.INTERRUPT:
                app.interrupt()
            case effects.Order.SUSPEND:
                app.action_suspend_process()

    def _read(self, effect: effects.Read | ReadMemory) -> None:
        paths = effect.paths
        if isinstance(effect, ReadMemory):
            from fusetui.tui.reading_memory import read_events, read_memory  # rarely needed

            alone = effect.alone or self._alone
            snapshots = partial(read_memory, paths, self._post, alone=alone)
            events = partial(read_events, effect, self._post, start=self._beside)
            self._in_thread("memory", snapshots if effect.trace is None else events)
            return
        stop = self._stop = Event()

        def work(cancelled: Stop) -> None:
            with self._beside() as beside:
                if not self._alone:
                    thaw()
                captures = self._captured_by
                load(paths, self._settle, cancelled, stop.is_set, beside, captured_by=captures)

        self._in_thread("load", work)

    def _compare(self, sides: tuple[Side, Side], paths: tuple[str, ...]) -> None:
        is_small = sum(len(side.trace) for side in sides) < 2 * LARGE

        def work(cancelled: Stop) -> None:
            with ALONE if is_small else self._beside() as beside:
                compare(sides, paths, self._settle, cancelled, beside)

        self._in_thread("diff", work)

    def _in_thread(self, group: str, work: Callable[[Stop], None]) -> None:
        """`work` is told by its argument when other work of its group begins."""

        def run() -> None:
            worker = get_current_worker()
            work(lambda: worker.is_cancelled)

        self._app.run_worker(run, group=group, thread=True, exclusive=True)

    def _post(self, answer: Run | TracesLoaded) -> None:
        self._app.post_message(Answered(answer))

    def _settle(self, answer: Run | TracesLoaded) -> None:
        """Posts what stays for as long as the trace is open, or how far it is."""
        if not self._alone and getattr(answer, "func", None) is not reading.progressed:
            gc.freeze()  # not looked at again until `thaw`
        self._post(answer)
