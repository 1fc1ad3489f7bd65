"""Results about a trace that arrive after its lanes: counters, idle reasons, the
answer, the diff with another trace, and search matches in args. Nothing here needs a
terminal, so that another process can work it out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from inspect import unwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from fusetui.analysis.questions.groups import work_of_each
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
from fusetui.tui.layout.search_hits import NO_ROWS
from fusetui.tui.layout.view import short_label
from fusetui.tui.state.reading import Piece
from fusetui.tui.state.state import BESIDE, FUNCTIONS, MARKS, ROWS

if TYPE_CHECKING:
    from fusetui.analysis.why.account import Accounts
    from fusetui.analysis.why.facts import Facts
    from fusetui.analysis.why.idle_time import IdleTime
    from fusetui.analysis.why.model import Why
    from fusetui.trace.program.functions import Functions

SECONDS_BETWEEN_COUNTS = 0.2  # of hits, while args are read


class ArgsRead(NamedTuple):
    """What a search has found after a part of the args was read."""

    by_name: Rows  # all hits, or those that names say
    by_args: Rows  # further hits, of which only args say it
    share: float  # of the args that was read, up to 1.0


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
    if replayed == MEMORY:
        return iter([_memory_of(trace)])
    if replayed:
        return iter([_replayed(trace, replayed)])
    if other is not None:
        from fusetui.analysis.diff.compare import diff

        return iter([diff(trace, other)])
    if search:
        return often(as_read(trace, search))
    return pieces(trace, cancelled)


def _memory_of(trace: Trace) -> object:
    """The moments of each device; a sentence where the events tell nothing, or the file
    cannot be read."""
    from fusetui.analysis.memory.of_trace import moments_of_trace
    from fusetui.report.memory_words import no_events

    moments = moments_of_trace(trace)
    return trace.elements.text.problem() or moments or no_events(trace)


def _replayed(trace: Trace, asked: str) -> object:
    """The marks of the critical path, its rows, the time of the user's functions, what
    a change is worth, or the trace with it, and why its devices were idle then; a
    sentence where there is no such change."""
    from fusetui.analysis.replay.changes import WrongChangeError
    from fusetui.analysis.replay.marks import marks_of
    from fusetui.analysis.replay.path import path
    from fusetui.analysis.replay.predicted import predicted
    from fusetui.analysis.replay.whatif import whatif
    from fusetui.analysis.why.account import Accounts

    if asked == FUNCTIONS:
        return _functions(trace)
    if asked == MARKS:
        return marks_of(trace)
    try:
        if asked == ROWS:
            return path(trace)
        if not asked.startswith(BESIDE):
            return whatif(trace, [asked])
        prediction = predicted(trace, [asked.removeprefix(BESIDE)])
        return prediction, idle_of(Accounts(prediction.trace_of(trace)))
    except WrongChangeError as wrong:
        return str(wrong)


def _functions(trace: Trace) -> Functions:
    """The time of the user's own Python functions, as `fusetui lines` has it."""
    from fusetui.analysis.why.causes import idle_causes
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    return function_times(origins(trace), idle=idle_causes(trace))


def pieces(trace: Trace, cancelled: Stop) -> Iterator[Piece]:
    """The launch queues, the idle time, the same with the answer, the trees of frames
    and of ops, then the queues with the counters of the file, for which it is read
    again, and which nodes of graphs wait for which; ends early when that is no longer
    wanted."""
    of_queues = tuple(curve_of(queue) for queue in queues(trace))
    if of_queues:
        yield of_queues
    if not cancelled():
        yield from _insights(trace, cancelled)
    for make_tree in (call_tree, callers_tree, op_tree):
        if not cancelled():
            yield {make_tree: unwrap(make_tree)(trace)}  # not kept: only sent
    if cancelled():
        return
    of_file = tuple(curve_of(counter) for counter in counters(trace, cancelled))
    if of_file and not cancelled():
        yield of_queues + of_file
    from fusetui.analysis.graphs.captures import numbers_nodes  # many modules

    if not cancelled() and numbers_nodes(trace):
        yield {dependencies: dependencies(trace)}


