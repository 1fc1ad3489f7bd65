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
from fusetui.commands.loading import load, one_form
from fusetui.report.output import emit_json_of, emit_of, notes_of, width, wrapped
from fusetui.text.figures import parse_time
from fusetui.text.patterns import lazy_pattern
from fusetui.trace import Trace

INTEGER = lazy_pattern(r"[0-9]{1,18}")


def run_why(args: Namespace) -> int:
    """Where the time went in a trace, or in two. Raises NoSuchSelectionError if the
    selected part is not in the trace, and CommandError."""
    from fusetui.analysis.why.answer import why

    one_form(args, "markdown")
    if args.together and (args.worth is False or args.other is not None):
        raise CommandError("--together estimates gains of one trace only.")
    trace, code = load(args.trace, args.captured_by, args.compile_log)
    answer = _with_worth(trace, why(trace, selection_of(args)), args)
    if args.other is not None:
        other, other_code = load(args.other, ())
        answer_of_other = _with_worth(other, why(other, selection_of(args)), args)
        _print_both(args, (trace, other), (answer, answer_of_other))
        return max(code, other_code)
    from fusetui.report.why import why_document, why_markdown, why_text

    if args.json:
        emit_json_of(trace, why_document(answer, trace))
    elif args.markdown:
        emit_of(trace, why_markdown(answer, args.all))
    else:
        lines_below = len(wrapped(notes_of(trace)))
        emit_of(trace, why_text(answer, width(), lines_below, args.all))
    return code


def _print_both(
    args: Namespace, traces: tuple[Trace, Trace], answers: tuple[Why, Why]
) -> None:
    """Prints two answers beside each other, in the form that was asked for."""
    from fusetui.analysis.why.versus import versus
    from fusetui.report.versus import versus_document, versus_markdown, versus_text

    trace, other = traces
    both = versus(*answers)
    if args.json:
        emit_json_of(trace, versus_document(both, traces), other)
    elif args.markdown:
        emit_of(trace, versus_markdown(both), other)
    else:
        emit_of(trace, versus_text(both, width()), other)


def _with_worth(trace: Trace, answer: Why, args: Namespace) -> Why:
    """The answer with the worth of its findings, unless that is not wanted."""
    if args.worth is False:
        return answer
    from fusetui.analysis.replay.worth import with_worth

    is_asked = args.worth is True or args.together > 0
    return with_worth(trace, answer, args.together, by=args.step_by, asked=is_asked)


def run_gaps(args: Namespace) -> int:
    """The longest idle times. Raises NoSuchSelectionError if the selected part is not
    in the trace, and CommandError."""
    from fusetui.analysis.why.selection import accounted
    from fusetui.report import printed
    from fusetui.report.why import GapsDocument, gaps_text

    loaded = load(args.trace, args.captured_by)
    answer = accounted(loaded.trace, selection_of(args))
    max_gaps = None if args.all or not args.top else args.top  # --top 0 means all
    text = partial(gaps_text, answer, max_gaps)
    return shown(args, loaded, lambda: printed(answer, GapsDocument), text)


def selection_of(args: Namespace) -> Selection:
    """The part of a trace that arguments name. Raises CommandError for a time without a
    unit."""
    return Selection(
        step=args.step,
        from_ns=_time("--from", args.begin),
        to_ns=_time("--to", args.end),
        device=getattr(args, "device", None),
        step_by=args.step_by,
        all_gaps=getattr(args, "all", False),
    )


def _time(option: str, text: str | None) -> int | None:
    """Nanoseconds from a time with its unit, or from an integer as in --json. Raises
    CommandError."""
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
    """What changes would be worth. Raises WrongChangeError. Exit code 3 where too
    little of the recording is understood."""
    from fusetui.analysis.replay.whatif import sweep, whatif
    from fusetui.report.whatif import sweep_text, whatif_text

    if bool(args.changes) == bool(args.sweep):
        raise CommandError(
            'fusetui whatif needs a change, such as "kind:gemm x0.8", or --sweep; see fusetui '
            "whatif --help."
        )
    loaded = load(args.trace, args.captured_by)
    if args.sweep:
        curve = sweep(loaded.trace, args.sweep, args.step)
        code = shown(args, loaded, lambda: curve, partial(sweep_text, curve))
        return code if curve.points else CANNOT_TELL
    replayed = whatif(loaded.trace, args.changes, args.step)
    every_step = args.steps == "all"

    def text(columns: int) -> str:
        return whatif_text(replayed, columns, every_step)

    code = shown(args, loaded, lambda: replayed, text)
    return CANNOT_TELL if replayed.abstains else code


def run_path(args: Namespace) -> int:
    """The critical path of the whole trace."""
    from fusetui.analysis.replay.path import path
    from fusetui.report.whatif import path_text

    loaded = load(args.trace, args.captured_by)
    critical = path(loaded.trace)
    return shown(args, loaded, lambda: critical, partial(path_text, critical))
