"""Compilation during the recording, and code that torch.compile runs in several pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import COMPILER, Facts
from fusetui.analysis.why.idle import Rows
from fusetui.analysis.why.rule import Claim, Rule
from fusetui.analysis.why.wording import share_of_span, why_likely
from fusetui.text.figures import count, duration
from fusetui.text.printable import printable
from fusetui.trace.model.categories import Role

REGION = re.compile(r"Torch-Compiled Region: [0-9]{1,9}/[0-9]{1,9}")
RESUMES = re.compile(r"torch_dynamo_resume_in_")
"""Dynamo's name for the function that continues after a graph break."""
SEVERAL = 3  # compiled regions per step; two may be two functions, such as a model and its loss
SHOWN = 3


def find(facts: Facts) -> Iterator[Claim]:
    rows = facts.named(COMPILER.search, Role.ANNOTATION, Role.OP, Role.PYTHON)
    waited = facts.idle_during(rows)
    if waited:
        yield Claim(
            text=f"The GPU waits {duration(waited)} ({share_of_span(facts, waited)}) while "
            "torch.compile or Triton compiles during the recording.",
            at_stake_ns=waited,
            rows=facts.heaviest(rows),
            why_likely=why_likely(facts),
        )
    yield from _graph_breaks(facts)


def _graph_breaks(facts: Facts) -> Iterator[Claim]:
    """Several separately compiled regions in one step."""
    rows = facts.named(REGION.match, Role.ANNOTATION, Role.OP)
    inside = (facts.trace.end[rows] > facts.begin_ns) & (facts.trace.start[rows] < facts.end_ns)
    rows = rows[inside]
    resumed = len(facts.named(RESUMES.search, Role.PYTHON)) > 0
    first, several = _of_a_step(facts, rows)
    if several < (2 if resumed else SEVERAL):
        return
    names = ", ".join(printable(facts.trace.name_of(row)) for row in first[:SHOWN].tolist())
    yield Claim(
        text=f"A step runs {count(several)} compiled regions ({names}"
        f"{', ...' if several > SHOWN else ''}): graph breaks divide the program, and nothing is "
        "fused across them.",
        at_stake_ns=None,
        rows=tuple(first.tolist()),
        remedy='TORCH_LOGS="graph_breaks" names each break and its cause; '
        "torch.compile(fullgraph=True) makes it an error.",
        why_likely=None if resumed else "Separately compiled functions look the same.",
    )


def _of_a_step(facts: Facts, rows: Rows) -> tuple[Rows, int]:
    """One row of each region in the first step with the usual number of regions, and that number:
    the median over the steps that run any. Without steps, the whole trace counts as one."""
    step = np.searchsorted(facts.spans.start, facts.trace.start[rows], side="right")
    each = [rows[step == number] for number in np.unique(step).tolist()]
    regions = [own[np.unique(facts.trace.name[own], return_index=True)[1]] for own in each]
    if not regions:
        return rows, 0
    ordered = sorted(regions, key=len)
    usual = ordered[(len(ordered) - 1) // 2]
    return usual[np.argsort(facts.trace.start[usual], kind="stable")], len(usual)


RULE = Rule(
    id="recompilation",
    title="Compilation during the recording, and graph breaks",
    question="Is anything compiled during the recorded steps, and is the compiled code in pieces?",
    needs="Annotations of torch.compile (dynamo_timed, Torch-Compiled Region) or Python frames.",
    formula="The idle time of the device during which a launching thread is compiling. None for "
    "graph breaks: they cost launches, and fusion across them.",
    remedy="Warm up before recording; if it recurs, TORCH_LOGS=recompiles names the guard that "
    "failed, and torch.compile(dynamic=True) or mark_dynamic avoids recompilation for new sizes.",
    thresholds={"several": SEVERAL},
    find=find,
    once=True,
    silent="Two regions per step do not count as a graph break, unless there is a frame "
    "torch_dynamo_resume_in_...: a model and its loss may have been compiled separately.",
)
