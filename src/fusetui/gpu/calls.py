"""What a call into a GPU's runtime is for, where its name does not say it."""

from __future__ import annotations

OCCUPANCY = (
    "an occupancy query: the library asks how many blocks of its kernel fit on one multiprocessor, "
    "to choose the launch. cuBLAS does so before a GEMM; pointwise kernels need none"
)
MEANINGS = {
    "OccupancyMaxActiveBlocksPerMultiprocessor": OCCUPANCY,
    "OccupancyMaxPotentialBlockSize": OCCUPANCY,
    "OccupancyMaxActiveClusters": OCCUPANCY,
}
"""By what the name of a call has after `cuda`, `cu` or `hip`; flags may follow."""


def meaning_of_call(name: str) -> str:
    """What a runtime or driver call is for, in a sentence without its end; "" if not
    known."""
    bare = name
    for prefix in ("cuda", "cu", "hip"):
        if name.startswith(prefix):
            bare = name.removeprefix(prefix)
            break
    for start, meaning in MEANINGS.items():
        if bare.startswith((start, f"Module{start}")):
            return meaning
    return ""
