"""What devices can do at most: memory bandwidth and dense operations, from the makers' sheets; and
what they attain in practice, according to published measurements.

Everything is dense: where a sheet prints a figure with 2:4 sparsity, half of it stands here.
`half` is fp16 and bf16 on tensor (matrix) cores with sums in fp32, `fp16_acc16` with sums in fp16
where that is faster; `fp32` and `fp64` are the plain cores, `fp32_matrix` and `fp64_matrix` the
matrix ones. `fp16_plain` and `bf16_plain` are the plain cores too: a SIMT hgemm runs on them. One
GCD of an MI250 is one device.

The sheet of a device is named above its entry. Pages that have the figures of many of them:

* https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/README.md, "TFLOPS
  comparison table", "Accelerator memory size and speed" and "Caches", with a link to the maker's
  page of each
* https://glennklockwood.com/garden/processors/h100 (H100 and H200; plain fp16 and bf16)
* https://sysrqmts.com/gpus/compare/nvidia-a100-pcie-vs-nvidia-tesla-v100-pcie-16-gb and
  https://sysrqmts.com/es/gpus/compare/nvidia-tesla-t4-vs-nvidia-tesla-v100-sxm3-32-gb (plain fp16
  of A100 and V100)
* https://hmc-tech.com/gpu/nvidia-a800-40gb-vs-nvidia-t4 (plain fp16 and bf16 of A100's chip and T4)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

TERA: Final = 10**12
GIGA: Final = 10**9
MEGA: Final = 2**20
BANDWIDTH: Final = "bandwidth"
KINDS: Final = (
    *("fp64", "fp64_matrix", "fp32", "fp32_matrix", "tf32", "fp16", "fp16_acc16", "fp16_plain"),
    *("bf16", "bf16_plain", "fp8", "fp6", "fp4", "int8"),
)
"""Kinds of arithmetic with separate peaks."""
NO_PEAKS: Final[Mapping[str, float]] = MappingProxyType({})


class Peak(msgspec.Struct, frozen=True):
    """The limits of one device. Names match by pattern; the multiprocessor counts must agree."""

    pattern: str
    sms: int
    gigabytes_per_s: float
    cache_mb: float  # the last-level cache in front of memory
    teraflops: dict[str, float]
    memory_gb: tuple[int, int] | None = None  # least and most, if two memory sizes share a name
    device: str = ""  # the name that was looked up
    given: frozenset[str] = frozenset()  # kinds whose figures are given by the user

    @property
    def bytes_per_s(self) -> float | None:
        """None if only rates of arithmetic were given."""
        return self.gigabytes_per_s * GIGA or None

    @property
    def cache_bytes(self) -> float:
        return self.cache_mb * MEGA

    def flop_per_s(self, kind: str | None) -> float | None:
        """The dense peak of one kind of arithmetic, None if the sheet has none."""
        found = self.teraflops.get(kind or "")
        return found * TERA if found else None


def _rates(text: str) -> dict[str, float]:
    """TFLOP/s by kind of arithmetic; `half` is fp16 and bf16."""
    rates = {kind: float(rate) for kind, _, rate in (word.partition("=") for word in text.split())}
    half = rates.pop("half", None)
    return {**({"fp16": half, "bf16": half} if half else {}), **rates}


_A100 = _rates(
    "half=312 fp64=9.7 fp64_matrix=19.5 fp32=19.5 fp16_plain=78 bf16_plain=39 tf32=156 int8=624"
)
_H100 = _rates(
    "half=989.4 fp64=33.5 fp64_matrix=66.9 fp32=66.9 fp16_plain=133.8 bf16_plain=133.8 "
    "tf32=494.7 fp8=1978.9 int8=1978.9"
)
_H100_NVL = _rates("half=835.5 fp64=30 fp64_matrix=60 fp32=60 tf32=417.5 fp8=1670.5 int8=1670.5")
_H100_PCIE = _rates("half=756 fp64=25.6 fp64_matrix=51.2 fp32=51.2 tf32=378 fp8=1513 int8=1513")
_B200 = _rates("half=2250 fp64=40 fp64_matrix=40 fp32=80 tf32=1125 fp8=4500 int8=4500")
_B300 = _rates("half=2250 fp64=1.25 fp64_matrix=1.25 fp32=75 tf32=1125 fp8=4500")
_A30 = _rates("half=165 fp64=5.2 fp64_matrix=10.3 fp32=10.3 tf32=82 int8=330")
_MI300X = _rates(
    "half=1307.4 fp64=81.7 fp64_matrix=163.4 fp32=163.4 fp32_matrix=163.4 tf32=653.7 "
    "fp8=2614.9 int8=2614.9"
)
_MI300A = _rates(
    "half=980.6 fp64=61.3 fp64_matrix=122.6 fp32=122.6 fp32_matrix=122.6 tf32=490.3 "
    "fp8=1961.2 int8=1961.2"
)
_MI250X = _rates("half=191.5 fp64=23.9 fp64_matrix=47.9 fp32=23.9 fp32_matrix=47.9 int8=191.5")
_MI250 = _rates("half=181 fp64=22.6 fp64_matrix=45.3 fp32=22.6 fp32_matrix=45.3 int8=181")
_MI100 = _rates("fp16=184.6 bf16=92.3 fp32=23.1 fp32_matrix=46.1 fp64=11.5")

# The first pattern that fits decides. The comment above an entry names its sheet.
PEAKS: Final = (
    # NVIDIA HGX B200 and DGX B200 data sheets (an eighth of the system), Blackwell brief
    Peak(r"\bB200\b", 148, 8000, 126, _B200),
    # NVIDIA HGX B300 data sheet (an eighth of the system)
    Peak(r"\bB300\b", 148, 8000, 126, _B300),
    # NVIDIA H200 Tensor Core GPU data sheet
    Peak(r"\bH200 NVL\b", 132, 4800, 50, _H100_NVL),
    Peak(r"\bH200\b", 132, 4800, 50, _H100),
    # NVIDIA GH200 Grace Hopper Superchip data sheet, with 96 GB of HBM3 (480 GB are the CPU's)
    Peak(r"\bGH200 480GB$", 132, 4000, 60, _H100),
    # NVIDIA H100 Tensor Core GPU data sheet, Hopper architecture white paper
    Peak(r"\bH100 PCIe\b", 114, 2039, 50, _H100_PCIE),
    Peak(r"\bH100 NVL\b", 132, 3938, 50, _H100_NVL),
    Peak(r"\bH100 (80GB HBM3|SXM)", 132, 3352, 50, _H100),
    # NVIDIA A100 Tensor Core GPU data sheet, Ampere architecture white paper
    Peak(r"\bA100 80GB PCIe\b", 108, 1935, 40, _A100),
    Peak(r"\bA100-SXM4-80GB\b", 108, 2039, 40, _A100),
    Peak(r"\bA100-(SXM4|PCIE)-40GB\b", 108, 1555, 40, _A100),
    # the same: its 40 GB modules under their board number
    Peak(r"\bA100-PG50[69]", 108, 1555, 40, _A100, (38, 44)),
    # NVIDIA A30 data sheet
    Peak(r"\bA30$", 56, 933, 24, _A30),
    # NVIDIA A10 data sheet
    Peak(r"\bA10$", 72, 600, 6, _rates("half=125 fp32=31.2 tf32=62.5 int8=250")),
    # NVIDIA A10G data sheet (AWS): half the tensor rate of an A10
    Peak(r"\bA10G$", 80, 600, 6, _rates("half=70 fp32=35 tf32=35 int8=140")),
    # NVIDIA A40 data sheet
    Peak(r"\bA40$", 84, 696, 6, _rates("half=149.7 fp32=37.4 tf32=74.8 int8=299.3")),
    # NVIDIA L4 data sheet
    Peak(r"\bL4$", 58, 300, 48, _rates("half=121 fp32=30.3 tf32=60 fp8=242.5 int8=242.5")),
    # NVIDIA L40S data sheet
    Peak(r"\bL40S$", 142, 864, 96, _rates("half=362.05 fp32=91.6 tf32=183 fp8=733 int8=733")),
    # NVIDIA L40 data sheet
    Peak(r"\bL40$", 142, 864, 96, _rates("half=181.05 fp32=90.5 tf32=90.5 fp8=362 int8=362")),
    # NVIDIA T4 data sheet
    Peak(r"\bT4$", 40, 320, 4, _rates("fp16=65 fp16_plain=16.3 fp32=8.1 int8=130")),
    # NVIDIA V100 data sheet; DGX Station data sheet (500 TFLOPS for four V100)
    Peak(r"\bV100S-PCIE", 80, 1134, 6, _rates("fp16=130 fp32=16.4 fp64=8.2")),
    Peak(r"\bV100-PCIE", 80, 900, 6, _rates("fp16=112 fp16_plain=28.3 fp32=14 fp64=7")),
    Peak(r"\bV100-(SXM2|DGXS)", 80, 900, 6, _rates("fp16=125 fp16_plain=31.3 fp32=15.7 fp64=7.8")),
    # NVIDIA Tesla P100 data sheet; Quadro GP100 data sheet
    Peak(r"\bP100-SXM2", 56, 732, 4, _rates("fp16=21.2 fp16_plain=21.2 fp32=10.6 fp64=5.3")),
    Peak(r"\bGP100$", 56, 717, 4, _rates("fp16=20.7 fp16_plain=20.7 fp32=10.3 fp64=5.2")),
    # NVIDIA RTX Blackwell GPU architecture white paper
    Peak(r"\bRTX 5090$", 170, 1792, 96, _rates("half=209.5 fp16_acc16=419 fp32=104.8 tf32=104.8")),
    # NVIDIA Ada GPU architecture white paper
    Peak(r"\bRTX 4090$", 128, 1008, 72, _rates("half=165.2 fp16_acc16=330.3 fp32=82.6 tf32=82.6")),
    # NVIDIA Ampere GA102 GPU architecture white paper
    Peak(r"\bRTX 3090$", 82, 936, 6, _rates("half=71 fp16_acc16=142 fp32=35.6 tf32=35.6")),
    # NVIDIA Turing GPU architecture white paper, Founders Edition
    Peak(r"\bRTX 2080 Ti$", 68, 616, 5.5, _rates("fp16=56.9 fp16_acc16=113.8 fp32=14.2")),
    # AMD Instinct MI355X data sheet; MI350X data sheet
    Peak(r"\bMI355X\b", 256, 8000, 256, _rates("half=2516.6 fp8=5033.2 int8=5033.2 fp32=157.3")),
    Peak(r"\bMI350X\b", 256, 8000, 256, _rates("half=2306.9 fp8=4613.7 int8=4613.7 fp32=144.2")),
    # AMD Instinct MI325X data sheet; MI300X data sheet; MI300A data sheet
    Peak(r"\bMI325X\b", 304, 6000, 256, _MI300X),
    Peak(r"\bMI300X\b", 304, 5325, 256, _MI300X),
    Peak(r"\bMI300A\b", 228, 5325, 256, _MI300A),
    # AMD Instinct MI250X and MI250 data sheets, half of each; MI210 data sheet
    Peak(r"\bMI250X\b", 110, 1638.4, 8, _MI250X),
    Peak(r"\bMI250\b", 104, 1638.4, 8, _MI250),
    Peak(r"\bMI210\b", 104, 1638.4, 8, _MI250),
    # AMD Instinct MI100 data sheet
    Peak(r"\bMI100\b", 120, 1228.8, 8, _MI100),
)


NAMELESS: Final = (
    ("AMD Instinct MI325X", (9, 4, 304), (230, 280)),
    ("AMD Instinct MI300X", (9, 4, 304), (180, 215)),
    ("AMD Instinct MI300A", (9, 4, 228), (100, 140)),
)
"""Name, compute capability and compute units, and memory in GB: of gfx942, no two have the same."""


def peak_of(properties: Mapping[str, Any], given: Mapping[str, float] = NO_PEAKS) -> Peak | None:
    """The limits of a device by its `deviceProperties`; None for an unknown device.

    A part of a device (MIG, a partition) has fewer multiprocessors than its name implies, and less
    of everything else: it is unknown. `given` has figures that override those of the table, by kind
    of arithmetic (FLOP/s) and as BANDWIDTH (bytes/s); with them an unknown device has those limits,
    and a cache as large as the largest in the table.
    """
    found = _listed(properties)
    if not properties.get("name"):  # as some versions of ROCm have it
        chip = tuple(properties.get(key) for key in ("computeMajor", "computeMinor", "numSms"))
        names = (name for name, own, gb in NAMELESS if own == chip and _has_memory(properties, gb))
        found = next((_listed({**properties, "name": name}) for name in names), None)
    if not given:
        return found
    found = found or Peak("", 0, 0, max(peak.cache_mb for peak in PEAKS), {})
    rates = {kind: rate / TERA for kind, rate in given.items() if kind != BANDWIDTH}
    return msgspec.structs.replace(
        found,
        gigabytes_per_s=given[BANDWIDTH] / GIGA if BANDWIDTH in given else found.gigabytes_per_s,
        teraflops={**found.teraflops, **rates},
        given=frozenset(given),
    )


def _listed(properties: Mapping[str, Any]) -> Peak | None:
    name, sms = properties.get("name"), properties.get("numSms")
    if not isinstance(name, str):
        return None
    peak = next((peak for peak in PEAKS if re.search(peak.pattern, name)), None)
    if peak is None or sms != peak.sms or not _has_memory(properties, peak.memory_gb):
        return None
    return msgspec.structs.replace(peak, device=name)


def _has_memory(properties: Mapping[str, Any], bounds: tuple[int, int] | None) -> bool:
    size = properties.get("totalGlobalMem")
    if bounds is None:
        return True
    return isinstance(size, int) and bounds[0] * GIGA <= size <= bounds[1] * GIGA


ASSUMED: Final = 0.8  # as a share of the dense figure of the data sheet

# "Maximum Achievable Matmul FLOPS comparison table": means of 100 matmuls of the best shape found.
MAMF: Final = "https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/README.md"
# AMD, "Measuring Max-Achievable FLOPs - Part 2", table 1.
MAF: Final = (
    "https://rocm.blogs.amd.com/software-tools-optimization/"
    "measuring-max-achievable-flops-part2/README.html"
)

MEASURED: Final = (
    (r"\bA100-SXM4", {"bf16": 271.2}, MAMF),
    (r"\bA100.*PCIe\b", {"bf16": 252.9}, MAMF),
    (r"\bH100 (80GB HBM3|SXM)", {"bf16": 794.5, "fp8": 1402.6}, MAMF),
    (r"\bH200$", {"bf16": 794.5, "fp8": 1453.4}, MAMF),
    (r"\bB200\b", {"bf16": 1745.0, "fp8": 3432.5}, MAMF),
    (r"\bB300\b", {"bf16": 1769.0, "fp8": 3353.3}, MAMF),
    (r"\bMI300X\b", {"fp16": 654.0, "bf16": 708.0, "fp8": 1273.0}, MAF),
    (r"\bMI325X\b", {"fp16": 794.0, "bf16": 843.0, "fp8": 1519.0}, MAF),
    (r"\bMI355X\b", {"bf16": 1565.0}, MAMF),
)
"""The name of a device, TFLOP/s of matrix products, and the source; the first pattern that fits is
used."""


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
    on_device = (figures for name, figures, _ in MEASURED if re.search(name, peak.device))
    return {k: v for k, v in next(on_device, {}).items() if k not in peak.given}
