"""`summary`: key figures of the whole trace."""

from __future__ import annotations

from argparse import Namespace

from fusetui.commands.errors import say
from fusetui.commands.loading import load, secret_notices
from fusetui.render.note import emit_json_of, emit_of
from fusetui.render.output import width
from fusetui.trace import Trace, summary
from fusetui.trace.questions.summary import Summary
from fusetui.trace.questions.totals import kernel_totals, op_totals


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
    from fusetui.render.summary import summary_text

    return summary_text(figures, kernel_totals(trace), op_totals(trace), width())
