"""The peak rates of devices: memory bandwidth and dense operations from data sheets,
and attainable rates from published measurements.

Everything is dense: where a sheet prints a figure with 2:4 sparsity, half of it stands
here. `half` is fp16 and bf16 on tensor (matrix) cores with sums in fp32, `fp16_acc16`
with sums in fp16 where that is faster; there `fp8` is with sums in fp32 as well. `fp32`
and `fp64` are the plain cores, `fp32_matrix` and `fp64_matrix` the matrix ones.
`fp16_plain` and `bf16_plain` are the plain cores too: a SIMT hgemm runs on them. One
GCD of an MI250 is one device.

Sheets are named in peaks.txt. Pages that have the figures of many devices:

* https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/README.md,
  "TFLOPS comparison table", "Accelerator memory size and speed" and "Caches", with a
  link to the maker's page of each
* https://glennklockwood.com/garden/processors/h100 (H100 and H200; plain fp16 and bf16)
* https://sysrqmts.com/gpus/compare/nvidia-a100-pcie-vs-nvidia-tesla-v100-pcie-16-gb and
  https://sysrqmts.com/es/gpus/compare/nvidia-tesla-t4-vs-nvidia-tesla-v100-sxm3-32-gb
  (plain fp16 of A100 and V100)
* https://hmc-tech.com/gpu/nvidia-a800-40gb-vs-nvidia-t4 (plain fp16 and bf16 of A100's
  chip and T4)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import msgspec

from fusetui.text.patterns import lazy_pattern

TERA: Final = 10**12
GIGA: Final = 10**9
MEGA: Final = 2**20
BANDWIDTH: Final = "bandwidth"
KINDS: Final = (
    "fp64",
    "fp64_matrix",
    "fp32",
    "fp32_matrix",
    "tf32",
    "fp16",
    "fp16_acc16",
    "fp16_plain",
    "bf16",
    "bf16_plain",
    "fp8",
    "fp6",
    "fp4",
    "int8",
)
"""Kinds of arithmetic with separate peaks."""

NO_PEAKS: Final[Mapping[str, float]] = MappingProxyType({})


class Peak(msgspec.Struct, frozen=True):
    """The peak rates of one kind of device.

    A device matches if its name fits the pattern and its number of multiprocessors is
    equal.
    """

    pattern: str
    sms: int
    gigabytes_per_s: float
    cache_mb: float  # the last-level cache in front of memory
    teraflops: dict[str, float]  # TFLOP/s by kind of arithmetic
    # least and most, if two memory sizes share a name
    memory_gb: tuple[int, int] | None = None
    device: str = ""  # the name that was looked up
    overridden: frozenset[str] = frozenset()  # the kinds whose figures the user gave

    @property
    def bytes_per_s(self) -> float | None:
        """The bandwidth of the memory in bytes per second.

        It is None if the user gave only rates of arithmetic.
        """
        return self.gigabytes_per_s * GIGA or None

    @property
    def cache_bytes(self) -> float:
        """The size of the last-level cache in bytes."""
        return self.cache_mb * MEGA

    def flop_per_s(self, kind: str | None) -> float | None:
        """Return the dense peak of one kind of arithmetic in FLOP/s; None if unknown.

        Args:
            kind: The kind of arithmetic, such as `tf32`; None if it is unknown.
        """
        teraflops = self.teraflops.get(kind or "")
        return teraflops * TERA if teraflops else None


def _read_peaks() -> Iterator[Peak]:
    """Read the peak rates of all devices from the file peaks.txt beside this module.

    Lines `name: figures` define sets that later lines refer to. Each other line is a
    device.
    """
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    figures_by_set: dict[str, str] = {}
    for line in text.splitlines():
        is_comment = line.startswith("#")
        if is_comment or not line:
            continue
        if ": " in line:
            name, figures = line.split(": ", maxsplit=1)
            figures_by_set[name] = figures
        else:
            yield _parse_device(line, figures_by_set)


class _Figures(NamedTuple):
    """The figures in the last column of a line of peaks.txt."""

    teraflops: dict[str, float]
    """TFLOP/s by kind of arithmetic."""
    memory_gb: tuple[int, int] | None
    """The least and the most memory; None if any size matches."""


def _parse_device(line: str, sets: Mapping[str, str]) -> Peak:
    """Parse the line of one device in peaks.txt, the table of peak rates.

    Its columns are separated by two blanks or more. They are the pattern of the name,
    multiprocessors, bandwidth (GB/s), cache (MB), and figures such as `tf32=156` or
    names of sets.

    Args:
        line: The line.
        sets: The figures of each set, by its name.

    Raises:
        ValueError: If the line has another number of columns.
    """
    columns = [column.strip() for column in line.split("  ") if column.strip()]
    pattern, sms, bandwidth, cache, last_column = columns
    figures = _parse_figures(last_column, sets)
    return Peak(
        pattern=pattern,
        sms=int(sms),
        gigabytes_per_s=_parse_number(bandwidth),
        cache_mb=_parse_number(cache),
        teraflops=figures.teraflops,
        memory_gb=figures.memory_gb,
    )


def _parse_figures(column: str, sets: Mapping[str, str]) -> _Figures:
    """Parse a column of figures such as `tf32=156 half=312 memory=70-85`.

    The name of a set stands for its figures. A later figure replaces an earlier one.
    `half` is the rate of both fp16 and bf16, unless they have figures of their own.

    Args:
        column: The column.
        sets: The figures of each set, by its name.
    """
    texts: list[str] = []
    for set_or_figure in column.split():
        texts += sets.get(set_or_figure, set_or_figure).split()
    teraflops: dict[str, float] = {}
    half_teraflops = None
    memory_gb = None
    for text in texts:
        name, figure = text.split("=")
        if name == "memory":
            least_gb, most_gb = figure.split("-")
            memory_gb = (int(least_gb), int(most_gb))
        elif name == "half":
            half_teraflops = float(figure)
        else:
            teraflops[name] = float(figure)

    if half_teraflops is not None:
        halves = {"fp16": half_teraflops, "bf16": half_teraflops}
        teraflops = {**halves, **teraflops}
    return _Figures(teraflops=teraflops, memory_gb=memory_gb)


def _parse_number(text: str) -> float:
    """Parse a figure of the table of peaks; an int if it has no decimal point."""
    return float(text) if "." in text else int(text)


PEAKS: Final = tuple(_read_peaks())


class _NamelessDevice(NamedTuple):
    """A device whose name ROCm may leave empty."""

    name: str
    capability: tuple[int, int]
    sms: int  # compute units
    memory_gb: tuple[int, int]  # least and most


_NAMELESS_DEVICES: Final = (
    _NamelessDevice("AMD Instinct MI325X", (9, 4), sms=304, memory_gb=(230, 280)),
    _NamelessDevice("AMD Instinct MI300X", (9, 4), sms=304, memory_gb=(180, 215)),
    _NamelessDevice("AMD Instinct MI300A", (9, 4), sms=228, memory_gb=(100, 140)),
)
"""Of gfx942, no two have the same compute units and memory."""


def peak_of(
    properties: Mapping[str, Any], overrides: Mapping[str, float] = NO_PEAKS
) -> Peak | None:
    """Look up the peak rates of a device.

    A part of a device (MIG, a partition) has fewer multiprocessors than its name
    implies, and less of everything else, so its peaks are unknown.

    Args:
        properties: The `deviceProperties` of the device.
        overrides: Figures of the user that override those of the table: FLOP/s by kind of
            arithmetic, and bytes/s as BANDWIDTH. With them an unknown device has those
            rates, and a cache as large as the largest in the table.

    Returns:
        The peaks; None for an unknown device without figures of the user.
    """
    if properties.get("name"):
        peak = _find_peak_by_name(properties)
    else:  # some versions of ROCm leave the name empty
        peak = _find_peak_without_name(properties)
    if not overrides:
        return peak

    if peak is None:
        peak = Peak(
            pattern="",
            sms=0,
            gigabytes_per_s=0,
            cache_mb=max(listed.cache_mb for listed in PEAKS),
            teraflops={},
        )
    return _override_peak(peak, overrides)


def _override_peak(peak: Peak, overrides: Mapping[str, float]) -> Peak:
    """Replace some peak rates of a device by figures of the user.

    Args:
        peak: The peaks of the device.
        overrides: FLOP/s by kind of arithmetic, and bytes/s as BANDWIDTH.
    """
    gigabytes_per_s = peak.gigabytes_per_s
    teraflops = dict(peak.teraflops)
    for name, rate in overrides.items():
        if name == BANDWIDTH:
            gigabytes_per_s = rate / GIGA
        else:
            teraflops[name] = rate / TERA
    return msgspec.structs.replace(
        peak,
        gigabytes_per_s=gigabytes_per_s,
        teraflops=teraflops,
        overridden=frozenset(overrides),
    )


FIRST_WITH_TENSOR_CORES: Final = (7, 0)  # compute capability
FIRST_WITH_TF32: Final = (8, 0)  # and bfloat16
TURING: Final = (7, 5)
TURING_WITHOUT_TENSOR_CORES: Final = lazy_pattern(
    r"\bGTX 16\d0|\bMX[45]\d0|\bT(?:400|500|550|600|1000|1200)\b|\bQuadro T\d+|\bTU11[67]"
)
"""Devices with the chips TU116 and TU117: compute capability 7.5, but no tensor
cores."""


def tensor_core_types(properties: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return which types the tensor cores of a device can multiply instead of float32.

    Source: CUDA C++ programming guide, "Tensor core data types", by compute capability.

    Args:
        properties: The `deviceProperties` of an NVIDIA device.

    Returns:
        The types; an empty tuple for a device without tensor cores, and None if its
        compute capability was not recorded.
    """
    major = properties.get("computeMajor")
    minor = properties.get("computeMinor")
    if type(major) is not int or type(minor) is not int:
        return None

    capability = (major, minor)
    if capability >= FIRST_WITH_TF32:
        return ("TF32", "bfloat16")
    if capability < FIRST_WITH_TENSOR_CORES:
        return ()

    name = str(properties.get("name"))
    if capability == TURING and TURING_WITHOUT_TENSOR_CORES.search(name):
        return ()
    return ("float16",)


