"""Collectives on the CPU, which wait for other ranks there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from fusetui.analysis.questions.collectives import ON_CPU
from fusetui.analysis.why.facts import Facts, Rows
from fusetui.analysis.why.idle import LATE
from fusetui.analysis.why.kernels import the_most
from fusetui.analysis.why.rule import Claim, Rule, share_of_span
from fusetui.text.figures import count, duration, percent
from fusetui.text.printable import printable
from fusetui.trace.model.categories import Role
from fusetui.trace.model.intervals import Cover, union

LEAST = 0.1  # of the recording, where there is no GPU
TOLD = 3  # names


def find(facts: Facts) -> Iterator[Claim]:
    trace, rows = facts.trace, facts.named(ON_CPU.match, Role.ANNOTATION)
    if not len(rows):
        return
    start = np.maximum(trace.start[rows], facts.begin_ns)
    end = np.minimum(trace.end[rows], facts.end_ns)
    rows, start, end = rows[end > start], start[end > start], end[end > start]
    cover = union(start, end)
    if facts.devices:
        yield from _while_idle(facts, rows, cover)
        return
    ran, whole = cover.ns, facts.end_ns - facts.begin_ns
    if ran >= LEAST * whole:
        yield Claim(
            text=f"A collective runs on the CPU for {duration(ran)} ({percent(ran, whole)}) of the "
            f"{duration(whole)} that were recorded: {_named(facts, rows)}. It lasts until all "
            "ranks of its group have arrived.",
            at_stake_ns=None,
            rows=the_most(rows, trace.dur[rows]),
        )


def _while_idle(facts: Facts, rows: Rows, cover: Cover) -> Iterator[Claim]:
    at_stake = sum(int(ns[LATE].sum()) for ns in facts.host_under(cover))
    if at_stake:
        yield Claim(
            text=f"The GPU waits {duration(at_stake)} ({share_of_span(facts, at_stake)}) for its "
            f"next launch while a collective runs on the CPU: {_named(facts, rows)}.",
            at_stake_ns=at_stake,
            rows=the_most(rows, facts.trace.dur[rows]),
            why_likely="What the launching thread waits for is not recorded.",
            part_of="host-bound",
        )


def _named(facts: Facts, rows: Rows) -> str:
    names = Counter(facts.trace.name_of(int(row)) for row in rows)
    return ", ".join(f"{count(n)} {printable(name)}" for name, n in names.most_common(TOLD))


RULE = Rule(
    id="cpu-collectives",
    title="Collectives on the CPU",
    question="Does the program wait for other ranks in collectives of gloo, MPI or UCC?",
    needs="",
    formula="The host part of gaps (except synchronization and allocation) during which such a "
    "collective runs on any thread. None without GPU events: then it is a note.",
    remedy="Collectives of tensors on the GPU (backend {intel:xccl|:nccl}) overlap with compute; "
    "keep barriers, object collectives and tensors on the CPU out of the step. Waiting for "
    "another rank cannot be solved here: compare the ranks.",
    thresholds={"least": LEAST},
    find=find,
)
