"""`ops`: the CPU ops of a trace by name."""

from __future__ import annotations

from argparse import Namespace

from fusetui.commands.loading import load
from fusetui.render.output import emit, emit_json, width
from fusetui.trace.questions.totals import op_totals


def run(args: Namespace) -> int:
    from fusetui.render.totals import ops_text

    loaded = load(args.trace)
    totals = op_totals(loaded.trace)
    if args.json:
        emit_json({"ops": totals})
    else:
        emit(ops_text(totals, args.top, width()))
    return loaded.code
