"""Products whose last wave of tiles leaves most of the device idle."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.rule import Claim, Rule, share_of_work
from fusetui.analysis.why.rules.far_from_peak import far_of
from fusetui.gpu.kernel_names import short_name
from fusetui.gpu.roofline.row import Job
from fusetui.text.figures import duration, plural, significant
from fusetui.text.printable import printable

MOSTLY = 0.5  # of the places of a wave
MOST_WAVES = 4


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    waves = kernels.of_jobs(_waves)
    tailed = ~np.isnan(waves) & (kernels.bounded.bound_ns >= 0) & kernels.alone
    if not tailed.any():
        return
    each, whole = waves[tailed], np.ceil(waves[tailed])
    lost = kernels.effective_ns[tailed] * (1 - each / whole)
    at_stake = np.minimum(lost.astype(np.int64), kernels.bounded.at_stake_ns[tailed])
    taken, saved = int(kernels.effective_ns[tailed].sum()), int(at_stake.sum())
    row = kernels.heaviest(tailed)[0]
    name = printable(short_name(facts.trace.name_of(row)))
    most = significant(float(waves[np.searchsorted(kernels.rows, row)]), 3)
    yield Claim(
        text=f"The last wave of tiles is mostly empty in {plural(int(tailed.sum()), 'product')} of "
        f"{duration(taken)} ({share_of_work(facts, taken)}): {most} waves in {name}. Full waves "
        f"would save an estimated {duration(saved)}.",
        at_stake_ns=saved,
        rows=kernels.heaviest(tailed),
        part_of="far-from-peak" if far_of(facts)[tailed].all() else None,
        why_likely="Blocks do not run in lockstep: the last wave overlaps the one before it.",
    )


def _waves(job: Job) -> float | None:
    """Of a product bound by arithmetic, between one and MOST_WAVES, the last one mostly empty."""
    tiles = job.tiles
    if tiles is None or tiles.waves is None or tiles.last_wave_empty is None:
        return None
    fits = job.limits.bound == "compute" and 1 < tiles.waves <= MOST_WAVES
    return tiles.waves if fits and tiles.last_wave_empty > MOSTLY else None


RULE = Rule(
    id="tail-wave",
    title="A last wave that is mostly empty",
    question="Do products wait for a few last tiles while most of the device is idle?",
    needs="Shapes, launch configurations, kernel names and a device of the table of peaks.",
    formula="Of GEMMs that are bound by arithmetic, alone on the device, of one to four waves, the "
    "last one more than half empty: the effective duration times the empty share of all waves, and "
    "no more than what exceeds the bound (see the ceiling).",
    remedy="Other sizes of the batch or of a layer, or a kernel with other tiles"
    '{compile: (torch.compile(mode="max-autotune") measures several)}, split-K or stream-K.',
    thresholds={"mostly": MOSTLY, "most_waves": MOST_WAVES},
    find=find,
    of_kernels=True,
    silent="Tiles are counted only where the launch grid confirms them: not in persistent, split-K "
    "and stream-K kernels.",
)
