"""`report`: one page for a browser about a trace, or about two and what differs."""

from __future__ import annotations

from argparse import Namespace

from fusetui.analysis.replay.worth import with_worth
from fusetui.analysis.why.answer import why
from fusetui.analysis.why.selection import Selection
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import load
from fusetui.report.output import emit
from fusetui.text.figures import plural
from fusetui.text.printable import printable
from fusetui.trace.new_file import check_new, new_file

LARGEST = 1_000_000  # bytes
ROWS = (200, 100, 50, 20, 5)  # of each table: as many as keep the page below that


def run_report(args: Namespace) -> int:
    """Raises CommandError, CannotWrite or NoStepsError; OUT is not written then."""
    if not args.out.lower().endswith((".html", ".htm")):
        raise CommandError(f"{args.out} must end in .html.")
    check_new(args.out)
    names = [name for name in (args.a, args.b) if name is not None]
    loaded = [load(name, ()) for name in names]
    traces = [one.trace for one in loaded]
    from fusetui.commands.web.sections import Told, html_of

    sides = [Told(trace, with_worth(trace, why(trace, Selection()))) for trace in traces]
    found = None
    if len(traces) > 1:
        from fusetui.analysis.diff.compare import diff

        found = diff(*traces)
    for most in ROWS:
        content = html_of(sides, found, args.light, most).encode()
        if len(content) < LARGEST:
            break
    with new_file(args.out) as place:
        place.write_bytes(content)
    emit(f"{printable(args.out)}: a report of {plural(len(traces), 'trace')}.")
    return max(one.code for one in loaded)
