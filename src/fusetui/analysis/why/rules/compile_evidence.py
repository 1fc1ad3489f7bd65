"""What the log of torch.compile proves about compilations and graph breaks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.compiled.answer import compile_answer
from fusetui.analysis.compiled.breaks import rows_after, times_between
from fusetui.analysis.compiled.finding import compile_log_of
from fusetui.analysis.compiled.model import CompileAnswer, Remedy
from fusetui.analysis.compiled.regions import regions_of
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim
from fusetui.text.figures import count, duration, plural, several
from fusetui.text.printable import printable
from fusetui.trace.compile_log.log import CompileLog, GraphBreak
from fusetui.trace.model.errors import TraceError

MAX_BREAKS: Final = 5
"""That are reported one by one."""
MAX_VALUES: Final = 4
"""Of a size or a number that changed, that are named."""
GENERIC_HINT: Final = "Please report an issue to PyTorch."


class CompileEvidence(NamedTuple):
    """What is added to a finding about compilations."""

    text: str  # a sentence after a blank; "" if the log adds nothing
    remedy: str | None  # instead of the rule's own


NO_EVIDENCE: Final = CompileEvidence(text="", remedy=None)


def log_of(facts: Facts) -> CompileLog | None:
    """The compile log of the trace; None if there is none or it cannot be read."""
    try:
        return compile_log_of(facts.trace)
    except TraceError:
        return None


def why_compiled(facts: Facts) -> CompileEvidence:
    """How many compilations of the recording were of functions compiled before, and
    which guard failed."""
    log = log_of(facts)
    if log is None:
        return NO_EVIDENCE
    answer = compile_answer(facts.trace, log)
    recorded = [
        one
        for one in answer.compilations
        if one.in_recording is not False and not one.backward
    ]
    again = [one for one in recorded if one.guards]
    if not again:
        return NO_EVIDENCE
    guard = answer.guards[0].text if answer.guards else again[0].guards[0].text
    function = answer.guards[0].function if answer.guards else again[0].function
    words = " ".join(guard.split())
    text = (
        f" By the compile log, {count(len(again))} of {plural(len(recorded), 'compilation')} "
        f"repeat one whose guard failed; most often, in {printable(function)}: "
        f"{printable(words)}."
    )
    return CompileEvidence(text=text, remedy=_remedy(answer))


def _remedy(answer: CompileAnswer) -> str | None:
    """What the log proves to avoid most compilations; None if it proves nothing."""
    if not answer.remedies:
        return None
    return remedy_text(answer.remedies[0])


def remedy_text(remedy: Remedy) -> str:
    """One remedy as a line of advice."""
    subject = printable(remedy.subject)
    values = several(remedy.values, MAX_VALUES)
    avoided = plural(remedy.compilations, "compilation")
    if remedy.kind == "mark_dynamic":
        return (
            f"torch._dynamo.mark_dynamic({subject}, {remedy.dimension}), or "
            f"torch.compile(dynamic=True): that size changes ({printable(values)}), which caused "
            f"{avoided}."
        )
    if remedy.kind == "dynamic":
        return f"torch.compile(dynamic=True): sizes of {subject} change, which caused {avoided}."
    return (
        f"Pass {subject} as a tensor, or keep it constant: it changes ({printable(values)}), which "
        f"caused {avoided}."
    )


def logged_breaks(facts: Facts, log: CompileLog) -> Iterator[Claim]:
    """A note about each graph break that the recording passes, in the log's words."""
    regions = regions_of(facts.trace)
    told = 0
    for one in log.breaks:
        rows = np.array(rows_after(one, regions, log), dtype=np.intp)
        rows = facts.rows_in_window(rows) if len(rows) else rows
        if not len(rows) or told >= MAX_BREAKS:
            continue
        told += 1
        between_ns = int(times_between(regions, rows).sum())
        yield Claim(
            text=f"Graph break at {_place(one)}: {printable(one.reason.rstrip('.'))}. The recording "
            f"passes it {plural(len(rows), 'time')}, with {duration(between_ns)} between the two "
            "compiled regions, and nothing is fused across them.",
            rows=tuple(rows.tolist()),
            remedy=_hint(one),
        )


def _place(one: GraphBreak) -> str:
    """`model.py:23 in forward`."""
    file = one.file.replace("\\", "/").rpartition("/")[2]
    place = (
        f"{file}:{one.line}" if one.line else file or "a place that was not recorded"
    )
    function = one.stack[-1].function if one.stack else ""
    return printable(f"{place} in {function}" if function else place)


def _hint(one: GraphBreak) -> str:
    """The first hint of the log that says something about the program."""
    for hint in one.hints:
        if hint != GENERIC_HINT:
            return printable(hint)
    return "torch.compile(fullgraph=True) makes a break an error."
