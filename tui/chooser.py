"""A list of traces to choose from, with a line of summary for each: ranks, variants of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import ModalScreen
from textual.worker import get_current_worker

from fusetui.trace.load import open_trace
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import TraceError
from fusetui.trace.text.printable import printable
from fusetui.tui import palette
from fusetui.tui.headings import facts, warnings
from fusetui.tui.kinds import narrow
from fusetui.tui.rowlist import Cell, RowList

HELP = "  Enter opens   b opens as B beside the present trace   Esc leaves"


class Choice(NamedTuple):
    """A path, and whether it is opened beside what is open."""

    path: str
    beside: bool


class Chooser(ModalScreen[Choice | None]):
    """Files in a list; their summaries arrive one after the other."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "leave", "Leave", show=False),
        Binding("b", "beside", "Open beside", show=False),
    ]

    class Known(Message):
        """The line of one trace."""

        def __init__(self, index: int, text: str) -> None:
            super().__init__()
            self.index = index
            self.text = text

    def __init__(self, paths: Sequence[str]) -> None:
        super().__init__()
        self._paths = paths
        self._texts = ["..." for _ in paths]
        self._names = [narrow(Path(path).name) for path in paths]
        self._widest = max(map(len, self._names))

    def compose(self) -> ComposeResult:
        yield RowList(name="choices")

    def on_mount(self) -> None:
        rows = self.query_one(RowList)
        rows.fill(len(self._paths), lambda width: HELP, self._format)
        rows.focus()
        self._summarise()

    def on_chooser_known(self, message: Known) -> None:
        self._texts[message.index] = message.text
        self.query_one(RowList).refresh()

    def on_row_list_chosen(self, message: RowList.Chosen) -> None:
        self.dismiss(Choice(self._paths[message.index], beside=False))

    def action_beside(self) -> None:
        self.dismiss(Choice(self._paths[self.query_one(RowList).cursor], beside=True))

    def action_leave(self) -> None:
        self.dismiss(None)

    @work(thread=True, exclusive=True, group="choose", exit_on_error=True)
    def _summarise(self) -> None:
        worker = get_current_worker()
        for index, path in enumerate(self._paths):
            if worker.is_cancelled:
                return
            self.post_message(self.Known(index, _summary(path)))

    def _format(self, index: int, width: int) -> list[Cell]:
        name = self._names[index].ljust(self._widest + 2)
        return [(name, palette.BOLD), (self._texts[index], palette.PLAIN)]


def _line(trace: Trace) -> str:
    return "   ".join([*facts(trace), *warnings(trace)])


def _summary(path: str) -> str:
    try:
        return _line(open_trace(path))
    except TraceError as error:
        return printable(str(error))
