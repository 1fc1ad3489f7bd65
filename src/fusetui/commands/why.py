"""`why`: where the time went, and why the GPU was idle; `gaps`: its longest idle times;
`whatif`: what a change would be worth; `path`: the critical path and what has time to
spare."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from fusetui.analysis.why.model import Why
from fusetui.analysis.why.selection import Selection
from fusetui.commands.answers import shown
from fusetui.commands.errors import CANNOT_TELL, CommandError
from fusetui.commands.loading import load, one_form
from fusetui.report.output import emit_json_of, emit_of, notes_of, width, wrapped
from fusetui.text.figures import parse_time
from fusetui.text.patterns import late
from fusetui.trace import Trace

NS = late(r"[0-9]{1,18}")


def run_why(args: Namespace) -> int:
    """Raises NoSuchSelectionError if the selected part is not in the trace, and
    CommandError."""
    from fusetui.analysis.why.answer import why

    one_form(args, "markdown")
    if args.together and (args.worth is False or args.other is not None):
        raise CommandError(
            "--together is about the worth of the findings of one trace."
        )
    trace, code = load(args.trace, args.captured_by)
    found = _with_worth(trace, why(trace, selection_of(args)), args)
    if args.other is not None:
        other, other_code = load(args.other, ())
        from fusetui.analysis.why.versus import versus
        from fusetui.report.versus import versus_document, versus_markdown, versus_text

        both = versus(found, _with_worth(other, why(other, selection_of(args)), args))
        if args.json:
            emit_json_of(trace, versus_document(both, (trace, other)), other)
        else:
            text = (
                versus_markdown(both) if args.markdown else versus_text(both, width())
            )
            emit_of(trace, text, other)
        return max(code, other_code)
    from fusetui.report.why import why_document, why_markdown, why_text

    if args.json:
        emit_json_of(trace, why_document(found, trace))
    elif args.markdown:
        emit_of(trace, why_markdown(found, args.all))
    else:
        emit_of(
            trace, why_text(found, width(), len(wrapped(notes_of(trace))), args.all)
        )
    return code


def _with_worth(trace: Trace, found: Why, args: Namespace) -> Why:
    if args.worth is False:
        return found
    from fusetui.analysis.replay.worth import with_worth

    asked = args.worth is True or args.together > 0
    return with_worth(trace, found, args.together, by=args.step_by, asked=asked)


def run_gaps(args: Namespace) -> int:
    """Raises NoSuchSelectionError if the selected part is not in the trace, and
    CommandError."""
    from fusetui.analysis.why.selection import accounted
    from fusetui.report import printed
    from fusetui.report.why import GapsDocument, gaps_text

    loaded = load(args.trace, args.captured_by)
    found, most = (
        accounted(loaded.trace, selection_of(args)),
        None if args.all else args.top,
    )
    text = partial(gaps_text, found, most or None)
    return shown(args, loaded, lambda: printed(found, GapsDocument), text)


def selection_of(args: Namespace) -> Selection:
    """Raises CommandError for a time without a unit."""
    return Selection(
        step=args.step,
        from_ns=_time("--from", args.begin),
        to_ns=_time("--to", args.end),
        device=getattr(args, "device", None),
        step_by=args.step_by,
        all_gaps=getattr(args, "all", False),
    )


def _time(option: str, text: str | None) -> int | None:
    """Nanoseconds from a time with its unit, or from an integer as in --json."""
    if text is None or NS.fullmatch(text):
        return None if text is None else int(text)
    ns = parse_time(text)
    if ns is None:
        raise CommandError(
            f"{option} takes a time with a unit, such as 12.5ms, not {text}."
        )
    return ns


def run_whatif(args: Namespace) -> int:
    """Raises WrongChangeError. Exit code 3 where too little of the recording is
    understood."""
    from fusetui.analysis.replay.whatif import sweep, whatif
    from fusetui.report.whatif import sweep_text, whatif_text

    if bool(args.changes) == bool(args.sweep):
        raise CommandError(
            'fusetui whatif needs a change, such as "family:gemm x0.8", or --sweep; see fusetui '
            "whatif --help."
        )
    loaded = load(args.trace, args.captured_by)
    if args.sweep:
        curve = sweep(loaded.trace, args.sweep, args.step)
        code = shown(args, loaded, lambda: curve, lambda most: sweep_text(curve, most))
        return code if curve.points else CANNOT_TELL
    found, every = whatif(loaded.trace, args.changes, args.step), args.steps == "all"
    code = shown(
        args, loaded, lambda: found, lambda most: whatif_text(found, most, every)
    )
    return CANNOT_TELL if found.abstains else code


def run_path(args: Namespace) -> int:
    """The critical path of the whole trace."""
    from fusetui.analysis.replay.path import path
    from fusetui.report.whatif import path_text

    loaded = load(args.trace, args.captured_by)
    found = path(loaded.trace)
    return shown(args, loaded, lambda: found, lambda most: path_text(found, most))
