"""Names and shares as the findings write them."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from fusetui.analysis.why.facts import Facts
from fusetui.text.cutting import clip
from fusetui.text.figures import count, percent
from fusetui.text.printable import printable
from fusetui.trace.program.regions import MODULE_PREFIX, NUMBER, is_module

FRAME = re.compile(r"(?:.*/)?([^/]+)\((\d+)\): (.+)", re.DOTALL)
BUILT_IN = re.compile(r"<built-in (?:method|function) (\S+)")
LONGEST = 60


def frame_text(name: str, most: int = LONGEST) -> str:
    """A frame as a user would name it: `zoom (_interpolation.py:691)`, `zoom_shift`."""
    name = name[:1000]
    if found := BUILT_IN.match(name):
        return printable(clip(found[1].removesuffix(">"), most))
    if found := FRAME.fullmatch(name):
        return printable(clip(f"{found[3]} ({found[1]}:{found[2]})", most))
    return printable(clip(name, most))


def share_of_span(facts: Facts, ns: int) -> str:
    """`45.8 % of the span`; of a step or a window, `45.8 % of the time`, or what it is called; of
    several GPUs together, `45.8 % of the spans of 2 GPUs`."""
    gpus = len(facts.devices)
    span = "the span" if gpus < 2 else "the spans"
    whole = span if facts.is_whole else facts.called
    of = f" of {count(gpus)} GPUs" if gpus > 1 else ""
    return f"{percent(ns, facts.span_ns, fine=True)} of {whole}{of}"


def share_of_work(facts: Facts, ns: int) -> str:
    """The same for the time of kernels; where the GPU is mostly idle, their share of its busy time
    too: `0.9 % of the span, 12 % of the busy time`."""
    busy = facts.kernels.busy_ns
    if 2 * busy >= facts.span_ns:
        return share_of_span(facts, ns)
    return f"{share_of_span(facts, ns)}, {percent(ns, busy)} of the busy time"


def module_text(name: str, most: int = LONGEST) -> str:
    """A module without its number, or an annotation: `Qwen2MLP`, `## forward ##`."""
    return frame_text(NUMBER.sub("", name.removeprefix(MODULE_PREFIX)), most)


def most_module(facts: Facts, rows: NDArray[np.intp], ns: NDArray[np.int64]) -> str:
    """The kind of module with the most time; blank where none is known. `rows`: of modules or
    annotations, -1 for none."""
    kinds: dict[str, int] = {}
    names = facts.trace.name[rows]
    for number in np.unique(names[rows >= 0]).tolist():
        name = facts.trace.names[number]
        if is_module(name):
            kind = module_text(name)
            kinds[kind] = kinds.get(kind, 0) + int(ns[(rows >= 0) & (names == number)].sum())
    return max(kinds, key=lambda kind: kinds[kind], default="")


STACKS = "Python stacks were recorded: these times include the profiler's own work."


COLD = "Most of the time is warm-up: what is left may be, too."


def why_likely(facts: Facts) -> str | None:
    """Why CPU times are only likely; None if they are certain."""
    if facts.is_profiled:
        return STACKS
    return COLD if 2 * facts.late_under(facts.warming) >= facts.span_ns else None