def opened(path: str) -> MemorySide:
    """A memory snapshot. Raises TraceError."""
    from fusetui.analysis.memory.answer import memory_facts
    from fusetui.analysis.memory.moments import moments
    from fusetui.trace.snapshot.reading import read_snapshot

    devices = memory_facts(read_snapshot(path))
    of_devices = tuple(moments(facts) for facts in devices)
    if not of_devices:
        raise CannotReadError(f"{path} holds no memory of any device.")
    return MemorySide(path, short_label(path), of_devices)


def idle_of(accounts: Accounts) -> tuple[IdleTime, ...]:
    """The idle time of each device, in the order of their lanes."""
    from fusetui.analysis.why.idle_time import idle_times

    idle: list[IdleTime] = []
    for devices in accounts.devices_by_axis:
        idle += idle_times(devices)
    return tuple(idle)


def _insights(trace: Trace, cancelled: Stop) -> Iterator[Piece]:
    """The idle time, the same with the answer, the tree of frames, and the answer with
    what findings are worth. Nothing is said about a part of a trace, because the rest
    could reverse it."""
    if trace.report.prefix:
        return
    from fusetui.analysis.why.account import Accounts
    from fusetui.analysis.why.answer import why_with_facts
    from fusetui.analysis.why.selection import question_about
    from fusetui.tui.drawing.details import warm

    accounts = Accounts(trace)
    idle = idle_of(accounts)
    if cancelled():
        return
    yield Insight(idle)
    why, facts = why_with_facts(question_about(accounts))
    warm(facts.kernels.origins)
    if why._module_times and not cancelled():
        yield Insight(idle, _answer_page(trace, why, facts))
    if not cancelled():
        yield {FRAMES: frame_tree(trace, facts.kernels.origins)}
    has_changes = any(change is not None for change in why._wanted)
    if has_changes and not cancelled():
        yield {WORTH: _with_worth(trace, why)}


def _answer_page(trace: Trace, why: Why, facts: Facts) -> AnswerPage:
    """The answer and the lists below it. Its module times must be known."""
    assert why._module_times is not None
    origins = facts.kernels.origins
    tree = module_tree(why._module_times, origins)
    answer = replace(why, _wanted=())  # which nobody else needs
    return AnswerPage(
        why=answer,
        modules=tree,
        lists=answer_lists(answer, tree, trace),
        kernel_keys=keys_with(trace, facts.kernels.jobs, origins),
        kernel_work=work_of_each(trace, facts.kernels.jobs),
        origins=origins,
    )


def _with_worth(trace: Trace, why: Why) -> Why:
    """The answer with what its findings are worth, without what the pages do not
    need."""
    from fusetui.analysis.replay.worth import with_worth

    answer = with_worth(trace, why)
    changes = [change if isinstance(change, str) else None for change in answer._wanted]
    return replace(answer, _wanted=tuple(changes), modules=None, _module_times=None)


@memo()
def by_names(trace: Trace, text: str) -> Rows:
    """The slices of which names say what a search is for, in order of time."""
    return search(trace, texts_of(trace), parse(text))


def as_read(trace: Trace, text: str) -> Iterator[ArgsRead]:
    """What args say to a search, after each stretch of the file."""
    query = parse(text)
    texts = texts_of(trace)
    rows = by_names(trace, text)
    if query.reads_args:
        for hits, share in by_args(trace, texts, query):
            yield ArgsRead(by_name=hits, by_args=NO_ROWS, share=share)
    else:
        for extra, share in by_words(trace, texts, query, rows):
            yield ArgsRead(by_name=rows, by_args=extra, share=share)


def often(counts: Iterator[ArgsRead]) -> Iterator[ArgsRead]:
    """Some of these, SECONDS_BETWEEN_COUNTS apart at least, and the last one."""
    last = time.monotonic()
    for read in counts:
        now = time.monotonic()
        if read.share == 1.0 or now - last > SECONDS_BETWEEN_COUNTS:
            last = now
            yield read
