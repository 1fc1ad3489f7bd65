"""`ops`: the CPU ops of a trace by name or shape."""

from __future__ import annotations

from argparse import Namespace

from fusetui.commands.loading import load
from fusetui.report.note import emit_json_of, emit_of
from fusetui.report.output import width


def run(args: Namespace) -> int:
    from fusetui.analysis.questions.op_groups import op_groups
    from fusetui.report.groups import ops_json, ops_text

    loaded = load(args.trace, args.captured_by)
    groups = op_groups(loaded.trace, args.by)
    if args.json:
        emit_json_of(loaded.trace, ops_json(groups, args.by))
    else:
        emit_of(loaded.trace, ops_text(groups, args.by, args.top, width()))
    return loaded.code
