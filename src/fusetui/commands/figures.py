"""`summary`, `kernels` and `ops`: the figures of one trace."""

from __future__ import annotations

from typing import Any

from fusetui.commands.errors import say
from fusetui.commands.loading import load, secret_notices
from fusetui.render.note import noted, with_note
from fusetui.render.output import emit, emit_json, width
from fusetui.trace import Trace
from fusetui.trace import summary as figures_of
from fusetui.trace.questions.totals import KernelTotal, OpTotal, kernel_totals, op_totals


def summary(name: str, as_json: bool) -> int:
    loaded = load(name)
    for sentence in secret_notices(loaded.trace):
        say(sentence)
    figures = figures_of(loaded.trace)
    if as_json:
        emit_json(with_note(figures, loaded.trace))
    else:
        emit(noted(_summary_text(loaded.trace, figures), loaded.trace))
    return loaded.code


def _summary_text(trace: Trace, figures: dict[str, Any]) -> str:
    """Its imports explain kernel names: those who want JSON do not wait for them."""
    from fusetui.render.summary import summary_text

    return summary_text(figures, kernel_totals(trace), op_totals(trace), width())


def kernels(name: str, as_json: bool, top: int) -> int:
    from fusetui.render.totals import kernels_text

    loaded = load(name)
    totals = kernel_totals(loaded.trace)
    if as_json:
        emit_json(with_note({"kernels": [_kernel(total) for total in totals]}, loaded.trace))
    else:
        emit(noted(kernels_text(totals, top, width()), loaded.trace))
    return loaded.code


def ops(name: str, as_json: bool, top: int) -> int:
    from fusetui.render.totals import ops_text

    loaded = load(name)
    totals = op_totals(loaded.trace)
    if as_json:
        emit_json(with_note({"ops": [_op(total) for total in totals]}, loaded.trace))
    else:
        emit(noted(ops_text(totals, top, width()), loaded.trace))
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


def _op(total: OpTotal) -> dict[str, Any]:
    return {
        "name": total.name,
        "count": total.count,
        "total_ns": total.total_ns,
        "self_ns": total.self_ns,
        "gpu_ns": total.gpu_ns,
        "kernels": total.kernels,
    }
