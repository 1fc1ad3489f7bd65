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
from fusetui.tui.layout.moves import select_next_slice, select_on_next_line
from fusetui.tui.layout.view import Side, View
from fusetui.tui.loading import Answer
from fusetui.tui.state import reading
from fusetui.tui.state import state as effects
from fusetui.tui.state.state import Effect, Order, State

PAUSE_SECONDS = 0.03  # without a key, until args are read ahead


def likely(side: Side, view: View) -> Iterator[int]:
    """Yield rows that a single key press would select next, the nearest first and none
    twice. They are the next and previous slice, and the slices on the lines below and
    above."""
    yielded: list[int] = []
    for step in (select_next_slice, select_on_next_line):
        for by in (1, -1):
            row = step(side, view, by).selected
            if row not in (-1, view.selected, *yielded):
                yielded.append(row)
                yield row


class Ahead:
    """Reads the args of likely rows in a thread, which ends with the app."""

    def __init__(self) -> None:
        self._asked: SimpleQueue[tuple[Side, View]] = SimpleQueue()
        self._is_started = False

    def look(self, side: Side, view: View) -> None:
        """Read ahead around the selected slice of a side. What was requested before and
        is not read yet is given up. The thread is started on the first call."""
        if not self._is_started:
            self._is_started = True
            Thread(target=self._run, daemon=True).start()
        self._asked.put((side, view))

    def _run(self) -> None:
        """Read the args of likely rows for the latest request, after a short pause
        without a newer one. It runs in a thread for as long as the app does."""
        while True:
            side, view = self._asked.get()
            with suppress(Empty):
                while True:
                    side, view = self._asked.get(timeout=PAUSE_SECONDS)
            for row in likely(side, view):
                # a newer request counts, and unpacking a file would take too long
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
    effects.ReadMemory: loading.load_memory,
    effects.ReadSource: loading.load_source,
    effects.Search: loading.look,
    effects.MatchLanes: loading.post_matching_lanes,
    effects.Replay: loading.replay,
    effects.ReadDumps: loading.load_dumps,
}


def find_work(effect: Effect) -> Work:
    """Return the function that carries out an effect in a thread."""
    work = WORK.get(type(effect))
    if work is not None:
        return work
    from fusetui.tui import saving  # rarely needed

    rare_work: dict[type[Effect], Work] = {
        effects.SaveTable: saving.save,
        effects.SavePicture: saving.save_page_picture,
        effects.ShowCommand: saving.post_shell_command,
        effects.Cut: saving.cut,
        effects.Reproduce: saving.reproduce,
    }
    return rare_work.get(type(effect), saving.record)


class Performing:
    """Each kind of work has one thread; new work of a kind replaces the old."""

    def __init__(
        self,
        app: Ending,
        alone: bool,
        captured_by: tuple[str, ...] = (),
        compile_log: str = "",
    ) -> None:
        """Prepare to carry out the effects of `app`.

        `alone` means that no other process helps. `captured_by` and `compile_log` are
        the captures and the log that the user named.
        """
        make_helper = partial(Beside, captured_by, compile_log=compile_log)
        self._app = app
        self._start = None if alone else make_helper
        self._alone = make_helper(start="")
        self._stop = Event()
        self._ahead = Ahead()

    def perform(self, effect: Effect | Order) -> None:
        """Carry out an effect or an order that a change of the state asked for. What
        takes time runs in a thread."""
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
        """Carry out an effect in a thread, and post its results. A comparison is kept
        for as long as the traces are open, so its memory is frozen."""
        work = find_work(effect)
        is_kept = isinstance(effect, effects.Compare)
        post = self._post_kept if is_kept else self._post
        self._run_in_thread(
            effect.kind, lambda stop: work(effect, post, stop, self._start)
        )

    def foresee(self, before: State, state: State) -> None:
        """Start to read the args of slices that one key may select next. It does so
        when the selection has moved and another process is used for other work."""
        moved = state.session is not before.session
        if moved and state.sides and state.view.has_selection and self._start:
            self._ahead.look(state.side, state.view)

    def _read(self, paths: tuple[str, ...]) -> None:
        """Read traces in a thread, with another process as helper.

        What was read is excluded from garbage collection afterwards, because it stays
        for as long as the app does.
        """
        stop = self._stop = Event()

        def work(cancelled: Stop) -> None:
            start = self._start
            with start() if start else self._alone as helper:
                if start:
                    thaw()
                loading.load(paths, self._post_kept, cancelled, stop.is_set, helper)
                if start:
                    thaw()
                    freeze()

        self._run_in_thread("load", work)

    def _run_in_thread(self, kind: str, work: Callable[[Stop], None]) -> None:
        """Run `work` in a thread. Its argument is a function that returns true once
        newer work of the same kind has begun."""

        def run() -> None:
            worker = get_current_worker()
            work(lambda: worker.is_cancelled)

        self._app.run_worker(run, group=kind, thread=True, exclusive=True)

    def _post(self, answer: Answer) -> None:
        """Send a result from a thread to the app."""
        self._app.post_message(Answered(answer))

    def _post_kept(self, answer: Answer) -> None:
        """Send a result that is kept while its trace is open, and exclude it from
        garbage collection. Progress reports are sent without that."""
        if self._start and getattr(answer, "func", None) is not reading.progressed:
            freeze()  # not looked at again until `thaw`
        self._post(answer)
