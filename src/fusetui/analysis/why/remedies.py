"""Remedies: what to try against a finding, fitted to the devices and the program of a
trace.

A remedy is one line that says of a trace only what its devices and its program have. A
part in braces is for some traces only: `{nvidia:A|amd:B|:C}` is the first of its texts
whose tag holds, C where none does, and nothing if there is no C.

| tag | holds |
|---|---|
| nvidia, amd, intel | for devices of this vendor; none of them where nothing tells |
| compile | if torch.compile has a code generator for the device |
| graphs | if besides there are graphs: torch.cuda.graph |
| pdl | on Hopper and later: programmatic dependent launch |
| torch2 | unless the trace comes from a version of torch before 2.0 |
| segments | for devices of NVIDIA, likewise: expandable_segments |
| training | if there is backward work or an optimizer, or no op was recorded |
| scaler | in training, unless before torch 2.0: torch.amp.GradScaler |
| serving | in steps of vLLM and SGLang |
| nsys | for what Nsight Systems recorded, also where it was converted since |
"""

from __future__ import annotations

import re

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.versions import is_before_torch_2
from fusetui.text.patterns import lazy_pattern
from fusetui.trace.layout.devices import (
    device_names,
    device_properties,
    gpu_activity,
    is_rocm,
)
from fusetui.trace.model.categories import Role

PART = lazy_pattern(r"\{([^{}]*)\}")
BACKWARD = lazy_pattern(
    r"[Bb]ackward|_bwd_|dgrad|wgrad|Optimizer\.(?:step|zero_grad)|autograd::engine"
)
HIP, CUDA = lazy_pattern(r"hip[A-Z]"), lazy_pattern(r"cu(?:da)?[A-Z]")
TRITON, HOPPER = 7, 9  # compute capabilities from which on there is Triton, and PDL


def remedy_for(remedy: str, tags: frozenset[str]) -> str:
    def chosen(part: re.Match[str]) -> str:
        texts = (text.partition(":") for text in part[1].split("|"))
        return next((text for tag, _, text in texts if tag in tags or not tag), "")

    return PART.sub(chosen, remedy)


def tags_of(facts: Facts) -> frozenset[str]:
    trace, names = facts.trace, " ".join(device_names(facts.trace))
    vendor = "nvidia" if names or _calls(facts, CUDA) else ""
    if gpu_activity(trace) == "ProfilerActivity.XPU" or "Intel" in names:
        vendor = "intel"
    elif is_rocm(trace) or "AMD" in names or _calls(facts, HIP):
        vendor = "amd"
    majors = [one.get("computeMajor") for one in device_properties(trace).values()]
    major = min((one for one in majors if isinstance(one, int)), default=HOPPER)
    has_torch_2 = not is_before_torch_2(trace)
    compiles = has_torch_2 and (vendor != "nvidia" or major >= TRITON)
    trains = facts.trace.rows_named(
        BACKWARD.search, Role.OP, Role.ANNOTATION, Role.KERNEL
    )
    is_training = len(trains) > 0 or not (trace.role == Role.OP).any()
    found = {
        vendor: True,
        "compile": compiles,
        "graphs": compiles and vendor != "intel",
        "pdl": vendor == "nvidia" and major >= HOPPER,
        "torch2": has_torch_2,
        "segments": has_torch_2 and vendor == "nvidia",
        "training": is_training,
        "scaler": is_training and has_torch_2,
        "serving": facts.spans.are_of_server,
        "nsys": trace.report.writer == "nsys",
    }
    return frozenset(tag for tag, holds in found.items() if holds and tag)


def _calls(facts: Facts, pattern: re.Pattern[str]) -> bool:
    return bool(len(facts.trace.rows_named(pattern.match, Role.CALL)))
