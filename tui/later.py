"""What is known about a trace some time after its lanes: its counters, why its devices were idle,
and the answer. Nothing here needs a terminal, so that another process can work it out."""

from __future__ import annotations

from collections.abc import Iterator

from fusetui.trace.cells.counters import Curve, curve_of
from fusetui.trace.model.callbacks import Stop
from fusetui.trace.model.columns import Trace
from fusetui.trace.questions.counters import counters
from fusetui.trace.questions.queue import queues
from fusetui.trace.questions.totals import kernel_totals
from fusetui.tui.layout.insight import Answer, Insight

Piece = tuple[Curve, ...] | Insight
"""All counters known by now, or all that is known about where the time went."""


def pieces(trace: Trace, cancelled: Stop) -> Iterator[Piece]:
    """The launch queues, the same with the counters of the file, then the idle time, then the idle
    time with the answer; ends early when that is no longer wanted."""
    yield from _counters(trace, cancelled)
    if not cancelled():
        yield from _insights(trace, cancelled)


def _counters(trace: Trace, cancelled: Stop) -> Iterator[tuple[Curve, ...]]:
    """For the queues nothing is read again."""
    found: tuple[Curve, ...] = ()
    for find in (queues, lambda trace: counters(trace, cancelled)):
        more = tuple(map(curve_of, find(trace)))
        found += more
        if more and not cancelled():
            yield found


def _insights(trace: Trace, cancelled: Stop) -> Iterator[Insight]:
    """Nothing is said about a part of a trace, because the rest could reverse it."""
    if trace.report.prefix:
        return
    from fusetui.trace.insights.account import accounts
    from fusetui.trace.insights.stretches import idle_time
    from fusetui.trace.insights.why import asked, explained
    from fusetui.tui.drawing.program_lines import warm
    from fusetui.tui.layout.answer import answer_lists
    from fusetui.tui.layout.kernel_table import keys_of
    from fusetui.tui.layout.modules import module_tree

    found = accounts(trace)
    idle = tuple(map(idle_time, found.devices))
    if cancelled():
        return
    yield Insight(idle)
    why, facts = explained(asked(found))
    origins = facts.kernels.origins
    warm(origins)
    if why.modules and not cancelled():
        tree = module_tree(why.modules, origins)
        lists = answer_lists(why, tree, kernel_totals(trace))
        keys = keys_of(trace, facts.kernels.jobs, origins)
        yield Insight(idle, Answer(why, tree, lists, keys, origins))
