"""What a finding of `why` is worth, in words, for both the command line and the app."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from fusetui.analysis.why.model import (
    DOUBTFUL,
    NOTHING,
    DeviceResidual,
    Finding,
    SomeSteps,
    Why,
    median_step,
    steps_tell,
    totals,
)
from fusetui.text.figures import count, duration, percent, plural, several
from fusetui.trace.model.ids import device_label

MORE = 1.5  # times what is at stake
ZERO = "nothing"
NEARLY = 0.01  # of what the headline tells: as much
CONDITIONS = {
    "own_time": " if the CPU took no time between its calls",
    "one_worker": " if one worker process loaded the batches ahead, each as fast as now",
    "no_batch_waits": " if the workers had every batch ready in time",
}
"""What a worth assumes."""
WITHOUT = {
    "no_change": "What it is worth is unknown: what would mend it cannot be replayed.",
    "warm_up": "What it is worth is unknown: it happens once.",
    "unclear": "What it is worth is unknown: too little of the time after the change is "
    "understood.",
    "limit_unknown": "What it is worth is unknown: what would limit the time then is not known.",
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
    """`At stake 491 ms, worth 402 ms of the step (33 %).`, why there is no worth, or
    nothing; first of which other finding it is a part."""
    wholes = (
        n for n, other in enumerate(found.findings, 1) if other.rule == one.part_of
    )
    part = "".join(f"Part of finding {n}. " for n in islice(wholes, 1))
    if one.at_stake_ns is None:
        return part + WITHOUT.get(one.worth_note or "", "")
    steps = len(found.steps) if found.worth_of == "step" else 1
    ns = duration(one.at_stake_ns)
    stake = f"At stake {ns}{' in all' if steps > 1 else ''}"
    if one.worth_ns is None and one.worth_steps is None:
        is_told = any(f" {ns}{end}" in f" {one.text}" for end in " .,;:")
        why = WITHOUT.get(one.worth_note or "", "")
        return f"{part}{'' if is_told else f'{stake}. '}{why}".rstrip()
    return f"{part}{stake}, {worth_part(found, one)}{_excess(one, steps)}."


def _excess(one: Finding, steps: int) -> str:
    """Why a worth exceeds what is at stake in as many steps; blank where it does
    not."""
    worth_in_all = (one.worth_ns or 0) * steps
    at_stake = one.at_stake_ns or 0
    if one.worth_note == "own_time" and worth_in_all > MORE * at_stake:
        return ", as what else it does would then run beside the GPU"
    if one.rule == "drained-by-sync" and worth_in_all > at_stake:
        return (
            ", as launch latency, waits for other launches and the time that these calls take to "
            "return would then be hidden too"
        )
    return ""


def _longer(some: SomeSteps) -> str:
    """`; 1 step becomes 6.8 ms longer, which leaves 4.3 ms`; blank where none does."""
    if not some.longer:
        return ""
    steps, becomes = plural(some.longer, "step"), "becomes"
    together = ""
    if some.longer > 1:
        becomes, together = "become", " together"
    lost, left = duration(some.lost_ns), duration(some.net_ns)
    return f"; {steps} {becomes} {lost} longer{together}, which leaves {left}"


def worth_part(found: Why, one: Finding) -> str:
    """`worth 402 ms of the step (33 %)`, of a finding that has one."""
    if some := one.worth_steps:
        together = " together" if some.steps > 1 else ""
        others = "most others" if 2 * some.steps < some.of else "the median step"
        return (
            f"worth {duration(some.saved_ns)}{together} in {count(some.steps)} of "
            f"{plural(some.of, 'step')}, and nothing in {others}{_longer(some)}"
        )
    if (figure := worth_figure(one)) == ZERO:
        return "worth nothing: other work limits the time"
    # What it is of, by its length unless the headline tells just that.
    before, is_step, tells = (
        found.worth_before_ns or 0,
        found.worth_of == "step",
        steps_tell(found),
    )
    told = median_step(found.steps).dur_ns if tells else totals(found.devices)["span"]
    whole = "a step" if is_step and len(found.steps) > 1 else f"of the {found.worth_of}"
    if is_step != tells or abs(before - told) > NEARLY * told:
        length = duration(before)
        # The headline's is from begin to end; of the only step no other ended before.
        ends = " from end to end" if tells and len(found.steps) > 1 else ""
        whole = (
            f"of a step of {length}{ends}"
            if is_step
            else f"of the {length} from the first to the last GPU event"
        )
    most = "at most " if one.worth_note in ("at_most", "no_batch_waits") else ""
    condition = CONDITIONS.get(one.worth_note or "", "")
    return f"worth {most}{figure} {whole} ({percent(one.worth_share or 0.0, 1)}){condition}"


def doubt(
    devices: Sequence[DeviceResidual], share: float, then: str = "the change"
) -> Iterator[str]:
    """What is not understood, where that is much."""
    if share <= DOUBTFUL:
        return
    shares = [(one.residual_share, device_label(one.device)) for one in devices]
    told = [
        f"{percent(n, 1)} of the time of {device}"
        for n, device in shares
        if n > DOUBTFUL
    ]
    if share > max((n for n, _ in shares), default=0.0):
        told.append(f"{percent(share, 1)} of the time after {then}")
    yield f"Not understood: {several(told, 3)}. Nothing recorded explains these delays."


def doubt_text(found: Why) -> str:
    """The same of all replays that findings rest on; blank where all is understood."""
    return " ".join(doubt(found.residuals, found.residual_share or 0.0, "a change"))


def worth_figure(one: Finding) -> str:
    """The time alone; blank where there is none."""
    if one.worth_ns is None:
        return ""
    return duration(one.worth_ns) if (one.worth_share or 0.0) * NOTHING > 1 else ZERO


def replayed_text(found: Why) -> str:
    """What the first findings are worth together, or why none has a worth; blank for
    nothing."""
    for one in found.findings:
        if one.worth_note in NONE:
            return NONE[one.worth_note]
    if (both := found.together) is None:
        return ""
    which = f"first {both.findings} findings" if both.findings > 1 else "first finding"
    if any(one.worth_ns is None for one in found.findings[: both.findings]):
        which += " that can be replayed"
    times = f"{duration(both.before_ns)} would take {duration(both.after_ns)}"
    whole = "a step" if found.worth_of == "step" else "the span"
    return f"With the {which} mended, {whole} of {times}."
