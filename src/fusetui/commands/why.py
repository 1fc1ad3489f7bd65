"""`why`: where the time went, and why the GPU was idle."""

from __future__ import annotations

from argparse import Namespace

from fusetui.analysis.why.answer import why
from fusetui.analysis.why.model import Why
from fusetui.commands.errors import CommandError
from fusetui.commands.loading import load
from fusetui.commands.selecting import found_in
from fusetui.report.note import emit_json_of, emit_of, note_lines
from fusetui.report.output import width
from fusetui.trace import Trace


def run(args: Namespace) -> int:
    """Raises CommandError if the selected part is not in the trace."""
    if args.json and args.markdown:
        raise CommandError("Use either --json or --markdown, not both.")
    loaded = load(args.trace, args.captured_by)
    found = found_in(loaded.trace, args, why)
    if args.other is None:
        _show(loaded.trace, found, args)
        return loaded.code
    other = load(args.other, ())
    _show_both((loaded.trace, other.trace), (found, found_in(other.trace, args, why)), args)
    return max(loaded.code, other.code)


def _show(trace: Trace, found: Why, args: Namespace) -> None:
    if args.json:
        from fusetui.report.why import why_document

        emit_json_of(trace, why_document(found, trace))
    elif args.markdown:
        from fusetui.report.why import why_markdown

        emit_of(trace, why_markdown(found))
    else:
        from fusetui.report.why import why_text

        emit_of(trace, why_text(found, width(), len(note_lines(trace)), args.all))


def _show_both(traces: tuple[Trace, Trace], found: tuple[Why, Why], args: Namespace) -> None:
    from fusetui.analysis.why.versus import versus

    both = versus(*found)
    if args.json:
        from fusetui.report.versus import versus_document

        emit_json_of(traces[0], versus_document(both, traces), traces[1])
    elif args.markdown:
        from fusetui.report.versus import versus_markdown

        emit_of(traces[0], versus_markdown(both), traces[1])
    else:
        from fusetui.report.versus import versus_text

        emit_of(traces[0], versus_text(both, width()), traces[1])
