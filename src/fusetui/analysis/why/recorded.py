"""What of a trace was recorded that rules need."""

from __future__ import annotations

import re

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Rule
from fusetui.trace.layout.devices import gpu_activity
from fusetui.trace.model.categories import Role

NEEDED = {
    "GPU events": "",
    "launch calls": "[Ll]aunch calls",
    "CPU ops": r"\b[Oo]ps\b",
    "annotations": "[Aa]nnotations",
    "Python frames and modules": r"[Ss]tacks|Python frames|\bmodules",
    "input shapes": "[Ss]hapes",
    "launch configurations": "[Ll]aunch configurations",
    "the number of multiprocessors": "how many multiprocessors",
    "a device of the table of peaks": "table of peaks",
}
"""What can be missing, and how the `needs` of a rule speak of it; "" in any."""

PROPERTIES = "deviceProperties, as torch 1.12 and later"


def needed_by(rule: Rule) -> tuple[str, ...]:
    """What the rule may be silent without, although it holds: see Rule.needs."""
    text = rule.needs.partition(";")[0]
    return tuple(what for what, words in NEEDED.items() if text and re.search(words, text))


def lacks_of(facts: Facts) -> dict[str, str]:
    """What of NEEDED was not recorded, and what records it."""
    trace, kernels, activity = facts.trace, facts.kernels, gpu_activity(facts.trace)
    if not len(facts.gpu_rows):
        return {"GPU events": activity}
    recorded = {
        "launch calls": (facts.has_launches, activity),
        "CPU ops": ((trace.role == Role.OP).any(), "ProfilerActivity.CPU"),
        "annotations": ((trace.role == Role.ANNOTATION).any(), "record_function"),
        "Python frames and modules": (facts.has_stacks, "with_stack=True"),
        "input shapes": ((kernels.jobs.inputs.number >= 0).any(), "record_shapes=True"),
        "launch configurations": ((kernels.blocks > 0).any(), activity),
        "the number of multiprocessors": ((kernels.sms > 0).any(), PROPERTIES),
        "a device of the table of peaks": (kernels.peak is not None, PROPERTIES),
    }
    return {what: with_ for what, (is_there, with_) in recorded.items() if not is_there}
