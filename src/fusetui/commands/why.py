"""`why` and `gaps`: what the time went to, and why the GPU was idle."""

from __future__ import annotations

import re
from argparse import Namespace

import msgspec

from fusetui.commands.errors import CommandError
from fusetui.commands.loading import load
from fusetui.render.output import emit, emit_json, width
from fusetui.trace import Trace
from fusetui.trace.insights.model import Why
from fusetui.trace.insights.why import NotThere, Selection
from fusetui.trace.insights.why import why as why_of
from fusetui.trace.text.times import parse_time

GAPS = 20
NS = re.compile(r"[0-9]{1,18}")


class Form(msgspec.Struct, frozen=True):
    """How the answer is written; at most one of them."""

    json: bool = False
    markdown: bool = False


def why(name: str, other: str | None, selection: Selection, form: Form) -> int:
    """Raises CommandError when what is asked for is not in the trace."""
    if form.json and form.markdown:
        raise CommandError("Give one of --json and --markdown, not both.")
    loaded = load(name)
    found = _found(loaded.trace, selection)
    if other is not None:
        second = load(other)
        _show_both((loaded.trace, second.trace), (found, _found(second.trace, selection)), form)
        return max(loaded.code, second.code)
    _show(loaded.trace, found, form)
    return loaded.code


def gaps(name: str, selection: Selection, as_json: bool) -> int:
    """Raises CommandError as `why` does."""
    loaded = load(name)
    found = _found(loaded.trace, selection)
    if as_json:
        from fusetui.render.why_json import gaps_document

        emit_json({"base_ns": str(found.base_ns), **gaps_document(found)})
    else:
        from fusetui.render.gaps import gaps_text

        emit(gaps_text(found, None if selection.all_gaps else GAPS, width()))
    return loaded.code


def selection(args: Namespace) -> Selection:
    """What part of a trace the arguments name. Raises CommandError."""
    return Selection(
        step=args.step,
        from_ns=_time("--from", args.begin),
        to_ns=_time("--to", args.end),
        device=args.device,
        step_by=args.step_by,
        all_gaps=args.all,
    )


def _time(option: str, text: str | None) -> int | None:
    """With its unit, or as --json writes it."""
    if text is None or NS.fullmatch(text):
        return None if text is None else int(text)
    ns = parse_time(text)
    if ns is None:
        raise CommandError(f"{option} takes a time with its unit, such as 12.5ms, not {text}.")
    return ns


def _found(trace: Trace, selection: Selection) -> Why:
    try:
        return why_of(trace, selection)
    except NotThere as missing:
        raise CommandError(str(missing)) from None


def _show(trace: Trace, found: Why, form: Form) -> None:
    if form.json:
        from fusetui.render.why_json import why_document

        emit_json(why_document(found, trace))
    elif form.markdown:
        from fusetui.render.why_markdown import why_markdown

        emit(why_markdown(found))
    else:
        from fusetui.render.why import why_text

        emit(why_text(found, width()))


def _show_both(traces: tuple[Trace, Trace], found: tuple[Why, Why], form: Form) -> None:
    from fusetui.trace.insights.versus import versus

    both = versus(*found)
    if form.json:
        from fusetui.render.why_json import versus_document

        emit_json(versus_document(both, traces))
    elif form.markdown:
        from fusetui.render.why_markdown import versus_markdown

        emit(versus_markdown(both))
    else:
        from fusetui.render.why import versus_text

        emit(versus_text(both, width()))
