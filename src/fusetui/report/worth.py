"""The upper bound and the estimated gain of a finding of `why`, in words, for both the
command line and the app."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fusetui.analysis.why.model import (
    MIN_DOUBTFUL_SHARE,
    MIN_GAIN_DIVISOR,
    DeviceResidual,
    Finding,
    SomeSteps,
    Why,
    median_step,
    steps_tell,
    totals,
)
from fusetui.text.figures import count, duration, percent, plural, several
from fusetui.trace.layout.steps import StepLength
from fusetui.trace.model.ids import device_label

ZERO = "nothing"
NEARLY_THE_BOUND = 1.01
"""A gain of up to so many times its upper bound needs no reason: figures are
rounded."""

NEARLY = 0.01
"""Lengths that differ by no more than this share of the headline's are as long."""

MAX_DOUBTS = 3
"""Devices, and the time after a change, of which a sentence says how much is not
understood."""

CONDITIONS = {
    "own_time": " if the CPU took no time between calls",
    "one_worker": (
        " if one worker process loaded the batches ahead at the current speed"
    ),
    "no_batch_waits": " if the workers had every batch ready in time",
}
"""What an estimated gain assumes."""
WITHOUT = {
    "no_change": "No gain is estimated: the fix cannot be replayed.",
    "warm_up": "One-time cost; no per-step gain is estimated.",
    "unclear": "No gain is estimated: the trace explains too little of the time after the "
    "change.",
    "limit_unknown": "No gain is estimated: the bottleneck after the change is unknown.",
    "not_found": "No gain is estimated: the change cannot be replayed in this trace.",
}
"""Why a single finding has no estimated gain."""
NONE = {
    "no_waits": "No gains are estimated: only launch calls were recorded, so the CPU's waits for "
    "the GPU are unknown.",
    "residual": "No gains are estimated: the trace explains too little of its time for a replay.",
    "part": "Gains are estimated for whole traces only.",
    "large": "No gains are estimated, because replaying a trace of this size takes a "
    "long time. To estimate them, use --worth.",
}
"""Why no finding has an estimated gain."""


def worth_text(why: Why, finding: Finding) -> str:
    """`Upper bound: 491 ms. Estimated gain: 402 ms (33 %) of the step.`, why no gain is
    estimated, or ""; first of which other finding it is a part."""
    part = _part_text(why, finding)
    without = WITHOUT.get(finding.worth_note or "", "")
    if finding.at_stake_ns is None:
        return part + without
    steps = len(why.steps) if why.worth_of == "step" else 1
    upper_bound = duration(finding.at_stake_ns)
    bound = f"Upper bound: {upper_bound}{' in all steps' if steps > 1 else ''}."
    if finding.worth_ns is None and finding.worth_steps is None:
        if not _says(finding.text, upper_bound):
            part += f"{bound} "
        return f"{part}{without}".rstrip()
    gain = worth_part(why, finding)
    return f"{part}{bound} {gain[0].upper()}{gain[1:]}.{_excess(finding, steps)}"


def _part_text(why: Why, finding: Finding) -> str:
    for number, whole in enumerate(why.findings, 1):
        if whole.rule == finding.part_of:
            return f"Part of finding {number}. "
    return ""


def _says(text: str, time: str) -> bool:
    """Whether a time is in a text, as a word."""
    return any(f" {time}{end}" in f" {text}" for end in " .,;:")


def _excess(finding: Finding, steps: int) -> str:
    """Why the estimated gain exceeds the upper bound of as many steps, as a sentence
    after a blank; "" where it does not."""
    gain_in_all_ns = (finding.worth_ns or 0) * steps
    upper_bound_ns = finding.at_stake_ns or 0
    if gain_in_all_ns <= NEARLY_THE_BOUND * upper_bound_ns:
        return ""
    if finding.worth_note == "own_time":
        reason = "the other CPU work would then overlap with the GPU"
    elif finding.rule == "drained-by-sync":
        reason = "launches and other waits would also be hidden"
    else:
        reason = "later work would also start earlier"
    return f" The gain exceeds the upper bound because {reason}."


