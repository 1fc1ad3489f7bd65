"""The rule first-compiled-kernels: the GPU waits before first runs of compiled kernels.

The gap before such a run is likely compilation.
"""

from __future__ import annotations

from collections.abc import Iterator

from fusetui.analysis.why.facts import COMPILING_NS, LATE_ACTIVITIES, Facts
from fusetui.analysis.why.kernels import choose_heaviest_rows
from fusetui.analysis.why.rule import Claim, Rule, format_share_of_span
from fusetui.analysis.why.warming import MIN_RATIO_TO_LATER_CALLS
from fusetui.text.figures import plural
from fusetui.text.printable import printable


@Rule(
    needs=("CPU ops",),
    remedy="Run each shape once before recording. torch.compile caches compiled "
    "kernels on disk (TORCHINDUCTOR_CACHE_DIR) for later runs.",
    thresholds={"compiling_ns": COMPILING_NS, "times": MIN_RATIO_TO_LATER_CALLS},
    by_launches=True,
    once=True,
)
def first_compiled_kernels(facts: Facts) -> Iterator[Claim]:
    """Report how long the GPU waited for launches of first runs of compiled kernels.

    See Facts.gaps_before_first_runs. Only time counts that no other rule explains.
    """
    gaps = facts.gaps_before_first_runs
    if not len(gaps):
        return

    ns_of_activities = facts.unclaimed_activity_ns[
        :, gaps
    ]  # [ThreadActivity, these gaps]
    late_ns_of_gap = ns_of_activities[LATE_ACTIVITIES].sum(axis=0)
    waited_ns = int(late_ns_of_gap.sum())
    if not waited_ns:
        return

    kernels = choose_heaviest_rows(facts.gaps.event[gaps], late_ns_of_gap)
    name = printable(facts.trace.name_of(kernels[0]))
    if len(gaps) == 1:
        before = f"the first run of {name}"
        generated = "this kernel"
    else:
        before = f"first runs, such as that of {name}"
        generated = "these kernels"

    yield Claim(
        text=f"The GPU waits {format_share_of_span(facts, waited_ns)} in {plural(len(gaps), 'gap')} before "
        f"{before}. The CPU was probably compiling: torch.compile generated {generated}.",
        at_stake_ns=waited_ns,
        rows=kernels,
        why_likely="The trace does not record what the CPU did during this time.",
    )
