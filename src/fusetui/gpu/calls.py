"""The purpose of a GPU runtime call if its name does not show it."""

from __future__ import annotations

OCCUPANCY = (
    "an occupancy query: the library asks how many blocks of its kernel fit on one multiprocessor, "
    "to choose the launch. cuBLAS does so before a GEMM; pointwise kernels need none"
)
"""What a query of the occupancy is for."""

MEANINGS = {
    "OccupancyMaxActiveBlocksPerMultiprocessor": OCCUPANCY,
    "OccupancyMaxPotentialBlockSize": OCCUPANCY,
    "OccupancyMaxActiveClusters": OCCUPANCY,
}
"""The meaning of a call, by what its name has after `cuda`, `cu` or `hip`; words for
flags may follow."""

_RUNTIME_PREFIXES = ("cuda", "cu", "hip")


def meaning_of_call(name: str) -> str:
    """Explain what a runtime or driver call is for.

    Returns a sentence without its full stop; "" for a call that needs no explanation.

    >>> meaning_of_call("cuOccupancyMaxActiveClusters") == OCCUPANCY
    True
    >>> meaning_of_call("cudaStreamSynchronize")
    ''
    """
    function = _without_runtime_prefix(name)
    for beginning, meaning in MEANINGS.items():
        if function.startswith((beginning, f"Module{beginning}")):
            return meaning
    return ""


def _without_runtime_prefix(name: str) -> str:
    """Return the name of a call without `cuda`, `cu` or `hip` at its begin."""
    for prefix in _RUNTIME_PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name
