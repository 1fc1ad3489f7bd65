"""What is known about a trace some time after its lanes."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fusetui.analysis.questions.kernel_groups import Keys
from fusetui.analysis.why.model import Why
from fusetui.analysis.why.stretches import IdleTime
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.ids import Id
from fusetui.trace.program.origin import Origins
from fusetui.tui.layout.answer import AnswerList
from fusetui.tui.layout.modules import ModuleTree


class Answer(msgspec.Struct, frozen=True, eq=False):
    """Where the time went and why, and the parts of the program."""

    why: Why
    modules: ModuleTree
    lists: tuple[AnswerList, ...]
    kernel_keys: Mapping[str, Keys]  # the groups of kernels, see kernel_table.BYS
    origins: Origins


class Insight(msgspec.Struct, frozen=True, eq=False):
    """None until known; the idle time is known before the answer."""

    idle: tuple[IdleTime, ...] | None = None  # of each device
    answer: Answer | None = None

    @property
    def origins(self) -> Origins | None:
        return self.answer.origins if self.answer else None

    def device(self, pid: Id) -> int:
        """The index of a device among those with idle time, -1 if it is not known."""
        return next((n for n, one in enumerate(self.idle or ()) if one.device == pid), -1)


NOTHING_YET = Insight()


def working(trace: Trace, what: str) -> str:
    """A sentence for what is not known yet, or will never be."""
    if trace.report.prefix:
        return f"only a part of this trace was read: nothing is said about {what}"
    return f"working: {what} will follow"
