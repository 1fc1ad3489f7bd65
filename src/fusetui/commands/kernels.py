"""`kernels`: the kernels of a trace by name."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from fusetui.commands.loading import load
from fusetui.render.output import emit, emit_json, width
from fusetui.trace.questions.totals import KernelTotal, kernel_totals


def run(args: Namespace) -> int:
    from fusetui.render.totals import kernels_text

    loaded = load(args.trace)
    totals = kernel_totals(loaded.trace)
    if args.json:
        emit_json({"kernels": [_kernel(total) for total in totals]})
    else:
        emit(kernels_text(totals, args.top, width()))
    return loaded.code


def _kernel(total: KernelTotal) -> dict[str, Any]:
    from fusetui.trace.kernel_names import decode

    decoded = decode(total.name)
    return {
        "name": total.name,
        "count": total.count,
        "total_ns": total.total_ns,
        "min_ns": total.min_ns,
        "median_ns": total.median_ns,
        "max_ns": total.max_ns,
        "decoded": decoded.to_json() if decoded else None,
    }
