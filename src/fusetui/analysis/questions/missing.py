"""Why a search finds nothing, and why there are no kernels."""

from __future__ import annotations

from fusetui.analysis.questions.query import Query, Word, misread
from fusetui.analysis.questions.search import number_of
from fusetui.text.figures import count
from fusetui.trace.layout.steps import steps_of
from fusetui.trace.model.categories import GPU_LAYERS, Role
from fusetui.trace.model.columns import Trace

MOST_STREAMS = 8  # that a sentence lists


def why_nothing(trace: Trace, query: Query) -> str:
    """A sentence about what the query asks for that this trace does not have; "" for none."""
    for term in query.terms:
        if not isinstance(term, Word) or term.excluded:
            continue
        steps = steps_of(trace)
        if term.field == "step" and steps.place(number_of(term.text)) < 0:
            return f"this trace has {steps.known}"
        if term.field == "stream" and (said := _other_streams(trace, term.text)):
            return said
    return misread(query)


def why_no_kernels(trace: Trace) -> str:
    """A sentence about a trace without kernels: what there is instead."""
    if number := len(trace.gpu_rows):
        them = "its GPU event is" if number == 1 else f"its {count(number)} GPU events are"
        return f"no kernels in this trace: {them} no kernel"
    if len(trace.rows_of(Role.DEVICE)):
        return "no kernels in this trace: what its device did is not recorded as kernels"
    return "no kernels in this trace: no GPU event was recorded (fusetui ops lists the CPU ops)"


def _other_streams(trace: Trace, text: str) -> str:
    """A sentence about the streams that there are, if there is none with this number."""
    streams = {str(track.tid) for track in trace.tracks if track.layer in GPU_LAYERS}
    if text in streams:
        return ""
    if not streams:
        return "this trace has no streams"
    listed = ", ".join(sorted(streams, key=lambda tid: (len(tid), tid))[:MOST_STREAMS])
    more = ", ..." if len(streams) > MOST_STREAMS else ""
    return f"the streams of this trace are {listed}{more}"
