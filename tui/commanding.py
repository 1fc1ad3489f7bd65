"""What the commands typed after `:` do."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fusetui.trace.layout.steps import steps
from fusetui.trace.text.figures import tick
from fusetui.trace.text.printable import printable
from fusetui.tui.command_box import CommandBox
from fusetui.tui.command_line import Command, Goto, Mark, Open, Quit, Step, Wrong, parse
from fusetui.tui.marking import Marking
from fusetui.tui.moves import at_time, over


class Commanding(Marking):
    """`:` opens the line; a wrong command is answered with one sentence."""

    _paths: tuple[str, ...]  # of what is open

    def read(self, paths: Sequence[str]) -> None:
        """Open these instead of what is open, which stays until they are there."""
        raise NotImplementedError

    def action_command(self) -> None:
        if self._session.sides:
            self.query_one(CommandBox).ask()

    def on_command_box_given(self, message: CommandBox.Given) -> None:
        self.action_show(self._mode)
        if message.line.strip():
            self._obey(parse(message.line))

    def _obey(self, command: Command) -> None:
        match command:
            case Goto(ns):
                self._go_to_time(ns)
            case Step(number):
                self._go_to_step(number)
            case Mark(letter):
                self._set_mark(letter)
            case Open(path, beside):
                self._open_trace(path, beside)
            case Quit():
                self.exit(0)
            case Wrong(sentence):
                self._say("hints", sentence)

    def _go_to_time(self, ns: int) -> None:
        index = self._active
        side, view = self._session.sides[index], self._session.views[index]
        if side.begin <= ns <= side.end:
            self._bring(self._session.moved(index, at_time(side, view, ns)), index)
            return
        step = max(1, (side.end - side.begin) // 100)
        begin, end = (tick(time, step) for time in (side.begin, side.end))
        self._say("hints", f"the trace goes from {begin} to {end}")

    def _go_to_step(self, number: int) -> None:
        index = self._active
        side, view = self._session.sides[index], self._session.views[index]
        found = steps(side.trace)
        if not found:
            self._say("hints", "this trace has no steps (annotations named ProfilerStep#N)")
        elif not 1 <= number <= len(found):
            self._say("hints", f"this trace has the steps 1 to {len(found)}")
        else:
            step = found[number - 1]
            begin = step.start_ns - side.origin
            window = over(side, view, begin, begin + step.dur_ns)
            self._bring(self._session.moved(index, window), index)
            self._say("hints", f"step {number} of {len(found)}: {printable(step.name)}")

    def _open_trace(self, text: str, beside: bool) -> None:
        path = Path(text).expanduser()
        if path.is_file():
            self.read((*self._paths[:1], str(path)) if beside else (str(path),))
        else:
            what = "is a folder, not a trace" if path.is_dir() else "does not exist"
            self._say("hints", f"{printable(str(path))} {what}")
