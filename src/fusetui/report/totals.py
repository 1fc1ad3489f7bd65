"""The heaviest kernels and ops, as `summary` lists them."""

from __future__ import annotations

from collections.abc import Sequence

from fusetui.analysis.questions.totals import KernelTotal, OpTotal
from fusetui.gpu.kernel_names import short_name
from fusetui.text.figures import count, duration, percent
from fusetui.text.printable import printable
from fusetui.text.tables import Column, left_out, table

KERNEL_COLUMNS = (
    Column("total"),
    Column("share", spare=1),
    Column("count", spare=2),
    Column("min", spare=4),
    Column("median", spare=3),
    Column("max", spare=5),
    Column("kernel", left=True),
    Column("name", left=True, spare=6),
)
OP_COLUMNS = (
    Column("total"),
    Column("self", spare=3),
    Column("GPU", spare=1),
    Column("kernels", spare=2),
    Column("count", spare=4),
    Column("op", left=True),
)

GPU_COLUMNS = (2, 3)  # of the ops; left out if no op launched anything


def any_gpu(totals: Sequence[OpTotal]) -> bool:
    return any(total.kernels or total.gpu_ns for total in totals)


def kernels_text(totals: Sequence[KernelTotal], top: int, width: int, hint: str) -> str:
    """The first `top` kernels, how many are left out, and a hint how to see them."""
    if not totals:
        return "no kernels in this trace"
    whole = sum(total.total_ns for total in totals)
    shown = totals[:top]
    lines = [table(KERNEL_COLUMNS, [_kernel(total, whole) for total in shown], width)]
    rest = totals[len(shown) :]
    share = percent(sum(total.total_ns for total in rest), whole)
    return "\n".join([*lines, *left_out(len(rest), "name", hint, share)])


def ops_text(totals: Sequence[OpTotal], top: int, width: int, hint: str) -> str:
    """The first `top` ops, how many are left out, and a hint how to see them."""
    if not totals:
        return "no CPU ops in this trace"
    shown = totals[:top]
    kept = [n for n in range(len(OP_COLUMNS)) if n not in GPU_COLUMNS or any_gpu(totals)]
    rows = [[_op(total)[n] for n in kept] for total in shown]
    lines = [table([OP_COLUMNS[n] for n in kept], rows, width)]
    return "\n".join([*lines, *left_out(len(totals) - len(shown), "name", hint)])


def _kernel(total: KernelTotal, whole: int) -> tuple[str, ...]:
    return (
        duration(total.total_ns),
        percent(total.total_ns, whole),
        count(total.count),
        duration(total.min_ns),
        duration(total.median_ns),
        duration(total.max_ns),
        printable(short_name(total.name)),
        printable(total.name),
    )


def _op(total: OpTotal) -> tuple[str, ...]:
    return (
        duration(total.total_ns),
        duration(total.self_ns),
        duration(total.gpu_ns) if total.gpu_ns else "",
        count(total.kernels) if total.kernels else "",
        count(total.count),
        printable(total.name),
    )
