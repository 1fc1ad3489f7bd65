"""Compiles our Triton kernels for many GPUs, none of which it needs, and reads the
machine code.

    python -P benchmarks/triton_code.py [--arch sm_80 ...] [--write]    prints what was compiled
    python -P benchmarks/triton_code.py --tiles                         writes kernels/tiles.json

Every kernel is compiled at the sizes, dtypes and alignments of the workloads and their
sweeps. With `--write` the table goes into docs/experiments.md. `--tiles` searches for
each architecture and precision the tile with the most FLOP per byte that compiles
clean: no spills, and shared memory within the device's limit. Compiled code is kept in
Triton's own cache.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import chain, product
from pathlib import Path
from unittest.mock import patch

import torch
import triton

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.pages import put
from tests.kernels.launches import KERNELS, Launch, launches
from tests.kernels.machine_code import SHARED, Code, compiled, violations

from fusetui import kernels
from fusetui.capture.options import parse_sweep
from fusetui.kernels.tiles import TABLES, Tile, has_tf32
from fusetui.text.figures import size
from fusetui.text.tables import Column, table

ROOT = Path(__file__).resolve().parents[1]
PAGE, TABLE = ROOT / "docs" / "experiments.md", ROOT / "kernels" / "tiles.json"
ARCHITECTURES = tuple(SHARED)
NO_GEMM = ("sm_75",)  # Triton has no tensor cores there, and capture refuses
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
PRECISIONS = (*DTYPES, "tf32")

GEGLU = ((256, 64), (128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 32))
GROUPED = ((128, 128), (128, 64), (64, 128), (64, 64), (64, 32), (32, 32))
"""(BLOCK_M, BLOCK_N), by FLOP per byte: 4MN / (M + 2N) for two weights, 2MN / (M + N)
for one."""
DEPTH_BYTES = (128, 64)
WGMMA = ("sm_90", "sm_100")
"""Where one instruction multiplies 64 or 128 rows by all columns of a tile."""
MOST_SUMS = (128, 256)
"""Registers of a thread that sums may take, of NVIDIA and AMD: about half of all."""

ODD_SIZES: Mapping[str, Sequence[Mapping[str, int]]] = {
    "mlp": ({"dim": 760, "hidden": 3000},),
    "partitioned-linear": ({"batch": 65},),
}
"""Sizes that are no multiple of 16, besides those in the sweeps."""
BIG = {"batch": 2048, "n": 8, "in_features": 128, "out_features": 128}


@contextmanager
def multiplied(precision: str) -> Iterator[torch.dtype]:
    """Within the block, give the dtype of a precision, in which torch multiplies
    float32 as the precision says."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield DTYPES.get(precision, torch.float32)
    finally:
        torch.set_float32_matmul_precision(before)


def of_mlp(
    variant: str, sizes: Mapping[str, int], dtype: torch.dtype, arch: str
) -> list[Launch]:
    """Return the launches of one variant of the MLP. The pointwise gradient, which
    variants share, is left out where another variant has it."""
    workload = kernels.get("mlp")
    shapes = {**workload.gpu_shapes, **sizes}
    found = launches(workload, workload.variants[variant], shapes, dtype, arch)
    return [one for one in found if variant == "fused" or one.kernel == "geglu_gemm"]


def of_forms(sizes: Mapping[str, int], dtype: torch.dtype, arch: str) -> list[Launch]:
    """Return the launches of the fused partitioned linear layers at these sizes."""
    workload = kernels.get("partitioned-linear")
    shapes = {**workload.gpu_shapes, **sizes}
    return list(launches(workload, workload.variants["fused"], shapes, dtype, arch))


@cache
def sizes_of(name: str) -> Sequence[Mapping[str, int]]:
    """Return the sizes that a workload is compiled at: its own, each point of its
    sweeps, and odd ones."""
    workload = kernels.get(name)
    axes, sweeps = list(workload.gpu_shapes), workload.sweeps
    points = chain.from_iterable(
        parse_sweep([preset], axes, sweeps) for preset in sweeps
    )
    return ({}, *points, *ODD_SIZES[name])


