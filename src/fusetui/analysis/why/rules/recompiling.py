"""Rules about compilation: the GPU waits for it, or graph breaks split compiled
code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
import numpy as np

from fusetui.analysis.why.causes import format_frame
from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import (
    Claim,
    Rule,
    explain_uncertainty,
    format_share_of_span,
)
from fusetui.text.figures import count
from fusetui.text.patterns import lazy_pattern
from fusetui.text.printable import printable
from fusetui.trace.model.arrays import Int64s, Rows, distinct, last_at_or_before
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.grouping import grouped
from fusetui.trace.model.op_names import is_compiler

REGION: Final = lazy_pattern(r"Torch-Compiled Region: ([0-9]{1,9})/[0-9]{1,9}")
"""Matches the annotation of a compiled function.

The first number counts functions, the second one the times that it was compiled anew,
for other inputs.
"""
RESUMES: Final = lazy_pattern(r"torch_dynamo_resume_in_")
"""Matches Dynamo's name for the function that continues after a graph break."""
MIN_REGIONS_WITHOUT_PROOF: Final = 3
"""From this many compiled regions of a step on, there may be graph breaks.

Two may be two functions, such as a model and its loss.
"""
MAX_REGIONS_NAMED: Final = 3
"""How many regions a sentence names."""
MAX_FRAME_CHARACTERS: Final = 100


@Rule(
    needs=("annotations", "Python frames and modules"),
    remedy="Warm up before recording. If compilation recurs, find the failed guard "
    "with TORCH_LOGS=recompiles; to avoid recompiling for new sizes, use "
    "torch.compile(dynamic=True) or mark_dynamic.",
    thresholds={"several": MIN_REGIONS_WITHOUT_PROOF},
    once=True,
)
def recompilation(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU waits while torch.compile or Triton compiles.

    Graph breaks are noted too. Each is reported only where there are some.
    """
    compiling = facts.compiler_rows
    waited_ns = facts.measure_idle_during(compiling)
    if waited_ns:
        from fusetui.analysis.why.rules import compile_evidence  # rarely needed

        evidence = compile_evidence.explain_compilations(facts)
        yield Claim(
            text=f"The GPU waits {format_share_of_span(facts, waited_ns)} while torch.compile or Triton "
            f"compiles during the recording.{evidence.text}",
            at_stake_ns=waited_ns,
            rows=facts.choose_longest_waited_for(compiling),
            remedy=evidence.remedy,
            why_likely=explain_uncertainty(facts),
        )

    yield from note_graph_breaks(facts)


BREAKS_ARE_ERRORS: Final = (
    'Set TORCH_LOGS="graph_breaks" to see each break and its cause. torch.compile(fullgraph=True) turns '
    "a break into an error."
)
"""The remedy against graph breaks."""


def note_graph_breaks(facts: Facts) -> Iterator[Claim]:
    """Note the graph breaks of torch.compile, at which a function is split into several
    graphs.

    They are taken from the compile log if there is one, else from what the trace shows.
    """
    trace = facts.trace
    if any(map(is_compiler, trace.names)):
        from fusetui.analysis.why.rules import compile_evidence  # rarely needed

        log = compile_evidence.read_compile_log(facts)
        if log is not None and log.logs:
            yield from compile_evidence.note_logged_breaks(facts, log)
            return

    yield from _find_breaks_without_log(facts)


def _find_breaks_without_log(facts: Facts) -> Iterator[Claim]:
    """Note that a step runs several compiled regions, and why that may be.

    A Python frame that resumes a function after a graph break proves that there is a
    break. Without such a frame, there must be MIN_REGIONS_WITHOUT_PROOF regions or
    more. Nothing is noted then if stacks were recorded, because they would show the
    frame.
    """
    trace = facts.trace
    resumed = facts.select_rows_in_window(trace.rows_named(RESUMES.search, Role.PYTHON))
    has_proof = len(resumed) > 0
    if facts.has_stacks and not has_proof:
        return

    step = _find_usual_step(facts)
    min_regions = 2 if has_proof else MIN_REGIONS_WITHOUT_PROOF
    if step.regions < min_regions:
        return

    if has_proof:
        continues = format_frame(trace.name_of(int(resumed[0])), MAX_FRAME_CHARACTERS)
        explanation = (
            ": graph breaks split the program. Nothing is fused across them. "
            f"{continues} continues after a break."
        )
        doubt = None
    else:
        explanation = (
            ". Nothing is fused across them. Either graph breaks split the program, "
            "or its functions are compiled one by one; only Python stacks would show "
            "which."
        )
        doubt = "Separately compiled functions look the same in a trace."

    yield Claim(
        text=f"A step runs {count(step.regions)} compiled regions "
        f"({_list_region_names(trace, step)}){explanation}",
        rows=tuple(step.rows.tolist()),
        remedy=BREAKS_ARE_ERRORS,
        why_likely=doubt,
    )


def _list_region_names(trace: Trace, step: CompiledRegions) -> str:
    """List the names of the first MAX_REGIONS_NAMED regions of a step, `...` for more."""
    names = []
    for row in step.rows[:MAX_REGIONS_NAMED].tolist():
        names.append(printable(trace.name_of(row)))

    if step.regions > MAX_REGIONS_NAMED:
        names.append("...")
    return ", ".join(names)


class CompiledRegions(msgspec.Struct, frozen=True, eq=False):
    """The compiled regions of one step."""

    rows: Rows
    """One region of each function, in the order of their starts."""

    @property
    def regions(self) -> int:
        """Return how many functions they are."""
        return len(self.rows)


def _find_usual_step(facts: Facts) -> CompiledRegions:
    """Find the first step that runs the usual number of compiled regions.

    That number is the lower median over the steps that run any region. In a step,
    several runs of one function count once. Without steps, the whole trace counts as
    one.
    """
    trace = facts.trace
    regions = facts.select_rows_in_window(
        trace.rows_named(REGION.match, Role.ANNOTATION, Role.OP)
    )
    if not len(regions):
        return CompiledRegions(regions)

    # For each step one region of each function.
    step_of_region = last_at_or_before(facts.steps.start, trace.start[regions])
    regions_of_steps = []
    for members in grouped(step_of_region).members_of_each():
        in_step = regions[members]
        by_function = grouped(_number_functions(facts.trace, in_step))
        regions_of_steps.append(in_step[by_function.first])

    fewest_first = sorted(regions_of_steps, key=len)
    lower_middle = (len(fewest_first) - 1) // 2
    usual_regions = fewest_first[lower_middle]
    by_start = np.argsort(trace.start[usual_regions], kind="stable")

    return CompiledRegions(usual_regions[by_start])


def _number_functions(trace: Trace, regions: Rows) -> Int64s:
    """Return the number of the function from which each region was compiled."""
    function_of_name = np.full(len(trace.names), -1, dtype=np.int64)
    for name in distinct(trace.name[regions]).tolist():
        match = REGION.match(trace.names[name])
        if match is not None:
            function_of_name[name] = int(match[1])

    function_of_region: Int64s = function_of_name[trace.name[regions]]
    return function_of_region
