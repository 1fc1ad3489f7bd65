"""Add evidence about compilations and graph breaks from the torch.compile log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from fusetui.analysis.compiled.answer import report_compilation
from fusetui.analysis.compiled.breaks import find_rows_after, measure_times_between
from fusetui.analysis.compiled.finding import find_compile_log
from fusetui.analysis.compiled.model import CompileAnswer, CompiledOnce, Remedy
from fusetui.analysis.compiled.regions import find_compiled_code
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim
from fusetui.text.figures import count, duration, plural, several
from fusetui.text.printable import printable
from fusetui.trace.compile_log.log import CompileLog, GraphBreak
from fusetui.trace.model.errors import TraceError

MAX_BREAKS: Final = 5
"""How many graph breaks are reported one by one."""
MAX_VALUES: Final = 4
"""How many values are named of a size or a number that changed."""
GENERIC_HINT: Final = "Please report an issue to PyTorch."
"""A hint of the log that says nothing about the program."""


class CompileEvidence(NamedTuple):
    """What is added to a finding about compilations."""

    text: str  # a sentence that begins with a blank; "" if the log adds nothing
    remedy: str | None  # None for the remedy of the rule


NO_EVIDENCE: Final = CompileEvidence(text="", remedy=None)


def read_compile_log(facts: Facts) -> CompileLog | None:
    """Return the compile log of the trace; None if there is none or it cannot be read."""
    try:
        return find_compile_log(facts.trace)
    except TraceError:
        return None


def explain_compilations(facts: Facts) -> CompileEvidence:
    """Say how many compilations of the recording repeat one, and which guard failed.

    A *guard* is a condition on the inputs; where it fails, the function is compiled
    again.
    """
    log = read_compile_log(facts)
    if log is None:
        return NO_EVIDENCE

    answer = report_compilation(facts.trace, log)
    recorded_compilations = _list_recorded_compilations(answer)
    repeated_compilations = [
        compilation for compilation in recorded_compilations if compilation.guards
    ]
    if not repeated_compilations:
        return NO_EVIDENCE

    if answer.guards:
        most_frequent = answer.guards[0]
        guard_text = most_frequent.text
        function = most_frequent.function
    else:
        first_repeated = repeated_compilations[0]
        guard_text = first_repeated.guards[0].text
        function = first_repeated.function

    words = " ".join(guard_text.split())  # on one line

    text = (
        f" According to the compile log, {count(len(repeated_compilations))} of "
        f"{plural(len(recorded_compilations), 'compilation')} follow a failed guard. "
        f"The most frequent failure is in {printable(function)}: {printable(words)}."
    )
    return CompileEvidence(text=text, remedy=_choose_remedy(answer))


def _list_recorded_compilations(answer: CompileAnswer) -> list[CompiledOnce]:
    """List the forward compilations that may have happened during the recording."""
    recorded_compilations = []
    for compilation in answer.compilations:
        may_be_recorded = compilation.in_recording is not False  # None: not known
        if may_be_recorded and not compilation.backward:
            recorded_compilations.append(compilation)

    return recorded_compilations


def _choose_remedy(answer: CompileAnswer) -> str | None:
    """Return what the log proves to avoid most compilations; None if it proves nothing."""
    if not answer.remedies:
        return None
    return format_remedy(answer.remedies[0])


def format_remedy(remedy: Remedy) -> str:
    """Format one remedy as a line of advice."""
    subject = printable(remedy.subject)
    values = several(remedy.values, MAX_VALUES)
    avoided = plural(remedy.compilations, "compilation")

    if remedy.kind == "mark_dynamic":
        return (
            f"Use torch._dynamo.mark_dynamic({subject}, {remedy.dimension}) or "
            f"torch.compile(dynamic=True): changes of this size ({printable(values)}) "
            f"caused {avoided}."
        )
    if remedy.kind == "dynamic":
        return (
            f"Use torch.compile(dynamic=True): changing sizes of {subject} caused "
            f"{avoided}."
        )
    return (
        f"Pass {subject} as a tensor, or keep it constant: its changes "
        f"({printable(values)}) caused {avoided}."
    )


def note_logged_breaks(facts: Facts, log: CompileLog) -> Iterator[Claim]:
    """Note each graph break that the recording passes, in the log's words.

    At most MAX_BREAKS are reported.
    """
    regions = find_compiled_code(facts.trace)
    reported_breaks = 0
    for graph_break in log.breaks:
        rows_after = find_rows_after(graph_break, regions, log)
        regions_after = facts.select_rows_in_window(np.array(rows_after, dtype=np.intp))
        if not len(regions_after):
            continue
        if reported_breaks == MAX_BREAKS:
            break

        reported_breaks += 1
        between_ns = int(measure_times_between(regions, regions_after).sum())
        reason = printable(graph_break.reason.rstrip("."))

        yield Claim(
            text=f"Graph break at {_format_position(graph_break)}: {reason}. The "
            f"program reaches this break {plural(len(regions_after), 'time')} and spends "
            f"{duration(between_ns)} between the two compiled regions. Nothing is fused "
            "across them.",
            rows=tuple(regions_after.tolist()),
            remedy=_choose_hint(graph_break),
        )


def _format_position(graph_break: GraphBreak) -> str:
    """Format where in the program a break is: `model.py:23 in forward`."""
    file = graph_break.file.replace("\\", "/").rpartition("/")[2]
    position = file or "an unrecorded place"
    if graph_break.line:
        position = f"{file}:{graph_break.line}"

    function = graph_break.stack[-1].function if graph_break.stack else ""
    return printable(f"{position} in {function}" if function else position)


def _choose_hint(graph_break: GraphBreak) -> str:
    """Return the first hint of the log that says something about the program."""
    for hint in graph_break.hints:
        if hint != GENERIC_HINT:
            return printable(hint)
    return "torch.compile(fullgraph=True) turns a graph break into an error."
