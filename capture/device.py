"""The device that a capture runs on, and what is known about it. Imports torch when called."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from warnings import catch_warnings, filterwarnings

from fusetui import __version__

from .errors import CaptureError
from .options import check

_NOISE = (
    r".*TensorFloat32 tensor cores.*",
    r".*torch\.jit\.script.*is deprecated.*",
    r".*Profiler clears events at the end of each cycle.*",
    r".*pkg_resources is deprecated.*",
)
"""Warnings of torch that are irrelevant to the user of a capture."""


@dataclass(frozen=True)
class CaptureDevice:
    """`kind` is torch's name, cpu or cuda; `name` is for users.

    `cache_bytes` is the size of a GPU's L2 cache, which inputs must exceed; 0 on a CPU.
    `capability` is the compute capability of an NVIDIA GPU, None of anything else.
    """

    kind: str
    name: str
    cache_bytes: int = 0
    capability: tuple[int, int] | None = None


def load_torch() -> Any:
    """torch, with its own log and the profiler's switched off unless the user set their levels.
    Raises CaptureError if torch is not installed."""
    # Both levels are read once, when torch is loaded; the log lines would end up among ours.
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        import torch
    except ImportError as error:
        raise CaptureError(
            f"capture needs torch, which cannot be imported ({error}): "
            "install it with pip install 'fusetui[capture]'."
        ) from error
    return torch


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Suppresses known irrelevant warnings of torch; all others are shown."""
    with catch_warnings():
        for message in _NOISE:
            filterwarnings("ignore", message=message)
        yield


def find_device(wanted: str) -> CaptureDevice:
    """The device for `auto`, `cuda` or `cpu`; `auto` prefers a GPU. Raises CaptureError for another
    word, or for `cuda` where torch sees no GPU."""
    check("device", wanted)
    torch = load_torch()
    if wanted != "cpu" and torch.cuda.is_available():
        capability = None if torch.version.hip else torch.cuda.get_device_capability()
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        cache = int(getattr(properties, "L2_cache_size", 64 * 2**20))  # more than most GPUs have
        return CaptureDevice("cuda", torch.cuda.get_device_name(), cache, capability)
    if wanted == "cuda":
        raise CaptureError("torch sees no GPU here: use --device cpu, or install a CUDA build.")
    threads = torch.get_num_threads()
    return CaptureDevice("cpu", f"{_cpu_name()}, {threads} thread{'s' if threads > 1 else ''}")


def versions() -> dict[str, str | None]:
    """Versions of the software that a measurement depends on; null if not installed."""
    torch, triton = load_torch(), None
    with suppress(metadata.PackageNotFoundError):
        triton = metadata.version("triton")
    return {
        "fusetui": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
    }


def _cpu_name() -> str:
    """The name of the processor, which Linux gives only in a file."""
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
