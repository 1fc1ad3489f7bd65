"""`gaps`: the longest gaps in which a GPU was idle."""

from __future__ import annotations

from argparse import Namespace

from fusetui.analysis.why.selection import accounted
from fusetui.commands.loading import load
from fusetui.commands.selecting import found_in
from fusetui.report.note import emit_json_of, emit_of
from fusetui.report.output import width

MOST = 20


def run(args: Namespace) -> int:
    """Raises CommandError if the selected part is not in the trace."""
    loaded = load(args.trace, args.captured_by)
    found = found_in(loaded.trace, args, accounted)
    if args.json:
        from fusetui.report.why import gaps_document

        emit_json_of(loaded.trace, {"base_ns": str(found.base_ns), **gaps_document(found)})
    else:
        from fusetui.report.why import gaps_text

        emit_of(loaded.trace, gaps_text(found, None if args.all else MOST, width()))
    return loaded.code
