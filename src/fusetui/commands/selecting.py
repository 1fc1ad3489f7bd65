"""The part of a trace that the arguments of `why` and `gaps` name."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable

from fusetui.analysis.why.model import Why
from fusetui.analysis.why.selection import NotThere, Selection
from fusetui.commands.errors import CommandError
from fusetui.text.figures import parse_time
from fusetui.trace import Trace

NS = re.compile(r"[0-9]{1,18}")


def found_in(trace: Trace, args: Namespace, ask: Callable[[Trace, Selection], Why]) -> Why:
    """Answers for the selected part; `ask` is `why`, or `accounted` for account and gaps only.

    Raises CommandError if the selected part is not in the trace.
    """
    selection = Selection(
        step=args.step,
        from_ns=_time("--from", args.begin),
        to_ns=_time("--to", args.end),
        device=args.device,
        step_by=args.step_by,
        all_gaps=args.all,
    )
    try:
        return ask(trace, selection)
    except NotThere as missing:
        raise CommandError(str(missing)) from None


def _time(option: str, text: str | None) -> int | None:
    """Nanoseconds from a time with its unit, or from an integer as in --json."""
    if text is None or NS.fullmatch(text):
        return None if text is None else int(text)
    ns = parse_time(text)
    if ns is None:
        raise CommandError(f"{option} takes a time with a unit, such as 12.5ms, not {text}.")
    return ns
