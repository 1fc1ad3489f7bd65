"""Launch calls that take far longer than a launch should."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import NO_LAUNCHES, Claim, Rule, share_of_span
from fusetui.analysis.why.warming import GRAPH_LAUNCH, LONG_NS
from fusetui.text.figures import count, duration
from fusetui.text.printable import printable

SLOW_NS = LONG_NS


def find(facts: Facts) -> Iterator[Claim]:
    if not facts.has_launches:
        raise NO_LAUNCHES
    trace = facts.trace
    launch = np.concatenate([idle.launch for idle in facts.idle])
    warm = [facts.warming.within(idle.called, idle.returned) for idle in facts.idle]
    waited = np.concatenate([idle.ns("launch_call") for idle in facts.idle])
    waited -= np.concatenate(warm)
    graphs = np.isin(
        trace.name, [n for n, text in enumerate(trace.names) if GRAPH_LAUNCH.search(text)]
    )
    slow = (launch >= 0) & (trace.dur[launch] > SLOW_NS) & ~graphs[launch] & (waited > 0)
    at_stake = int(waited[slow].sum())
    if at_stake:
        rows = the_most(launch[slow], waited[slow])
        longest = duration(int(trace.dur[launch[slow]].max()))
        calls = int(np.count_nonzero(slow))
        name = printable(trace.name_of(rows[0]))
        which = (
            f"one launch call of {longest}, {name}"
            if calls == 1
            else f"{count(calls)} launch calls of more than {duration(SLOW_NS)}, up to {longest}, "
            f"mostly {name}"
        )
        yield Claim(
            text=f"The GPU waits {duration(at_stake)} ({share_of_span(facts, at_stake)}) inside "
            f"{which}.",
            at_stake_ns=at_stake,
            rows=rows,
        )


RULE = Rule(
    id="slow-launches",
    title="Slow launch calls",
    question="Do the launch calls themselves take long?",
    needs="Launch calls.",
    formula="The part of gaps in which the launch call that ends them was running, for calls of "
    "more than 100 us, without first launches (see warm-up).",
    remedy="See whether they recur at the same place: allocation inside the call, a full queue of "
    "another stream, and a CPU that is taken away from the thread look the same.",
    thresholds={"slow_ns": SLOW_NS},
    find=find,
    silent="cudaGraphLaunch is never counted: recording the nodes of a graph makes it slow.",
)
