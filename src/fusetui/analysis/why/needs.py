"""List the data that rules need, and the option that records missing data."""

from __future__ import annotations

from typing import NamedTuple

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.model import LISTED_DEVICE
from fusetui.analysis.why.rule import NOTHING_RECORDS
from fusetui.analysis.why.selection import find_activity_to_add
from fusetui.trace.layout.devices import device_properties
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.report import recorded_with

PROPERTIES = "torch 1.12 or later, which records deviceProperties"
"""What records the properties of the devices."""


class _Need(NamedTuple):
    """Something that rules need of a recording."""

    what: str
    is_recorded: bool
    option: str
    """The option of torch.profiler that records it."""


def list_lacks(facts: Facts) -> dict[str, str]:
    """List what rules need and a trace lacks, each with the option that records it.

    The option is worded for the program that recorded the trace. Without a GPU event,
    only the GPU events are listed, because rules need them before anything else.
    """
    trace = facts.trace
    writer = trace.report.writer
    if not len(facts.gpu_rows):
        return {"GPU events": recorded_with(find_activity_to_add(trace), writer)}

    lacks = {}
    for need in _list_needs(facts):
        if not need.is_recorded:
            lacks[need.what] = recorded_with(need.option, writer)

    return lacks


def _list_needs(facts: Facts) -> list[_Need]:
    """List all that rules need, in a trace with GPU events."""
    trace = facts.trace
    kernels = facts.kernels
    has_ops = bool((trace.role == Role.OP).any())
    has_annotations = bool((trace.role == Role.ANNOTATION).any())
    index_of_inputs = kernels.jobs.inputs.number  # -1 for a kernel without shapes
    has_shapes = bool((index_of_inputs != -1).any())
    has_blocks = bool((kernels.blocks > 0).any())
    has_multiprocessors = bool((kernels.multiprocessors > 0).any())
    is_listed = kernels.peak is not None

    return [
        _Need("launch calls", facts.has_launches, NOTHING_RECORDS),
        _Need("CPU ops", has_ops, "ProfilerActivity.CPU"),
        _Need("annotations", has_annotations, "record_function"),
        _Need("Python frames and modules", facts.has_stacks, "with_stack=True"),
        _Need("input shapes", has_shapes, "record_shapes=True"),
        _Need("launch configurations", has_blocks, NOTHING_RECORDS),
        _Need("the number of multiprocessors", has_multiprocessors, PROPERTIES),
        _Need(LISTED_DEVICE, is_listed, find_properties_to_record(facts.trace)),
    ]


def find_properties_to_record(trace: Trace) -> str:
    """Return which properties must be recorded to tell which device it is.

    The result is "" if a device has a name. Recording more does not help then: the
    device is missing from the table of peak rates.
    """
    for properties in device_properties(trace).values():
        if "name" in properties:
            return ""

    return PROPERTIES
