"""The sizes, variants and sweeps of each workload, without torch, so that the options
of a capture can be checked before torch is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec

Shapes = Mapping[str, int]
"""Sizes by the name of the axis, for instance {"batch": 64, "dim": 768}."""


@dataclass(frozen=True)
class Package:
    """A package that a variant needs beside torch: `pip install INSTALL`, `import
    MODULE`."""

    install: str
    module: str

    @property
    def is_installed(self) -> bool:
        return find_spec(self.module) is not None


@dataclass(frozen=True)
class Outline:
    """What can be asked of a workload.

    The default sizes on a GPU and on a CPU, and the names of the variants in the order
    of the table. `packages` has the package that a variant needs, by the variant's
    name; without it there is no such variant. `sweeps` are ranges of sizes by name.
    """

    gpu_shapes: Shapes
    cpu_shapes: Shapes
    variants: tuple[str, ...]
    packages: Mapping[str, Package] = field(default_factory=dict)
    sweeps: Mapping[str, str] = field(default_factory=dict)

    @property
    def available(self) -> tuple[str, ...]:
        """The variants whose packages are installed."""
        return tuple(
            name
            for name in self.variants
            if name not in self.packages or self.packages[name].is_installed
        )

    @property
    def missing(self) -> dict[str, str]:
        """What to install for each variant whose package is missing, by the variant's
        name."""
        return {
            name: package.install
            for name, package in self.packages.items()
            if not package.is_installed
        }


LINEAR_SHAPES = {"rows": 1024, "in_features": 32, "out_features": 64}
LAYERS_SHAPES = {"batch": 64, "n": 32, "in_features": 32, "out_features": 32}
FEATURES_SHAPES = {"features": 16, "rows": 1024, "dim": 256}

OUTLINES = {
    "mlp": Outline(
        gpu_shapes={"batch": 64, "seq": 128, "dim": 768, "hidden": 3072},
        # Products of bfloat16 would take nearly all of a CPU's time, and so would those
        # of a large `dim`: what fusing saves could not be seen.
        cpu_shapes={"batch": 4, "seq": 128, "dim": 64, "hidden": 3072},
        variants=("eager", "compiled", "fused", "fused-gemm", "liger"),
        packages={"liger": Package(install="liger-kernel", module="liger_kernel")},
    ),
    "linear": Outline(
        gpu_shapes=LINEAR_SHAPES,
        cpu_shapes=LINEAR_SHAPES,
        variants=("eager", "compiled"),
    ),
    "matmul-add": Outline(
        gpu_shapes={"size": 4096},
        cpu_shapes={"size": 512},
        variants=("eager", "compiled"),
    ),
    "partitioned-linear": Outline(
        gpu_shapes=LAYERS_SHAPES,
        cpu_shapes=LAYERS_SHAPES,
        variants=(
            "loop",
            "big",
            "masked",
            "bmm",
            "fused",
            "loop-compiled",
            "masked-compiled",
            "bmm-compiled",
        ),
        # The sweeps of the source. Its sizes are totals: 256, 1024, 8096 and 8192 over
        # n = 32 layers, or 1024 over n of them.
        sweeps={
            "paper-batch": "batch=64,128,...,2048",
            "paper-n": "n=4,8,...,32 in_features=1024/n out_features=1024/n",
            "paper-in": "in_features=8,32,253,256",
            "paper-out": "out_features=8,32,253,256",
        },
    ),
    "split-stack": Outline(
        gpu_shapes=FEATURES_SHAPES,
        cpu_shapes=FEATURES_SHAPES,
        variants=("split", "combined", "split-compiled", "combined-compiled"),
    ),
}
"""By the name of the workload, in the order of the documentation."""