@cache
def everything(arch: str, precision: str) -> dict[Launch, str]:
    """Return every launch that compiles to code of its own for an architecture and a
    precision, with the sizes that it is for."""
    found: dict[tuple[object, ...], tuple[Launch, str]] = {}

    def add(made: Sequence[Launch], sizes: Mapping[str, int]) -> None:
        said = (
            " ".join(f"{axis}={value}" for axis, value in sizes.items())
            or "as captured"
        )
        for one in made:
            found.setdefault(one.code, (one, said))

    if precision == "tf32" and not has_tf32(arch):
        return {}

    with multiplied(precision) as dtype:
        if precision != "tf32":
            add(of_mlp("fused", {}, dtype, arch), {})
        if arch not in NO_GEMM:
            for sizes in sizes_of("mlp"):
                add(of_mlp("fused-gemm", sizes, dtype, arch), sizes)
            for sizes in sizes_of("partitioned-linear"):
                add(of_forms(sizes, dtype, arch), sizes)

    return dict(found.values())


def row(arch: str, kernel: str, precisions: Sequence[str]) -> tuple[str, ...] | None:
    """Return a row of the table: the worst of all code of a kernel on one architecture.
    None if nothing was compiled."""
    codes: list[Code] = []
    wrong: dict[str, None] = {}
    for precision in precisions:
        for launch, sizes in everything(arch, precision).items():
            if launch.kernel != kernel:
                continue

            try:
                code = compiled(launch, arch)
            except Exception as error:  # whatever the compiler finds to say
                wrong[f"{precision}, {sizes}: {str(error).splitlines()[0][:60]}"] = None
                continue

            codes.append(code)
            found = violations(launch, code, arch, precision)
            print(
                arch, precision, kernel, sizes, code, found, file=sys.stderr, flush=True
            )
            wrong |= {f"{precision}, {sizes}: {one}": None for one in found}

    if not (codes or wrong):
        return None

    return (
        arch,
        kernel.replace("_", " "),
        str(len(codes)),
        *_figures(codes),
        _briefly(wrong),
    )


def _briefly(wrong: Mapping[str, None]) -> str:
    """Return the first violation and how many more there are, or "-" without any."""
    if not wrong:
        return "-"
    first = next(iter(wrong))
    return first if len(wrong) == 1 else f"{first}, and {len(wrong) - 1} more"


def _figures(codes: Sequence[Code]) -> tuple[str, ...]:
    """Return the figures of all code of a kernel: the largest of what should be small,
    and the smallest of what should be large."""
    matrix = {re.split(r"[.]", op)[0] for code in codes for op in code.matrix}
    return (
        str(max(code.registers for code in codes)),
        f"{max(code.stack for code in codes)} B",
        size(max(code.shared for code in codes)),
        str(min(code.width if code.copies else max(code.loads) for code in codes)),
        str(min(code.stored for code in codes)),
        " ".join(sorted(matrix)) or "-",
    )


COLUMNS = (
    *(Column(name, left=True) for name in ("target", "kernel")),
    *map(Column, ("compiled", "registers", "spilled", "shared", "loads", "stores")),
    *(Column(name, left=True) for name in ("tensor cores", "violates")),
)


def search(arch: str, precision: str, kind: str) -> Tile:
    """Return the first candidate that compiles clean at all sizes: no spills, and
    shared memory within the limit. Raises RuntimeError if there is none."""
    tiles = GEGLU if kind == "geglu" else GROUPED
    for _, tile in _candidates(tiles, 1 + (kind == "geglu"), arch, precision):
        with multiplied(precision) as dtype, _using(tile, arch, precision, kind):
            made = (
                [of_mlp("fused-gemm", sizes, dtype, arch) for sizes in sizes_of("mlp")]
                if kind == "geglu"
                else [
                    of_forms(sizes, dtype, arch)
                    for sizes in (BIG, *sizes_of("partitioned-linear"))
                ]
            )

        shared, wrong = _shared(dict.fromkeys(chain(*made)), arch, precision)

        print(
            f"{arch} {precision} {kind} {tile[:5]}: {wrong}",
            file=sys.stderr,
            flush=True,
        )
        if not wrong:
            return tile._replace(shared=shared)

    raise RuntimeError(f"no tile of {kind} compiles clean for {arch} in {precision}")