def _find_peak_by_name(properties: Mapping[str, Any]) -> Peak | None:
    """Look up a device by its name in the table of PEAKS.

    The first entry whose pattern fits counts. Returns None without such an entry, and
    if the entry has another number of multiprocessors or another memory than the
    device: then only a part of the device is in use, or it is another model.
    """
    name = properties.get("name")
    if not isinstance(name, str):
        return None

    for peak in PEAKS:
        if not re.search(peak.pattern, name):
            continue
        has_all_sms = properties.get("numSms") == peak.sms
        if has_all_sms and _has_memory(properties, peak.memory_gb):
            return msgspec.structs.replace(peak, device=name)
        return None
    return None


def _find_peak_without_name(properties: Mapping[str, Any]) -> Peak | None:
    """Look up the peaks of a device by its properties, as its name is unknown.

    These are the compute capability, the number of compute units and the size of the
    memory. Returns None if they are of no known device.
    """
    capability = (properties.get("computeMajor"), properties.get("computeMinor"))
    sms = properties.get("numSms")
    for device in _NAMELESS_DEVICES:
        is_same_chip = capability == device.capability and sms == device.sms
        if is_same_chip and _has_memory(properties, device.memory_gb):
            properties_with_name = {**properties, "name": device.name}
            return _find_peak_by_name(properties_with_name)
    return None


