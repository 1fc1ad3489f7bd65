"""What devices attain in practice, according to published measurements.

A rate without a measurement is assumed to be ASSUMED of the data sheet's.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from fusetui.gpu.roofline.peaks import BANDWIDTH, Peak

ASSUMED: Final = 0.8
"""As a share of the dense figure of the data sheet."""

# "Maximum Achievable Matmul FLOPS comparison table": means of 100 matmuls of the best shape found.
MAMF: Final = "https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/README.md"
# AMD, "Measuring Max-Achievable FLOPs - Part 2", table 1.
MAF: Final = (
    "https://rocm.blogs.amd.com/software-tools-optimization/"
    "measuring-max-achievable-flops-part2/README.html"
)


class Measured(msgspec.Struct, frozen=True):
    """TFLOP/s of matrix products on devices whose name matches the pattern."""

    pattern: str
    teraflops: dict[str, float]
    source: str


MEASURED: Final = (
    Measured(r"\bA100-SXM4", {"bf16": 271.2}, MAMF),
    Measured(r"\bA100.*PCIe\b", {"bf16": 252.9}, MAMF),
    Measured(r"\bH100 (80GB HBM3|SXM)", {"bf16": 794.5, "fp8": 1402.6}, MAMF),
    Measured(r"\bH200$", {"bf16": 794.5, "fp8": 1453.4}, MAMF),
    Measured(r"\bB200\b", {"bf16": 1745.0, "fp8": 3432.5}, MAMF),
    Measured(r"\bB300\b", {"bf16": 1769.0, "fp8": 3353.3}, MAMF),
    Measured(r"\bMI300X\b", {"fp16": 654.0, "bf16": 708.0, "fp8": 1273.0}, MAF),
    Measured(r"\bMI325X\b", {"fp16": 794.0, "bf16": 843.0, "fp8": 1519.0}, MAF),
    Measured(r"\bMI355X\b", {"bf16": 1565.0}, MAMF),
)
"""The first matching pattern is used."""


def attainable(peak: Peak) -> Peak:
    """The device with attainable figures in place of its peaks."""
    rates = {kind: ASSUMED * rate for kind, rate in peak.teraflops.items()}
    rates |= _measured(peak)
    return msgspec.structs.replace(
        peak, teraflops=rates, gigabytes_per_s=ASSUMED * peak.gigabytes_per_s
    )


def is_assumed(peak: Peak, kind: str | None) -> bool:
    """Whether the attainable figure of this kind (or of BANDWIDTH) is an assumption."""
    return kind == BANDWIDTH or kind not in _measured(peak)


def _measured(peak: Peak) -> dict[str, float]:
    """The measured figures, except for kinds that the user gave, which they do not describe."""
    for entry in MEASURED:
        if re.search(entry.pattern, peak.device):
            return {k: v for k, v in entry.teraflops.items() if k not in peak.given}
    return {}
