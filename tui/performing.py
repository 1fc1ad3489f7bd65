"""The only place that performs effects: threads, the clipboard, the end of the app."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread

from textual.message import Message
from textual.worker import get_current_worker

from fusetui.own_memory import freeze, thaw
from fusetui.trace.model.report import Stop
from fusetui.tui import loading
from fusetui.tui.ending import Ending
from fusetui.tui.helper_client import Beside
from fusetui.tui.layout.moves import next_line, next_slice
from fusetui.tui.layout.view import Side, View
from fusetui.tui.loading import Answer
from fusetui.tui.state import reading
from fusetui.tui.state import state as effects
from fusetui.tui.state.state import Effect, Order, State

PAUSE_SECONDS = 0.03  # without a key, until args are read ahead


def likely(side: Side, view: View) -> Iterator[int]:
    """Rows that one key selects from here, the nearest first; none twice."""
    rows: list[int] = []
    for step in (next_slice, next_line):
        for by in (1, -1):
            row = step(side, view, by).selected
            if row not in (-1, view.selected, *rows):
                rows.append(row)
                yield row


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
        while True:
            side, view = self._asked.get()
            with suppress(Empty):
                while True:
                    side, view = self._asked.get(timeout=PAUSE_SECONDS)
            for row in likely(side, view):
                if not self._asked.empty() or not side.trace.elements.text.at_hand:
                    break
                side.trace.args_of(row)


class Answered(Message):
    """A thread has found something: how the state changes."""

    def __init__(self, answer: Answer) -> None:
        super().__init__()
        self.answer = answer


Work = Callable[..., None]
"""Called with an effect, how to post what is found, whether it is still wanted, and
what starts another process; None: none helps."""
WORK: dict[type[Effect], Work] = {
    effects.Compare: loading.compare,
    effects.Summarize: loading.summarize,
    effects.ReadRanks: loading.rank,
    effects.ReadMemory: loading.read_memory,
    effects.ReadSource: loading.read_source,
    effects.Search: loading.look,
    effects.MatchLanes: loading.match_lanes,
    effects.Replay: loading.replay,
    effects.ReadDumps: loading.read_dumps_of,
}


def work_of(effect: Effect) -> Work:
    """What carries out an effect in a thread."""
    work = WORK.get(type(effect))
    if work is not None:
        return work
    from fusetui.tui import saving  # rarely needed

    rare: dict[type[Effect], Work] = {
        effects.SaveTable: saving.save,
        effects.SavePicture: saving.draw,
        effects.ShowCommand: saving.show_command,
        effects.Cut: saving.cut,
        effects.Reproduce: saving.reproduce,
    }
    return rare.get(type(effect), saving.record)


class Performing:
    """Each kind of work has one thread; new work of a kind replaces the old."""

    def __init__(
        self,
        app: Ending,
        alone: bool,
        captured_by: tuple[str, ...] = (),
        compile_log: str = "",
    ) -> None:
        """`alone`: no other process helps; `captured_by`: see opening.with_captures;
        `compile_log`: that the user named."""
        beside = partial(Beside, captured_by, compile_log=compile_log)
        self._app = app
        self._start = None if alone else beside
        self._alone = beside(start="")
        self._stop = Event()
        self._ahead = Ahead()

    def perform(self, effect: Effect | Order) -> None:
        """Carries out an effect or an order; what takes time in a thread."""
        app = self._app
        match effect:
            case effects.Read(paths):
                self._read(paths)
            case effects.CopyText(text):
                app.copy_to_clipboard(text)
            case effects.Refuse(sentence):
                app.refuse(sentence)
            case Order.STOP_READING:
                self._stop.set()
            case Order.QUIT:
                app.exit(0)
            case Order.INTERRUPT:
                app.interrupt()
            case Order.SUSPEND:
                app.action_suspend_process()
            case Order.PALETTE:
                app.action_command_palette()
            case Effect():
                self._work(effect)

    def _work(self, effect: Effect) -> None:
        """Carries out an effect in a thread."""
        work = work_of(effect)
        is_kept = isinstance(effect, effects.Compare)
        post = self._settle if is_kept else self._post
        self._in_thread(effect.kind, lambda stop: work(effect, post, stop, self._start))

    def foresee(self, before: State, state: State) -> None:
        """Reads the args of slices ahead that one key may select next."""
        moved = state.session is not before.session
        if moved and state.sides and state.view.selected >= 0 and self._start:
            self._ahead.look(state.side, state.view)

    def _read(self, paths: tuple[str, ...]) -> None:
        """Reads traces in a thread, which another process may help. What was read is
        not looked at by the collector of garbage from then on."""
        stop = self._stop = Event()

        def work(cancelled: Stop) -> None:
            start = self._start
            with start() if start else self._alone as helper:
                if start:
                    thaw()
                loading.load(paths, self._settle, cancelled, stop.is_set, helper)
                if start:
                    thaw()
                    freeze()

        self._in_thread("load", work)

    def _in_thread(self, kind: str, work: Callable[[Stop], None]) -> None:
        """`work` is told by its argument when other work of its kind begins."""

        def run() -> None:
            worker = get_current_worker()
            work(lambda: worker.is_cancelled)

        self._app.run_worker(run, group=kind, thread=True, exclusive=True)

    def _post(self, answer: Answer) -> None:
        self._app.post_message(Answered(answer))

    def _settle(self, answer: Answer) -> None:
        """Posts what stays for as long as the trace is open, or how far it is."""
        if self._start and getattr(answer, "func", None) is not reading.progressed:
            freeze()  # not looked at again until `thaw`
        self._post(answer)
