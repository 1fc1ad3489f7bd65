"""The GPU waits while the program fetches its next batch."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import LOADER, Facts, Rows
from fusetui.analysis.why.host import Host
from fusetui.analysis.why.rule import Claim, Rule, frame_text, share_of_span, why_likely
from fusetui.text.figures import duration
from fusetui.trace.model.categories import Role

ITSELF = re.compile(rf"{LOADER.pattern}|torch/utils/data/(?:dataloader|_utils/fetch)\.py")
"""Frames and ops of the loader itself: naming them would not help."""

WORKERS = re.compile(r"_MultiProcessingDataLoaderIter")
MORE_WORKERS = (
    "The loader has workers already: more of them (num_workers), a larger prefetch_factor and "
    "persistent_workers=True prepare more batches ahead; else make what they do cheaper, or move "
    "it to the GPU."
)
"""The remedy where batches come from other processes."""

MOST_OF_IT = 0.5  # of the time; a frame with at least this share is named


def loader_rows(facts: Facts) -> Rows:
    """The slices in which a batch is fetched, on any thread."""
    return facts.named(LOADER.search, Role.ANNOTATION, Role.OP, Role.PYTHON)


def find(facts: Facts) -> Iterator[Claim]:
    rows = loader_rows(facts)
    waited = facts.idle_during(rows)
    if waited:
        text = f"The GPU waits {duration(waited)} ({share_of_span(facts, waited)}) for the data"
        yield Claim(
            text=f"{text} loader{_mostly(facts, rows, waited)}.",
            at_stake_ns=waited,
            rows=facts.heaviest(rows),
            remedy=MORE_WORKERS if _has_workers(facts, rows) else None,
            why_likely=why_likely(facts),
        )


def _has_workers(facts: Facts, rows: Rows) -> bool:
    names = {facts.trace.names[number] for number in np.unique(facts.trace.name[rows]).tolist()}
    return any(WORKERS.search(name) for name in names)


def _mostly(facts: Facts, rows: Rows, waited: int) -> str:
    """What the loader does for most of that time: a frame, else an op, if one stands out."""
    for kind in (Host.PYTHON, Host.OP):
        for number, ns in facts.innermost_under(rows, kind).items():
            name = facts.trace.names[number]
            if ns >= MOST_OF_IT * waited and not ITSELF.search(name):
                return f", {duration(ns)} of it in {frame_text(name)}"
    return ""


RULE = Rule(
    id="data-loading",
    title="Waiting for the data loader",
    question="Is the GPU idle because the next batch is not there yet?",
    needs="Annotations, ops or Python frames of the data loader, and launch calls.",
    formula="The idle time of the device during which a launching thread is in "
    "DataLoader.__next__.",
    remedy="DataLoader(num_workers=..., persistent_workers=True, prefetch_factor=...) prepares "
    "batches ahead; move heavy transforms to the GPU.",
    thresholds={},
    find=find,
    silent="Workers of the loader are other processes: a trace shows only the time spent waiting "
    "for them.",
)
