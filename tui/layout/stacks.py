"""Trees as stacks with the time of their innermost part alone, for other tools that draw flames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fusetui import __version__
from fusetui.tui.layout.flame import Flame

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
BETWEEN = ";"

Stack = tuple[list[int], int]
"""Nodes from the outermost one on, and ns that belong to none further inside."""


def stacks(flame: Flame) -> Iterator[Stack]:
    """Those with any time, in the order of the tree."""
    tree, own = flame.tree, flame.amount.copy()
    inner = np.flatnonzero(tree.parent >= 0)
    np.subtract.at(own, tree.parent[inner], flame.amount[inner])
    for node in np.flatnonzero(own > 0).tolist():
        yield flame.path(node), int(own[node])


def folded(flame: Flame) -> Iterator[str]:
    """A line for each stack, as flamegraph.pl and inferno read them: `a;b;c 1200`."""
    labels = [label.replace(BETWEEN, ",") for label in _labels(flame)]
    for nodes, ns in stacks(flame):
        yield f"{BETWEEN.join(labels[node] for node in nodes)} {ns}\n"


def speedscope(flame: Flame, name: str, trace: str) -> dict[str, Any]:
    """A document of one profile in the file format of speedscope."""
    labels = _labels(flame)
    frames = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    found = list(stacks(flame))
    weights = [ns for _, ns in found]
    profile = {
        **{"type": "sampled", "name": name, "unit": "nanoseconds"},
        **{"startValue": 0, "endValue": sum(weights), "weights": weights},
        "samples": [[frames[labels[node]] for node in nodes] for nodes, _ in found],
    }
    return {
        **{"$schema": SCHEMA, "exporter": f"fusetui {__version__}", "name": trace},
        "shared": {"frames": [{"name": label} for label in frames]},
        "profiles": [profile],
    }


def _labels(flame: Flame) -> Sequence[str]:
    return [flame.tree.label(node) for node in range(len(flame.amount))]
