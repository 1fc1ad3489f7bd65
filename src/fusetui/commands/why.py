"""`why`: where the time went, and why the GPU was idle; `gaps`: its longest idle times;
`whatif`: the estimated gain of a change; `path`: the critical path and the slack of
other work."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from fusetui.analysis.why.model import Why
from fusetui.analysis.why.selection import Selection
from fusetui.commands.answers import shown
from fusetui.commands.errors import CANNOT_TELL, CommandError
from fusetui.commands.loading import load, reject_two_forms
from fusetui.report.output import (
    emit_json_with_notes,
    emit_with_notes,
    notes_of,
    width,
    wrap_notes,
)
from fusetui.text.figures import parse_time
from fusetui.text.patterns import lazy_pattern
from fusetui.trace import Trace

INTEGER = lazy_pattern(r"[0-9]{1,18}")


def run_why(args: Namespace) -> int:
    """Print where the time went in a trace, or in two beside each other, and return the
    exit code. Raises NoSuchSelectionError if the selected part does not exist, and
    CommandError."""
    from fusetui.analysis.why.answer import why

    reject_two_forms(args, "markdown")
    if args.together and (args.worth is False or args.other is not None):
        raise CommandError("--together estimates gains of one trace only.")
    trace, code = load(args.trace, args.captured_by, args.compile_log)
    answer = _add_gains(trace, why(trace, parse_selection(args)), args)
    if args.other is not None:
        other, other_code = load(args.other, ())
        answer_of_other = _add_gains(other, why(other, parse_selection(args)), args)
        _print_comparison(args, (trace, other), (answer, answer_of_other))
        return max(code, other_code)
    from fusetui.report.why import format_why, make_why_document, why_markdown

    if args.json:
        emit_json_with_notes(trace, make_why_document(answer, trace))
    elif args.markdown:
        emit_with_notes(trace, why_markdown(answer, args.all))
    else:
        lines_below = len(wrap_notes(notes_of(trace)))
        emit_with_notes(trace, format_why(answer, width(), lines_below, args.all))
    return code


def _print_comparison(
    args: Namespace, traces: tuple[Trace, Trace], answers: tuple[Why, Why]
) -> None:
    """Print the answers about two traces beside each other, in the form that the
    options ask for."""
    from fusetui.analysis.why.versus import versus
    from fusetui.report.versus import (
        format_markdown,
        format_versus,
        make_versus_document,
    )

    trace, other = traces
    both = versus(*answers)
    if args.json:
        emit_json_with_notes(trace, make_versus_document(both, traces), other)
    elif args.markdown:
        emit_with_notes(trace, format_markdown(both), other)
    else:
        emit_with_notes(trace, format_versus(both, width()), other)


def _add_gains(trace: Trace, answer: Why, args: Namespace) -> Why:
    """Return the answer with the estimated gain of each finding. It is unchanged with
    --no-worth."""
    if args.worth is False:
        return answer
    from fusetui.analysis.replay.worth import with_worth

    is_asked = args.worth is True or args.together > 0
    return with_worth(trace, answer, args.together, by=args.step_by, asked=is_asked)


def run_gaps(args: Namespace) -> int:
    """Print the longest idle times of a GPU with their causes, and return the exit
    code. Raises NoSuchSelectionError if the selected part does not exist, and
    CommandError."""
    from fusetui.analysis.why.selection import account_for_selection
    from fusetui.report import printed
    from fusetui.report.why import GapsDocument, format_gaps

    loaded = load(args.trace, args.captured_by)
    answer = account_for_selection(loaded.trace, parse_selection(args))
    max_gaps = None if args.all or not args.top else args.top  # --top 0 means all
    text = partial(format_gaps, answer, max_gaps)
    return shown(args, loaded, lambda: printed(answer, GapsDocument), text)


def parse_selection(args: Namespace) -> Selection:
    """Return the part of a trace that the options select. Raises CommandError for a
    time without a unit."""
    return Selection(
        step=args.step,
        from_ns=_parse_time_option("--from", args.begin),
        to_ns=_parse_time_option("--to", args.end),
        device=getattr(args, "device", None),
        step_by=args.step_by,
        all_gaps=getattr(args, "all", False),
    )


def _parse_time_option(option: str, text: str | None) -> int | None:
    """Return the time of an option in ns: digits alone are ns, as in --json. None if it
    is not given. Raises CommandError for a time that cannot be parsed."""
    if text is None:
        return None
    if INTEGER.fullmatch(text):
        return int(text)
    ns = parse_time(text)
    if ns is None:
        raise CommandError(
            f"{option} takes a time with a unit, such as 12.5ms, not {text}."
        )
    return ns


def run_whatif(args: Namespace) -> int:
    """Print what changes to a trace would gain, and return the exit code. It is
    CANNOT_TELL if too little of the recording is understood. Raises WrongChangeError
    and CommandError."""
    from fusetui.analysis.replay.whatif import sweep, whatif
    from fusetui.report.whatif import format_sweep, format_whatif

    if bool(args.changes) == bool(args.sweep):
        raise CommandError(
            'fusetui whatif needs a change, such as "kind:gemm x0.8", or --sweep; see fusetui '
            "whatif --help."
        )
    loaded = load(args.trace, args.captured_by)
    if args.sweep:
        curve = sweep(loaded.trace, args.sweep, args.step)
        code = shown(args, loaded, lambda: curve, partial(format_sweep, curve))
        return code if curve.points else CANNOT_TELL
    replayed = whatif(loaded.trace, args.changes, args.step)
    every_step = args.steps == "all"

    def text(columns: int) -> str:
        return format_whatif(replayed, columns, every_step)

    code = shown(args, loaded, lambda: replayed, text)
    return CANNOT_TELL if replayed.abstains else code


def run_path(args: Namespace) -> int:
    """Print the critical path of a whole trace, and return the exit code."""
    from fusetui.analysis.replay.path import path
    from fusetui.report.whatif import format_path

    loaded = load(args.trace, args.captured_by)
    critical = path(loaded.trace)
    return shown(args, loaded, lambda: critical, partial(format_path, critical))
