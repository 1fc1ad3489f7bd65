"""What rules need of a recording, what a trace lacks of it, and which option records
that."""

from __future__ import annotations

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.model import (
    LISTED_DEVICE,
)
from fusetui.analysis.why.rule import NOTHING_RECORDS
from fusetui.analysis.why.selection import activity_to_add
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.categories import Role
from fusetui.trace.model.report import recorded_with

PROPERTIES = "deviceProperties, as torch 1.12 and later"


def lacks_of(facts: Facts) -> dict[str, str]:
    trace, kernels = facts.trace, facts.kernels
    form = trace.report.writer
    if not len(facts.gpu_rows):
        return {"GPU events": recorded_with(activity_to_add(trace), form)}
    recorded = {
        "launch calls": (facts.has_launches, NOTHING_RECORDS),
        "CPU ops": ((trace.role == Role.OP).any(), "ProfilerActivity.CPU"),
        "annotations": ((trace.role == Role.ANNOTATION).any(), "record_function"),
        "Python frames and modules": (facts.has_stacks, "with_stack=True"),
        "input shapes": ((kernels.jobs.inputs.number >= 0).any(), "record_shapes=True"),
        "launch configurations": ((kernels.blocks > 0).any(), NOTHING_RECORDS),
        "the number of multiprocessors": ((kernels.sms > 0).any(), PROPERTIES),
        LISTED_DEVICE: (kernels.peak is not None, properties_asked(facts)),
    }
    lacking = {
        what: with_ for what, (is_there, with_) in recorded.items() if not is_there
    }
    return {what: recorded_with(with_, form) for what, with_ in lacking.items()}


def properties_asked(facts: Facts) -> str:
    """What would tell which device it is; blank for a known one, which may not be in
    the table."""
    is_named = any("name" in each for each in device_properties(facts.trace).values())
    return "" if is_named else PROPERTIES