def worth_part(why: Why, finding: Finding) -> str:
    """`estimated gain: 402 ms (33 %) of the step`, of a finding that has one."""
    if finding.worth_steps is not None:
        return _worth_of_some(finding.worth_steps)
    figure = worth_figure(finding)
    if figure == ZERO:
        return "no gain: not on the critical path"
    most = "at most " if finding.worth_note in ("at_most", "no_batch_waits") else ""
    condition = CONDITIONS.get(finding.worth_note or "", "")
    share = percent(finding.worth_share or 0.0, 1)
    return f"estimated gain: {most}{figure} ({share}) {_whole(why)}{condition}"


def _worth_of_some(some: SomeSteps) -> str:
    """`estimated gain: 9 ms over 2 of 8 steps, none in most others`."""
    in_steps = "over" if some.steps > 1 else "in"
    others = "most others" if 2 * some.steps < some.of else "the median step"
    return (
        f"estimated gain: {duration(some.saved_ns)} {in_steps} {count(some.steps)} of "
        f"{plural(some.of, 'step')}, none in {others}{_longer(some)}"
    )


def _longer(some: SomeSteps) -> str:
    """`; 1 step gets 6.8 ms longer, so the net gain is 4.3 ms`; blank where none does."""
    if not some.longer:
        return ""
    lost = duration(some.lost_ns)
    left = duration(some.net_ns)
    if some.longer == 1:
        change = f"1 step gets {lost} longer"
    else:
        change = f"{plural(some.longer, 'step')} get {lost} longer in total"
    return f"; {change}, so the net gain is {left}"


def _whole(why: Why) -> str:
    """What a gain is of, with its length unless the headline has it."""
    before_ns = why.worth_before_ns or 0
    is_of_step = why.worth_of == "step"
    is_headline_of_step = steps_tell(why)
    if is_headline_of_step:
        headline_ns = median_step(why.steps).dur_ns
    else:
        headline_ns = totals(why.devices)["span"]
    is_as_long = abs(before_ns - headline_ns) <= NEARLY * headline_ns
    if is_of_step == is_headline_of_step and is_as_long:
        if is_of_step and len(why.steps) > 1:
            return "per step"
        return f"of the {why.worth_of}"
    if not is_of_step:
        return f"of the {duration(before_ns)} from first to last GPU event"
    return f"of the {duration(before_ns)} {StepLength.LAUNCHED.step}"


def doubt(
    devices: Sequence[DeviceResidual], share: float, then: str = "the change"
) -> Iterator[str]:
    """A sentence on the delays that nothing recorded explains, if these are more than
    MIN_DOUBTFUL_SHARE of the time: those of each device, and those of all after `then`
    where they are a larger share than of any device. Shares are 0 to 1."""
    if share <= MIN_DOUBTFUL_SHARE:
        return
    parts = []
    for device in devices:
        if device.residual_share > MIN_DOUBTFUL_SHARE:
            of_device = percent(device.residual_share, whole=1)
            parts.append(f"{of_device} of the time of {device_label(device.device)}")
    if share > max((device.residual_share for device in devices), default=0.0):
        parts.append(f"{percent(share, whole=1)} of the time after {then}")
    not_understood = several(parts, MAX_DOUBTS)
    yield (
        f"Unexplained delays: {not_understood}. Nothing in the trace accounts for them."
    )


def doubt_text(why: Why) -> str:
    """The same of all replays that findings rest on; blank where all is understood."""
    return " ".join(doubt(why.residuals, why.residual_share or 0.0, "a change"))


def worth_figure(finding: Finding) -> str:
    """The time alone; blank where there is none."""
    if finding.worth_ns is None:
        return ""
    if (finding.worth_share or 0.0) * MIN_GAIN_DIVISOR <= 1:
        return ZERO
    return duration(finding.worth_ns)


def replayed_text(why: Why) -> str:
    """The estimated gain of the first findings together, or why no gains are estimated;
    "" for neither."""
    for finding in why.findings:
        if finding.worth_note in NONE:
            return NONE[finding.worth_note]
    together = why.together
    if together is None:
        return ""
    number = together.findings
    which = f"first {number} findings" if number > 1 else "first finding"
    if any(finding.worth_ns is None for finding in why.findings[:number]):
        which += " that can be replayed"
    length = StepLength.LAUNCHED if why.worth_of == "step" else StepLength.SPAN
    before = duration(together.before_ns)
    after = duration(together.after_ns)
    return f"Fixing the {which} would shorten {length.a_step} from {before} to {after}."