def _has_memory(properties: Mapping[str, Any], bounds: tuple[int, int] | None) -> bool:
    """Return whether the memory of a device lies within bounds.

    Args:
        properties: The `deviceProperties` of the device.
        bounds: The least and the most memory in GB; None if any size will do.
    """
    if bounds is None:
        return True
    memory_bytes = properties.get("totalGlobalMem")
    if not isinstance(memory_bytes, int):
        return False
    least_gb, most_gb = bounds
    return least_gb * GIGA <= memory_bytes <= most_gb * GIGA


ASSUMED_SHARE: Final = 0.8
"""What is attainable of the dense figure of a data sheet where no measurement is
known."""

# "Maximum Achievable Matmul FLOPS comparison table": means of 100 matmuls of the best
# shape found.
MAMF: Final = (
    "https://github.com/stas00/ml-engineering/blob/master/compute/accelerator/README.md"
)
# AMD, "Measuring Max-Achievable FLOPs - Part 2", table 1.
MAF: Final = (
    "https://rocm.blogs.amd.com/software-tools-optimization/"
    "measuring-max-achievable-flops-part2/README.html"
)


class Measurement(NamedTuple):
    """The rates that matrix products attain on a device, as somebody published them."""

    device: str  # a pattern for its name
    teraflops: Mapping[str, float]  # TFLOP/s of matrix products, by kind
    source: str


