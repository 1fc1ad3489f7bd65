"""Compiled kernels that run for the first time: the gap before them is likely
compilation."""

from __future__ import annotations

from collections.abc import Iterator

from fusetui.analysis.why.facts import COMPILING_NS, LATE, Facts
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, Rule, of_span
from fusetui.analysis.why.warming import TIMES
from fusetui.text.figures import plural
from fusetui.text.printable import printable


@Rule(
    needs=("CPU ops",),
    remedy="Run each shape once before recording. torch.compile keeps compiled kernels on disk "
    "(TORCHINDUCTOR_CACHE_DIR), so that another start of the program finds them.",
    thresholds={"compiling_ns": COMPILING_NS, "times": TIMES},
    by_launches=True,
    once=True,
)
def first_compiled_kernels(facts: Facts) -> Iterator[Claim]:
    gaps = facts.before_first_runs
    if not len(gaps):
        return
    ns = facts.unclaimed_ns[LATE][:, gaps].sum(axis=0)
    waited = int(ns.sum())
    if not waited:
        return
    heaviest = the_most(facts.idle.event[gaps], ns)
    name = printable(facts.trace.name_of(heaviest[0]))
    is_one = len(gaps) == 1
    yield Claim(
        text=f"The GPU waits {of_span(facts, waited)} in {plural(len(gaps), 'gap')} before "
        f"{'the first run of' if is_one else 'first runs, such as that of'} {name}. torch.compile "
        f"generated {'this kernel' if is_one else 'these kernels'}, so the CPU was probably "
        "compiling.",
        at_stake_ns=waited,
        rows=heaviest,
        why_likely="What the CPU did in this time was not recorded.",
    )
