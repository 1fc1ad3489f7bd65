"""All times in the lessons, and their sources.

Published times are from the source. Derived times are computed from bytes, at the
bandwidth implied by the source's own fused kernel. Assumed times are plausible
constants. The self times of CPU ops are approximately the medians in public traces
of bfloat16 inference with shapes, stacks and memory recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SOURCE = (
    '"Profiling in PyTorch (Part 2): From nn.Linear to a Fused MLP" (Hugging Face, June 2026), '
    "measured on an NVIDIA A100-SXM4-80GB in bfloat16"
)
NOTES = {
    "linear": (
        f"Reconstructed, not recorded: the name of the kernel is from {SOURCE}; all times are "
        "assumed. Not a measurement."
    ),
    "mlp": (
        f"Reconstructed, not recorded: most kernel names and times are from {SOURCE}; the others "
        "are derived or assumed. Not a measurement."
    ),
}
"""The note of a lesson, in its file and wherever it is shown, by the first word of the
lesson's name."""


class Origin(Enum):
    PUBLISHED = "published"
    DERIVED = "derived"
    ASSUMED = "assumed"


@dataclass(frozen=True)
class Figure:
    """A time in ns. `what` names the operation that takes it, and `why` gives the
    source or the derivation."""

    what: str
    ns: int
    origin: Origin
    why: str


BATCH = 64
SEQUENCE = 128
DIM = 768
HIDDEN = 3072
ROWS = BATCH * SEQUENCE
"""The MLP of the source: 8,192 rows, 768 -> 3072 -> 768."""
LINEAR_ROWS = 1024
LINEAR_IN = 32
LINEAR_OUT = 64
BF16 = 2
"""Bytes of a bfloat16."""

HIDDEN_BYTES = ROWS * HIDDEN * BF16
FUSED_BYTES = 3 * HIDDEN_BYTES
"""gelu(gate) * up reads both and writes the product: 151 MB."""


def _published(what: str, ns: int, why: str) -> Figure:
    return Figure(what, ns, Origin.PUBLISHED, why)


def _assumed(what: str, ns: int, why: str) -> Figure:
    return Figure(what, ns, Origin.ASSUMED, why)


def _moves(what: str, size: int, why: str) -> Figure:
    """Return the time to move `size` bytes at the bandwidth of the published fused
    kernel."""
    return Figure(what, size * FUSED.ns // FUSED_BYTES, Origin.DERIVED, why)


GATE_UP = _published("GEMM of gate, and of up", 190_000, "0.19 ms each")
DOWN = _published("GEMM of down", 170_000, "0.17 ms")
FUSED = _published("gelu and mul as one Triton kernel", 89_400, "89.4 us")
LIGER = _published("gelu and mul as Liger's kernel", 92_800, "92.8 us")
GELU = _moves("gelu alone", 2 * HIDDEN_BYTES, "reads and writes 50.3 MB, at 1.69 TB/s")
MUL = _moves(
    "mul alone", FUSED_BYTES, "reads twice and writes once 50.3 MB, at 1.69 TB/s"
)
LINEAR = _assumed(
    "GEMM of linear, with the bias in its epilogue",
    3_200,
    "its 0.2 MB would take 0.1 us; starting and ending a kernel takes a few microseconds",
)

LATENCY = _assumed(
    "from a launch call to its kernel, on an idle stream", 7_000, "median"
)
GAP = _assumed("between two kernels that wait in the queue", 1_100, "median")
AFTER_SYNC = _assumed(
    "from the last kernel to the end of the synchronization", 4_500, "median"
)
LAUNCH = _assumed("cudaLaunchKernel", 4_500, "median")
DRIVER_LAUNCH = _assumed("cuLaunchKernel", 5_000, "median")
OCCUPANCY = _assumed("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 1_700, "median")
SYNCHRONIZE = _assumed(
    "cudaDeviceSynchronize when nothing is left to do", 6_000, "median"
)
FRAME_IN = _assumed(
    "Python, before the body of a frame", 1_500, "recording stacks is most of it"
)
FRAME_OUT = _assumed(
    "Python, after the body of a frame", 500, "recording stacks is most of it"
)

FIGURES = (
    GATE_UP,
    DOWN,
    FUSED,
    LIGER,
    GELU,
    MUL,
    LINEAR,
    LATENCY,
    GAP,
    AFTER_SYNC,
    LAUNCH,
    DRIVER_LAUNCH,
    OCCUPANCY,
    SYNCHRONIZE,
    FRAME_IN,
    FRAME_OUT,
)
"""In the order of the table of the lessons."""

OWN_TIME = {
    "aten::linear": (1_000, 5_100),
    "aten::t": (900, 1_100),
    "aten::transpose": (1_100, 200),
    "aten::as_strided": (500, 0),
    "aten::matmul": (1_300, 4_800),
    "aten::reshape": (700, 200),
    "aten::view": (400, 0),
    "aten::_unsafe_view": (600, 0),
    "aten::mm": (14_000, 8_000),
    "aten::addmm": (14_000, 8_000),
    "aten::gelu": (6_500, 1_100),
    "aten::mul": (7_800, 1_300),
    "aten::empty_like": (1_500, 400),
    "aten::empty_strided": (3_400, 0),
    "LigerGELUMulFunction": (9_000, 4_000),
    "TorchDynamo Cache Lookup": (20_000, 0),
    "Torch-Compiled Region: 0/0": (2_000, 2_000),
    "Pregraph bytecode": (4_000, 0),
    "AOTDispatcher Runtime Wrapper Prologue": (4_000, 0),
    "triton_poi_fused__unsafe_view_gelu_mul_0": (6_000, 2_000),
}
"""CPU time of an op itself, in ns: (before what it calls, after that). All assumed."""
BETWEEN_QUERY_AND_LAUNCH = 2_000
"""In cuBLAS, in ns; assumed."""
