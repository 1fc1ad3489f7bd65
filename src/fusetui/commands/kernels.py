"""`kernels`: the kernels of a trace by name."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from msgspec.structs import asdict

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
    figures = {name: value for name, value in asdict(total).items() if name != "rows"}
    return {**figures, "decoded": decoded.to_json() if decoded else None}