def _shared(
    made: Iterable[Launch], arch: str, precision: str
) -> tuple[int, Sequence[str]]:
    """Return the most shared memory of these launches, up to the first that violates a
    bound, and which bounds that violates."""
    most = 0
    for launch in made:
        try:
            code = compiled(launch, arch)
        except Exception as error:  # whatever the compiler finds to say
            return most, [str(error)[:80]]
        if wrong := violations(launch, code, arch, precision):
            return most, wrong
        most = max(most, code.shared)

    return most, []


def _candidates(
    tiles: Sequence[tuple[int, int]], sums: int, arch: str, precision: str
) -> Iterator[tuple[tuple[int, int], Tile]]:
    """Yield tiles that fit the shared memory and the registers, those with the most
    FLOP per byte first. `sums` is how many tiles of sums a block holds."""
    item = DTYPES.get(precision, torch.float32).itemsize
    amd = arch.startswith("gfx")
    threads = 64 if amd else 32

    if arch in WGMMA:
        tiles = sorted(tiles, key=lambda tile: (-tile[0] * tile[1], -tile[1]))

    for (m, n), depth, stages in product(tiles, DEPTH_BYTES, (2,) if amd else (4, 3)):
        if (m + n) * depth * (stages - 1) <= SHARED[arch]:
            for warps in (8, 4):
                held = sums * m * n // (warps * threads)
                if 16 <= held <= MOST_SUMS[amd]:
                    yield (m, n), Tile(m, n, depth // item, warps, stages, 0)


@contextmanager
def _using(tile: Tile, arch: str, precision: str, kind: str) -> Iterator[None]:
    """Within the block, let the kernels use this tile."""
    with patch.object(TABLES, kind, {arch: {precision: tile}}):
        yield


def write_tiles(architectures: Sequence[str]) -> None:
    """Search the tiles of all architectures, and write the file that has them."""
    kinds = []
    for kind in ("geglu", "grouped"):
        lines = []
        for arch in architectures:
            found = {p: search(arch, p, kind) for p in ("bf16", "fp32")}
            found["tf32"] = (
                search(arch, "tf32", kind) if has_tf32(arch) else found["fp32"]
            )
            # the same code but for the names of the instructions
            found["fp16"] = found["bf16"]
            lines.append(f'  "{arch}": {json.dumps(found)}')
        rows = ",\n".join(lines)
        kinds.append(f' "{kind}": {{\n{rows}\n }}')

    written = ",\n".join((f' "triton": "{triton.__version__}"', *kinds))
    TABLE.write_text(f"{{\n{written}\n}}\n", encoding="utf-8")


def main() -> None:
    """Compile all kernels and print the table, or with --tiles search the tiles and
    write them. With --write, the table is put into docs/experiments.md."""
    parser = argparse.ArgumentParser(
        description="Compiles our Triton kernels and reads the code."
    )
    parser.add_argument("--arch", action="append", choices=ARCHITECTURES)
    parser.add_argument("--type", action="append", choices=PRECISIONS)
    parser.add_argument("--tiles", action="store_true")
    parser.add_argument("--write", action="store_true")

    options = parser.parse_args()
    architectures = options.arch or ARCHITECTURES
    if options.tiles:
        write_tiles([arch for arch in architectures if arch not in NO_GEMM])
        return

    wanted = options.type or PRECISIONS
    made = (
        row(arch, kernel, wanted) for arch, kernel in product(architectures, KERNELS)
    )
    text = table(COLUMNS, [one for one in made if one])
    print(text)

    if options.write:
        put(PAGE, "triton-code", f"```\n{text}\n```", __file__)


if __name__ == "__main__":
    main()
