"""`summary`: key figures of the whole trace."""

from __future__ import annotations

from argparse import Namespace

import numpy as np

from fusetui.analysis.questions.summary import Summary, summary
from fusetui.analysis.questions.totals import kernel_totals, op_totals
from fusetui.commands.errors import say
from fusetui.commands.loading import load, secret_notices
from fusetui.report.note import emit_json_of, emit_of
from fusetui.report.output import width
from fusetui.trace import Trace

LONG = 0.02  # of the span: a gap that changes what the share of busy time means


def run(args: Namespace) -> int:
    loaded = load(args.trace, args.captured_by)
    for sentence in secret_notices(loaded.trace):
        say(sentence)
    figures = summary(loaded.trace)
    if args.json:
        emit_json_of(loaded.trace, figures)
    else:
        emit_of(loaded.trace, _summary_text(loaded.trace, figures))
    return loaded.code


def _summary_text(trace: Trace, figures: Summary) -> str:
    """The text; imports the decoders of kernel names, which --json does not need."""
    from fusetui.report.summary import summary_text

    totals = kernel_totals(trace), op_totals(trace)
    return summary_text(figures, *totals, width(), _cut_off(trace, figures))


def _cut_off(trace: Trace, figures: Summary) -> bool:
    """Whether the GPU probably finishes work from before the recording in an idle time, as `why`
    says; asked only where a stream begins after a long one."""
    rows = trace.gpu_rows[np.argsort(trace.start[trace.gpu_rows], kind="stable")]
    before = np.maximum.accumulate(trace.end[rows])[:-1]
    after = rows[1:][trace.start[rows[1:]] - before > LONG * figures.gpu_span_ns]
    first = rows[np.unique(trace.track[rows], return_index=True)[1]]
    if not np.isin(after, first).any():
        return False
    from fusetui.analysis.why.answer import why
    from fusetui.report.why_answer import cut_off

    return bool(cut_off(why(trace)))
