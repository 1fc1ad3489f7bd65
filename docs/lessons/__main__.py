"""Writes the lessons and the table in README.md: `make lessons`."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from docs.lessons import figures  # noqa: E402
from docs.lessons.kineto import document  # noqa: E402
from docs.lessons.profiler import STEPS, run  # noqa: E402

HERE = ROOT / "sample_traces" / "lessons"
_MLP = f"bfloat16, batch={figures.BATCH} seq={figures.SEQUENCE} dim={figures.DIM} hidden=3072"
_LINEAR = f"bfloat16, rows={figures.LINEAR_ROWS} in={figures.LINEAR_IN} out={figures.LINEAR_OUT}"
_CUDA = "CUDA: NVIDIA A100-SXM4-80GB"
LESSONS = {
    "linear-eager": (
        "one nn.Linear with a bias: one GEMM that adds it in its epilogue",
        _LINEAR,
    ),
    "linear-compiled": (
        "the same compiled: the same kernel, fewer ops on the CPU",
        _LINEAR,
    ),
    "mlp-eager": (
        "GeGLU MLP: five kernels, three GEMMs, a gelu and a multiplication",
        _MLP,
    ),
    "mlp-compiled": (
        "the same compiled: gelu and multiplication are one Triton kernel",
        _MLP,
    ),
    "mlp-liger": (
        "the same with Liger's hand-written kernel in the place of the two",
        _MLP,
    ),
}
INTRODUCTION = f"""\
# Lessons

Traces with a GPU in them, to learn reading on. They are **reconstructed, not recorded**: nobody ran
these programs to make them, and none of their times is a measurement of ours. Most kernel names,
and of the MLPs most kernel times, are from {figures.SOURCE}.

`fusetui samples` lists them, `fusetui open lesson:mlp-eager` opens one, `fusetui open
lesson:mlp-eager lesson:mlp-compiled` puts two side by side. Each holds {STEPS} steps that repeat
the same times, so a comparison of two lessons shows what changed, and no verdict.

`make lessons` in the source tree writes the files anew, byte for byte, and this page.

| lesson | shows | shapes | device |
|---|---|---|---|
"""
TIMES = """
## Where the times are from

Published: in the source. Derived: from the bytes that are moved, at the bandwidth that the
source's own fused kernel implies. Assumed: neither; a plausible constant, mostly the median in
public traces.

| time of | | from | why |
|---|---|---|---|
"""
OWN = """
What a CPU op costs by itself is assumed, op by op, in `docs/lessons/figures.py`; so are registers
of the kernels (those of the same or a sibling kernel in public traces), the scripts' line numbers
and the names of generated files. Grids follow from the tile in the kernel's name, or from the
number of elements.
"""


def main() -> None:
    for name in LESSONS:
        (HERE / f"{name}.json.gz").write_bytes(packed(name))
    (HERE / "README.md").write_text(readme(), encoding="utf-8")


def packed(name: str) -> bytes:
    """The file of a lesson: gzip without a time and a name of its own."""
    return gzip.compress(document(name, run(name)).encode(), compresslevel=9, mtime=0)


def readme() -> str:
    lessons = [
        f"| `{name}` | {' | '.join((*cells, _CUDA))} |"
        for name, cells in LESSONS.items()
    ]
    times = [
        f"| {figure.what} | {figure.ns / 1000:g} us | {figure.origin.value} | {figure.why} |"
        for figure in figures.FIGURES
    ]
    return (
        INTRODUCTION + "\n".join(lessons) + "\n" + TIMES + "\n".join(times) + "\n" + OWN
    )


if __name__ == "__main__":
    main()
