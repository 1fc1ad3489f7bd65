"""`lines`: what the user's own Python functions cost."""

from __future__ import annotations

from argparse import Namespace

from fusetui.commands.errors import say
from fusetui.commands.loading import load
from fusetui.report.note import emit_json_of, emit_of
from fusetui.report.output import width
from fusetui.text.printable import printable


def run(args: Namespace) -> int:
    from fusetui.analysis.why.causes import idle_causes
    from fusetui.report.program import functions_text
    from fusetui.trace.program.functions import function_times
    from fusetui.trace.program.origin import origins

    loaded = load(args.trace, args.captured_by)
    idle = idle_causes(loaded.trace)
    times = function_times(origins(loaded.trace), args.file, idle)
    if args.file is not None and not times.functions:
        say(f"No Python frame of this trace is in {printable(args.file)}.")
    if args.json:
        emit_json_of(loaded.trace, times)
    else:
        emit_of(loaded.trace, functions_text(times, args.top, width()))
    return loaded.code
