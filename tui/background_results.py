"""What is known about a trace some time after its lanes: its counters, why its devices
were idle, the answer, what changed to another trace, and what args say to a search.
Nothing here needs a terminal, so that another process can work it out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from fusetui.analysis.questions.launches import queues
from fusetui.analysis.questions.query import parse
from fusetui.analysis.questions.search import by_args, by_words, search, texts_of
from fusetui.trace.layout.counters import counters, curve_of
from fusetui.trace.model.arrays import Rows
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.errors import CannotReadError
from fusetui.trace.model.memo import memo
from fusetui.trace.model.report import Stop
from fusetui.trace.program.backward import dependencies
from fusetui.tui.layout.answer import WORTH, AnswerPage, Insight, answer_lists
from fusetui.tui.layout.figure_trees import module_tree
from fusetui.tui.layout.kernel_table import keys_with
from fusetui.tui.layout.memory import MEMORY, MemorySide
from fusetui.tui.layout.op_tree import (
    FRAMES,
    call_tree,
    callers_tree,
    frame_tree,
    op_tree,
)
from fusetui.tui.layout.search_hits import NOTHING
from fusetui.tui.layout.view import short_label
from fusetui.tui.state.reading import Piece
from fusetui.tui.state.state import BESIDE, MARKS, ROWS

if TYPE_CHECKING:
    from fusetui.analysis.why.account import Accounts
    from fusetui.analysis.why.idle_time import IdleTime

OFTEN = 0.2  # seconds between two counts while args are read


# hits, those by args alone, the share that was read
ArgsRead = tuple[Rows, Rows, float]


def answers(
    trace: Trace,
    cancelled: Stop,
    other: Trace | None,
    search: str = "",
    replayed: str = "",
) -> Iterator[Any]:
    """What changed from a trace to the other; what args say to a search; what is on the
    critical path, or what a change is worth; what memory events tell; else all
    pieces."""
    if replayed:
        return iter(
            [_memory_of(trace) if replayed == MEMORY else _replayed(trace, replayed)]
        )
    if other is not None:
        from fusetui.analysis.diff.compare import diff

        return iter([diff(trace, other)])
    return often(as_read(trace, search)) if search else pieces(trace, cancelled)


def _memory_of(trace: Trace) -> object:
    """Of each device; a sentence where the events tell nothing, or the file cannot be
    read."""
    from fusetui.analysis.memory.of_trace import moments_of_trace
    from fusetui.report.memory_words import no_events

    found = moments_of_trace(trace)
    return trace.elements.text.problem() or found or no_events(trace)


def _replayed(trace: Trace, asked: str) -> object:
    """The marks of the critical path, its rows, what a change is worth, or the trace
    with it, and why its devices were idle then; a sentence where there is no such
    change."""
    from fusetui.analysis.replay.changes import WrongChangeError
    from fusetui.analysis.replay.marks import marks_of
    from fusetui.analysis.replay.path import path
    from fusetui.analysis.replay.predicted import predicted
    from fusetui.analysis.replay.whatif import whatif
    from fusetui.analysis.why.account import Accounts

    if asked == MARKS:
        return marks_of(trace)
    try:
        if asked.startswith(BESIDE):
            found = predicted(trace, [asked.removeprefix(BESIDE)])
            return found, idle_of(Accounts(found.trace_of(trace)))
        return path(trace) if asked == ROWS else whatif(trace, [asked])
    except WrongChangeError as wrong:
        return str(wrong)


def pieces(trace: Trace, cancelled: Stop) -> Iterator[Piece]:
    """The launch queues, the idle time, the same with the answer, the trees of frames
    and of ops, then the queues with the counters of the file, for which it is read
    again, and which nodes of graphs wait for which; ends early when that is no longer
    wanted."""
    if found := tuple(map(curve_of, queues(trace))):
        yield found
    if not cancelled():
        yield from _insights(trace, cancelled)
    for make in (call_tree, callers_tree, op_tree):
        if not cancelled():
            yield {make: unwrap(make)(trace)}  # not kept: only sent
    more = () if cancelled() else tuple(map(curve_of, counters(trace, cancelled)))
    if more and not cancelled():
        yield found + more
    from fusetui.analysis.graphs.captures import numbers_nodes  # many modules

    if not cancelled() and numbers_nodes(trace):
        yield {dependencies: dependencies(trace)}


def opened(path: str) -> MemorySide:
    """A memory snapshot. Raises TraceError."""
    from fusetui.analysis.memory.answer import memory_facts
    from fusetui.analysis.memory.moments import moments
    from fusetui.trace.snapshot.reading import read_snapshot

    found = tuple(map(moments, memory_facts(read_snapshot(path))))
    if not found:
        raise CannotReadError(f"{path} holds no memory of any device.")
    return MemorySide(path, short_label(path), found)


def idle_of(found: Accounts) -> tuple[IdleTime, ...]:
    from fusetui.analysis.why.idle_time import idle_times

    return tuple(one for line in found.lines for one in idle_times(line))


def _insights(trace: Trace, cancelled: Stop) -> Iterator[Piece]:
    """Nothing is said about a part of a trace, because the rest could reverse it."""
    if trace.report.prefix:
        return
    from fusetui.analysis.why.account import Accounts
    from fusetui.analysis.why.answer import explained
    from fusetui.analysis.why.selection import asked
    from fusetui.tui.drawing.details import warm

    found = Accounts(trace)
    idle = idle_of(found)
    if cancelled():
        return
    yield Insight(idle)
    why, facts = explained(asked(found))
    wanted = why._wanted
    why = replace(why, _wanted=())  # which nobody else needs
    origins = facts.kernels.origins
    warm(origins)
    if why._module_times and not cancelled():
        tree = module_tree(why._module_times, origins)
        keys = keys_with(trace, facts.kernels.jobs, origins)
        yield Insight(
            idle, AnswerPage(why, tree, answer_lists(why, tree, trace), keys, origins)
        )
    if not cancelled():
        yield {FRAMES: frame_tree(trace, origins)}
    if any(one is not None for one in wanted) and not cancelled():
        from fusetui.analysis.replay.worth import with_worth

        told = with_worth(trace, replace(why, _wanted=wanted))
        texts = tuple(one if isinstance(one, str) else None for one in told._wanted)
        yield {WORTH: replace(told, _wanted=texts, modules=None, _module_times=None)}


@memo()
def by_names(trace: Trace, text: str) -> Rows:
    return search(trace, texts_of(trace), parse(text))


def as_read(trace: Trace, text: str) -> Iterator[ArgsRead]:
    """What args say, after each stretch of the file."""
    query, texts, rows = parse(text), texts_of(trace), by_names(trace, text)
    if query.reads_args:
        return ((held, NOTHING, share) for held, share in by_args(trace, texts, query))
    return (
        (rows, extra, share) for extra, share in by_words(trace, texts, query, rows)
    )


def often(found: Iterator[ArgsRead]) -> Iterator[ArgsRead]:
    last = time.monotonic()
    for one in found:
        now = time.monotonic()
        if one[-1] == 1.0 or now - last > OFTEN:
            last = now
            yield one
