"""Works out where the time went and why, in a thread, after the lanes are shown."""

from __future__ import annotations

from collections.abc import Callable

from textual.message import Message

from fusetui.trace.model.callbacks import Stop
from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.totals import kernel_totals
from fusetui.tui.layout.insight import Answer, Insight


class Explained(Message):
    """What is known about a trace so far."""

    def __init__(self, trace: Trace, insight: Insight) -> None:
        super().__init__()
        self.trace, self.insight = trace, insight


def explain(trace: Trace, post: Callable[[Message], object], cancelled: Stop) -> None:
    """Posts Explained with the idle time, then with all answers, unless they are no longer wanted.

    Nothing is said about a part of a trace, because the rest could reverse it.
    """
    if trace.report.prefix:
        return
    from fusetui.trace.insights.account import accounts
    from fusetui.trace.insights.stretches import idle_time
    from fusetui.trace.insights.why import asked, explained
    from fusetui.tui.drawing.program_lines import warm
    from fusetui.tui.layout.answer import answer_lists
    from fusetui.tui.layout.modules import module_tree

    found = accounts(trace)
    idle = tuple(map(idle_time, found.devices))
    if cancelled():
        return
    post(Explained(trace, Insight(idle)))
    why, facts = explained(asked(found))
    origins = facts.kernels.origins
    warm(origins)
    if why.modules and not cancelled():
        tree = module_tree(why.modules, origins)
        lists = answer_lists(why, tree, kernel_totals(trace))
        answer = Answer(why, tree, lists, origins)
        post(Explained(trace, Insight(idle, answer)))
