"""The names of ATen and Inductor operators, to split the joined operator list of a fused kernel.

The list is the operator packets of the namespaces aten, prims, inductor, quantized_decomposed,
_c10d_functional, symm_mem, rngprims, mkldnn and higher_order of PyTorch 2.13, as
torch._C._dispatch_get_all_op_names() gives them, sorted. Of the in-place twins only copy_, which
writes a result back, reaches the name of a kernel.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

ATEN_OPS: frozenset[str] = frozenset(
    msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=list[str])
)
