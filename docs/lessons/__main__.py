"""Writes the lessons and their README.md: `make lessons`."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT))

from docs.lessons import figures  # noqa: E402
from docs.lessons.compile_log import compile_log  # noqa: E402
from docs.lessons.kineto import document  # noqa: E402
from docs.lessons.profiler import STEPS, run  # noqa: E402

HERE = ROOT / "sample_traces" / "lessons"
_MLP = f"bfloat16, batch={figures.BATCH} seq={figures.SEQUENCE} dim={figures.DIM} hidden=3072"
_LINEAR = f"bfloat16, rows={figures.LINEAR_ROWS} in={figures.LINEAR_IN} out={figures.LINEAR_OUT}"
_DEVICE = "CUDA: NVIDIA A100-SXM4-80GB"


class Lesson(NamedTuple):
    """What the table says about a lesson."""

    shows: str
    shapes: str


LESSONS = {
    "linear-eager": Lesson(
        shows="one nn.Linear with a bias: one GEMM that adds it in its epilogue",
        shapes=_LINEAR,
    ),
    "linear-compiled": Lesson(
        shows="the same compiled: the same kernel, fewer ops on the CPU",
        shapes=_LINEAR,
    ),
    "mlp-eager": Lesson(
        shows="GeGLU MLP: five kernels, three GEMMs, a gelu and a multiplication",
        shapes=_MLP,
    ),
    "mlp-compiled": Lesson(
        shows="the same compiled: gelu and multiplication are one Triton kernel",
        shapes=_MLP,
    ),
    "mlp-liger": Lesson(
        shows="the same with Liger's hand-written kernel in the place of the two",
        shapes=_MLP,
    ),
}
COMPILE_LOG = "mlp-compiled.compile_log.txt"
"""What torch.compile would have logged, beside the trace."""
INTRODUCTION = f"""\
# Lessons

Traces with a GPU in them, to learn reading on. They are **reconstructed, not recorded**: nobody ran
these programs to make them, and none of their times is a measurement of ours. Most kernel names,
and of the MLPs most kernel times, are from {figures.SOURCE}.

`fusetui samples` lists them, `fusetui open lesson:mlp-eager` opens one, `fusetui open
lesson:mlp-eager lesson:mlp-compiled` puts two side by side. Each holds {STEPS} steps that repeat
the same times, so a comparison of two lessons shows what changed, and no verdict.

`{COMPILE_LOG}` is the log of torch.compile that belongs to lesson:mlp-compiled, written by the same
program: `fusetui compile lesson:mlp-compiled` leads from each kernel to its lines.

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
OPS = """
What a CPU op costs by itself is assumed, op by op, in `docs/lessons/figures.py`; so are registers
of the kernels (those of the same or a sibling kernel in public traces), the scripts' line numbers
and the names of generated files. Grids follow from the tile in the kernel's name, or from the
number of elements.
"""


def main() -> None:
    for name in LESSONS:
        (HERE / f"{name}.json.gz").write_bytes(packed(name))
    (HERE / COMPILE_LOG).write_text(compile_log(), encoding="utf-8")
    (HERE / "README.md").write_text(readme(), encoding="utf-8")


def packed(name: str) -> bytes:
    """The file of a lesson: gzip with neither a time nor a name in its header."""
    text = document(name, run(name))
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def readme() -> str:
    """The page about the lessons and the origin of their times."""
    lines = [
        f"| `{name}` | {lesson.shows} | {lesson.shapes} | {_DEVICE} |\n"
        for name, lesson in LESSONS.items()
    ]
    times = [
        f"| {figure.what} | {figure.ns / 1000:g} us | {figure.origin.value} | {figure.why} |\n"
        for figure in figures.FIGURES
    ]
    return "".join([INTRODUCTION, *lines, TIMES, *times, OPS])


if __name__ == "__main__":
    main()
