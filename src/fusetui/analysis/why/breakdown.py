"""What the time of a GPU goes to: by kernel, and by module or annotation."""

from __future__ import annotations

import numpy as np

from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.model import Breakdown, Share
from fusetui.analysis.why.wording import module_text
from fusetui.gpu.kernel_names import decode
from fusetui.text.printable import printable
from fusetui.trace.program.modules import Modules

MOST = 10  # kernels, and modules
LONGEST_NAME = 1000  # characters


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
