"""What the time of a GPU goes to: by kernel, and by module or annotation."""

from __future__ import annotations

import numpy as np

from fusetui.trace.insights.kernels import Kernels
from fusetui.trace.insights.model import Breakdown, Share, Why
from fusetui.trace.insights.telling import headline
from fusetui.trace.insights.wording import module_text
from fusetui.trace.kernel_names import decode
from fusetui.trace.program.modules import Modules
from fusetui.trace.text.figures import percent
from fusetui.trace.text.printable import printable
from fusetui.trace.text.tables import cut

MOST = 10  # kernels, and modules
TOLD = 3  # in a sentence
LONGEST_NAME = 1000  # characters
LONGEST_TOLD = 48
BUSY = 0.8
"""From this share of the time asked about on, the GPU itself is the limit."""


def breakdown_of(kernels: Kernels, modules: Modules | None) -> Breakdown:
    """The kernels with the longest effective time, and the modules with the longest time of their
    own, each kind of module once."""
    return Breakdown(
        kernels=_by_kernel(kernels),
        kernels_ns=int(kernels.effective_ns[kernels.is_kernel].sum()),
        modules=_by_module(modules) if modules else (),
        modules_ns=modules.gpu_ns if modules else 0,
    )


def _by_kernel(kernels: Kernels) -> tuple[Share, ...]:
    trace, own = kernels.trace, kernels.is_kernel
    names, each = np.unique(trace.name[kernels.rows[own]], return_inverse=True)
    counts, ns = np.bincount(each, minlength=len(names)), np.zeros(len(names), dtype=np.int64)
    np.add.at(ns, each, kernels.effective_ns[own])
    found: dict[str, tuple[int, int]] = {}
    for number, count, time in zip(names.tolist(), counts.tolist(), ns.tolist(), strict=True):
        name = trace.names[number]
        kernel = decode(name)
        short = kernel.short if kernel else name[:LONGEST_NAME]
        before = found.get(short, (0, 0))
        found[short] = before[0] + count, before[1] + time
    return _longest(found)


def _by_module(modules: Modules) -> tuple[Share, ...]:
    found: dict[str, tuple[int, int]] = {}
    for one in modules.modules:
        name = module_text(one.module.removesuffix("_*"), LONGEST_NAME)
        before = found.get(name, (0, 0))
        found[name] = before[0] + one.count, before[1] + one.gpu_self_ns
    return _longest(found)


def _longest(found: dict[str, tuple[int, int]]) -> tuple[Share, ...]:
    order = sorted(found.items(), key=lambda item: (-item[1][1], item[0]))
    return tuple(Share(printable(name), n, ns) for name, (n, ns) in order[:MOST] if ns)


def is_limit(found: Why) -> bool:
    """Whether the GPU is busy for most of what the answer is about."""
    _, sums = headline(found)
    return bool(found.devices) and sums["span"] - sums["idle"] >= BUSY * sums["span"] > 0


def breakdown_parts(found: Why) -> list[tuple[str, tuple[Share, ...], int]]:
    """By what the time is divided, its parts, and the time that their shares are of."""
    known = found.breakdown
    if known is None:
        return []
    parts = [("kernel", known.kernels, known.kernels_ns)]
    parts.append(("module or annotation", known.modules, known.modules_ns))
    return [part for part in parts if part[1]]


def breakdown_text(found: Why, longest: int = LONGEST_TOLD) -> str:
    """`GPU time by kernel: gemm bf16 39 %, ...; by module or annotation: Qwen2MLP 31 %, ...`; ""
    where the GPU is not the limit. Names are cut to `longest`, unless nobody sees that."""
    if found.breakdown is None or not found.breakdown.kernels or not is_limit(found):
        return ""
    told = (
        f"by {what}: "
        + ", ".join(f"{cut(one.name, longest)} {percent(one.ns, whole)}" for one in some[:TOLD])
        for what, some, whole in breakdown_parts(found)
    )
    return f"GPU time {'; '.join(told)}."
