"""`diff`: what one trace does differently from another."""

from __future__ import annotations

from fusetui.commands.errors import DONE, NO, CommandError, say
from fusetui.commands.loading import load
from fusetui.commands.sources import is_run, traces
from fusetui.render.output import emit, emit_json, width
from fusetui.render.text import printable_lines
from fusetui.trace.diff import Diff, diff, to_markdown, to_text


def compare(a: str, b: str | None, as_json: bool, markdown: bool, fail_over: float | None) -> int:
    if as_json and markdown:
        raise CommandError("Give one of --json and --markdown, not both.")
    first, second = _pair(a, b)
    before, after = load(first), load(second)
    found = diff(before.trace, after.trace)
    if as_json:
        emit_json(found.to_json())
    else:
        emit(printable_lines(to_markdown(found) if markdown else to_text(found, width=width())))
    over = DONE if fail_over is None else _verdict(found, fail_over)
    return max(before.code, after.code, over)


def _pair(a: str, b: str | None) -> tuple[str, str]:
    """A and B, or the first two variants of a run folder."""
    if b is not None:
        return a, b
    found = traces(a) if is_run(a) else []
    if len(found) < 2:
        raise CommandError(f"Name a second trace to compare {a} with.")
    return found[0], found[1]


def _verdict(found: Diff, percent: float) -> int:
    """Slower beyond noise: even the low bound of the ratio is over the threshold."""
    ratio, low = found.step.ratio, found.step.low
    if ratio is None:
        raise CommandError("Only one of the traces has work in its steps: nothing to compare.")
    if (ratio if low is None else low) <= 1 + percent / 100:
        return DONE
    noise = "" if low is not None else ", of a single step: how much is noise is not known"
    say(f"B's step is more than {percent:g} % slower: {ratio:.3f} times as long as A's{noise}.")
    return NO
