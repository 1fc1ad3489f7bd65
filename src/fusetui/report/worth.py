"""What a finding of `why` is worth, in words, for both the command line and the app."""

from __future__ import annotations

from fusetui.analysis.why.model import NOTHING, Finding, Why
from fusetui.text.figures import duration, percent

MORE = 1.5  # times what is at stake
ZERO = "nothing"
WITHOUT = {
    "no_change": "What it is worth is unknown: what would mend it cannot be replayed.",
    "warm_up": "What it is worth is unknown: it happens once.",
    "unclear": "What it is worth is unknown: too little of the time after the change is "
    "understood.",
    "not_found": "What it is worth is unknown: its change cannot be replayed here.",
}
"""Why a single finding has no worth."""
NONE = {
    "no_waits": "What findings are worth is unknown: of all calls, only those that "
    "launch were recorded, so when the CPU waits for the GPU is not known.",
    "residual": "What findings are worth is unknown: too little of the recorded time is "
    "understood to replay it.",
    "part": "What findings are worth is told of whole traces only.",
    "large": "What findings are worth was left out, as replaying a trace of this size takes long: "
    "--worth tells it.",
}
"""Why none has."""


def worth_text(found: Why, one: Finding) -> str:
    """`At stake 491 ms, worth 402 ms of the step (33 %).`, why there is no worth, or nothing."""
    if one.worth_ns is None or one.at_stake_ns is None:
        return WITHOUT.get(one.worth_note or "", "")
    steps = len(found.steps) if found.worth_of == "step" else 1
    stake = f"At stake {duration(one.at_stake_ns)}{' in all' if steps > 1 else ''}"
    more = one.worth_note == "own_time" and one.worth_ns * steps > MORE * one.at_stake_ns
    why = ", as what else it does would then run beside the GPU" if more else ""
    return f"{stake}, {worth_part(found, one)}{why}."


def worth_part(found: Why, one: Finding) -> str:
    """`worth 402 ms of the step (33 %)`, of a finding that has one."""
    if (figure := worth_figure(one)) == ZERO:
        return "worth nothing: other work limits the time"
    whole = "a step" if found.worth_of == "step" and len(found.steps) > 1 else ""
    whole = whole or f"of the {found.worth_of}"
    most = "at most " if one.worth_note == "at_most" else ""
    own = " if the CPU took no time between its calls" if one.worth_note == "own_time" else ""
    return f"worth {most}{figure} {whole} ({percent(one.worth_share or 0.0, 1)}){own}"


def worth_figure(one: Finding) -> str:
    """The time alone; blank where there is none."""
    if one.worth_ns is None:
        return ""
    return duration(one.worth_ns) if (one.worth_share or 0.0) * NOTHING > 1 else ZERO


def replayed_text(found: Why) -> str:
    """What the first findings are worth together, or why none has a worth; blank for nothing."""
    for one in found.findings:
        if one.worth_note in NONE:
            return NONE[one.worth_note]
    if (both := found.together) is None:
        return ""
    which = f"first {both.findings} findings" if both.findings > 1 else "first finding"
    times = f"{duration(both.before_ns)} would take {duration(both.after_ns)}"
    whole = "a step" if found.worth_of == "step" else "the span"
    return f"With the {which} mended, {whole} of {times}."
