"""Slow products by kernels that were built for an earlier generation of GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from fusetui.analysis.why.facts import Facts
from fusetui.analysis.why.idle import Flags
from fusetui.analysis.why.kernels import Kernels
from fusetui.analysis.why.rule import Claim, Rule, share_of_work
from fusetui.analysis.why.rules.alignment import is_unaligned
from fusetui.analysis.why.rules.far_from_peak import far_of
from fusetui.gpu.kernel_names import KernelName, decode
from fusetui.gpu.roofline.row import Job
from fusetui.text.figures import duration, percent, plural
from fusetui.trace.layout.devices import device_properties

FAR = 2  # times the bound
SM = re.compile(r"sm(\d{1,3})\d\Z")
NATIVE = {12: 8}
"""Compute capabilities that have the matrix instructions of an earlier one."""


def find(facts: Facts) -> Iterator[Claim]:
    kernels = facts.kernels
    majors = {_native(known) for known in device_properties(facts.trace).values()}
    if len(majors) != 1 or None in majors:
        return
    (major,) = majors
    old = _slow(kernels) & kernels.flags(lambda kernel: _built_for(kernel) < (major or 0))
    newer = kernels.flags(lambda kernel: _built_for(kernel) == major)
    old &= np.isin(_dtypes(kernels), _dtypes(kernels)[newer])
    taken, least = (int(ns[old].sum()) for ns in (kernels.effective_ns, kernels.bounded.bound_ns))
    if taken:
        yield Claim(
            text=f"{plural(int(np.count_nonzero(old)), 'kernel')} built for an earlier generation "
            f"of GPUs take {duration(taken)} ({share_of_work(facts, taken)}) and reach "
            f"{percent(least, taken)} of what is attainable; others of the same type in this trace "
            "are built for this one.",
            at_stake_ns=taken - least,
            rows=kernels.heaviest(old),
            part_of="far-from-peak" if far_of(facts)[old].all() else None,
            why_likely="There may be no newer kernel for these shapes and layouts.",
        )


def _slow(kernels: Kernels) -> Flags:
    """Alone on the device, bound by arithmetic, and far from their bound; but not where the
    alignment forbids other kernels."""
    bound = kernels.bounded.bound_ns
    slow = (bound >= 0) & (kernels.effective_ns >= FAR * bound)
    by_arithmetic = kernels.of_jobs(_by_arithmetic) == 1
    found: Flags = slow & by_arithmetic & kernels.alone & ~kernels.flags(is_unaligned)
    return found


def _by_arithmetic(job: Job) -> float:
    return float(job.limits.bound == "compute")


def _native(properties: dict[str, Any]) -> int | None:
    """The first number of the compute capability whose instructions a device has; None for a
    device of another maker, or if it is not known."""
    major = properties.get("computeMajor")
    if type(major) is not int or "NVIDIA" not in str(properties.get("name")):
        return None
    return NATIVE.get(major, major)


def _built_for(kernel: KernelName) -> int:
    """Likewise what a kernel was built for; a large number if its name does not tell."""
    found = SM.match(kernel.arch or "")
    return NATIVE.get(int(found[1]), int(found[1])) if found else 1_000


def _dtypes(kernels: Kernels) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A number per element type that a kernel multiplies, by its name."""
    numbers: dict[str | None, int] = {}
    trace = kernels.trace
    table = np.zeros(len(trace.names), dtype=np.int64)
    for name in np.unique(trace.name[kernels.rows]).tolist():
        kernel = decode(trace.names[name])
        dtype = (kernel.dtype_a or kernel.dtype) if kernel else None
        table[name] = numbers.setdefault(dtype, len(numbers))
    return table[trace.name[kernels.rows]]


RULE = Rule(
    id="old-architecture",
    title="Slow kernels of an earlier generation",
    question="Are products slow in kernels that were built for an earlier generation of GPUs?",
    needs="Shapes, kernel names, and a device of the table of peaks that tells its compute "
    "capability.",
    formula="The effective duration of kernels that are bound by arithmetic, take more than twice "
    "their bound (see the ceiling) alone on the device, and were built for an earlier compute "
    "capability, less that bound; only where another kernel of the trace multiplies the same type "
    "with the instructions of this device.",
    remedy="A newer {nvidia:cuBLAS or cuDNN|:library}, aligned sizes and contiguous inputs"
    '{compile:; or torch.compile(mode="max-autotune"), which measures several kernels}.',
    thresholds={"far": FAR},
    find=find,
    of_kernels=True,
    silent="Devices of compute capability 8.6, 8.9 and 12.0 have the matrix instructions of 8.0. "
    "Unaligned products are in alignment.",
)
