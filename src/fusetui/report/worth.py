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
    add_up_accounts,
    do_steps_hold_work,
    find_median_step,
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
    "no_change": "No gain is estimated, because the fix cannot be replayed.",
    "warm_up": "This is a one-time cost, so no per-step gain is estimated.",
    "unclear": "No gain is estimated, because the trace explains too little of the time after the change.",
    "limit_unknown": "No gain is estimated, because the bottleneck after the change is unknown.",
    "not_found": "No gain is estimated, because the change cannot be replayed in this trace.",
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


PER_STEP = "per step"
"""What a gain is of where the headline is the median of several steps."""


def describe_worth(why: Why, finding: Finding) -> str:
    """Return the upper bound of a finding and its estimated gain, or why no gain is
    estimated. If it is part of another finding, that comes first. "" if nothing is
    known.

        Upper bound: 491 ms. Estimated gain: 402 ms (33 % of the step).
    """
    part_sentence = _describe_whole_finding(why, finding)
    reason_without_gain = WITHOUT.get(finding.worth_note or "", "")
    if finding.at_stake_ns is None:
        return part_sentence + reason_without_gain
    steps = len(why.steps) if why.worth_of == "step" else 1
    upper_bound = duration(finding.at_stake_ns)
    bound_sentence = (
        f"Upper bound: {upper_bound}{' over all steps' if steps > 1 else ''}."
    )
    if finding.worth_ns is None and finding.worth_steps is None:
        if not _contains_time(finding.text, upper_bound):
            part_sentence += f"{bound_sentence} "
        return f"{part_sentence}{reason_without_gain}".rstrip()
    gain = describe_gain(why, finding)
    return f"{part_sentence}{bound_sentence} {gain[0].upper()}{gain[1:]}.{_explain_excess(finding, steps)}"


def _describe_whole_finding(why: Why, finding: Finding) -> str:
    """Return a sentence about which other finding this one is a part of, or "" if it is
    none."""
    for number, whole in enumerate(why.findings, 1):
        if whole.rule == finding.part_of:
            return f"This is part of finding {number}. "
    return ""


def _contains_time(text: str, time: str) -> bool:
    """Whether a time is in a text, as a word."""
    return any(f" {time}{end}" in f" {text}" for end in " .,;:")


def _explain_excess(finding: Finding, steps: int) -> str:
    """Return a sentence, after a blank, about why the estimated gain in `steps` steps
    exceeds the upper bound. "" if it does not."""
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


def describe_gain(why: Why, finding: Finding) -> str:
    """Return the estimated gain of a finding that has one, such as `estimated gain: 402
    ms (33 % of the step)`."""
    if finding.worth_steps is not None:
        return _describe_gain_of_some(finding.worth_steps)
    figure = format_worth(finding)
    if figure == ZERO:
        return "no gain: not on the critical path"
    most = "at most " if finding.worth_note in ("at_most", "no_batch_waits") else ""
    condition = CONDITIONS.get(finding.worth_note or "", "")
    share = percent(finding.worth_share or 0.0, 1)
    whole = _describe_whole(why)
    if whole == PER_STEP:
        gain = f"{figure} {PER_STEP} ({share})"
    else:
        gain = f"{figure} ({share} of {whole})"
    return f"estimated gain: {most}{gain}{condition}"


def _describe_gain_of_some(some: SomeSteps) -> str:
    """Return the estimated gain of a finding that only some steps have.

    estimated gain: 9 ms over 2 of 8 steps, none in most others
    """
    in_steps = "over" if some.steps > 1 else "in"
    others = "most others" if 2 * some.steps < some.of else "the median step"
    return (
        f"estimated gain: {duration(some.saved_ns)} {in_steps} {count(some.steps)} of "
        f"{plural(some.of, 'step')}, none in {others}{_describe_longer_steps(some)}"
    )


def _describe_longer_steps(some: SomeSteps) -> str:
    """Return a clause about steps that a change makes longer, or "" if there are none.

    ; 1 step gets 6.8 ms longer, so the net gain is 4.3 ms
    """
    if not some.longer:
        return ""
    longer_time = duration(some.lost_ns)
    net_gain = duration(some.net_ns)
    if some.longer == 1:
        change = f"1 step gets {longer_time} longer"
    else:
        change = f"{plural(some.longer, 'step')} get {longer_time} longer in total"
    return f"; {change}, so the net gain is {net_gain}"


def _describe_whole(why: Why) -> str:
    """Return what a gain is of: the step or the span. Its length is added unless the
    headline has it."""
    before_ns = why.worth_before_ns or 0
    is_of_step = why.worth_of == "step"
    is_headline_of_step = do_steps_hold_work(why)
    if is_headline_of_step:
        headline_ns = find_median_step(why.steps).dur_ns
    else:
        headline_ns = add_up_accounts(why.devices)["span"]
    is_as_long = abs(before_ns - headline_ns) <= NEARLY * headline_ns
    if is_of_step == is_headline_of_step and is_as_long:
        if is_of_step and len(why.steps) > 1:
            return PER_STEP
        return f"the {why.worth_of}"
    if not is_of_step:
        return f"the {duration(before_ns)} from the first to the last GPU event"
    return f"the launched step, {duration(before_ns)}"


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
            parts.append(f"{of_device} of the time on {device_label(device.device)}")
    if share > max((device.residual_share for device in devices), default=0.0):
        parts.append(f"{percent(share, whole=1)} of the time after {then}")
    not_understood = several(parts, MAX_DOUBTS)
    yield (
        f"Unexplained delays: {not_understood}. Nothing in the trace accounts for these delays."
    )


def describe_all_doubts(why: Why) -> str:
    """Return a sentence about unexplained delays in all replays that findings rest on,
    or "" if there are few."""
    return " ".join(doubt(why.residuals, why.residual_share or 0.0, "a change"))


def format_worth(finding: Finding) -> str:
    """Return the estimated gain of a finding as a time alone. "" without one, and ZERO
    for a gain too small to matter."""
    if finding.worth_ns is None:
        return ""
    if (finding.worth_share or 0.0) * MIN_GAIN_DIVISOR <= 1:
        return ZERO
    return duration(finding.worth_ns)


def describe_joint_gain(why: Why) -> str:
    """Return a sentence about the estimated gain of the first findings together, or
    about why no gains are estimated. "" if there is neither."""
    for finding in why.findings:
        if finding.worth_note in NONE:
            return NONE[finding.worth_note]
    joint_gain = why.together
    if joint_gain is None:
        return ""
    number = joint_gain.findings
    findings_text = f"first {number} findings" if number > 1 else "first finding"
    if any(finding.worth_ns is None for finding in why.findings[:number]):
        findings_text += " that can be replayed"
    length = StepLength.LAUNCHED if why.worth_of == "step" else StepLength.SPAN
    before = duration(joint_gain.before_ns)
    after = duration(joint_gain.after_ns)
    return f"Fixing the {findings_text} would shorten {length.a_step} from {before} to {after}."
