"""What a remedy says of one trace: not every device and program has what it names.

A remedy is one line. A part in braces is for some traces only: `{nvidia:A|amd:B|:C}` is the first
of its texts whose tag holds, C where none does, and nothing if there is no C.

| tag | holds |
|---|---|
| nvidia, amd, intel | for devices of this vendor; none of them where nothing tells |
| compile | if torch.compile has a code generator for the device |
| graphs | if besides there are graphs: torch.cuda.graph |
| pdl | on Hopper and later: programmatic dependent launch |
| training | if there is backward work or an optimizer, or no op was recorded |
| serving | in steps of vLLM and SGLang |
"""

from __future__ import annotations

import re

from fusetui.analysis.why.facts import Facts
from fusetui.trace.layout.devices import device_names, device_properties, gpu_activity, is_rocm
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace

PART = re.compile(r"\{([^{}]*)\}")
BACKWARD = re.compile(
    r"[Bb]ackward|_bwd_|dgrad|wgrad|Optimizer\.(?:step|zero_grad)|autograd::engine"
)
HIP, CUDA = re.compile(r"hip[A-Z]"), re.compile(r"cu(?:da)?[A-Z]")
TRITON, HOPPER = 7, 9  # compute capabilities from which on there is Triton, and PDL
DEFAULT = frozenset({"nvidia", "compile", "graphs", "pdl", "training"})
"""Of the page that describes the rules."""


def said(remedy: str, tags: frozenset[str]) -> str:
    """The remedy for a trace with these tags."""
    return PART.sub(lambda part: _chosen(part[1], tags), remedy)


def _chosen(part: str, tags: frozenset[str]) -> str:
    texts = (text.partition(":") for text in part.split("|"))
    return next((text for tag, _, text in texts if tag in tags or not tag), "")


def tags_of(facts: Facts) -> frozenset[str]:
    """The tags of the table above that hold."""
    vendor = _vendor(facts)
    majors = [one.get("computeMajor") for one in device_properties(facts.trace).values()]
    major = min((one for one in majors if isinstance(one, int)), default=HOPPER)
    compiles = vendor != "nvidia" or major >= TRITON
    found = {
        vendor: True,
        "compile": compiles,
        "graphs": compiles and vendor != "intel",
        "pdl": vendor == "nvidia" and major >= HOPPER,
        "training": _trains(facts),
        "serving": facts.spans.are_of_server,
    }
    return frozenset(tag for tag, holds in found.items() if holds and tag)


def _vendor(facts: Facts) -> str:
    """`nvidia`, `amd`, `intel`, or "" where nothing tells."""
    trace, names = facts.trace, " ".join(device_names(facts.trace))
    if gpu_activity(trace) == "ProfilerActivity.XPU" or "Intel" in names:
        return "intel"
    if is_rocm(trace) or "AMD" in names or _calls(facts, HIP):
        return "amd"
    return "nvidia" if names or _calls(facts, CUDA) else ""


def _calls(facts: Facts, pattern: re.Pattern[str]) -> bool:
    return bool(len(facts.named(pattern.match, Role.CALL)))


def _trains(facts: Facts) -> bool:
    shown = len(facts.named(BACKWARD.search, Role.OP, Role.ANNOTATION, Role.KERNEL))
    return bool(shown) or not _has_ops(facts.trace)


def _has_ops(trace: Trace) -> bool:
    return bool((trace.role == Role.OP).any())
