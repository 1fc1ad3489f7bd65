"""The replay of a change as a second timeline, beside the recorded one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from fusetui.analysis.why.idle_time import IdleTime
from fusetui.text.figures import duration
from fusetui.trace.model.arrays import Int32s
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.memo import kept_on, memo, once
from fusetui.tui.layout.answer import Insight
from fusetui.tui.layout.frame import busy_of
from fusetui.tui.layout.kinds import shares
from fusetui.tui.layout.view import Side, View, make_sides
from fusetui.tui.state.session import viewed_as

if TYPE_CHECKING:
    from fusetui.analysis.replay.predicted import Predicted

LABEL = "replayed"


class Second(msgspec.Struct, frozen=True, eq=False, dict=True):
    """`side` shows what a replay predicts of `recorded`; `said` is the prediction in a sentence."""

    recorded: Trace
    side: Side
    found: Predicted
    place: Int32s  # see Predicted.place_in
    said: str

    @memo(4)
    def seen(self, side: Side, view: View) -> tuple[Side, View]:
        """The same lanes, folded alike, and the same slice selected; and the step that begins in
        the first half of the window begins where the recorded one does."""
        begin = view.begin + side.origin
        earlier = self.found.earlier_at(begin, begin + view.span // 2)
        own = replace(self.side, origin=side.origin - earlier)
        there = {view.selected: int(self.place[view.selected])}
        return own, replace(viewed_as(side, own, view, there), begin=view.begin, end=view.end)

    def figure(self, row: int) -> str:
        """What it says of a recorded slice."""
        there, dur = int(self.place[row]), self.side.trace.dur
        return f"{LABEL}: {duration(int(dur[there]))}" if there >= 0 else f"not {LABEL}"


def second_of(recorded: Trace, made: tuple[Predicted, tuple[IdleTime, ...]], said: str) -> Second:
    """All that drawing needs is made here, not in the thread that draws."""
    found, idle = made
    trace = found.trace_of(recorded)
    (side,) = make_sides([trace], [LABEL])
    for lane in side.lanes:
        lane.prepare()
    once(trace, shares)
    kept_on(trace)[busy_of] = replace(once(trace, busy_of), label=LABEL)
    told = replace(side, insight=Insight(idle))
    return Second(recorded, told, found, found.place_in(recorded), said)
