"""Which change is tried on which kind of invented program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.analysis.replay.changes import changed
from tests.analysis.replay.invented import KINDS, invented

CHANGES = {
    "kernel x0.5": ("kernel:ampere_sgemm x0.5",),
    "kernel x2": ("kernel:vectorized_elementwise x2",),
    "kernel 40us": ("kernel:flash_fwd 40us",),
    "family x0.5": ("family:gemm x0.5",),
    "op x0": ("op:aten::add x0",),
    "op x0.5": ("op:aten::mm x0.5",),
    "module x0": ("module:Block_1 x0",),
    "python x0.5": ("python x0.5",),
    "fuse": ("fuse",),
    "graph": ("graph:## forward ##",),
    "no-sync": ("no-sync:aten::item",),
    "loader": ("loader",),
    "comm x0": ("comm x0",),
    "several": ("kernel:ampere_sgemm x0.5", "op:aten::add x0"),
}

FORWARD = frozenset(
    {"host-bound", "GPU-bound", "mixed", "switches", "overlapping", "threads"}
)
LOADING = frozenset(
    {"workers", "batches ready", "batches waited for", "some batches waited for"}
)
"""Kinds in which workers load batches."""
TRAINING = LOADING | {"training", "training, no stacks", "slow loader"}
ONLY = {
    "module x0": FORWARD,
    "graph": FORWARD | {"graphs"},
    "fuse": frozenset({"chains"}),
    "loader": TRAINING,
    "comm x0": frozenset({"collectives"}),
    "python x0.5": FORWARD | TRAINING | {"graphs"},
}
"""Changes that meet something only in these kinds."""


def cases(
    seeds: int, kinds: Iterable[str] = tuple(KINDS)
) -> Iterator[tuple[str, int, str]]:
    """(kind, seed, change): each kind with each change that concerns it, `seeds` times,
    where it changes something."""
    for kind in kinds:
        for change, words in CHANGES.items():
            for seed in range(seeds if kind in ONLY.get(change, KINDS) else 0):
                program = invented(kind, seed)
                if changed(program, *words) != program:
                    yield kind, seed, change
