"""Which kernel did the work of an op that launched several."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kernel_names.record import KernelName
from fusetui.trace.model.categories import Role
from fusetui.trace.model.columns import Trace
from fusetui.trace.model.joined import is_joined
from fusetui.trace.model.memo import memo

_PRODUCTS: Final = ("gemm", "gemv", "conv")
_MAIN: Final = {
    "matmul": _PRODUCTS,
    "conv": _PRODUCTS,
    "attention": ("attention",),
    "elementwise": ("elementwise", "copy", "fill"),
}
ROWWISE: Final = ("softmax", "norm")
# Steps before and after the products of attention.
_AROUND: Final = re.compile(r"dot_do_o|convert_d[qkv]|combine|[Pp]reprocess|[Pp]ostprocess")


def did_the_work(trace: Trace, row: int, kind: str) -> bool:
    """Whether this is the one kernel that did the op's actual work; False also if that is
    uncertain.

    Memcpys, memsets, split-K reductions and other helpers do not count. A graph launch runs many
    kernels under one op, which says nothing about any of them.
    """
    if trace.role[row] != Role.KERNEL or _by_graph(trace, row):
        return False
    kernels = kernels_beside(trace, row)
    own = decode(trace.name_of(row))
    if kind in ROWWISE:
        return _op_of(own) == kind  # each kernel is counted with its own pass
    if len(kernels) == 1:
        return _is_main(own, kind) or (_op_of(own) is None and kind != "elementwise")
    if kind == "elementwise" or not _is_main(own, kind):
        return False
    mains = [d for d in (decode(trace.name_of(k)) for k in kernels) if _is_main(d, kind)]
    same = [d for d in mains if _pass(d, kind) in (None, _pass(own, kind))]
    return len(same) == 1


def kernels_of(trace: Trace, op: int) -> list[int]:
    """The rows of the kernels that an op launched itself."""
    ops, rows = _kernels_by_op(trace)
    first, last = np.searchsorted(ops, [op, op + 1])
    return [int(row) for row in rows[first:last]]


def kernels_beside(trace: Trace, row: int) -> list[int]:
    """The rows of the kernels that the op of a kernel launched itself; of an op that was captured,
    those of the same replay."""
    kernels = kernels_of(trace, int(trace.op[row]))
    if not is_joined(trace, row):
        return kernels
    return [kernel for kernel in kernels if trace.launch[kernel] == trace.launch[row]]


@memo()
def _kernels_by_op(trace: Trace) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Ops, sorted, and the row of the kernel of each; arrays of shape [kernels]."""
    rows = trace.rows_of(Role.KERNEL)
    ops = trace.op[rows]
    order = np.argsort(ops, kind="stable")
    return ops[order], rows[order]


def _by_graph(trace: Trace, row: int) -> bool:
    launch = int(trace.asked[row])
    return launch >= 0 and "graph" in trace.name_of(launch).lower()


def _op_of(kernel: KernelName | None) -> str | None:
    return kernel.op if kernel else None


def _is_main(kernel: KernelName | None, kind: str) -> bool:
    if kernel is None or kernel.op not in _MAIN[kind] or kernel.role is not None:
        return False
    return kind != "attention" or not _AROUND.search(kernel.name)


def _pass(kernel: KernelName | None, kind: str) -> str | None:
    """The gradient that a convolution computes; a backward op has a separate kernel for each."""
    return kernel.pass_ if kernel and kind == "conv" else None