MEASURED: Final = (
    Measurement(r"\bA100-SXM4", {"bf16": 271.2}, MAMF),
    Measurement(r"\bA100.*PCIe\b", {"bf16": 252.9}, MAMF),
    Measurement(r"\bH100 (80GB HBM3|SXM)", {"bf16": 794.5, "fp8": 1402.6}, MAMF),
    Measurement(r"\bH200$", {"bf16": 794.5, "fp8": 1453.4}, MAMF),
    Measurement(r"\bB200\b", {"bf16": 1745.0, "fp8": 3432.5}, MAMF),
    Measurement(r"\bB300\b", {"bf16": 1769.0, "fp8": 3353.3}, MAMF),
    Measurement(r"\bMI300X\b", {"fp16": 654.0, "bf16": 708.0, "fp8": 1273.0}, MAF),
    Measurement(r"\bMI325X\b", {"fp16": 794.0, "bf16": 843.0, "fp8": 1519.0}, MAF),
    Measurement(r"\bMI355X\b", {"bf16": 1565.0}, MAMF),
)
"""The first whose pattern fits is used."""


def attainable(peak: Peak) -> Peak:
    """Return the peaks of a device, replaced by the rates that programs can attain.

    Rates that somebody measured are used as they are. All others, the bandwidth too,
    are assumed to be ASSUMED_SHARE of the data sheet.
    """
    attainable_teraflops = {
        kind: ASSUMED_SHARE * rate for kind, rate in peak.teraflops.items()
    }
    attainable_teraflops.update(_find_measured_rates(peak))
    return msgspec.structs.replace(
        peak,
        teraflops=attainable_teraflops,
        gigabytes_per_s=ASSUMED_SHARE * peak.gigabytes_per_s,
    )


def is_assumed(peak: Peak, kind: str | None) -> bool:
    """Return whether an attainable rate is an assumption rather than a measurement.

    Args:
        peak: The peaks of the device.
        kind: The kind of arithmetic, or BANDWIDTH. An unknown kind (None) counts as
            assumed.
    """
    is_measured = kind in _find_measured_rates(peak)
    return kind == BANDWIDTH or not is_measured


def _find_measured_rates(peak: Peak) -> dict[str, float]:
    """Return the measured TFLOP/s of a device, by kind of arithmetic.

    Kinds whose peak the user gave are left out: the measurement does not describe them.
    """
    measured_rates = dict(_find_measurement(peak.device))
    for kind in peak.overridden:
        measured_rates.pop(kind, None)
    return measured_rates


@lru_cache(maxsize=64)  # called for every job
def _find_measurement(device: str) -> Mapping[str, float]:
    """Return the measured TFLOP/s by kind of a device with this name; {} for none."""
    for measurement in MEASURED:
        if re.search(measurement.device, device):
            return measurement.teraflops
    return {}
